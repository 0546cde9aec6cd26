"""Force a tool call by the schema of the answer, on servers without a tool choice that forces one.

Ollama has no tool choice, and llama.cpp ignores one if the chat template of the model drops tools. Both compile a JSON
Schema to a grammar. There, a required call is sent as the schema of the answer: an object with the name and the
arguments of one tool, or an array of such objects if the request asks for parallel calls. The text of the answer is
converted to calls. Calls that the server parsed itself pass through: Ollama does so for models whose template writes
calls as bare JSON (tools/tools.go).

A request that also requires a form of the answer cannot use it, because there is only one schema. Ollama does not apply
the schema while a model thinks (server/routes.go), so an answer without a call is possible; it is passed on as text and
reported as a loss.

The schema is written for the converters of servers. They generate properties in the declared order, so the name comes
before the arguments. Definitions are at the root, because older converters resolve references only through objects.

    call_schema([tool], parallel=False)   # {"type": "object", "properties": {"name": {"const": …}, "arguments": …}, …}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ...ir.errors import EncodeError
from ...ir.events import CallStart, Event, ResponseEnd
from ...ir.folding import fold, unfold
from ...ir.losses import Losses
from ...ir.pointer import JSON, Object, join
from ...ir.request import OutputFormat, Request
from ...ir.response import Response
from ...ir.tools import Tool, ToolChoice
from ...ir.value import Value
from ...schema.composition import DATA_KEYWORDS, NAME_MAPS
from ...schema.lowering.lowered import Lowered, lower
from ...text import get
from ...wire.protocol import Capabilities
from ..emulation.answers import AnswerReader
from ..fitting.tools import fit_choice
from ..restoration.repair import CallRepairer
from ..restoration.restorer import RequestChanges, Restorer

MAX_CALLS = 16
"""Calls of one answer with parallel calls: a small model may repeat itself forever."""
_DEFINITIONS = "#/$defs/"
_OPEN_KEYWORDS = frozenset("additionalProperties patternProperties anyOf oneOf allOf $ref if".split())


def lower_arguments(schema: Object, dialect: str) -> Lowered | None:
    """Lower the schema of arguments to `dialect`; None if the arguments would change their shape."""
    try:
        lowered = lower(schema, dialect)
    except (EncodeError, RecursionError):
        return None
    return lowered if lowered.conforms and not lowered.changes_arguments else None


def call_schema(tools: Sequence[Tool], *, parallel: bool) -> Object:
    """Return the schema of one call of one of the tools, or of an array of calls.

    The schemas of the tools are as `lower_arguments` returns them: the targets of their references are in `$defs`.
    """
    definitions: Object = {}
    shapes = [_call_shape(tool, f"tool{number}_", definitions) for number, tool in enumerate(tools)]
    schema: Object = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    if parallel:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": MAX_CALLS}
    return {**schema, "$defs": definitions} if definitions else schema


def close_arguments(schema: Object) -> Object:
    """Forbid undeclared arguments, unless the schema mentions them or another schema may declare them."""
    return {**schema, "additionalProperties": False} if _OPEN_KEYWORDS.isdisjoint(schema) else schema


def _call_shape(tool: Tool, prefix: str, definitions: Object) -> Object:
    """Return the schema of a call of one tool; its `$defs` are added to `definitions`, with `prefix` in their names."""
    arguments = tool.input_schema or {"type": "object"}
    for name, definition in arguments.get("$defs", {}).items():
        definitions[prefix + name] = _prefix_references(definition, prefix)
    arguments = close_arguments({name: value for name, value in arguments.items() if name != "$defs"})
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": _prefix_references(arguments, prefix)},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _prefix_references(schema: JSON, prefix: str) -> JSON:
    """Return the schema with the moved definitions as targets of its references."""
    if type(schema) is list:
        return [_prefix_references(item, prefix) for item in schema]
    if type(schema) is not dict:
        return schema
    moved = {name: _prefix_value(name, value, prefix) for name, value in schema.items()}
    if type(target := moved.get("$ref")) is str:
        moved["$ref"] = _DEFINITIONS + prefix + target.removeprefix(_DEFINITIONS)
    if moved.get("type") == "object" and moved.get("properties") == {} and "additionalProperties" not in moved:
        del moved["properties"]  # llama.cpp takes it for an object without any entry
    return moved


def _prefix_value(keyword: str, value: JSON, prefix: str) -> JSON:
    if keyword in DATA_KEYWORDS:
        return value
    if keyword in NAME_MAPS and type(value) is dict:
        return {name: _prefix_references(one, prefix) for name, one in value.items()}
    return _prefix_references(value, prefix)


FORCED_MODES = frozenset({"required", "tool"})
_GRAMMAR = "gbnf"  # the dialect of schemas that Ollama and llama.cpp compile
_TEXT_FORMAT = "generic_json"
_ANSWERS_WITHOUT_CALL = frozenset({"length", "context_window", "content_filter", "refusal"})


class RequiredCall(Value, frozen=True):
    """A call that the schema of the answer enforces."""

    tools: tuple[Tool, ...]  # the tools that may be called, with their names and schemas on the target
    output: OutputFormat
    instructions: str | None = None  # the tools as text, for a server whose chat template drops declarations


def fit_required_call(
    request: Request,
    tools: list[tuple[Tool, int]],
    can: Capabilities,
    lifts: dict[str, Lowered],
    losses: Losses,
) -> tuple[ToolChoice | None, RequiredCall | None]:
    """Fit the tool choice; return a `RequiredCall` in its place if the choice is sent as the schema of the answer.

    `lifts` are the tools whose arguments have another shape on the target. Changes are added to `losses`.
    """
    if not _accepts_call_schema(request, tools, can):
        return fit_choice(request, tools, can, losses), None
    choice = fit_choice(request, tools, replace(can, choices=can.choices | FORCED_MODES), losses)
    if choice is None or choice.mode not in FORCED_MODES:
        return choice, None
    callable_tools = [
        (replace(tool, input_schema=_grammar_schema(request, tool, index, lifts, losses)), tool)
        for tool, index in tools
        if index >= 0 and (choice.mode == "required" or tool.name in choice.names)
    ]
    losses.add(join("choice"), "tool choice", "rewritten", "sent as the schema of the answer", "info")
    if request.parallel is not None:
        losses.add(join("parallel"), "parallel calls", "rewritten", "sent as the schema of the answer", "info")
    declared = tuple([tool for _, tool in callable_tools])
    return None, RequiredCall(
        declared,
        OutputFormat(
            "json_schema",
            call_schema([tool for tool, _ in callable_tools], parallel=bool(request.parallel)),
            strict=True,
        ),
        get(_TEXT_FORMAT).render_tools(declared) if can.choice_by_schema == "stated" else None,
    )


def _accepts_call_schema(request: Request, tools: list[tuple[Tool, int]], can: Capabilities) -> bool:
    """Return whether the schema of the answer is free for calls, and every tool is a function."""
    if not can.choice_by_schema or (request.output is not None and request.output.kind != "text"):
        return False
    declared = [tool for tool, index in tools if index >= 0]
    return bool(declared) and all(tool.kind == "function" for tool in declared)


def _grammar_schema(request: Request, tool: Tool, index: int, lifts: dict[str, Lowered], losses: Losses) -> Object:
    """Return the schema of the arguments for the grammar; report the keywords that it does not enforce.

    The declared schema has few keywords on some targets. If the arguments have their original shape, the original
    schema is used instead, because the grammar enforces more of it.
    """
    original = request.tools[index]
    is_original_shape = tool.name not in lifts and original.kind == "function"
    for schema in (original.input_schema if is_original_shape else None, tool.input_schema):
        lowered = None if schema is None else lower_arguments(schema, _GRAMMAR)
        if lowered is not None:
            _report_unenforced(lowered, index, losses)
            return lowered.schema
    if tool.input_schema is not None:
        detail = "the grammar allows any arguments; they are checked before the call is run"
        losses.add(join("tools", index, "input_schema"), "schema", "weakened", detail)
        return {"type": "object", "additionalProperties": True}
    return {"type": "object"}


def _report_unenforced(lowered: Lowered, index: int, losses: Losses) -> None:
    """Report the keywords of a tool's schema that the grammar does not enforce, as one loss."""
    names = list(dict.fromkeys(loss.concept for loss in lowered.losses if loss.action in ("weakened", "dropped")))
    if names:
        detail = f"the grammar does not enforce {', '.join(names)}; they are checked before the call is run"
        losses.add(join("tools", index, "input_schema"), "constraints of the call", "weakened", detail, "info")


class RequiredCallRestorer(Restorer):
    """Restore an answer whose text is a call: the text is converted to calls, which are then restored."""

    __slots__ = ("_callers", "_reader")

    def __init__(
        self,
        changes: RequestChanges,
        required: RequiredCall,
        losses: Losses,
        client: Capabilities | None = None,
        repairer: CallRepairer | None = None,
    ) -> None:
        super().__init__(changes, losses, client, repairer)
        self._reader = AnswerReader(get(_TEXT_FORMAT), required.tools, losses=losses)
        self._callers: set[int] = set()  # choices with a call

    def restore(self, response: Response) -> Response:
        return super().restore(fold([read for event in unfold(response) for read in self._read(event)]))

    def feed(self, event: Event) -> tuple[Event, ...]:
        return tuple([restored for read in self._read(event) for restored in Restorer.feed(self, read)])

    def feed_all(self, events: Iterable[Event]) -> list[Event]:
        return [restored for event in events for restored in self.feed(event)]

    def _read(self, event: Event) -> list[Event]:
        """Convert the text of an event to calls; report an answer without a call at its end.

        Such calls have no id of the server, so each gets one later.
        """
        is_native = type(event) is CallStart  # the server parsed the call itself
        events = self._reader.feed(event)
        for number, read in enumerate(events):
            if type(read) is CallStart:
                self._callers.add(read.choice)
                events[number] = read if is_native else replace(read, id="")
            elif type(read) is ResponseEnd:
                self._report_missing_calls(read)
        return events

    def _report_missing_calls(self, end: ResponseEnd) -> None:
        for choice, stop in enumerate(end.stops):
            if choice not in self._callers and (stop is None or stop.reason not in _ANSWERS_WITHOUT_CALL):
                path = f"/alternatives/{choice - 1}/parts" if choice else "/parts"
                detail = "the server did not enforce the schema of the call; the answer is text"
                self.losses.add(path, "required call", "dropped", detail, "error")
