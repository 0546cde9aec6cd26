"""TRL: a conversational dataset with `messages`, and `tools` as JSON text.

The arguments are objects, as chat templates expect them. The tools are text, because a column of objects gets the
union of all their members. Read from trl 1.16.0, `trainer/sft_trainer.py` and `data_utils.py`.
"""

from __future__ import annotations

from ...ir.losses import Losses
from ...ir.pointer import Object
from ...ir.text import dumps
from ..examples import Example
from .chat_rows import decode_chat, encode_chat, has_chat_calls
from .plain_messages import Carried, plain_example, require_learnable
from .training_format import EncodedRow, TrainingFormat

__all__ = ["FORMAT", "encode_row"]

_CARRIED = Carried(nulls=False)


def _decode(row: Object) -> Example:
    return decode_chat(row)


def encode_row(example: Example, carried: Carried = _CARRIED) -> tuple[Object, Losses]:
    """Encode an example with arguments as objects and tools as JSON text."""
    require_learnable(example)
    plain, losses = plain_example(example, carried, "TRL")
    row, more = encode_chat(plain, object_arguments=True, plain=True)
    losses.extend(more)
    row["tools"] = dumps(row.get("tools", []))
    return row, losses


def _encode(example: Example) -> EncodedRow:
    return EncodedRow(*encode_row(example))


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
    decode=_decode,
    encode=_encode,
    matches=_matches,
    settings="SFTConfig(assistant_only_loss=True)",
)
