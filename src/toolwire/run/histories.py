"""Histories: check them, replace their system prompt, and save them as JSON for another process.

Path("history.json").write_text(dump_messages(answer.messages))
agent.run("…", history=load_messages(Path("history.json").read_text()))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..ir.errors import ConfigError, ProtocolError
from ..ir.parts import Text
from ..ir.request import Message

__all__ = ["check_history", "dump_messages", "load_messages", "replace_system"]

_HINT = "pass an Answer, its messages, or load_messages(text)"
_decode = msgspec.json.Decoder(tuple[Message, ...]).decode


def dump_messages(messages: Iterable[Message]) -> str:
    """Encode messages as JSON, including signatures and other fields that providers want back."""
    return msgspec.json.encode(tuple(messages)).decode()


def load_messages(text: str | bytes) -> tuple[Message, ...]:
    """Decode messages that `dump_messages` encoded."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the messages cannot be decoded: {error}", hint="pass the text of dump_messages") from None


def check_history(history: object) -> Sequence[Message]:
    """Return the history, or raise ConfigError if it does not consist of messages."""
    if isinstance(history, (str, bytes)) or not isinstance(history, Iterable):
        raise ConfigError(f"history must be messages, got a value of type {type(history).__name__}", hint=_HINT)
    messages = tuple(history)
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigError(f"history contains a value of type {type(message).__name__}", hint=_HINT)
    return messages


def replace_system(messages: Sequence[Message], system: str) -> tuple[Message, ...]:
    """Return the messages with this system prompt instead of theirs; without any if it is empty."""
    others = [message for message in messages if message.role not in ("system", "developer")]
    return (Message("system", (Text(system),)), *others) if system else tuple(others)
