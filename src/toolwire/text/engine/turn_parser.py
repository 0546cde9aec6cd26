"""The engine outside calls: text, reasoning, special tokens without meaning, and the start of calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from .event_builder import DiagnosticCode
from .fences import Fences
from .markers import foreign_markers
from .reader import ForeignFormat, Malformed, Parsing, Terminals, Truncated, terminals
from .style import ParseContext, Style

__all__ = ["TurnTokens", "parse_turn"]

_SPECIAL = r"<\|[^|>]*\|?>|<[^|<>]*\|>|<｜[^｜]*｜>"
"""A special token is never text, even if it opened nothing."""

_TOKEN = re.compile(r"<[|｜]|\[[A-Z_]+\]|.*[|｜]>").match
"""A token of the model, which it writes only on purpose; tags of plain characters may be text about calls."""

_BARE_JSON = ('{"name": "', '{"name":"')


class TurnTokens(Protocol):
    """The fields of a `Format` that decide how a turn is read."""

    @property
    def calls(self) -> Style: ...
    @property
    def reasoning(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def calls_end_reasoning(self) -> bool: ...
    @property
    def calls_in_reasoning(self) -> bool: ...
    @property
    def noise(self) -> tuple[str, ...]: ...
    @property
    def halts(self) -> tuple[str, ...]: ...
    @property
    def one_call(self) -> bool: ...


def parse_turn(form: TurnTokens, turn: ParseContext, *, reasoning: bool) -> Parsing[None]:
    """Read a whole turn; `reasoning`: the prompt has already opened the reasoning."""
    machine = _TurnParser(form, turn)
    if reasoning:
        yield from machine.read_reasoning(form.reasoning[0][1])
    yield from machine.read_text()


@lru_cache(256)
def _special_tokens(noise: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join((_SPECIAL, *map(re.escape, noise))))


@lru_cache(256)
def _quotable_tags(stops: Terminals) -> frozenset[str]:
    """Return the tags that may be text about calls."""
    return frozenset(one for one in stops.literals if not _TOKEN(one) and "```" not in one)


class _TurnParser:
    """Read the items of a turn: `read_text` is the main loop, and a style reads each call."""

    def __init__(self, form: TurnTokens, turn: ParseContext) -> None:
        self.form = form
        self.turn = turn
        self.strong = form.calls.openers(turn.offered)  # tags that always open a call
        self.weak = form.calls.weak_openers(turn.offered)  # ordinary text that may open a call
        self.fences = Fences()
        self.opens = {opening: closing for opening, closing in form.reasoning if opening}  # tags of reasoning
        self.silent = _special_tokens(form.noise)
        self.has_text = False
        self.left_open = ""  # the closer of reasoning that a call ended; it may still follow
        own = (*self.strong, *self.opens, *self.opens.values(), *form.noise, *form.halts)
        self.foreign = foreign_markers(own)  # tags of other formats, which are reported
        self.closers = form.calls.closers()
        turn.writer.holds_ends = bool(self.closers)
        inline = form.calls.inline_openers(turn.offered)
        self.bare_json = _BARE_JSON if turn.offered and not {"{", "["} & set(self.weak) else ()
        thoughts = (*self.opens, *self.opens.values())
        self.stops = terminals(
            *self.strong, *inline, *thoughts, *form.noise, *form.halts, *self.foreign, *self.closers, *self.bare_json
        )
        self.quotable = _quotable_tags(self.stops)

    def read_text(self) -> Parsing[None]:
        """Read text up to the end of the turn, and handle every tag in it."""
        reader, writer = self.turn.reader, self.turn.writer
        while not (reader.ended and reader.at == len(reader.text)):
            if self.weak and not self.has_text:
                yield from self._read_weak_start()
            found = yield from reader.read_until(self.stops, self._emit_text)
            if found is None:
                return
            if found in self.quotable and self.fences.in_code:
                self._emit_quoted(found)
            elif found in self.strong or found in self.weak:
                yield from self._read_call(found)
            elif found in self.opens:
                reader.taken = None
                yield from self.read_reasoning(self.opens[found])
            elif found in self.form.halts and writer.calls:
                yield from self._skip_rest(f"the model must not write {found!r}")
            elif found == self.left_open:
                self._discard_draft(found)
            elif found in self.bare_json:
                yield from self._read_bare_json(found)
            elif found not in self.form.noise:
                self._emit_tag_text(found)

    def _emit_quoted(self, found: str) -> None:
        """Emit a tag inside quoted code as text: an example of a call must not be run."""
        reader, writer = self.turn.reader, self.turn.writer
        if found in self.strong:
            writer.add_diagnostic(
                "quoted", reader.position - len(found), f"{found!r} is in quoted code; it is not a call"
            )
        reader.taken = None
        self.fences.hold()
        self._emit_text(found)

    def _emit_tag_text(self, found: str) -> None:
        """Emit a tag without meaning in its place as text; it may indicate a problem."""
        reader, writer = self.turn.reader, self.turn.writer
        if found in self.foreign:
            writer.add_diagnostic("other_format", reader.position, f"{found!r} belongs to another format")
        elif found in self.closers and writer.calls:
            self._report_stray_closer(found)
        self._emit_text(found)

    def _report_stray_closer(self, found: str) -> None:
        """Report a closer outside a call. A value contained the format's own tags, so the calls before it are invalid."""
        writer = self.turn.writer
        writer.add_diagnostic(
            "malformed",
            self.turn.reader.position,
            f"{found!r} closes nothing; a value may have been truncated before it",
        )
        writer.invalidate_calls()

    def _read_bare_json(self, opening: str) -> Parsing[None]:
        """Report an object that names an offered tool, in a format whose calls do not look like that."""
        start = self.turn.reader.position - len(opening)
        name = yield from self.turn.reader.read_one_of(tuple(f'{name}"' for name in self.turn.offered.names))
        if name is not None and not any(note.code == "other_format" for note in self.turn.writer.diagnostics):
            self.turn.writer.add_diagnostic(
                "other_format", start, f"{opening}{name} looks like a call without its tags"
            )
        self._emit_text(opening + (name or ""))

    def _emit_text(self, piece: str) -> None:
        if not self.has_text and not piece.isspace():
            self.has_text = True
        self.fences.feed(piece)
        self.turn.writer.add_text(piece)

    def _read_weak_start(self) -> Parsing[None]:
        """Try to read a call at the start of a message whose opener is an ordinary character."""
        reader = self.turn.reader
        reader.taken = []
        yield from reader.read_spaces()
        found = yield from reader.read_one_of((*self.weak, *self.stops.literals))  # "[" may begin "[TOOL_CALLS]"
        if found in self.weak or found in self.strong:
            yield from self._read_call(found, before=reader.taken[:-1])
        else:
            reader.unread(found or "")
            self._unread_text()

    def _unread_text(self) -> None:
        taken, self.turn.reader.taken = self.turn.reader.taken or [], None
        for piece in taken:
            self._emit_text(piece)

    def _read_call(
        self, opener: str, before: Sequence[str] = (), *, emit: Callable[[str], object] | None = None
    ) -> Parsing[bool]:
        """Read a call; return whether it is one. If not, `emit` receives its text."""
        reader, writer = self.turn.reader, self.turn.writer
        start, calls = reader.position - len(opener), writer.calls
        reader.taken = [*before, opener]
        followed = True
        try:
            yield from self.form.calls.read(self.turn, opener)
        except Malformed as error:
            followed = writer.calls > calls
            self._reject_call(error, start, emit or self._emit_text, opener)
        reader.taken = None
        if writer.calls > calls:
            self.fences.end_line()
        if self.form.one_call and writer.calls > calls:
            self.turn.end_turn("the turn ends after its call")
        if self.turn.end_reason:
            yield from self._skip_rest(self.turn.end_reason)
        return followed

    def _reject_call(self, error: Malformed, start: int, emit: Callable[[str], object], opener: str) -> None:
        """Emit the text of an opener that began no call, as far as it was not emitted as one."""
        reader, writer = self.turn.reader, self.turn.writer
        if reader.taken is None:
            return
        taken, reader.taken = self.silent.sub("", "".join(reader.taken)), None
        cut = isinstance(error, Truncated)
        if opener not in self.weak:
            text = f"a call is truncated before its name: {taken[:200]!r}" if cut else str(error)
            code: DiagnosticCode = "other_format" if isinstance(error, ForeignFormat) else "malformed"
            writer.add_diagnostic("truncated" if cut else code, start, text)
        is_markup = not (opener in self.weak or opener.strip()[:1].isalpha())  # "Action:" may be ordinary text
        if taken and not (cut and is_markup and not reader.finished):
            emit(taken)

    def read_reasoning(self, closing: str) -> Parsing[None]:
        """Read reasoning up to its closer. A call inside it also ends it; a mere mention of one does not."""
        reader, writer = self.turn.reader, self.turn.writer
        opens = self.strong if self.form.calls_end_reasoning else ()
        found = yield from reader.read_until(terminals(closing, *opens), writer.add_reasoning)
        while found is not None and found != closing:
            if self.form.calls_in_reasoning:
                found = yield from self._read_call_in_reasoning(found, (closing, *opens))
                continue
            writer.hold()
            reader.tape = [found]
            if (yield from self._read_call(found, emit=writer.add_reasoning)):
                self.left_open = closing
                return
            reader.tape = None
            writer.release()
            found = yield from reader.read_until(terminals(closing, *opens), writer.add_reasoning)
        writer.end_item()
        self.has_text = False

    def _read_call_in_reasoning(self, opener: str, stops: tuple[str, ...]) -> Parsing[str | None]:
        """Read a call and the reasoning after it up to one of `stops`. White space between two calls is structure."""
        reader, writer = self.turn.reader, self.turn.writer
        yield from self._read_call(opener, emit=writer.add_reasoning)
        space = yield from reader.read_spaces()
        found = yield from reader.read_one_of(stops)
        if found is None:
            if space and not (reader.ended and reader.at == len(reader.text)):
                writer.add_reasoning(space)
            found = yield from reader.read_until(terminals(*stops), writer.add_reasoning)
        return found

    def _discard_draft(self, closing: str) -> None:
        """Treat a call as reasoning if the reasoning continues after it: it was a draft."""
        reader, writer = self.turn.reader, self.turn.writer
        thought = "".join(reader.tape or ())[: -len(closing)]
        reader.tape, self.left_open = None, ""
        writer.drop()
        writer.add_reasoning(thought)
        writer.end_item()
        writer.add_diagnostic(
            "draft", reader.position, "a call inside reasoning that continues after it is a draft and was ignored"
        )
        self.has_text = False

    def _skip_rest(self, reason: str) -> Parsing[None]:
        """Ignore the remaining text; `stopped` signals the caller to stop."""
        self.turn.reader.stopped = True
        dropped: list[str] = []
        yield from self.turn.reader.read_until(terminals(), dropped.append)
        text = "".join(dropped)
        if stray := next((closer for closer in self.closers if closer in text), None):
            self._report_stray_closer(stray)
        if text.strip():
            self.turn.writer.add_diagnostic(
                "after_stop", self.turn.reader.position - len(text), f"{reason}: {text[:200]!r}"
            )
