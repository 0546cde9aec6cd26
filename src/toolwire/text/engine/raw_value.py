"""Raw text between tags, which may itself contain tags; and the attributes of a tag.

A closer is accepted only if the call can continue after it: with a parameter of the tool that was not given yet, or
with the end of the call. To decide, up to LOOKAHEAD characters after the closer are examined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import TypeAlias

from ...ir.value import Value
from .reader import Parsing, Reader, terminals
from .style import ParseContext

# Raw text between tags, which may itself contain tags.
#
# A closer is accepted only if the call can continue after it: with a parameter of the tool that was not given yet, or
# with the end of the call. To decide, up to LOOKAHEAD characters after the closer are examined. A value that contains
# a complete structural sequence of its own format cannot be distinguished from structure.


# characters; enough for closing tags, the next opening and its key, also indented. More would delay the stream
LOOKAHEAD = 512
Decision: TypeAlias = bool | None  # None: more text is needed

_match_spaces = re.compile(r"[ \t\r\n]*").match


class ValueTags(Value, frozen=True):
    """The tags around a value. `eager`: the end of a call is accepted at once, for formats that stop there."""

    value_close: str
    call_open: str
    key_opens: tuple[str, ...]
    call_close: str
    section_open: str = ""
    section_close: str = ""
    newline: bool = False  # one line break before the closer belongs to the tag
    eager: bool = False
    implicit: bool = True  # the tag of another argument also closes a value

    def closers(self) -> tuple[str, ...]:
        """Return the tags that end a value. The line break before the tag of another element belongs to that tag."""
        keys = self.key_opens if self.implicit else ()
        outer = tuple(filter(None, (*keys, self.call_close, self.section_close)))
        on_lines = (self.value_close, *outer) if self.newline else outer
        return (
            *(f"\r\n{tag}" for tag in on_lines),
            *(f"\n{tag}" for tag in on_lines),
            *filter(None, (self.value_close, *outer)),
        )


KeyTest: TypeAlias = Callable[[str, int, bool], Decision]
"""(text, at, surely): whether the tag opened before `at` is an argument. `surely`: only if the tool has it."""


def read_raw_value(reader: Reader, frame: ValueTags, is_key: KeyTest, sink: Callable[[str], object]) -> Parsing[str]:
    """Pass on the value and read its closer, but leave an implicit one (the next tag). Return the tag, "" without one.

    Inside a call that is quoted in the value, a tag is accepted only if it certainly belongs to the outer call.
    """
    stops = terminals(*frame.closers(), frame.call_open)
    quoted = 0
    while True:
        safe, found = stops.next(reader.text, reader.at, ended=reader.ended)
        if safe > reader.at:
            sink(reader.read_to(safe))
        if found is None:
            if reader.ended:
                return ""
            yield
            continue
        tag, end = found.lstrip("\r\n"), safe + len(found)
        if tag == frame.call_open:
            quoted += 1
            sink(reader.read_to(end))
            continue
        answer = _Lookahead(reader, end, frame, is_key, quoted > 0).closes_value(tag)
        if answer is None:
            yield
        elif answer:
            reader.read_to(end if tag == frame.value_close else end - len(tag))
            return tag
        else:
            quoted -= quoted > 0 and found == frame.call_close
            sink(reader.read_to(safe + 1))


class _Lookahead:
    """Decisions about the LOOKAHEAD characters after a closer, independent of the chunking.

    The end of the text counts as any tag if the model stopped by itself, and as none if the text is truncated.
    """

    __slots__ = ("at_end", "frame", "full", "is_key", "quoted", "text")

    def __init__(self, reader: Reader, at: int, frame: ValueTags, is_key: KeyTest, quoted: bool) -> None:
        self.text = reader.text[at : at + LOOKAHEAD]
        self.full = len(self.text) == LOOKAHEAD  # more text would not be examined
        self.at_end = reader.finished if reader.ended else None  # None: more text may follow
        self.frame = frame
        self.is_key = is_key
        self.quoted = quoted  # the closer is inside a call that the value quotes

    def closes_value(self, tag: str) -> Decision:
        """Return whether `tag` closes the value, or None if more text is needed."""
        answer = self._closes_value(tag)
        return False if answer is None and (self.full or self.at_end is not None) else answer

    def _closes_value(self, tag: str) -> Decision:
        """Apply the rule for `tag`; None if the text so far does not decide."""
        frame = self.frame
        if tag == frame.value_close:
            return self._continues_call()
        if tag in frame.key_opens:
            return self.is_key(self.text, 0, True)
        if tag == frame.call_close and frame.section_close:
            return self._followed_by((frame.section_close,))
        return self._followed_by((frame.section_open,) if frame.section_open else ())

    def _continues_call(self) -> Decision:
        """Return whether another argument or the end of the call follows the closer."""
        frame = self.frame
        at = _skip_spaces(self.text, 0)
        for opener in frame.key_opens:
            if self.text.startswith(opener, at):
                return self.is_key(self.text, at + len(opener), self.quoted)
        if self.text.startswith(frame.call_close, at):
            following = at + len(frame.call_close)
            return frame.eager or (self._ends_calls(following) if self.quoted else self._ends_outside(following))
        if frame.section_close and self.text.startswith(frame.section_close, at):
            return True
        return self._can_follow(at, (*frame.key_opens, frame.call_close, frame.section_close))

    def _ends_outside(self, at: int) -> Decision:
        """Return whether the text after the end of the call is outside a value that quotes the call."""
        at = _skip_spaces(self.text, at)
        inside = (self.frame.value_close, *self.frame.key_opens, self.frame.call_close)
        if self.text.startswith(inside, at):
            return False
        return self._end_decision() if self._may_become(at, inside) else True

    def _ends_calls(self, at: int) -> Decision:
        """Return whether the end of all calls or another call follows, so that it was not the end of a quoted call."""
        frame = self.frame
        at = _skip_spaces(self.text, at)
        outside = tuple(filter(None, (frame.section_close, frame.section_open, frame.call_open)))
        return True if self.text.startswith(outside, at) else self._can_follow(at, outside)

    def _followed_by(self, tags: tuple[str, ...]) -> Decision:
        at = _skip_spaces(self.text, 0)
        return True if tags and self.text.startswith(tags, at) else self._can_follow(at, tags)

    def _can_follow(self, at: int, tags: tuple[str, ...]) -> Decision:
        """Return False if none of `tags` can follow; None while one may."""
        return self._end_decision() if self._may_become(at, tags) else False

    def _may_become(self, at: int, tags: tuple[str, ...]) -> bool:
        rest = self.text[at : at + LOOKAHEAD]
        return not rest or any(tag.startswith(rest) for tag in tags)

    def _end_decision(self) -> Decision:
        return None if self.full else self.at_end


def _skip_spaces(text: str, at: int) -> int:
    return _match_spaces(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere


_ATTRIBUTE = re.compile(
    r"""(?<![\w-])([\w-]++)\s*+=\s*+(?:"(?P<quoted>[^"]*+)"|'(?P<single>[^']*+)'|(?P<bare>[^\s"'<>=/]++))"""
)

find_attributes = _ATTRIBUTE.finditer
"""Find the attributes in the head of a tag: group 1 is the name, the last group the value without its quotes."""


def parse_attributes(head: str) -> dict[str, str]:
    """Return the attributes of a tag. A value may have no quotes, as some models write it."""
    return {match[1]: unescape(match[match.lastgroup or 0]) for match in find_attributes(head)}


def report_head(turn: ParseContext, head: str) -> None:
    """Report text in a tag besides its attributes."""
    rest = _ATTRIBUTE.sub("", head).strip().removesuffix("/").strip()
    if rest:
        turn.writer.add_diagnostic("malformed", turn.reader.position, f"{rest!r} in a tag is ignored")
