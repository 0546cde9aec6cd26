"""Axolotl `type: chat_template`: messages of Chat Completions, `tools` as JSON text, and `training` per message.

Read from axolotl 0.19.0, `prompt_strategies/chat_template.py`: arguments may be JSON text, which a column of objects
cannot change.
"""

from __future__ import annotations

from ...ir.pointer import Object
from ...ir.text import dumps
from ..examples import EncodedRow, Example, TrainingFormat
from .chat_rows import Carried, decode_chat, encode_chat, mark_weights, plain_example, require_learnable

_CARRIED = Carried(weights=True)


def _encode(example: Example) -> EncodedRow:
    require_learnable(example)
    plain, losses = plain_example(example, _CARRIED, "Axolotl")
    row, more = encode_chat(plain, plain=True)
    losses.extend(more)
    mark_weights(row["messages"], example.weights or [1] * _assistants(example), "training", bool)
    row["tools"] = dumps(row.get("tools", []))
    return EncodedRow(row, losses)


def _assistants(example: Example) -> int:
    return sum(message.role == "assistant" for message in example.messages)


def _matches(row: Object) -> int:
    messages = row.get("messages")
    if not isinstance(messages, list):
        return 0
    return 8 if any(isinstance(message, dict) and "training" in message for message in messages) else 0


FORMAT = TrainingFormat(
    name="axolotl",
    title="Axolotl chat_template",
    decode=lambda row: decode_chat(row, "training"),
    encode=_encode,
    matches=_matches,
    settings="type: chat_template, field_messages: messages, field_tools: tools, message_field_training: training",
)
