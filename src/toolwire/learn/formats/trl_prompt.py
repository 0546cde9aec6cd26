"""TRL with `prompt` and `completion`: the model learns from the last assistant message only.

Read from trl 1.16.0, `trainer/sft_trainer.py` (`completion_only_loss`).
"""

from __future__ import annotations

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ..examples import EncodedRow, Example, TrainingFormat
from .chat_rows import Carried, decode_chat
from .chat_rows import encode_object_row as encode_row


def _decode(row: Object) -> Example:
    prompt, completion = (_messages_in(row, key) for key in ("prompt", "completion"))
    marked = [{**message, "weight": 0} if _is_assistant(message) else message for message in prompt]
    try:
        return decode_chat({"messages": [*marked, *completion], "tools": row.get("tools")})
    except ProtocolError as error:
        raise _in_side(error, len(prompt)) from None


def _messages_in(row: Object, key: str) -> list[JSON]:
    messages = row.get(key)
    if type(messages) is not list:
        raise ProtocolError("expected an array of messages", pointer=f"/{key}", hint="use the conversational form")
    return messages


def _is_assistant(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"


def _in_side(error: ProtocolError, prompt: int) -> ProtocolError:
    """Point into the list that the message came from."""
    head, _, rest = error.pointer.removeprefix("/messages/").partition("/")
    if error.pointer.startswith("/messages/") and head.isdecimal():
        number = int(head)
        side = f"/prompt/{number}" if number < prompt else f"/completion/{number - prompt}"
        error.pointer = f"{side}/{rest}" if rest else side
    return error


def _encode(example: Example) -> EncodedRow:
    row, losses = encode_row(example, Carried(nulls=False, weights=True))
    assistants = sum(message.role == "assistant" for message in example.messages)
    expected = [0] * (assistants - 1) + [1]
    if list(example.weights or [1] * assistants) != expected:
        losses.add("/weights", "weight", "weakened", "the model learns from the last assistant message only", "warning")
    messages = row.pop("messages")
    return EncodedRow({"prompt": messages[:-1], "completion": messages[-1:], **row}, losses)


def _matches(row: Object) -> int:
    return 8 if isinstance(row.get("prompt"), list) and isinstance(row.get("completion"), list) else 0


FORMAT = TrainingFormat(
    name="trl_prompt",
    title="TRL SFTTrainer, prompt and completion",
    decode=_decode,
    encode=_encode,
    matches=_matches,
    settings="SFTConfig(completion_only_loss=True), which is the default",
)
