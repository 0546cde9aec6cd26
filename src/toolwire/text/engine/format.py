"""A text format: how calls are written and read, the tokens around them, and how it is explained to a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...ir.errors import ConfigError, EncodeError
from ...ir.events import Event, ResponseEnd
from ...ir.folding import Folder
from ...ir.losses import Loss
from ...ir.parts import Part, Text, ToolCall, ToolResult
from ...ir.response import Stop
from ...ir.text import to_bytes
from ...ir.tools import Tool, ToolChoice
from ...ir.value import Value
from .event_builder import Diagnostic, EventBuilder
from .offered_tools import OfferedTools
from .prompt import ResultTemplate, ToolPrompt, render_tools
from .reader import Reader
from .spans import NO_SPANS, Span, SpanRecorder
from .style import ParseContext, Style
from .turn_parser import parse_turn

if TYPE_CHECKING:
    from .grammar import CallGrammar

_AUTO = ToolChoice("auto")


class Parsed(Value, frozen=True):
    """A parsed text: its parts in order, and diagnostics."""

    parts: tuple[Part, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    spans: tuple[Span, ...] = ()  # only if requested

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Rendered(Value, frozen=True):
    """Calls as text, and losses for calls that do not parse back unchanged."""

    text: str
    losses: tuple[Loss, ...] = ()

    def __str__(self) -> str:
        return self.text


class Format(Value, frozen=True):
    """A format as data. `families` are globs of model names, `calls` is the style, the rest is about other text."""

    name: str
    title: str
    families: tuple[str, ...]
    calls: Style
    reasoning: tuple[tuple[str, str], ...] = (("<think>", "</think>"),)
    ends_reasoning: tuple[str, ...] = ()  # tokens that open the answer or the calls
    calls_in_reasoning: bool = False  # a call inside reasoning is made, and the reasoning continues after it
    noise: tuple[str, ...] = ()  # special tokens that are not text
    heads: tuple[tuple[str, str], ...] = ()  # special tokens around the name and the attributes of a marker
    citations: tuple[tuple[str, str], ...] = ()  # opening and closing text of the marks around a cited text
    halts: tuple[str, ...] = ()  # tokens that only the caller writes; text after them is ignored
    stops: tuple[str, ...] = ()  # stop sequences for the server
    one_call: bool = False
    needs_tools: bool = False  # calls cannot be recognised without the offered tools
    thinking: bool = False  # the prompt opens the reasoning, so the turn starts inside it
    declare: ToolPrompt = ToolPrompt()
    results: ResultTemplate = ResultTemplate()

    def parser(
        self,
        tools: Iterable[Tool] = (),
        *,
        first_call: int = 0,
        reasoning: bool | None = None,
        spans: bool = False,
    ) -> Parser:
        """Create a parser for one turn. `first_call` numbers its ids; `reasoning`: the prompt opened the reasoning.

        With `spans`, the parser records where calls and reasoning are in the text.
        """
        inside = self._begins_inside(reasoning)
        return Parser(self, OfferedTools(tools), first_call, reasoning=inside, spans=spans)

    def parse(
        self,
        text: str,
        tools: Iterable[Tool] = (),
        *,
        finished: bool = True,
        first_call: int = 0,
        reasoning: bool | None = None,
        spans: bool = False,
    ) -> Parsed:
        """Parse a whole turn; `finished` if the model stopped by itself and the text is not truncated.

        With `spans`, the result has the positions of calls, names, arguments and reasoning in the text.
        """
        inside = self._begins_inside(reasoning)
        parser = Parser(self, OfferedTools(tools), first_call, reasoning=inside, deltas=False, spans=spans)
        return _parse_with(parser, (text,), finished=finished)

    def parse_pieces(
        self,
        pieces: Iterable[str],
        tools: Iterable[Tool] = (),
        *,
        finished: bool = True,
        reasoning: bool | None = None,
        spans: bool = False,
    ) -> Parsed:
        """Like `parse`, for a turn in pieces; the result does not depend on the chunking."""
        inside = self._begins_inside(reasoning)
        parser = Parser(self, OfferedTools(tools), 0, reasoning=inside, deltas=False, spans=spans)
        return _parse_with(parser, pieces, finished=finished)

    def _begins_inside(self, reasoning: bool | None) -> bool:
        """Return whether the turn starts inside reasoning."""
        return self.thinking if reasoning is None else reasoning

    def render_tools(self, tools: Sequence[Tool]) -> str:
        """Return the text for the prompt: the tools, and how to call one unless the model was trained on the format."""
        return render_tools(self.declare, self.calls, tools, one_call=self.one_call)

    def render_call(self, call: ToolCall, tools: Iterable[Tool] = ()) -> Rendered:
        """Render the call as the model would write it."""
        return self.render_calls([call], tools)

    def render_calls(self, calls: Sequence[ToolCall], tools: Iterable[Tool] = ()) -> Rendered:
        """Render all calls of a turn.

        A call that does not parse back unchanged is a loss, because raw text cannot quote its own tags.
        """
        if not calls:
            return Rendered("")
        text = self.calls.write(calls)
        reparsed = self.parse(text, tools).calls
        losses = [_difference_loss(index, calls, reparsed) for index in range(len(calls))]
        return Rendered(text, tuple(filter(None, losses)))

    def grammar(
        self,
        tools: Iterable[Tool],
        choice: ToolChoice = _AUTO,
        parallel: bool | None = None,
        *,
        reasoning: bool | None = None,
        may_reason: bool = True,
        special_tokens: Mapping[str, int] | None = None,
        cautious: bool = False,
    ) -> CallGrammar:
        """Return the grammar of a turn with calls of these tools, for constrained decoding.

        `parallel`: several calls, None for the default of the format. `reasoning`: the prompt opened the reasoning.
        `may_reason`: reasoning may precede required calls. `special_tokens` maps texts that the tokenizer holds as one
        special token to their ids. `cautious`: for an engine that refused the first grammar.
        """
        from .grammar import GrammarOptions, build_grammar

        inside = self._begins_inside(reasoning)
        special = dict(special_tokens or {})
        options = GrammarOptions(choice, parallel, inside, may_reason, special_tokens=special, cautious=cautious)
        return build_grammar(self, tools, options, self._survives)

    def _survives(self, call: ToolCall, tool: Tool) -> bool:
        return not self.render_calls([call], [tool]).losses

    def render_result(self, result: ToolResult) -> str:
        """Render the result as the model expects it."""
        return self.results.render(result)


def _parse_with(parser: Parser, pieces: Iterable[str], *, finished: bool) -> Parsed:
    """Parse all pieces and fold the events into parts."""
    folder = Folder()
    for piece in pieces:
        for event in parser.feed(piece):
            folder.feed(event)
    for event in (*parser.close(finished=finished), ResponseEnd((Stop("stop"),))):
        folder.feed(event)
    return Parsed(folder.response().parts, tuple(parser.diagnostics), parser.spans)


def _difference_loss(index: int, calls: Sequence[ToolCall], reparsed: Sequence[ToolCall]) -> Loss | None:
    """Return a loss if call number `index` differs after writing and parsing it, else None."""
    call = calls[index]
    same = len(reparsed) == len(calls) and reparsed[index].name == call.name and reparsed[index].state == "complete"
    if same and _canonical_call(reparsed[index]) == _canonical_call(call):
        return None
    return Loss(
        f"/calls/{index}",
        "arguments",
        "weakened",
        "error",
        f"the call of {call.name!r} does not parse back unchanged in this format",
    )


def _canonical_call(call: ToolCall) -> bytes:
    try:
        return to_bytes(call.arguments)
    except EncodeError:
        return b""


class Parser:
    """An incremental parser for one turn of a model.

    `should_stop` is true once all further text will be ignored: abort the generation. `spans` are complete after
    `close`, if they were requested.
    """

    def __init__(
        self,
        form: Format,
        offered: OfferedTools,
        first_call: int,
        *,
        reasoning: bool,
        deltas: bool = True,
        spans: bool = False,
    ) -> None:
        self._reader = Reader()
        self._writer = EventBuilder(offered, first_call, deltas=deltas)
        self._writer.spans = SpanRecorder(self._reader) if spans else None
        context = ParseContext(self._reader, self._writer, self._writer.spans or NO_SPANS)
        self._steps = parse_turn(form, context, reasoning=reasoning)
        next(self._steps, None)
        self._closed = False

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return self._writer.diagnostics

    @property
    def spans(self) -> tuple[Span, ...]:
        return () if self._writer.spans is None else self._writer.spans.spans()

    @property
    def should_stop(self) -> bool:
        return self._reader.stopped

    def feed(self, chunk: str) -> list[Event]:
        """Parse more text; return the events that are certain. ConfigError for bytes; nothing happens after `close`."""
        if not isinstance(chunk, str):
            raise ConfigError(f"the parser requires str, got {type(chunk).__name__}", hint="decode the bytes first")
        if not chunk or self._closed:
            return []
        if not chunk.isascii():
            chunk = _replace_surrogates(chunk)
        self._reader.feed(chunk)
        next(self._steps, None)
        return self._writer.take()

    def close(self, *, finished: bool = True) -> list[Event]:
        """End the text and return the last events; nothing the second time.

        `finished` is False if the model was interrupted by length, by an error, or by the caller.
        """
        if self._closed:
            return []
        self._closed = True
        self._reader.ended = True
        self._reader.finished = finished
        for _ in self._steps:
            pass
        self._writer.end()
        return self._writer.take()


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 encoding."""
    try:
        text.encode("utf-32-le")  # the fastest check: text with emoji has four bytes for each character already
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
