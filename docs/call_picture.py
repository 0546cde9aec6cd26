"""Draw one tool call on every wire: a field has the same colour in all of them, and what a format lacks is marked.

The documents are those that the codecs write for one answer, reduced to the object of the call.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

from toolwire import prepare
from toolwire.ir import Media, Message, Request, Response, Stop, Text, Tool, ToolCall, ToolResult
from toolwire.wire import get, names

__all__ = ["draw_call"]

CALL = ToolCall("call_1", "get_weather", {"city": "Paris"})
RESULT = ToolResult("call_1", "get_weather", (Text("Sun."), Media("image", media_type="image/png", data="aGk=")))
_LOST = ("dropped", "weakened", "moved")
_TITLES = {
    "openai_chat": "OpenAI Chat Completions",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic Messages",
    "bedrock": "Amazon Bedrock Converse",
    "gemini": "Gemini generateContent",
    "gemini_interactions": "Gemini Interactions",
    "cohere": "Cohere chat",
    "ollama": "Ollama chat",
}
_FIELDS = {"id": ("call_1", "i"), "name": ("get_weather", "n"), "arguments": ("Paris", "a")}
_CELL, _LINE, _WIDTH, _GAP = 7.8, 17, 430, 16  # pixels
_STYLE = """\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328;white-space:pre}
.t{font:600 13px system-ui,sans-serif}.s{font:13px system-ui,sans-serif;fill:#59636e}
.bg{fill:#f6f8fa;stroke:#d0d7de}.i{fill:#8250df;font-weight:600}.n{fill:#0550ae;font-weight:600}.a{fill:#116329;font-weight:600}.l{fill:#b3261e;font:600 13px system-ui,sans-serif}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.bg{fill:#161b22;stroke:#3d444d}
.i{fill:#d2a8ff}.n{fill:#79c0ff}.a{fill:#6fdd8b}.l{fill:#ff8a80}}"""


def draw_call() -> str:
    blocks = [(_TITLES[name], *_call(name)) for name in _TITLES]
    assert set(_TITLES) == set(names()), "give the new wire a title"
    heads = [
        ("id", "i", "matches the result"),
        ("name", "n", "the tool"),
        ("arguments", "a", "as text, or as an object"),
        ("loss", "l", "if the result has an image"),
    ]
    columns: tuple[list[str], list[str]] = ([], [])
    tops = [_GAP + 50, _GAP + 50]
    for number, (title, lines, lost) in enumerate(blocks):
        side = int(number >= (len(blocks) + 1) // 2)
        left = _GAP + side * (_WIDTH + _GAP)
        height = (len(lines) + len(lost)) * _LINE + 44
        columns[side].extend(_block(title, lines, lost, left, tops[side], height))
        tops[side] += height + _GAP
    width = 2 * _WIDTH + 3 * _GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {max(tops)}" role="img" aria-labelledby="t d">',
        '<title id="t">One tool call on every wire</title>',
        '<desc id="d">The same call, get_weather with the city Paris, as each API writes it.</desc>',
        f"<style>{_STYLE}</style>",
        f'<text class="t" x="{_GAP}" y="{_GAP + 12}">One tool call on every wire</text>',
    ]
    left = float(_GAP)
    for name, kind, meaning in heads:
        out.append(
            f'<text y="{_GAP + 36}"><tspan class="{kind}" x="{left:g}">{name}</tspan><tspan class="s" dx="8">{meaning}</tspan></text>'
        )
        left += (len(name) + len(meaning)) * 7.2 + 36
    return "\n".join([*out, *columns[0], *columns[1], "</svg>", ""])


def _call(name: str) -> tuple[list[str], list[str]]:
    """Return the lines of the call on a wire, and what the wire lacks."""
    body = get(name).encode_response(Response("r", "m", (CALL,), Stop("tool_calls"))).body
    call = next(_calls(body))
    lines = json.dumps(call, indent=2).splitlines()
    missing = [f"no {field}" for field, (value, _) in _FIELDS.items() if value not in json.dumps(call)]
    return lines, [*missing, *_losses(name)]


def _losses(name: str) -> list[str]:
    """Return the losses when the result of the call, a text and an image, is sent to the model."""
    messages = (Message("user", (Text("?"),)), Message("assistant", (CALL,)), Message("user", (RESULT,)))
    prepared = prepare(Request("m", messages, (Tool("get_weather", input_schema={"type": "object"}),)), name)
    losses = [*prepared.losses, *get(name).encode_request(prepared.request).losses]
    found = [
        f"{loss.concept} {loss.action}" for loss in losses if loss.action in _LOST and loss.path.startswith("/messages")
    ]
    return [f"loss: {text}" for text in dict.fromkeys(found)]


def _calls(value: Any) -> Iterator[Any]:
    """Yield the smallest object of a list that contains the call."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _calls(item)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict) and "get_weather" in json.dumps(item):
                yield from _calls(item)
                yield item


def _block(title: str, lines: list[str], lost: list[str], left: float, top: float, height: float) -> list[str]:
    out = [
        f'<rect class="bg" x="{left:g}" y="{top:g}" width="{_WIDTH}" height="{height:g}" rx="8"/>',
        f'<text class="t" x="{left + 12:g}" y="{top + 22:g}">{escape(title)}</text>',
    ]
    y = top + 44
    for line in lines:
        out.append(f'<text y="{y:g}">{"".join(_spans(line, left + 12))}</text>')
        y += _LINE
    for text in lost:
        out.append(f'<text class="l" x="{left + 12:g}" y="{y:g}">{escape(text)}</text>')
        y += _LINE
    return out


def _spans(line: str, left: float) -> Iterator[str]:
    """Yield the runs of a line: a member that carries a field has the field's colour."""
    kinds = [kind for value, kind in _FIELDS.values() if value in line]
    for found in re.finditer(r"\S(?:.*\S)?", line):
        kind = f' class="{kinds[0]}"' if kinds else ""
        yield f'<tspan x="{left + found.start() * _CELL:g}"{kind}>{escape(found[0])}</tspan>'
