"""Diagrams of flows as SVG, from tables: boxes in a grid, and arrows between them.

Names of gates, states, events and bounds are taken from the code, so a diagram cannot name a step that does not exist.
"""

from typing import NamedTuple, get_args, get_type_hints
from xml.sax.saxutils import escape

from toolwire import ir
from toolwire.run import GATES, Record
from toolwire.wire import get

__all__ = ["DIAGRAMS", "Box", "Diagram", "draw_diagram"]

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 186, 46, 66, 44, 16  # pixels
_STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2328;text-anchor:middle}.n{font-weight:600}.s{font-size:11.5px;fill:#59636e}
.bg{fill:#fff;stroke:#d0d7de}.p{fill:#f6f8fa;stroke:#8c959f}.k{fill:#ddf4ff;stroke:#0969da}.w{fill:#fff8c5;stroke:#9a6700}.x{fill:#ffebe9;stroke:#cf222e}
path{fill:none;stroke:#59636e;stroke-width:1.4}.e{font-size:11.5px;fill:#59636e;paint-order:stroke;stroke:#fff;stroke-width:4px}marker path{fill:#59636e;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s,.e{fill:#9198a1}.e{stroke:#0d1117}.bg{fill:#0d1117;stroke:#3d444d}.p{fill:#161b22;stroke:#656c76}
.k{fill:#121d2f;stroke:#4493f8}.w{fill:#272115;stroke:#d29922}.x{fill:#25171c;stroke:#f85149}path{stroke:#9198a1}marker path{fill:#9198a1}}"""


class Box(NamedTuple):
    column: float
    row: float
    name: str
    text: str = ""
    kind: str = "p"
    """p: a step; k: a result; w: waits; x: an error or an unknown outcome."""


class Diagram(NamedTuple):
    title: str
    boxes: dict[str, Box]
    arrows: list[tuple[str, str, str]]
    """From, to, label."""


def _event(name: str) -> str:
    assert name in ir.__all__, name
    return name


def _state(name: str) -> str:
    assert name in get_args(get_type_hints(Record)["state"]), name
    return name


_GATE_NAMES = [gate.__name__ for gate in GATES]
_MARKS = get("anthropic").limits.cache_marks

DIAGRAMS = {
    "request-path": Diagram(
        "The path of a request",
        {
            "client": Box(0, 0, "client", "any wire or SDK", "k"),
            "decode": Box(1, 0, "decode", "bytes → Request"),
            "prepare": Box(2, 0, "prepare", "fit to the target"),
            "encode": Box(3, 0, "encode", "Request → bytes"),
            "model": Box(4, 0, "model", "any wire", "k"),
            "losses": Box(2, 1, "losses", "with JSON pointers", "w"),
            "write": Box(1, 2, "encode", "events → bytes"),
            "restore": Box(2, 2, "restore", "names, ids, arguments"),
            "read": Box(3, 2, "decode", "bytes → events"),
        },
        [
            ("client", "decode", ""),
            ("decode", "prepare", ""),
            ("prepare", "encode", ""),
            ("encode", "model", ""),
            ("model", "read", ""),
            ("read", "restore", ""),
            ("restore", "write", ""),
            ("write", "client", ""),
            ("prepare", "losses", ""),
            ("restore", "losses", ""),
        ],
    ),
    "stream-states": Diagram(
        "The states of a stream",
        {
            "start": Box(0, 0, _event("ResponseStart")),
            "open": Box(1, 0, "open items", "text, reasoning, calls"),
            "delta": Box(1, 1, _event("CallDelta"), "append-only"),
            "call": Box(2, 0, _event("CallEnd"), "complete: may run", "k"),
            "end": Box(3, 0, _event("ResponseEnd"), "", "k"),
            "fault": Box(0, 1, _event("StreamFault"), "an error of the provider", "x"),
            "cut": Box(2, 1, _event("TruncatedStream"), "nothing of it runs", "x"),
        },
        [
            ("start", "open", ""),
            ("open", "delta", ""),
            ("delta", "open", ""),
            ("open", "call", ""),
            ("call", "end", ""),
            ("delta", "fault", "fails"),
            ("delta", "cut", "bytes end"),
        ],
    ),
    "approval": Diagram(
        "A call that needs an approval",
        {
            "call": Box(0, 0, "call", "by the model"),
            "policy": Box(1, 0, _GATE_NAMES[-1], f"after {len(_GATE_NAMES) - 1} other gates"),
            "run": Box(2, 0, "run", "at most once", "k"),
            "result": Box(3, 0, "result", "for the model", "k"),
            "deny": Box(3, 1, "denied", "with the reason", "x"),
            "wait": Box(1, 1, "waits", "in memory or in a store", "w"),
            "decide": Box(2, 1, "a person decides", "here or elsewhere"),
        },
        [
            ("call", "policy", ""),
            ("policy", "run", "allowed"),
            ("run", "result", ""),
            ("policy", "wait", "needs approval"),
            ("wait", "decide", ""),
            ("decide", "run", "approved"),
            ("decide", "deny", "denied"),
            ("deny", "result", ""),
        ],
    ),
    "at-most-once": Diagram(
        "A write runs at most once",
        {
            "absent": Box(0, 0, "absent", "no record of the key"),
            "running": Box(1, 0, _state("running"), "lease and fencing token"),
            "done": Box(2, 0, _state("done"), "the result is repeated", "k"),
            "unknown": Box(1, 1, _state("unknown"), "reported, never repeated", "x"),
            "resolve": Box(2, 1, "resolve", "a person says what happened", "w"),
        },
        [
            ("absent", "running", "claim"),
            ("running", "done", "complete"),
            ("running", "unknown", "killed"),
            ("unknown", "resolve", ""),
            ("resolve", "done", ""),
        ],
    ),
    "cache-marks": Diagram(
        "What a provider's prompt cache keeps",
        {
            "tools": Box(0, 0, "tools", "", "k"),
            "system": Box(1, 0, "system prompt", "mark", "k"),
            "old": Box(2, 0, "earlier turns", "mark", "k"),
            "new": Box(3, 0, "new turn"),
            "hit": Box(2, 1, "read from the cache", f"at most {_MARKS} marks"),
            "pay": Box(3, 1, "read in full", "written for the next request", "w"),
        },
        [("tools", "system", ""), ("system", "old", ""), ("old", "new", ""), ("old", "hit", ""), ("new", "pay", "")],
    ),
}  # fmt: skip


def draw_diagram(diagram: Diagram) -> str:
    columns = 1 + max(box.column for box in diagram.boxes.values())
    rows = 1 + max(box.row for box in diagram.boxes.values())
    width = 2 * _MARGIN + columns * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + rows * (_HEIGHT + _GAP_Y) - _GAP_Y
    described = "; ".join(
        f"{diagram.boxes[start].name} to {diagram.boxes[end].name}" + (f" ({label})" if label else "")
        for start, end, label in diagram.arrows
    )
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(diagram.title)}</title>',
        f'<desc id="d">{escape(described)}</desc>',
        f"<style>{_STYLE}</style>",
        '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker>',
        f'<rect class="bg" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>',
    ]
    for start, end, label in diagram.arrows:
        back = any((end, start) == arrow[:2] for arrow in diagram.arrows)
        out += _arrow(diagram.boxes[start], diagram.boxes[end], label, shift=7 if back else 0)
    for box in diagram.boxes.values():
        out += _box(box)
    return "\n".join([*out, "</svg>", ""])


def _corner(box: Box) -> tuple[float, float]:
    return _MARGIN + box.column * (_WIDTH + _GAP_X), _MARGIN + box.row * (_HEIGHT + _GAP_Y)


def _box(box: Box) -> list[str]:
    left, top = _corner(box)
    middle = left + _WIDTH / 2
    first = top + (20 if box.text else 28)
    lines = [
        f'<rect class="{box.kind}" x="{left:g}" y="{top:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
        f'<text class="n" x="{middle:g}" y="{first:g}">{escape(box.name)}</text>',
    ]
    return [*lines, f'<text class="s" x="{middle:g}" y="{top + 37:g}">{escape(box.text)}</text>'] if box.text else lines


def _arrow(start: Box, end: Box, label: str, shift: float) -> list[str]:
    """Draw an arrow from edge to edge: across in a row, down or up in a column, else with one corner."""
    (left, top), (other_left, other_top) = _corner(start), _corner(end)
    x, y, end_x, end_y = left + _WIDTH / 2, top + _HEIGHT / 2, other_left + _WIDTH / 2, other_top + _HEIGHT / 2
    if start.row == end.row:
        sign = 1 if end_x > x else -1
        path = f"M{x + sign * _WIDTH / 2:g} {y:g}H{end_x - sign * (_WIDTH / 2 + 1):g}"
        at = ((x + end_x) / 2, y - 6)
    elif start.column == end.column:
        sign = 1 if end_y > y else -1
        side = sign * shift
        path = f"M{x + side:g} {y + sign * _HEIGHT / 2:g}V{end_y - sign * (_HEIGHT / 2 + 1):g}"
        at = (x + side, (y + end_y) / 2 + 4)
    else:
        sign, turn = (1 if end_y > y else -1), (1 if end_x > x else -1)
        path = f"M{x + turn * _WIDTH / 2:g} {y:g}H{end_x - turn * _WIDTH / 4:g}V{end_y - sign * (_HEIGHT / 2 + 1):g}"
        at = ((x + turn * _WIDTH / 2 + end_x - turn * _WIDTH / 4) / 2, y - 6)
    drawn = [f'<path d="{path}" marker-end="url(#a)"/>']
    return [*drawn, f'<text class="e" x="{at[0]:g}" y="{at[1]:g}">{escape(label)}</text>'] if label else drawn
