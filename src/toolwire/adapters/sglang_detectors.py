"""Detectors for SGLang: one for calls, and one for the reasoning before them.

SGLang makes one detector per choice of a response, and passes the text after the reasoning to the detector of calls. It
makes the ids of the calls itself. For a forced tool choice it constrains the text to a JSON array and parses it, because
these detectors describe no structural tag.
"""

from __future__ import annotations

from typing import Any

from ..ir.errors import MissingExtra
from ..ir.tools import Tool
from ..text import get
from ..text.engine.format import Format
from ..text.engine.offered_tools import OfferedTools
from .turn_reader import ReasoningSplitter, TurnDelta, TurnReader, record_calls

try:
    from sglang.srt.function_call.base_format_detector import BaseFormatDetector
    from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem
    from sglang.srt.parser.reasoning_parser import BaseReasoningFormatDetector
    from sglang.srt.parser.reasoning_parser import StreamingParseResult as ReasoningResult
except ImportError as error:
    raise MissingExtra(
        f"the detectors for SGLang require SGLang 0.5.18 or later: {error}", hint="pip install -U sglang"
    ) from error

_NO_TOOLS = OfferedTools(())
_ONE_TOOL = OfferedTools((Tool("tool", "", {}),))


class ToolwireDetector(BaseFormatDetector):  # type: ignore[misc]
    """Read calls of a text without reasoning. Reasoning that it finds nevertheless stays in the text, in its tags."""

    format_name = "hermes"

    def __init__(self) -> None:
        super().__init__()
        self._form = get(self.format_name)
        self._turn: TurnReader | None = None

    def has_tool_call(self, text: str) -> bool:
        """Return whether `detect_and_parse` may change the text, which SGLang otherwise passes on as it is.

        The offered tools are unknown here. A format that needs them, or a tag that is also ordinary text, may open a call.
        """
        style = self._form.calls
        weak = (*style.weak_openers(_NO_TOOLS), *style.inline_openers(_NO_TOOLS))
        if self._needs_tools or any(opener in text for opener in weak):
            return True
        whole = _read(self._form, []).read(text)
        return bool(whole.calls) or whole.content != text

    @property
    def _needs_tools(self) -> bool:
        style = self._form.calls
        differ = style.openers(_ONE_TOOL) != style.openers(_NO_TOOLS)
        return self._form.needs_tools or differ or style.weak_openers(_ONE_TOOL) != style.weak_openers(_NO_TOOLS)

    def detect_and_parse(self, text: str, tools: list[Any]) -> Any:
        return self._result(_read(self._form, tools).read(text))

    def parse_streaming_increment(self, new_text: str, tools: list[Any]) -> Any:
        turn = self._turn or self._start(tools)
        return self._record(turn, turn.feed(new_text))

    def finish(self, tools: list[Any]) -> Any:
        """Return the held text. The next text begins a new turn."""
        turn, self._turn = self._turn, None
        return StreamingParseResult() if turn is None else self._record(turn, turn.close())

    def _start(self, tools: list[Any]) -> TurnReader:
        self.prev_tool_call_arr.clear()
        self.streamed_args_for_tool.clear()
        self._turn = _read(self._form, tools)
        return self._turn

    def supports_structural_tag(self) -> bool:
        return False

    def structure_info(self) -> Any:
        """Never run, because `supports_structural_tag` is false."""
        raise NotImplementedError

    def _record(self, turn: TurnReader, delta: TurnDelta) -> Any:
        record_calls(self, turn, delta)
        return self._result(delta)

    def _result(self, delta: TurnDelta) -> Any:
        calls = [ToolCallItem(tool_index=call.index, name=call.name, parameters=call.arguments) for call in delta.calls]
        return StreamingParseResult(normal_text=delta.content, calls=calls)


class ToolwireReasoningDetector(BaseReasoningFormatDetector):  # type: ignore[misc]
    """Separate the reasoning from the rest of the text, which the detector of calls reads."""

    format_name = "hermes"

    def __init__(
        self,
        stream_reasoning: bool = True,
        force_reasoning: bool = False,
        continue_final_message: bool = False,
        previous_content: str = "",
        force_nonempty_content: bool = False,
    ) -> None:
        """Take SGLang's arguments; the tags are those that the format declares first."""
        self._form = get(self.format_name)
        opening, closing = self._form.reasoning[0]
        super().__init__(
            opening,
            closing,
            force_reasoning=force_reasoning,
            stream_reasoning=stream_reasoning,
            continue_final_message=continue_final_message,
            previous_content=previous_content,
            reasoning_default=None,  # without a setting of the template, the text decides
        )
        self._never_empty = force_nonempty_content
        self._kept: list[str] = []  # reasoning that is not sent yet
        self._splitter = self._start()

    def detect_and_parse(self, text: str) -> Any:
        splitter = self._start()
        (first, rest), (last, end) = splitter.feed(text), splitter.close()
        reasoning, content = first + last, rest + end
        if self._never_empty and not content:
            reasoning, content = "", reasoning
        return ReasoningResult(content, reasoning)

    def parse_streaming_increment(self, new_text: str) -> Any:
        reasoning, rest = self._splitter.feed(new_text)
        if self.stream_reasoning and not self._never_empty:
            return ReasoningResult(rest, reasoning)
        self._kept.append(reasoning)
        if not self._splitter.ended:
            return ReasoningResult()
        return ReasoningResult(rest, self._take_kept())

    def finish(self) -> Any:
        """Return the held text."""
        last, rest = self._splitter.close()
        reasoning = self._take_kept() + last
        self._splitter = self._start()
        if self._never_empty and not rest:
            return ReasoningResult(reasoning, "")
        return ReasoningResult(rest, reasoning)

    def _take_kept(self) -> str:
        kept = "".join(self._kept)
        self._kept.clear()
        return kept

    def _start(self) -> ReasoningSplitter:
        return ReasoningSplitter(self._form, opened=self._in_reasoning)


def detector_classes(form: Format) -> tuple[type[BaseReasoningFormatDetector] | None, type[BaseFormatDetector]]:
    """Return the detectors of reasoning and of calls of a format; None if it has no tags of reasoning."""
    title = "".join(word.title() for word in form.name.split("_"))
    own = {"format_name": form.name}
    calls = type(f"Toolwire{title}Detector", (ToolwireDetector,), own)
    if not form.reasoning:
        return None, calls
    return type(f"Toolwire{title}ReasoningDetector", (ToolwireReasoningDetector,), own), calls


def _read(form: Format, tools: list[Any]) -> TurnReader:
    offered = [_tool(tool.function) for tool in tools]
    return TurnReader(form, offered, new_id=str, tagged_content=True)


def _tool(function: Any) -> Tool:
    return Tool(function.name, function.description or "", function.parameters or {})
