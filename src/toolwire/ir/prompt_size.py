"""Estimate the size of messages in tokens, without a tokenizer.

A tokenizer per model would be a dependency and would still be wrong for most providers. Four bytes per token is close
for English text and code. The usage that a provider reported for a prefix of the conversation corrects the estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_

from .parts import Artefact, Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from .pointer import JSON
from .request import Message, Request
from .text import to_bytes
from .tools import Tool

BYTES_PER_TOKEN = 4  # customary for English prose; `token_scale` corrects it with the usage of the last response
_MESSAGE_OVERHEAD = 16  # bytes: the role and the marks around a message
_PART_OVERHEAD = 8  # bytes: the marks around a part
_MEDIA_SIZE = 1600 * BYTES_PER_TOKEN  # a large image of the providers that document its tokens
_DOCUMENT_SHARE = 8  # bytes of base64 per counted byte: most of a PDF file is not text
# dense scripts and digits take up to a token per byte (4); beyond 8 a provider's report is wrong
_MIN_SCALE, _MAX_SCALE = 0.5, 8.0


def message_size(message: Message) -> int:
    """Return the estimated size of a message in bytes of prompt text."""
    return _MESSAGE_OVERHEAD + sum([part_size(part) for part in message.parts])


def part_size(part: Part) -> int:
    """Return the estimated size of a part in bytes of prompt text."""
    if isinstance(part, ToolResult):
        content = sum([part_size(inner) for inner in part.parts]) if part.parts else _json_size(part.structured)
        return _PART_OVERHEAD + text_size(part.call_id) + content
    if isinstance(part, ToolCall):
        fields_size = text_size(part.id) + text_size(part.name) + text_size(part.text)
        return _PART_OVERHEAD + fields_size + _artefact_size(part.artefacts)
    if isinstance(part, Media):
        return _MEDIA_SIZE + (len(part.data or "") // _DOCUMENT_SHARE if part.kind != "image" else 0)
    if isinstance(part, Reasoning):
        return _PART_OVERHEAD + text_size(part.joined_text) + _artefact_size(part.artefacts)
    if isinstance(part, Opaque):
        return _PART_OVERHEAD + _json_size(part.value)
    artefacts = part.artefacts if isinstance(part, Text) else ()
    return _PART_OVERHEAD + text_size(part.text) + _artefact_size(artefacts)


def _artefact_size(artefacts: tuple[Artefact, ...]) -> int:
    return sum([len(artefact.data) for artefact in artefacts])


def text_size(text: str) -> int:
    """Return the bytes of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _json_size(value: JSON) -> int:
    return 0 if value is None else len(to_bytes(value))


def tools_size(tools: Iterable[Tool]) -> int:
    """Return the estimated size of tool declarations in bytes of prompt text."""
    return sum(
        [
            _MESSAGE_OVERHEAD + text_size(tool.name) + text_size(tool.description or "") + _json_size(tool.input_schema)
            for tool in tools
        ]
    )


# Letters of a word: the Latin ones, digits, every other script, and marks that tokenizers join with letters. A backslash
# counts too, because arguments are JSON text, where `\n\n` is one token.
_LETTERS = frozenset([*b"_'\\", *range(0x30, 0x3A), *range(0x41, 0x5B), *range(0x61, 0x7B), *range(0x80, 0x100)])
_WORDS = bytes([byte if byte in _LETTERS else 0x20 for byte in range(0x100)])


def least_tokens(request: Request) -> int:
    """Return a lower bound of a request's tokens for every tokenizer: the words of its messages and tools.

    Deferred tools count nothing, because their declarations are not in the prompt. The vocabularies of models have no
    token with letters of two words, but long tokens for spaces and for repeated characters, so bytes give no bound.
    Media, reasoning and schemas count nothing: a provider may ignore or rewrite them. English text has about 1.4 tokens in a word, source code 2 to 3.
    """
    texts = [text for message in request.messages for part in message.parts for text in _texts(part)]
    for tool in request.tools:
        if tool.deferred:
            continue
        texts += (tool.name, tool.description or "")
    return sum([len(text.encode(errors="replace").translate(_WORDS).split()) for text in texts])


def _texts(part: Part) -> Iterable[str]:
    """Return the texts of a part that are in the prompt of every model."""
    if isinstance(part, ToolResult):
        return [text for inner in part.parts for text in _texts(inner)]
    if isinstance(part, (Text, ToolCall)):
        return (part.text,)
    return ()


class MessageSizes:
    """The sizes of a conversation's messages and tools. Messages that were there the last time are not read again."""

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._sizes: list[int] = []
        self._tools: tuple[Tool, ...] | None = None
        self._tools_size = 0

    def of_messages(self, messages: tuple[Message, ...]) -> list[int]:
        """Return the sizes of all messages; only messages that were not there the last time are read."""
        known = self._messages
        if len(messages) < len(known) or not all(map(is_, known, messages)):  # compacted: most messages are the same
            sizes = {id(message): size for message, size in zip(known, self._sizes, strict=True)}
            self._sizes = [sizes.get(id(message)) or message_size(message) for message in messages]
        else:
            self._sizes += map(message_size, messages[len(known) :])
        self._messages = messages
        return list(self._sizes)

    def of_tools(self, tools: tuple[Tool, ...]) -> int:
        if tools is not self._tools:
            self._tools, self._tools_size = tools, tools_size(tools)
        return self._tools_size


def token_scale(
    messages: Sequence[Message], measured: int | None, other_size: int = 0, sizes: Sequence[int] | None = None
) -> float:
    """Return the factor between real and estimated tokens.

    `measured` is the usage of the last response: of all messages up to the last one of the assistant, and of other
    parts of the request, such as its tools, with `other_size` bytes. The factor is bounded, because a provider's
    report is input. `sizes`: the sizes of the messages, if they are known.
    """
    last = next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "assistant"), -1)
    if measured is None or measured <= 0 or last < 0:
        return 1.0
    known = map(message_size, messages[: last + 1]) if sizes is None else sizes[: last + 1]
    estimated = (other_size + sum(known)) / BYTES_PER_TOKEN
    return min(max(measured / estimated, _MIN_SCALE), _MAX_SCALE)
