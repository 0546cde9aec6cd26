"""Read the elements of a streamed answer: its parts, and the positions of the events that carry them.

The stream is decoded event by event, so a decoded delta belongs to the bytes that were fed last. It counts only if these
bytes contain its text, because an object of arguments has another notation than its delta. The start of a call may be
held back until its arguments begin, so its name and id may also be in the bytes before.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict

from ...ir.errors import ToolwireError
from ...ir.events import CallDelta, CallStart, Event, ReasoningDelta, ResponseStart, TextDelta
from ...ir.folding import Folder
from ...ir.parts import Reasoning, Refusal, Text, ToolCall
from ...ir.response import Response
from ...ir.text import dumps, shorten
from ...stream.framing import ArrayDecoder
from ...stream.strict import as_bytes
from ...wire import get
from .places import TextRange
from .reading import MAX_ELEMENTS, Group, Member, Reading

_LABEL = 60  # characters, as of other labels
_MIN_PART = 3  # characters of a delta that a decoder has split; a frame contains shorter ones by chance
_MAX_ARRAY = 1_000_000  # bytes of an array whose elements are found; they are read byte by byte

_frame_ends = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)").finditer
# All strings, so that none begins within another one; also one without its end, so that no quote in it is tried again.
_keys = re.compile(r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+(?:"(\s*:)?)?')
_line_ends = re.compile(rb"\r?\n").finditer


def read_stream(text: str, wire: str) -> tuple[Reading, dict[str, list[TextRange]]]:
    """Return the elements of a streamed answer, and the positions of each; up to its end or first error."""
    data = as_bytes(text)
    decoder, folder = get(wire).stream_decoder(), Folder()
    pieces = _Pieces()
    position = 0
    for start, end in find_boundaries(data):
        frame = _keys.sub(_blank_key, data[start:end].decode("utf-8", "replace"))
        try:
            for event in decoder.feed(data[start:end]):
                folder.feed(event)
                pieces.add(event, frame, position)
        except ToolwireError:
            break
        pieces.before = frame, position
        position += len(frame)
    return pieces.elements(folder)


class _Pieces:
    """The positions of the pieces of each part, by the key of its events."""

    def __init__(self) -> None:
        self.before = "", 0
        self._model: tuple[str, TextRange] | None = None
        self._ranges: dict[int, dict[str, list[TextRange]]] = defaultdict(lambda: defaultdict(list))
        self._count = 0
        self._unread = 0

    def add(self, event: Event, frame: str, position: int) -> None:
        """Note the position of an event in a frame that starts at `position`."""
        if isinstance(event, (TextDelta, ReasoningDelta, CallDelta)):
            try:
                text = event.text
            except ToolwireError:  # a lone surrogate
                return
            self._add_value(event.key, "" if not isinstance(event, CallDelta) else ".args", text, frame, position)
        elif isinstance(event, CallStart):
            for suffix, value in ((".name", event.name), (".id", event.id)):
                for place in ((frame, position), self.before):
                    if self._add_value(event.key, suffix, value, *place):
                        break
        elif isinstance(event, ResponseStart) and event.model and (at := _find_string(frame, event.model, position)):
            self._model = (event.model, at)

    def _add_value(self, key: int, suffix: str, value: str, frame: str, position: int) -> bool:
        """Note the position of a value in a frame, and return whether the frame has it."""
        at = _find_string(frame, value, position)
        if at is None:
            return False
        self._count += 1
        if self._count > MAX_ELEMENTS:
            self._unread += 1
            return True
        ranges = self._ranges[key]
        ranges[suffix].append(at)
        if suffix:  # a call is its whole events
            whole = (position, position + len(frame.rstrip()))
            if whole not in ranges[""][-1:]:
                ranges[""].append(whole)
        return True

    def elements(self, folder: Folder) -> tuple[Reading, dict[str, list[TextRange]]]:
        groups: list[Group] = []
        found: dict[str, list[TextRange]] = {}
        numbers: Counter[str] = Counter()
        if self._model is not None:
            groups.append(Group("model", "model", "model", "", self._model[0], []))
            found["model"] = [self._model[1]]
        for key, ranges in self._ranges.items():
            part = folder.part(key)
            group = _group_of(part)
            if group is None:
                continue
            letter = group.id
            group.id = f"{letter}{numbers[letter]}"
            numbers[letter] += 1
            group.members = [member for member in group.members if member.suffix in ranges]
            groups.append(group)
            found |= {group.id + suffix: places for suffix, places in ranges.items()}
        return Reading(groups, Response(), unread=self._unread), found


def _group_of(part: object) -> Group | None:
    """Return the group of a part, with its letter as id."""
    if isinstance(part, ToolCall):
        members = [
            Member(".name", "name", part.name, "", part.name),
            Member(".id", "id", part.id, "", part.id),
            Member(".args", "arguments", "arguments", "", part.arguments),
        ]
        return Group("call", "c", part.name, "", part, members, "assistant")
    if isinstance(part, Reasoning):
        return Group("reasoning", "g", shorten(part.joined_text, _LABEL), "", part, [], "assistant")
    if isinstance(part, (Text, Refusal)):
        return Group("text", "x", shorten(part.text, _LABEL), "", part, [], "assistant")
    return None


def _blank_key(string: re.Match[str]) -> str:
    """Return a value as it is and NULs for an object key, so that the tool `name` is not found in `"name":`."""
    return string[0] if string[1] is None else "\0" * len(string[0])


def _find_string(frame: str, value: str, position: int) -> TextRange | None:
    """Return the position of a JSON string in a frame: of its text, or of the frame if the text is part of a string."""
    whole = position, position + len(frame.rstrip())
    for written in (dumps(value), json.dumps(value)):
        start = frame.find(written)
        if start >= 0 and value:
            is_unique = frame.find(written, start + 1) < 0
            return (position + start + 1, position + start + len(written) - 1) if is_unique else whole
        if len(value) >= _MIN_PART and written[1:-1] in frame:
            return whole
    return None


def find_boundaries(data: bytes) -> list[TextRange]:
    """Return the byte ranges of the events: frames of server-sent events, lines, or elements of an array.

    The bytes after the last whole event are a range of their own.
    """
    start = data.lstrip(b"\xef\xbb\xbf \r\n")[:1]
    if start == b"[":
        ends = _array_ends(data)
    else:
        ends = [match.end() for match in (_line_ends(data) if start == b"{" else _frame_ends(data))]
    if not ends or ends[-1] < len(data):
        ends.append(len(data))
    starts = [0, *ends[:-1]]
    return [(begin, end) for begin, end in zip(starts, ends, strict=True) if begin < end]


def _array_ends(data: bytes) -> list[int]:
    decoder = ArrayDecoder()
    try:
        return [index + 1 for index in range(min(len(data), _MAX_ARRAY)) if decoder.feed(data[index : index + 1])]
    except ToolwireError:
        return []
