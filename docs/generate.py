"""Generate the pages of the docs that are derived from the code.

docs/wires.md          from the codecs: each concept is encoded on each wire, and the new fields are its location
docs/translation.md    from `translate`: each statement of a request, for each pair of wires (translation_table.py)
docs/architecture.svg  from the import contracts (picture.py)
docs/pictures/         from commands, codecs and tables (pictures.py)
docs/rules/            from the rules of the audit: one page per rule, and an index
docs/violations.md     from every dialect (violations.py)
docs/limits.md         from the constraints, wires and dialects (limits.py)
docs/upstreams.md      from the vectors of deviations (upstreams.py)
docs/formats.md        from the text formats (format_table.py)
src/toolwire/text/formats/table.py  from the modules of the text formats (format_table.py)
src/toolwire/gateway/config/toolwire.schema.json  from the classes of the settings (settings_schema.py)

make docs                          write the pages
python docs/generate.py --check    exit 1 if a page is out of date
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from format_table import FORMATS_PAGE, TABLE, format_table, formats_page
from limits import LIMITS_PAGE, limits_page
from msgspec.structs import replace
from picture import PICTURE, draw
from pictures import PICTURES, pictures
from request_statements import LOCATED
from settings_schema import SCHEMA_FILE, settings_schema
from statements import CALL, FREE, MARK, Statement
from translation_table import TRANSLATION_PAGE, translation_page
from upstreams import UPSTREAMS_PAGE, upstreams_page
from violations import VIOLATIONS_PAGE, violations_page

from toolwire.audit.explain import list_rules, render_page
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir import (
    Alternative,
    Loss,
    Reasoning,
    Refusal,
    Request,
    Response,
    Stop,
    Text,
    Usage,
)
from toolwire.ir.pointer import join
from toolwire.wire import get, names
from toolwire.wire.protocol import Wire

PAGE = Path(__file__).with_name("wires.md")
RULES = Path(__file__).with_name("rules")


class Concept(NamedTuple):
    """A concept of a response: two responses that differ in it."""

    name: str
    before: Response
    after: Response
    implied: tuple[str, ...] = ()

    def on(self, _: str) -> Response:
        return self.after


CALLS_STOP = ("cohere", "gemini", "ollama", "openai_responses")  # an answer with calls needs no reason there
DONE = Response("r", "m", (Text("a"),), Stop("stop"), Usage(9, 9))


def answer(*parts: Any, stop: str = "stop") -> Response:
    return replace(DONE, parts=parts, stop=Stop(stop))  # type: ignore[arg-type]


RESPONSES = [
    Concept("text", answer(), answer(Text(MARK))),
    Concept("call", answer(), answer(CALL, stop="tool_calls")),
    Concept("freeform call", answer(), answer(FREE, stop="tool_calls")),
    Concept("text after a call", answer(CALL, stop="tool_calls"), answer(CALL, Text(f"{MARK}2"), stop="tool_calls")),
    Concept("reasoning text", DONE, answer(Reasoning(MARK), Text("a"))),
    Concept("reasoning summary", DONE, answer(Reasoning(summary=(MARK,)), Text("a"))),
    Concept("refusal", answer(), answer(Refusal(MARK), stop="refusal")),
    *(
        Concept(f"stop {reason}", DONE, answer(Text("a"), stop=reason), CALLS_STOP if reason == "tool_calls" else ())
        for reason in ("tool_calls", "length", "content_filter", "refusal", "pause", "context_window")
    ),
    Concept("which stop sequence", DONE, replace(DONE, stop=Stop("stop_sequence", MARK))),
    Concept("usage.input and output", replace(DONE, usage=None), DONE),
    Concept("usage.cached", DONE, replace(DONE, usage=Usage(9, 9, cached=5))),
    Concept("usage.cache_write", DONE, replace(DONE, usage=Usage(9, 9, cache_write=5))),
    Concept("usage.reasoning", DONE, replace(DONE, usage=Usage(9, 9, reasoning=5))),
    Concept("created", DONE, replace(DONE, created=1700000000)),
    Concept("other choices", DONE, replace(DONE, alternatives=(Alternative((Text(MARK),), Stop("stop")),))),
]


class Finding(NamedTuple):
    status: str  # native | rewritten | lost
    cell: str


def find(concept: Concept | Statement, wire: Wire, encode: Callable[[Any, Wire], tuple[Any, list[Loss]]]) -> Finding:
    """Find the location of the concept on the wire, or its loss."""
    before, old = encode(concept.before, wire)
    after, new = encode(concept.on(wire.name), wire)
    known = {(loss.concept, loss.action) for loss in old}
    fresh = [loss for loss in new if (loss.concept, loss.action) not in known and loss.concept != "signature"]
    places = _places(before, after)
    if not places:
        gone = [join(key) for key in before if key not in after]
        if gone and any(loss.action == "rewritten" for loss in fresh):
            return Finding("rewritten", f"*no `{gone[0]}`*")
        is_kept = any(loss.action in _KEPT and loss.severity != "error" for loss in fresh)
        is_default = is_kept or wire.name in concept.implied
        return Finding("rewritten", "*default*") if is_default else Finding("lost", "–")
    if any(loss.action == "dropped" and loss.severity != "info" for loss in fresh):
        return Finding("lost", "–")
    cell = ", ".join(f"`{place}`" for place in places)
    if any(loss.action in ("rewritten", "moved", "weakened") for loss in fresh):
        return Finding("rewritten", f"*{cell}*")
    return Finding("native", cell)


_KEPT = ("weakened", "rewritten")


def _places(before: Any, after: Any) -> list[str]:
    """Return at most two locations: of the marked text, or else of new and changed values, with a schema as one."""
    fresh = sorted(_leaves(after) - _leaves(before))
    marked = [path for path, value in fresh if MARK in value]
    new = {key: value for key, value in after.items() if key not in before and isinstance(value, dict)}
    schemas = [key for key, value in new.items() if "properties" in value or "anyOf" in value]
    if schemas and not marked:
        return [join(schemas[0])]
    return list(dict.fromkeys(marked or [path for path, _ in fresh if not path.endswith(_NOISE)]))[:2]


_NOISE = ("*/type", "*/role", "*/text", "/total_tokens", "/totalTokenCount", "/promptTokenCount", "/name")


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str, str]]:
    """Return the pointer and the value of every leaf, with list positions as `*`."""
    if isinstance(value, dict) and value:
        return {leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))}
    if isinstance(value, list) and value:
        return {leaf for item in value for leaf in _leaves(item, (*path, "*"))}
    return {(join(*path), repr(value))}


def encode_request(request: Request, wire: Wire) -> tuple[Any, list[Loss]]:
    prepared = prepare(request, wire)
    body, losses = wire.encode_request(prepared.request)
    return body, [*prepared.losses, *losses]


def encode_response(response: Response, wire: Wire) -> tuple[Any, list[Loss]]:
    body, losses = wire.encode_response(response)
    return body, list(losses)


def table(
    concepts: Sequence[Concept | Statement], encode: Callable[[Any, Wire], tuple[Any, list[Loss]]]
) -> tuple[list[str], list[str]]:
    """Return the lines of the table, and for each wire the concepts that only it supports natively."""
    wires = [get(name) for name in names()]
    lines = ["| | " + " | ".join(wire.name for wire in wires) + " |", "|---" * (len(wires) + 1) + "|"]
    alone: dict[str, list[str]] = {}
    for concept in concepts:
        findings = [find(concept, wire, encode) for wire in wires]
        lines.append(f"| {concept.name} | " + " | ".join(finding.cell for finding in findings) + " |")
        native = [wire.name for wire, finding in zip(wires, findings, strict=True) if finding.status == "native"]
        if len(native) == 1:
            alone.setdefault(native[0], []).append(concept.name)
    return lines, [f"- **{name}**: {', '.join(concepts)}" for name, concepts in sorted(alone.items())]


def limits() -> list[str]:
    lines = ["| | tool names | call ids | tools | versions |", "|---|---|---|---|---|"]
    for name in names():
        wire = get(name)
        limit = wire.limits
        versions = ", ".join(f"`{name}@{version}`" for version in sorted(getattr(wire, "versions", {}))) or "–"
        cells = (
            f"`{limit.name}`, ≤ {limit.name_length}",
            f"`{limit.id}`, ≤ {limit.id_length}",
            limit.tools or "–",
            versions,
        )
        lines.append(f"| {name} | " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def page() -> str:
    requests, alone_in_requests = table(LOCATED, encode_request)
    responses, alone_in_responses = table(RESPONSES, encode_response)
    return "\n".join(
        [
            "# Wires",
            "",
            "Generated by `make docs` from the codecs: every concept is encoded on every wire, and the fields that appear are its",
            "location. A pointer in `code` is native; in *italics*, the concept is represented in another way (*default*: by the",
            "wire's default, without a field); – means that it is lost, and reported as a loss. `*` is a position in a list.",
            "[Translations](translation.md) shows the outcome for each pair of wires.",
            "",
            "## Requests",
            "",
            *requests,
            "",
            "### Supported by one wire only",
            "",
            *alone_in_requests,
            "",
            "## Responses",
            "",
            *responses,
            "",
            "### Supported by one wire only",
            "",
            *alone_in_responses,
            "",
            "## Limits",
            "",
            *limits(),
            "",
        ]
    )


def rules_pages() -> dict[Path, str]:
    """Return a page for each rule, and the index."""
    lines = [
        "# Rules of the audit",
        "",
        "Generated by `make docs` from the rules; a test runs the examples on the pages through their rules.",
        "Ids are stable. `toolwire audit --explain ID` shows a page on the terminal. Rules with a level in brackets are off by",
        "default; `--select` or `--target` enables them.",
        "",
        "| id | level | affects | problem | fix |",
        "|---|---|---|---|---|",
    ]
    for rule in list_rules():
        level = f"({rule.level})" if rule.opt_in else rule.level
        cells = (f"[{rule.id}]({rule.id}.md)", level, ", ".join(rule.providers), rule.title, rule.fix)
        lines.append(f"| {' | '.join(cells)} |")
    pages = {RULES / f"{rule.id}.md": render_page(rule.id) for rule in list_rules()}
    return {RULES / "README.md": "\n".join([*lines, ""]), **pages}


def main() -> int:
    made = {
        PAGE: page(),
        TRANSLATION_PAGE: translation_page(),
        PICTURE: draw(),
        VIOLATIONS_PAGE: violations_page(),
        LIMITS_PAGE: limits_page(),
        UPSTREAMS_PAGE: upstreams_page(),
        TABLE: format_table(),
        FORMATS_PAGE: formats_page(),
        SCHEMA_FILE: settings_schema(),
        **pictures(),
        **rules_pages(),
    }
    gone = [path for path in (*RULES.glob("*"), *PICTURES.glob("*.svg")) if path not in made]
    if "--check" not in sys.argv:
        RULES.mkdir(exist_ok=True)
        PICTURES.mkdir(exist_ok=True)
        for path in gone:
            path.unlink()
        for path, text in made.items():
            path.write_text(text, encoding="utf-8")
        repository = Path(__file__).parent.parent
        others = ", ".join(
            path.relative_to(repository).as_posix() for path in made if path.parent not in (RULES, PICTURES)
        )
        print(f"wrote {others} and {len([path for path in made if path.parent == RULES])} pages in {RULES.name}/")
        return 0
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in [*stale, *gone]:
        print(f"{path.name} is out of date; run: make docs", file=sys.stderr)
    return 1 if stale or gone else 0


if __name__ == "__main__":
    sys.exit(main())
