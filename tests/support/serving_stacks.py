"""Load the real parsers of vLLM and SGLang without their engines, which need a GPU build of PyTorch."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import fake_sglang
import fake_vllm
from stub_modules import install_stubs

__all__ = [
    "SGLANG_SOURCE",
    "VLLM_SOURCE",
    "CharacterTokenizer",
    "load_sglang",
    "load_vllm",
    "parameters_of",
    "sglang_tools",
    "vllm_request",
]

VLLM_SOURCE = os.environ.get("TOOLWIRE_VLLM_SOURCE", "")
"""A source tree of vLLM: a checkout, or an unpacked source distribution. The wheel has several hundred megabytes."""

SGLANG_SOURCE = os.environ.get("TOOLWIRE_SGLANG_SOURCE", "")
"""A folder with the package `sglang`: an unpacked wheel, which has no dependency on its engine, or `python/` of a checkout."""

_SGLANG_ENGINE = (
    "sglang.lang",
    "sglang.srt.distributed",
    "sglang.srt.platforms",
    "sglang.srt.utils",
    "sglang.utils",
)
_VLLM_ENGINE = (
    "vllm.config",
    "vllm.distributed",
    "vllm.env_override",
    "vllm.model_executor",
    "vllm.multimodal",
    "vllm.platforms",
    "vllm.transformers_utils",
    "vllm.utils.torch_utils",
    "vllm.v1",
)
_DEPENDENCIES = (
    "aiohttp",
    "cachetools",
    "cbor2",
    "cloudpickle",
    "diskcache",
    "fastapi",
    "huggingface_hub",
    "ijson",
    "IPython",
    "jinja2",
    "lark",
    "mistral_common",
    "numpy",
    "openai_harmony",
    "orjson",
    "partial_json_parser",
    "PIL",
    "prometheus_client",
    "psutil",
    "pybase64",
    "regex",
    "requests",
    "setproctitle",
    "tiktoken",
    "torch",
    "tqdm",
    "transformers",
    "triton",
    "xgrammar",
    "zmq",
)


@cache
def load_vllm() -> bool:
    """Make the parsers of vLLM importable: the real ones if there is a source tree, else tests/support/fake_vllm.py.

    Return whether they are the real ones.
    """
    if not VLLM_SOURCE:
        fake_vllm.install()
        return False
    if not (Path(VLLM_SOURCE) / "vllm" / "tool_parsers").is_dir():
        raise FileNotFoundError(f"TOOLWIRE_VLLM_SOURCE={VLLM_SOURCE} is not a source tree of vLLM")
    sys.path.insert(0, VLLM_SOURCE)
    mixin = {"PydanticMsgspecMixin": type("PydanticMsgspecMixin", (), {})}  # a base beside msgspec.Struct
    install_stubs(_VLLM_ENGINE, _DEPENDENCIES, {"vllm.v1.serial_utils": mixin})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("vllm.tool_parsers")
        import_module("vllm.reasoning")
        import_module("vllm.parser")
    return True


@cache
def load_sglang() -> bool:
    """Make the parsers of SGLang importable: the real ones if there is a folder with them, else tests/support/fake_sglang.py.

    Return whether they are the real ones.
    """
    if not SGLANG_SOURCE:
        fake_sglang.install()
        return False
    if not (Path(SGLANG_SOURCE) / "sglang" / "srt").is_dir():
        raise FileNotFoundError(f"TOOLWIRE_SGLANG_SOURCE={SGLANG_SOURCE} does not contain the package sglang")
    sys.path.insert(0, SGLANG_SOURCE)
    install_stubs(_SGLANG_ENGINE, _DEPENDENCIES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("sglang.srt.function_call.function_call_parser")
        import_module("sglang.srt.parser.reasoning_parser")
    return True


def sglang_tools(bodies: list[dict[str, Any]]) -> list[Any]:
    """Return tools as SGLang's server passes them to its detectors."""
    if not load_sglang():
        return fake_sglang.tools(bodies)
    from sglang.srt.entrypoints.openai.protocol import Tool

    return [Tool(**body) for body in bodies]


def vllm_request(tools: list[dict[str, Any]], tool_choice: Any = None) -> Any:
    """Return a request of the Chat Completions API as vLLM's server passes it to its parsers."""
    if not load_vllm():
        return fake_vllm.chat_request(tools, tool_choice)
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
    if tools:
        body["tools"] = tools
    if tool_choice is not None:
        body["tool_choice"] = tool_choice
    return ChatCompletionRequest(**body)


def parameters_of(function: Any) -> str:
    """Return the parameters of a function: names, `*` before those that are keywords only, `=` after optional ones."""
    described, by_keyword = [], False
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not by_keyword:
            described.append("*")
            by_keyword = True
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        by_keyword = by_keyword or one.kind is one.VAR_POSITIONAL
        described.append(f"{star}{one.name}{'' if one.default is one.empty else '='}")
    return ", ".join(described)


class CharacterTokenizer:
    """A tokenizer with one token per character. The ids of the special tokens are below the offset."""

    _OFFSET = 100
    eos_token_id = 1
    all_special_tokens = ("<end>", "<turn>")
    all_special_ids = (1, 2)
    chat_template_end = ""
    """The end of every prompt."""

    def __init__(self, name: str = "", chat_template_end: str = "") -> None:
        self.name_or_path = name
        self.chat_template_end = chat_template_end

    def get_vocab(self) -> dict[str, int]:
        return {}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) + self._OFFSET for character in text]

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return "".join(chr(one - self._OFFSET) if one >= self._OFFSET else f"<{one}>" for one in ids)

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        return "<turn>user: ?<turn>assistant: " + self.chat_template_end

    def prompt(self) -> list[int]:
        """Return the ids of a prompt."""
        turn = [self.all_special_ids[1]]
        asked, asks = self.encode("user: <think>?"), self.encode("assistant: " + self.chat_template_end)
        return [*turn, *asked, *turn, *asks]
