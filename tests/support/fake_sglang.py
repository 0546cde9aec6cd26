"""The part of SGLang that the detectors use, where SGLang is not available.

Its signatures are those of SGLang, recorded in tests/vectors/serving_stacks.json; a test compares both. It contains no code of
SGLang: the composition of a reasoning parser and a parser of calls is written from its documentation.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["install", "tools"]


@dataclass
class ToolCallItem:
    tool_index: int
    parameters: str
    name: str | None = None


@dataclass
class StreamingParseResult:
    normal_text: str = ""
    calls: list[ToolCallItem] = field(default_factory=list)


class BaseFormatDetector:
    def __init__(self) -> None:
        self.prev_tool_call_arr: list[dict[str, Any]] = []
        self.current_tool_id = -1
        self.current_tool_name_sent = False
        self.streamed_args_for_tool: list[str] = []

    def detect_and_parse(self, text: str, tools: list[Any]) -> StreamingParseResult:
        raise NotImplementedError

    def parse_streaming_increment(self, new_text: str, tools: list[Any]) -> StreamingParseResult:
        raise NotImplementedError

    def has_tool_call(self, text: str) -> bool:
        raise NotImplementedError

    def finish(self, tools: list[Any]) -> StreamingParseResult:
        raise NotImplementedError

    def supports_structural_tag(self) -> bool:
        return True

    def structure_info(self) -> Any:
        raise NotImplementedError


class FunctionCallParser:
    ToolCallParserEnum: dict[str, type[BaseFormatDetector]] = {}

    def __init__(self, tools: list[Any], tool_call_parser: str) -> None:
        self.detector = self.ToolCallParserEnum[tool_call_parser]()
        self.tools = tools

    def has_tool_call(self, text: str) -> bool:
        return self.detector.has_tool_call(text)

    def parse_non_stream(self, full_text: str) -> tuple[str, list[ToolCallItem]]:
        result = self.detector.detect_and_parse(full_text, self.tools)
        return result.normal_text, result.calls

    def parse_stream_chunk(self, chunk_text: str) -> tuple[str, list[ToolCallItem]]:
        result = self.detector.parse_streaming_increment(chunk_text, self.tools)
        return result.normal_text, result.calls

    def parse_stream_end(self) -> tuple[str, list[ToolCallItem]]:
        result = self.detector.finish(self.tools)
        return result.normal_text, result.calls


class ReasoningResult:
    def __init__(self, normal_text: str | None = None, reasoning_text: str | None = None) -> None:
        self.normal_text = normal_text or ""
        self.reasoning_text = reasoning_text or ""


class BaseReasoningFormatDetector:
    def __init__(
        self,
        think_start_token: str,
        think_end_token: str,
        think_excluded_tokens: list[str] | None = None,
        force_reasoning: bool = False,
        stream_reasoning: bool = True,
        tool_start_token: str | None = None,
        continue_final_message: bool = False,
        previous_content: str = "",
        thinks_internally: bool = False,
        reasoning_default: str | None = "always",
        force_nonempty_content: bool = False,
        tool_start_at_line_start: bool = False,
    ) -> None:
        self.think_start_token = think_start_token
        self.think_end_token = think_end_token
        self.stream_reasoning = stream_reasoning
        continued = previous_content if continue_final_message else ""
        self._in_reasoning = (force_reasoning or think_start_token in continued) and think_end_token not in continued

    def detect_and_parse(self, text: str) -> ReasoningResult:
        raise NotImplementedError

    def parse_streaming_increment(self, new_text: str) -> ReasoningResult:
        raise NotImplementedError

    def finish(self) -> ReasoningResult:
        raise NotImplementedError


class ReasoningParser:
    DetectorMap: dict[str, type[BaseReasoningFormatDetector]] = {}

    def __init__(self, model_type: str, stream_reasoning: bool = True, force_reasoning: bool = False) -> None:
        self.detector = self.DetectorMap[model_type](stream_reasoning, force_reasoning)

    def parse_non_stream(self, full_text: str) -> tuple[str, str]:
        result = self.detector.detect_and_parse(full_text)
        return result.reasoning_text, result.normal_text

    def parse_stream_chunk(self, chunk_text: str) -> tuple[str, str]:
        result = self.detector.parse_streaming_increment(chunk_text)
        return result.reasoning_text, result.normal_text

    def parse_stream_end(self) -> tuple[str, str]:
        result = self.detector.finish()
        return result.reasoning_text, result.normal_text


def install() -> None:
    """Make the modules importable."""
    modules: dict[str, dict[str, Any]] = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.function_call": {},
        "sglang.srt.function_call.base_format_detector": {"BaseFormatDetector": BaseFormatDetector},
        "sglang.srt.function_call.core_types": {
            "StreamingParseResult": StreamingParseResult,
            "ToolCallItem": ToolCallItem,
        },
        "sglang.srt.function_call.function_call_parser": {"FunctionCallParser": FunctionCallParser},
        "sglang.srt.parser": {},
        "sglang.srt.parser.reasoning_parser": {
            "BaseReasoningFormatDetector": BaseReasoningFormatDetector,
            "ReasoningParser": ReasoningParser,
            "StreamingParseResult": ReasoningResult,
        },
    }
    for name, attributes in modules.items():
        module = sys.modules[name] = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__dict__.update(attributes)
        module.__path__ = []


def tools(bodies: list[dict[str, Any]]) -> list[Any]:
    return [SimpleNamespace(type="function", function=SimpleNamespace(**body["function"])) for body in bodies]
