"""OpenAI fine-tuning: messages and tools of Chat Completions, with `weight` and `parallel_tool_calls`.

https://developers.openai.com/api/docs/guides/supervised-fine-tuning
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import EncodeError
from ...ir.pointer import Object
from ..examples import EncodedRow, Example, TrainingFormat
from .chat_rows import decode_chat, encode_chat, has_chat_calls, mark_weights, require_learnable

_ROW = frozenset({"messages", "tools", "functions", "parallel_tool_calls"})


def _decode(row: Object) -> Example:
    example = decode_chat(row)
    others = {key: value for key, value in row.items() if key not in _ROW}
    return replace(example, extra={"openai": others}) if others else example


def _encode(example: Example) -> EncodedRow:
    """Return an example as a row of OpenAI's fine-tuning API, with its losses.

    Raises `EncodeError` for incomplete calls.
    """
    require_learnable(example)
    for call in example.calls:
        if call.state != "complete":
            raise EncodeError(f"a call of {call.name} is {call.state}", hint="remove this example")
    row, losses = encode_chat(example)
    mark_weights(row["messages"], example.weights, "weight")
    if example.parallel is not None and example.tools:
        row["parallel_tool_calls"] = example.parallel
    for name in example.extra:
        if name != "openai":
            losses.add(f"/extra/{name}", "extra", "dropped", f"only {name} has these fields", "info")
    return EncodedRow({**example.extra.get("openai", {}), **row}, losses)


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
    settings="upload the file with the purpose fine-tune",
)
