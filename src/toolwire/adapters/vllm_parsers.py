"""Parsers for vLLM: one for reasoning and calls together, and one for each, for vLLM's registries.

Some versions of vLLM (after 0.27, not 0.32) combine a tool parser and a reasoning parser with the same
`_parser_engine_cls` into that class, so `ToolwireParser` reads the whole turn. Otherwise its `DelegatingParser` runs the
two others in turn: the reasoning parser passes on the text after the reasoning, and the tool parser reads it.

If the tool choice is forced, `ToolParser.adjust_request` of vLLM constrains the content to JSON: an array of calls, or the
arguments of the named tool. That JSON is parsed here, too, because vLLM's own parsing of it needs the whole text in every
step, which it does not keep for parsers with `engine_based_streaming`.

vLLM makes one parser per choice of a response. A parser keeps the state of one turn.
"""

from __future__ import annotations

import secrets
import string
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from ..ir.errors import MissingExtra
from ..ir.tools import Tool
from ..text.engine.format import Format
from .model_format import (
    ReasoningTokens,
    answer_begins_inside,
    format_of_model,
    has_separate_reasoning,
    template_opens_reasoning,
    with_json_calls,
    without_calls,
)
from .turn_reader import CallPiece, NamedCallReader, ReasoningSplitter, TurnDelta, TurnReader, record_calls

try:
    try:  # vLLM 0.32
        from vllm.entrypoints.generate.base import protocol
        from vllm.renderers.chat_utils import make_tool_call_id
    except ImportError:
        from vllm.entrypoints.chat_utils import make_tool_call_id
        from vllm.entrypoints.openai.engine import protocol
    from vllm.parser.engine.parser_engine import ParserEngine
    from vllm.reasoning import ReasoningParser
    from vllm.tool_parsers import ToolParser
except ImportError as error:
    raise MissingExtra(
        f"the parsers for vLLM require vLLM 0.24 or later: {error}", hint="pip install -U vllm"
    ) from error


class _ServedModel:
    """The format of a model with its tokenizer, and how to start reading a turn."""

    def __init__(self, format_name: str, tokenizer: Any, settings: dict[str, Any]) -> None:
        config = settings.get("model_config")
        models = (getattr(config, "model", None), getattr(tokenizer, "name_or_path", None))
        template = getattr(tokenizer, "chat_template", None)
        source = template if isinstance(template, str) else None  # a model may have several templates, by name
        self.form: Format = format_of_model(format_name, *models, template=source)
        self.tokenizer = tokenizer
        self._template_settings: dict[str, Any] = settings.get("chat_template_kwargs") or {}

    @cached_property
    def tokens(self) -> ReasoningTokens:
        return ReasoningTokens(self.form, self.tokenizer)

    @cached_property
    def template_opens(self) -> bool | None:
        return template_opens_reasoning(self.form, self.tokenizer, self._template_settings)

    def turn(self, request: Any, tools: Iterable[Any], *, opened: bool, tagged_content: bool = False) -> TurnReader:
        """Return a reader for an answer to the request.

        Constrained answers are JSON: all of the content is the arguments of a named call, or a list of calls.
        """
        form, choice = self.form, getattr(request, "tool_choice", None)
        if choice == "none":
            form = without_calls(form)
        elif self.is_constrained(choice):
            if choice != "required":
                return NamedCallReader(_name(choice), without_calls(form), new_id=self._new_id, opened=opened)
            form = with_json_calls(form)
        return TurnReader(form, _offered(tools), new_id=self._new_id, opened=opened, tagged_content=tagged_content)

    def is_constrained(self, choice: object) -> bool:
        """Return whether the content of the answer is constrained to JSON."""
        return choice not in (None, "auto", "none") and has_separate_reasoning(self.form)

    def opens_before(self, answer: str) -> bool:
        """Return whether a complete answer begins inside reasoning."""
        inside = answer_begins_inside(self.form, answer)
        return bool(self.template_opens if inside is None else inside)

    def is_finished(self, request: Any, count: int, last: int | None) -> bool:
        """Return whether the model ended its answer of `count` tokens, and did not reach the limit of the request."""
        fields = vars(request)  # because reading `max_tokens` as an attribute warns that it is deprecated
        limits = (fields.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
        limit = next(filter(None, limits), None)
        is_end = last in getattr(self.tokenizer, "all_special_ids", ())  # the last token may be allowed and the end
        return is_end or limit is None or count < limit

    def _new_id(self, name: str) -> str:
        if self.form.name.startswith("mistral"):  # its templates accept only nine letters and digits
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
        return str(make_tool_call_id())


class ToolwireParser(ParserEngine):  # type: ignore[misc]
    """Read reasoning, content and calls of a turn with one parser."""

    format_name = ""
    """The name of a text format; empty to detect it by the chat template or the model's name."""

    def __init__(self, tokenizer: Any, tools: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:
        # The engine of vLLM is not used, and compiles all special tokens of the tokenizer for each request.
        super(ParserEngine, self).__init__(tokenizer, tools, *args, **kwargs)
        self._model = _ServedModel(self.format_name, tokenizer, kwargs)
        self._turn: TurnReader | None = None
        self._tokens = 0
        self._reasoning_tokens = 0

    def adjust_request(self, request: Any) -> Any:
        request = self.tool_parser.adjust_request(request)
        request.skip_special_tokens = False
        return request

    def parse(
        self,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> tuple[str | None, str | None, list[Any] | None]:
        """Return reasoning, content and calls of a complete turn, and count the reasoning tokens."""
        turn = self._model.turn(request, request.tools or (), opened=self._model.opens_before(model_output))
        ids = model_output_token_ids
        finished = self._model.is_finished(request, len(ids), ids[-1] if ids else None)
        whole = turn.read(model_output, finished=finished)
        self._reasoning_tokens = self._model.tokens.count(whole.reasoning)
        calls = [
            protocol.FunctionCall(id=piece.id, name=piece.name, arguments=piece.arguments) for piece in whole.calls
        ]
        return whole.reasoning or None, whole.content or None, calls or None

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> Any:
        """Return the delta of a step as a message, or None if it is empty, and count its tokens."""
        if self._turn is None:
            self._turn = self._model.turn(request, request.tools or (), opened=self._is_open(request, prompt_token_ids))
        delta = self._turn.feed(delta_text)
        if delta.reasoning:
            self._reasoning_tokens += len(delta_token_ids)
        self._tokens += len(delta_token_ids)
        if finished:
            last = delta_token_ids[-1] if delta_token_ids else None
            finished = self._model.is_finished(request, self._tokens, last)
            delta = _add(delta, self._turn.close(finished=finished))
        return _message(delta, with_reasoning=request.include_reasoning)

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        return self._model.tokens.is_open(input_ids) is False

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        return self._model.tokens.after_end(input_ids)

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        return self._reasoning_tokens

    def _is_open(self, request: Any, prompt: Sequence[int] | None) -> bool:
        """Return whether the answer begins inside reasoning: its prompt ends with the tag, or with unfinished reasoning."""
        if prompt is None:
            return bool(self._model.template_opens)
        if getattr(request, "continue_final_message", False):
            return bool(self._model.tokens.is_open(prompt))
        return self._model.tokens.prompt_opens(prompt)


class ToolwireToolParser(ToolParser):  # type: ignore[misc]
    """Read calls of a text without reasoning. Reasoning that it finds nevertheless stays in the content, in its tags."""

    format_name = ""
    engine_based_streaming = True  # vLLM then passes only the new text, and calls `finish_streaming`
    supports_required_and_named = False  # vLLM then passes every tool choice to this parser

    def __init__(self, tokenizer: Any, tools: list[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(tokenizer, tools)
        self._model = _ServedModel(self.format_name, tokenizer, kwargs)
        self._pending = ""
        _connect_parsers(self)
        self._turn: TurnReader | None = None

    def adjust_request(self, request: Any) -> Any:
        if self._model.is_constrained(request.tool_choice):
            self.supports_required_and_named = True  # vLLM 0.32 constrains the answer only then
            request = super().adjust_request(request)
            self.supports_required_and_named = False
        if request.tools and request.tool_choice != "none":
            request.skip_special_tokens = False
        return request

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        """Return the calls and the content of a whole answer."""
        whole = self._start(request).read(model_output)
        calls = [
            protocol.ToolCall(id=piece.id, function=protocol.FunctionCall(name=piece.name, arguments=piece.arguments))
            for piece in whole.calls
        ]
        return protocol.ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content=whole.content or None
        )

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> Any:
        if self._turn is None:
            self._turn = self._start(request)
        return self._record(self._turn, self._turn.feed(delta_text))

    def finish_streaming(self) -> Any:
        """Return the held text. The next text begins a new turn."""
        pending, self._pending = self._pending, ""
        if pending and not self.tools:
            return _message(TurnDelta(content=pending))
        turn, self._turn = self._turn or (self._start(None) if pending else None), None
        return None if turn is None else self._record(turn, _add(turn.feed(pending), turn.close()))

    def add_pending(self, text: str) -> None:
        """Take text that the reasoning parser passes on only at the end of the answer."""
        self._pending = text

    def _start(self, request: Any) -> TurnReader:
        self.prev_tool_call_arr.clear()
        self.streamed_args_for_tool.clear()
        self.current_tool_id = -1
        tools = getattr(request, "tools", None) or self.tools
        return self._model.turn(request, tools, opened=False, tagged_content=True)

    def _record(self, turn: TurnReader, delta: TurnDelta) -> Any:
        record_calls(self, turn, delta)
        return _message(delta)


class ToolwireReasoningParser(ReasoningParser):  # type: ignore[misc]
    """Separate the reasoning from the rest of the text, which another parser reads."""

    format_name = ""
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        self._model = _ServedModel(self.format_name, tokenizer, kwargs)
        self._opened: bool | None = None
        self._splitter: ReasoningSplitter | None = None
        self._reasoning_tokens = 0
        self.tool_parser: ToolwireToolParser | None = None
        _last_built.reasoning_parser = self

    @property
    def reasoning_start_str(self) -> str | None:
        return self._model.form.reasoning[0][0] if self._model.form.reasoning else None

    @property
    def reasoning_end_str(self) -> str | None:
        return self._model.form.reasoning[0][1] if self._model.form.reasoning else None

    def adjust_request(self, request: Any) -> Any:
        request.skip_special_tokens = False
        return request

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        self._opened = self._model.tokens.prompt_opens(prompt_token_ids)

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        return self._model.tokens.is_open(input_ids) is False

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
        return self._model.tokens.ends_in(input_ids, delta_ids)

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        return self._model.tokens.after_end(input_ids)

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        return self._reasoning_tokens

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        splitter = ReasoningSplitter(self._model.form, opened=self._model.opens_before(model_output))
        (first, rest), (last, end) = splitter.feed(model_output), splitter.close()
        self._reasoning_tokens = self._model.tokens.count(first + last)
        return first + last or None, rest + end or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> Any:
        """Return the reasoning and content of a delta, and count the tokens of reasoning.

        Only the new text is read; the splitter keeps the state.
        """
        if self._splitter is None:
            opened = self._model.template_opens if self._opened is None else self._opened
            self._splitter = ReasoningSplitter(self._model.form, opened=bool(opened))
            self._reasoning_tokens = 0
        reasoning, rest = self._splitter.feed(delta_text)
        if reasoning:
            self._reasoning_tokens += len(delta_token_ids)
        return _message(TurnDelta(reasoning, rest))

    def has_engine_confirmed_reasoning_end(self) -> bool:
        return self._splitter is not None and self._splitter.ended

    def finish_streaming(self) -> Any:
        """Return the held text. vLLM ends the tool parser later, which then reads the calls in it."""
        if self._splitter is None:
            return None
        reasoning, rest = self._splitter.close()
        if rest and self.tool_parser is not None:
            self.tool_parser.add_pending(rest)
            rest = ""
        return _message(TurnDelta(reasoning, rest))


_last_built = threading.local()
"""The reasoning parser that was made last. vLLM makes it just before the tool parser of the same turn."""


def _connect_parsers(tool: ToolwireToolParser) -> None:
    """Connect a new tool parser with the reasoning parser that was made just before it, if both have one tokenizer."""
    reasoning = getattr(_last_built, "reasoning_parser", None)
    _last_built.reasoning_parser = None
    if reasoning is not None and reasoning.model_tokenizer is tool.model_tokenizer:
        reasoning.tool_parser = tool


def parser_classes(format_name: str) -> tuple[type[ReasoningParser], type[ToolParser]]:
    """Return the reasoning parser and the tool parser of a format; an empty name detects it."""
    title = "".join(word.title() for word in format_name.split("_")) or "Auto"
    own = {"format_name": format_name}
    engine = type(f"Toolwire{title}Parser", (ToolwireParser,), own)
    shared = {**own, "_parser_engine_cls": engine}
    reasoning = type(f"Toolwire{title}ReasoningParser", (ToolwireReasoningParser,), shared)
    tool = type(f"Toolwire{title}ToolParser", (ToolwireToolParser,), shared)
    for attribute, parser in (("reasoning_parser_cls", reasoning), ("tool_parser_cls", tool)):
        setattr(engine, attribute, parser)  # vLLM asks them to adjust requests
    return reasoning, tool


def _offered(tools: Iterable[Any]) -> Iterator[Tool]:
    """Convert tools of the Chat Completions API or the Responses API. Tools without parameters run in the server."""
    for tool in tools:
        function = getattr(tool, "function", tool)
        if hasattr(function, "parameters"):
            yield _tool(function.name, function)
        for member in getattr(tool, "tools", None) or ():
            if hasattr(member, "parameters"):  # vLLM shows the model the name of a namespace before its tool's name
                yield _tool(f"{tool.name}__{member.name}", member)


def _tool(name: str, function: Any) -> Tool:
    return Tool(name, function.description or "", function.parameters or {})


def _name(choice: Any) -> str:
    """Return the name of a tool choice of the Chat Completions API or of the Responses API."""
    return str(getattr(choice, "function", choice).name)


def _add(first: TurnDelta, second: TurnDelta) -> TurnDelta:
    """Concatenate two deltas, with at most one piece per call."""
    calls = {piece.index: piece for piece in first.calls}
    for piece in second.calls:
        known = calls.get(piece.index)
        calls[piece.index] = piece if known is None else replace(known, arguments=known.arguments + piece.arguments)
    return TurnDelta(first.reasoning + second.reasoning, first.content + second.content, tuple(calls.values()))


def _message(delta: TurnDelta, *, with_reasoning: bool = True) -> Any:
    """Return the delta as a message of vLLM with only the fields that it has, or None if it is empty."""
    fields: dict[str, Any] = {}
    if delta.reasoning and with_reasoning:
        fields["reasoning"] = delta.reasoning
    if delta.content:
        fields["content"] = delta.content
    if delta.calls:
        fields["tool_calls"] = [_call_delta(piece) for piece in delta.calls]
    return protocol.DeltaMessage(**fields) if fields else None


def _call_delta(piece: CallPiece) -> Any:
    if piece.name is None:
        return protocol.DeltaToolCall(index=piece.index, function=protocol.DeltaFunctionCall(arguments=piece.arguments))
    function = protocol.DeltaFunctionCall(name=piece.name, arguments=piece.arguments)
    return protocol.DeltaToolCall(index=piece.index, id=piece.id, type="function", function=function)
