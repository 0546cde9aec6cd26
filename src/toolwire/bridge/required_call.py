"""Force a tool call by the schema of the answer, on servers without a tool choice that forces one.

Ollama has no tool choice, and llama.cpp ignores one if the chat template of the model drops tools. Both compile a JSON
Schema to a grammar. There, a required call is sent as the schema of the answer: an object with the name and the
arguments of one tool, or an array of such objects if the request asks for parallel calls. The text of the answer is
converted to calls. Calls that the server parsed itself pass through: Ollama does so for models whose template writes
calls as bare JSON (tools/tools.go).

A request that also requires a form of the answer cannot use it, because there is only one schema. Ollama does not apply
the schema while a model thinks (server/routes.go), so an answer without a call is possible; it is passed on as text and
reported as a loss.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..ir.events import CallStart, Event, ResponseEnd
from ..ir.folding import fold, unfold
from ..ir.losses import Losses
from ..ir.pointer import Object, join
from ..ir.request import OutputFormat, Request
from ..ir.response import Response
from ..ir.tools import Tool, ToolChoice
from ..ir.value import Value
from ..schema.lowering.lowered import Lowered
from ..text import get
from ..wire.protocol import Capabilities
from .call_schema import call_schema, lower_arguments
from .emulate_answer import AnswerReader
from .fit_choice import fit_choice
from .repair import CallRepairer
from .restorer import RequestChanges, Restorer

__all__ = ["FORCED_MODES", "RequiredCall", "RequiredCallRestorer", "fit_required_call"]

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

    `lifts` are the tools whose arguments have another shape on the target.
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
    """Return the schema of the arguments for the grammar.

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
        """Convert the text of an event to calls. They have no id of the server, so each gets one later."""
        native = type(event) is CallStart
        events = self._reader.feed(event)
        for number, read in enumerate(events):
            if type(read) is CallStart:
                self._callers.add(read.choice)
                events[number] = read if native else replace(read, id="")
            elif type(read) is ResponseEnd:
                self._report_missing_calls(read)
        return events

    def _report_missing_calls(self, end: ResponseEnd) -> None:
        for choice, stop in enumerate(end.stops):
            if choice not in self._callers and (stop is None or stop.reason not in _ANSWERS_WITHOUT_CALL):
                path = f"/alternatives/{choice - 1}/parts" if choice else "/parts"
                detail = "the server did not enforce the schema of the call; the answer is text"
                self.losses.add(path, "required call", "dropped", detail, "error")
