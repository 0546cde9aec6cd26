"""TRL: a conversational dataset with `messages`, and `tools` as JSON text.

The arguments are objects, as chat templates expect them. The tools are text, because a column of objects gets the
union of all their members. Read from trl 1.16.0, `trainer/sft_trainer.py` and `data_utils.py`.
"""

from __future__ import annotations

from ...ir.pointer import Object
from ..examples import EncodedRow, TrainingFormat
from .chat_rows import decode_chat, encode_object_row, has_chat_calls


def _matches(row: Object) -> int:
    messages = row.get("messages")
    if not isinstance(messages, list):
        return 0
    if has_chat_calls(messages, dict):
        return 7
    return 4 if isinstance(row.get("tools"), str) else 1


FORMAT = TrainingFormat(
    name="trl",
    title="TRL SFTTrainer, messages",
    decode=decode_chat,
    encode=lambda example: EncodedRow(*encode_object_row(example)),
    matches=_matches,
    settings="SFTConfig(assistant_only_loss=True)",
)
