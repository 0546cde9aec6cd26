"""The part of vLLM that the adapters use, where vLLM's source tree is not available.

Its signatures are those of vLLM, recorded in tests/vectors/serving_stacks.json; a test compares both. It contains no code of
vLLM: constructors keep their arguments, and messages are plain values.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["chat_request", "install"]

_numbers = count()


def make_tool_call_id(id_type: str = "random", func_name: str | None = None, idx: int | None = None) -> str:
    return f"chatcmpl-tool-{next(_numbers)}"


class _Message:
    """A value with only the given fields, as pydantic dumps them with `exclude_unset`."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        return self.fields.get(name)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {name: _dump(value) for name, value in self.fields.items()}


def _dump(value: Any) -> Any:
    if isinstance(value, list):
        return [_dump(one) for one in value]
    return value.model_dump() if isinstance(value, _Message) else value


class ToolParser:
    def __init__(self, tokenizer: Any, tools: list[Any] | None = None) -> None:
        self.prev_tool_call_arr: list[dict[str, Any]] = []
        self.current_tool_id = -1
        self.current_tool_name_sent = False
        self.streamed_args_for_tool: list[str] = []
        self.model_tokenizer = tokenizer
        self.tools = tools or []

    def adjust_request(self, request: Any) -> Any:
        request.structured_outputs = "json"
        return request

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        raise NotImplementedError

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Any,
        current_token_ids: Any,
        delta_token_ids: Any,
        request: Any,
    ) -> Any:
        raise NotImplementedError


class ReasoningParser:
    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        self.model_tokenizer = tokenizer

    def has_engine_confirmed_reasoning_end(self) -> bool:
        return False

    def is_reasoning_end(self, input_ids: Any) -> bool:
        raise NotImplementedError

    def is_reasoning_end_streaming(self, input_ids: Any, delta_ids: Any) -> bool:
        raise NotImplementedError

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        raise NotImplementedError

    def count_reasoning_tokens(self, token_ids: Any) -> int:
        return 0

    def extract_reasoning(self, model_output: str, request: Any) -> Any:
        raise NotImplementedError

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Any,
        current_token_ids: Any,
        delta_token_ids: Any,
    ) -> Any:
        raise NotImplementedError

    def adjust_request(self, request: Any) -> Any:
        return request

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Any) -> None:
        pass


class Parser:
    reasoning_parser_cls: Any = None
    tool_parser_cls: Any = None

    def __init__(
        self, tokenizer: Any, tools: list[Any] | None = None, *args: Any, model_config: Any = None, **kwargs: Any
    ) -> None:
        self.model_tokenizer = tokenizer
        self.reasoning_parser = self.reasoning_parser_cls(tokenizer, *args, model_config=model_config, **kwargs)
        self.tool_parser = self.tool_parser_cls(tokenizer, tools)


class ParserEngine(Parser):
    def __init__(
        self,
        tokenizer: Any,
        tools: list[Any] | None = None,
        *,
        parser_engine_config: Any,
        model_config: Any = None,
        **kwargs: Any,
    ) -> None:
        raise NotImplementedError

    def adjust_request(self, request: Any) -> Any:
        raise NotImplementedError

    def parse(
        self, model_output: str, request: Any, enable_auto_tools: bool = False, model_output_token_ids: Any = ()
    ) -> Any:
        raise NotImplementedError

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> Any:
        raise NotImplementedError

    def is_reasoning_end(self, input_ids: list[int]) -> bool:
        raise NotImplementedError

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        raise NotImplementedError

    def count_reasoning_tokens(self, token_ids: Any) -> int:
        raise NotImplementedError


class _Manager:
    """A registry. `register_module` is the only method that the plugin uses."""

    def __init__(self) -> None:
        self.registered: dict[str, type] = {}

    def register_module(self, name: Any = None, force: bool = True, module: Any = None) -> Any:
        self.registered[name] = module
        return module


def _modules() -> dict[str, dict[str, Any]]:
    messages = (
        "DeltaFunctionCall",
        "DeltaMessage",
        "DeltaToolCall",
        "ExtractedToolCallInformation",
        "FunctionCall",
        "ToolCall",
    )
    return {
        "vllm": {},
        "vllm.entrypoints": {},
        "vllm.entrypoints.chat_utils": {"make_tool_call_id": make_tool_call_id},
        "vllm.entrypoints.openai": {},
        "vllm.entrypoints.openai.engine": {},
        "vllm.entrypoints.openai.engine.protocol": {name: type(name, (_Message,), {}) for name in messages},
        "vllm.parser": {},
        "vllm.parser.engine": {},
        "vllm.parser.engine.parser_engine": {"ParserEngine": ParserEngine},
        "vllm.reasoning": {"ReasoningParser": ReasoningParser, "ReasoningParserManager": _Manager()},
        "vllm.tool_parsers": {"ToolParser": ToolParser, "ToolParserManager": _Manager()},
    }


def install() -> None:
    """Make the modules importable."""
    for name, attributes in _modules().items():
        module = sys.modules[name] = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__dict__.update(attributes)
        module.__path__ = []


def chat_request(tools: Any, tool_choice: Any = None) -> Any:
    """Return the fields of a request that the parsers read."""
    choice = tool_choice or ("auto" if tools else "none")
    offered = [SimpleNamespace(type="function", function=SimpleNamespace(**tool["function"])) for tool in tools]
    if isinstance(choice, dict):
        choice = SimpleNamespace(function=SimpleNamespace(**choice["function"]))
    return SimpleNamespace(
        tools=offered, tool_choice=choice, include_reasoning=True, skip_special_tokens=True, structured_outputs=None
    )
