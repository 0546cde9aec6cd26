"""Histories as JSON: save the messages of a conversation and continue it later, in another process.

Path("history.json").write_text(dump_messages(answer.messages))
agent.run("…", history=load_messages(Path("history.json").read_text()))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..ir.errors import ConfigError, ProtocolError
from ..ir.request import Message

__all__ = ["check_history", "dump_messages", "load_messages"]

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


_HINT = "pass an Answer, its messages, or load_messages(text)"
