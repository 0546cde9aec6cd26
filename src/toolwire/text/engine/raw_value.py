"""Raw text between tags, which may itself contain tags.

A closer counts only where the call can go on behind it: with an argument that the tool has and that was not given yet,
or with the end of the call. For that the text behind it is looked at, LOOKAHEAD characters at most. A value that
contains a whole structural sequence of its own format cannot be told apart by anyone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from ...ir.value import Value
from .reader import Reader, Steps, terminals

__all__ = ["LOOKAHEAD", "Frame", "KeyTest", "raw_value"]

LOOKAHEAD = 512
Answer: TypeAlias = bool | None  # None: more text has to come

_spaces = re.compile(r"[ \t\r\n]*").match


class Frame(Value, frozen=True):
    """The tags around a value. `eager`: the end of a call is believed at once, for formats that stop there."""

    value_close: str
    call_open: str
    key_opens: tuple[str, ...]
    call_close: str
    section_open: str = ""
    section_close: str = ""
    newline: bool = False  # one line break before the closer belongs to the tag
    eager: bool = False

    def closers(self) -> tuple[str, ...]:
        bare = tuple(filter(None, (self.value_close, *self.key_opens, self.call_close, self.section_close)))
        return (*(f"\r\n{tag}" for tag in bare), *(f"\n{tag}" for tag in bare), *bare) if self.newline else bare


KeyTest: TypeAlias = Callable[[str, int, bool], Answer]
"""(text, at, surely): is the tag that was opened before `at` an argument's? `surely`: only if the tool has it."""


def raw_value(reader: Reader, frame: Frame, is_key: KeyTest, sink: Callable[[str], object]) -> Steps[bool]:
    """Passes on the value and reads its closer; an implicit one (the next tag) is left. False where the text ends first.

    Inside of a call that is quoted in the value, tags count only if they are surely the outer call's.
    """
    stops = terminals(*frame.closers(), frame.call_open)
    quoted = 0
    while True:
        found = stops.search(reader.text, reader.at)
        if found is None:
            safe = len(reader.text) if reader.ended else stops.held(reader.text, reader.at)
            if safe > reader.at:
                sink(reader.take_to(safe))
            if reader.ended:
                return False
            yield
            continue
        if found.start() > reader.at:
            sink(reader.take_to(found.start()))
        tag = found[0].lstrip("\r\n")
        if tag == frame.call_open:
            quoted += 1
            sink(reader.take_to(found.end()))
            continue
        look = _Look(reader.text, reader.ended, frame, is_key, quoted > 0)
        answer = look.counts(tag, found.end())
        if answer is None and len(reader.text) - found.end() > LOOKAHEAD:
            answer = False
        if answer is None:
            yield
        elif answer:
            reader.take_to(found.end() if tag == frame.value_close else found.end() - len(tag))
            return True
        else:
            quoted -= quoted > 0 and found[0] == frame.call_close
            sink(reader.take_to(found.start() + 1))


class _Look:
    """Questions about the text behind a closer."""

    __slots__ = ("ended", "frame", "is_key", "quoted", "text")

    def __init__(self, text: str, ended: bool, frame: Frame, is_key: KeyTest, quoted: bool) -> None:
        self.text = text
        self.ended = ended
        self.frame = frame
        self.is_key = is_key
        self.quoted = quoted

    def counts(self, tag: str, at: int) -> Answer:
        frame = self.frame
        if tag == frame.value_close:
            return self._goes_on(at)
        if tag in frame.key_opens:
            return self.is_key(self.text, at, True)
        if tag == frame.call_close and frame.section_close:
            return self._followed_by(at, (frame.section_close,))
        return self._followed_by(at, (frame.section_open,) if frame.section_open else ())

    def _goes_on(self, at: int) -> Answer:
        """Behind the closer comes another argument, or the end of the call."""
        frame = self.frame
        at = _skip(self.text, at)
        for opener in frame.key_opens:
            if self.text.startswith(opener, at):
                return self.is_key(self.text, at + len(opener), self.quoted)
        if self.text.startswith(frame.call_close, at):
            return frame.eager or self._leaves(at + len(frame.call_close))
        if frame.section_close and self.text.startswith(frame.section_close, at):
            return True
        return self._unless_cut(at, (*frame.key_opens, frame.call_close, frame.section_close))

    def _leaves(self, at: int) -> Answer:
        """What follows the end of the call is not more of a value that the call was quoted in."""
        at = _skip(self.text, at)
        inside = (self.frame.value_close, *self.frame.key_opens, self.frame.call_close)
        if self.text.startswith(inside, at):
            return False
        undecided = self._unless_cut(at, inside)
        return True if undecided is False else undecided

    def _followed_by(self, at: int, tags: tuple[str, ...]) -> Answer:
        at = _skip(self.text, at)
        return True if tags and self.text.startswith(tags, at) else self._unless_cut(at, tags)

    def _unless_cut(self, at: int, tags: tuple[str, ...]) -> Answer:
        """False where none of `tags` can follow; undecided while one may; the end of the text is as good as any."""
        rest = self.text[at : at + LOOKAHEAD]
        if rest and not any(tag.startswith(rest) for tag in tags):
            return False
        return True if self.ended else None


def _skip(text: str, at: int) -> int:
    return _spaces(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
