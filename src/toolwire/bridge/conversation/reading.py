"""Decode a request whose first messages are known from an earlier one.

The items of the conversation are found in the bytes of the request, so that known ones need not be decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from secrets import token_hex

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...ir.errors import ToolwireError
from ...ir.parts import Opaque, Part, ToolResult
from ...ir.pointer import JSON
from ...ir.request import Message, Request
from ...stream.strict import count_values, may_exceed_limits, parse_object, text_copies
from ...wire.codec import WireCodec
from ...wire.protocol import Wire
from .fitted_prefix import PrefixStore
from .known_settings import KnownSettings, read_request

_SEPARATOR = re.compile(rb"[\s,]*+")


@lru_cache(16)
def _field_pattern(field: str) -> re.Pattern[bytes]:
    return re.compile(rb'"%b"\s*+:\s*+\[\s*+' % re.escape(field.encode()))


@lru_cache(16)
def _span_decoder(field: str) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder that reads only the list under `field`, and its items only as spans."""
    document = msgspec.defstruct("_Document", [(field, list[Raw])])
    return msgspec.json.Decoder(document)


def find_items(data: bytes, field: str) -> int:
    """Return the offset of the first item in the first list under `field`; -1 if there is none.

    The field need not be one of the document itself: see `is_top_level`.
    """
    found = _field_pattern(field).search(data)
    return -1 if found is None else found.end()


def is_top_level(data: bytes, start: int) -> bool:
    """Return whether the list that begins before `start` is a field of the document itself.

    If the document can be completed there by the end of one list and one object, no other container is open.
    """
    try:
        msgspec.json.decode(data[:start] + b"]}", type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def item_end(data: bytes, field: str, start: int, count: int) -> int:
    """Return the offset of the end of item `count` of the list under `field`.

    `data` is a valid document with at least `count` items in that list, the first of which is at `start`.
    """
    spans: list[Raw] = getattr(_span_decoder(field).decode(data), field)
    end = start
    for span in spans[:count]:
        separator = _SEPARATOR.match(data, end)
        end = (end if separator is None else separator.end()) + len(memoryview(span))
    return end


# The bytes of the known messages are taken out of the document, which leaves a short one with the same meaning for
# everything else. It is parsed strictly, so a document is accepted if and only if the whole one is. Whatever is
# unusual (an error, a system message after the known ones) takes the usual path instead, which also has the right
# positions.


_KEPT_TURNS = 2
"""The last turns of the model that are not part of a prefix: clients move cache marks at the end of a conversation."""
_MARKER = token_hex(16)  # an item in place of the known ones; no client can know it
_MARKER_TEXT = b'"%b"' % _MARKER.encode()
_BYTES_PER_VALUE = 120  # of a Python object with its reference, on average
_ENTRY_SIZE = 2000  # bytes of a prefix besides its content


class ConversationPrefix:
    """The first items of a conversation: their bytes, the messages made of them, and the translation of these.

    `leading` are the messages before them, from other fields of the document.
    """

    __slots__ = (
        "_decode",
        "_values",
        "leading",
        "leading_text",
        "messages",
        "store",
        "text",
        "text_copies",
        "wire_name",
    )

    def __init__(
        self,
        wire: Wire,
        text: bytes,
        leading: tuple[Message, ...],
        messages: tuple[Message, ...],
        values: int | None,
        earlier: ConversationPrefix | None = None,
    ) -> None:
        """Create the prefix. `earlier` is a known beginning of it, `values` the number of JSON values, if known."""
        self.wire_name = wire.name
        self.text = text
        self.leading = leading
        self.leading_text = msgspec.json.encode(leading) if leading else b""
        self.messages = messages
        self.store: PrefixStore = PrefixStore(len(leading) + len(messages), None if earlier is None else earlier.store)
        self._decode = wire.decode_request
        self._values = values
        self.text_copies = text_copies(text) if earlier is None else _joined_copies(text, earlier)

    @property
    def is_counted(self) -> bool:
        """True if the number of values is known."""
        return self._values is not None

    @property
    def values(self) -> int:
        """The number of JSON values in the items."""
        if self._values is None:
            self._values = count_values(self.text)
        return self._values

    @property
    def size(self) -> int:
        """The bytes of memory that it takes."""
        text, values = self.text, self._values
        if values is None:  # an upper bound, which costs less than the number
            values = text.count(b",") + text.count(b"{") + text.count(b"[")
        own_size = (1 + self.text_copies) * len(text) + 2 * len(self.leading_text)
        return _ENTRY_SIZE + own_size + _BYTES_PER_VALUE * values + self.store.size

    def fits(self, wire: Wire) -> bool:
        """Return whether the messages are those that `wire` decodes."""
        return self._decode == wire.decode_request


def _joined_copies(text: bytes, earlier: ConversationPrefix) -> int:
    return max(earlier.text_copies, text_copies(text[len(earlier.text) :]))


class RequestReading:
    """A request as bytes, of which the first messages may be known.

    `start` is the offset of the first item of its conversation. `save` stores the prefix for the next request, in place
    of the one that was used; without it, nothing is stored.
    """

    store: PrefixStore | None = None
    """The translations of the first messages; set by `decode`, None if they are not stored."""
    settings: KnownSettings | None = None
    """The settings of the request; set by `decode`."""
    reused = 0
    """The number of messages that `decode` took from an earlier request."""
    _values: int | None = None

    def __init__(
        self,
        wire: Wire,
        body: bytes,
        start: int = -1,
        prefix: ConversationPrefix | None = None,
        save: Callable[[ConversationPrefix], None] | None = None,
    ) -> None:
        self.body = body
        self.wire = wire
        self._start = start
        self._prefix = prefix
        self._save = save
        if prefix is not None:
            self._known_end = start + len(prefix.text)

    @property
    def values(self) -> int:
        """The number of JSON values in the document: `count_values(body)`."""
        if self._values is None:
            self._values = count_values(self.new_text) + (0 if self._prefix is None else self._prefix.values)
        return self._values

    @cached_property
    def new_text(self) -> bytes:
        """The document with one item in place of the known ones; the document itself if none are known."""
        if self._prefix is None:
            return self.body
        return self.body[: self._start] + _MARKER_TEXT + self.body[self._known_end :]

    @property
    def text_copies(self) -> int:
        """The result of `text_copies` for the document."""
        known = 1 if self._prefix is None else self._prefix.text_copies
        return max(known, text_copies(self.new_text))

    def decode(self) -> Request:
        """Decode the request, set `store` and `reused`, and save the conversation's beginning for the next request.

        Raise ProtocolError with a pointer if the request is invalid.
        """
        if self._prefix is not None:
            request = self._decode_rest(self._prefix)
            if request is not None:
                return request
            self._prefix, self.new_text = None, self.body
        document = parse_object(self.body)
        request, self.settings = read_request(self.wire, document)
        if self._save is not None and is_top_level(self.body, self._start):
            items = document[self.wire.conversation]
            if (ends := _item_ends(items, request.messages, self.wire)) is not None:
                leading = len(request.messages) - len(ends)
                envelope = replace(request, messages=request.messages[:leading])
                self._remember(envelope, request.messages[leading:], ends, prefix=None)
        return request

    def _decode_rest(self, prefix: ConversationPrefix) -> Request | None:
        """Decode the request after its known items, set `store` and `reused`, and save a longer prefix.

        Return None if this needs the whole document, also for an invalid one: only the whole has the right positions.
        """
        if may_exceed_limits(self.body):
            return None
        try:
            document = parse_object(self.new_text)
            items = document.get(self.wire.conversation)
            if type(items) is not list or not items or items[0] != _MARKER:
                return None
            del items[0]
            request, settings = read_request(self.wire, document)
        except ToolwireError:
            return None
        ends = _item_ends(items, request.messages, self.wire)
        if not ends:
            return None
        count = len(request.messages) - len(ends)
        # the known items end before a message of the model; another role may belong to the message before it
        if request.messages[count].role != "assistant":
            return None
        new_messages = request.messages[count:]
        envelope = self._decoded_envelope(request, count, prefix)
        self._remember(envelope, new_messages, ends, prefix)
        self.reused, self.settings = len(prefix.messages), settings
        return replace(envelope, messages=(*envelope.messages, *prefix.messages, *new_messages))

    def _decoded_envelope(self, request: Request, count: int, prefix: ConversationPrefix) -> Request:
        """Return the request with its leading messages only: the known ones, if they are the same."""
        leading = request.messages[:count]
        is_same = msgspec.json.encode(leading) == prefix.leading_text if leading else not prefix.leading
        return replace(request, messages=prefix.leading if is_same else leading)

    def _remember(
        self,
        envelope: Request,
        new_messages: tuple[Message, ...],
        ends: Sequence[int],
        prefix: ConversationPrefix | None,
    ) -> None:
        """Set `store`, and save the beginning of the conversation for the next request.

        `prefix` is the known beginning, if any; `ends` are the item counts of `_item_ends` for the new messages.
        """
        known, leading = () if prefix is None else prefix.messages, envelope.messages
        boundary = _find_boundary(new_messages)
        if prefix is not None and not boundary and leading is prefix.leading:
            self.store = prefix.store  # no longer than the known prefix
            return
        if self._save is None or not (known or boundary):
            return
        try:
            end = self._item_end(ends[boundary - 1] if boundary else 0, prefix)
        except msgspec.MsgspecError:
            return
        messages = (*known, *new_messages[:boundary])
        text, values = self.body[self._start : end], self._values_before(end, prefix)
        longer = ConversationPrefix(self.wire, text, leading, messages, values, prefix)
        self.store = longer.store
        self._save(longer)

    def _item_end(self, count: int, prefix: ConversationPrefix | None) -> int:
        """Return the offset of the end of `count` new items."""
        field = self.wire.conversation
        if prefix is None:
            return item_end(self.body, field, self._start, count)
        return item_end(self.new_text, field, self._start, count + 1) + len(prefix.text) - len(_MARKER_TEXT)

    def _values_before(self, end: int, prefix: ConversationPrefix | None) -> int | None:
        """Return the number of values in the conversation up to `end`, if it is known without a full count."""
        if prefix is not None:
            return prefix.values + count_values(self.body[self._known_end : end]) if prefix.is_counted else None
        return None if self._values is None else self._values - count_values(self.body[: self._start] + self.body[end:])


def _item_ends(items: list[JSON], messages: tuple[Message, ...], wire: Wire) -> Sequence[int] | None:
    """Return the number of items up to the end of each message of the conversation, or None if unknown.

    Messages of other fields come first in `messages`, and have no items.
    """
    is_own = wire.is_own_message if isinstance(wire, WireCodec) else None
    if is_own is None:
        # on this wire, each item is a message
        return range(1, len(items) + 1)
    if any(_depends_on_others(part) for message in messages for part in message.parts):
        return None
    ends: list[int] = []
    in_run = False  # of items that are one message
    for count, item in enumerate(items, 1):
        if in_run and not is_own(item):
            ends[-1] = count
        else:
            ends.append(count)
            in_run = not is_own(item)
    return ends


def _depends_on_others(part: Part) -> bool:
    """Return whether the item of a part is decoded together with others, or may be a message of its own."""
    return isinstance(part, Opaque) or (isinstance(part, ToolResult) and (bool(part.found) or part.kind == "search"))


def _find_boundary(messages: tuple[Message, ...]) -> int:
    """Return the number of messages before the last turns of the model, where a user message comes first; 0: none."""
    turns = 0
    for index in range(len(messages) - 1, 0, -1):
        if messages[index].role == "assistant" and messages[index - 1].role != "assistant":
            turns += 1
            if turns >= _KEPT_TURNS and messages[index - 1].role == "user":
                return index
    return 0
