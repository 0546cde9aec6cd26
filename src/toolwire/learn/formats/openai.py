"""OpenAI fine-tuning: messages and tools of Chat Completions, with `weight` and `parallel_tool_calls`.

https://developers.openai.com/api/docs/guides/supervised-fine-tuning
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.pointer import Object
from ..examples import Example
from .chat_rows import decode_chat, encode_chat, has_chat_calls
from .training_format import EncodedRow, TrainingFormat

__all__ = ["FORMAT"]

_ROW = frozenset({"messages", "tools", "functions", "parallel_tool_calls"})


def _decode(row: Object) -> Example:
    example = decode_chat(row)
    others = {key: value for key, value in row.items() if key not in _ROW}
    return replace(example, extra={"openai": others}) if others else example


def _encode(example: Example) -> EncodedRow:
    row, losses = encode_chat(example)
    if example.weights:
        assistants = (message for message in row["messages"] if message["role"] == "assistant")
        for message, weight in zip(assistants, example.weights, strict=True):
            message["weight"] = weight
    if example.parallel is not None and example.tools:
        row["parallel_tool_calls"] = example.parallel
    return EncodedRow({**row, **example.extra.get("openai", {})}, losses)


def _matches(row: Object) -> int:
    messages = row.get("messages")
    if not isinstance(messages, list) or not isinstance(row.get("tools", []), list):
        return 0
    return 6 if has_chat_calls(messages, str) else 3


FORMAT = TrainingFormat(
    name="openai",
    title="OpenAI fine-tuning",
    decode=_decode,
    encode=_encode,
    matches=_matches,
    settings="upload the file with purpose fine-tune",
)
