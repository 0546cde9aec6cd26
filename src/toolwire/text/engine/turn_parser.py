"""The engine outside calls: text, reasoning, special tokens without meaning, and the start of calls.

One generator reads a turn and yields where it needs more text, so its state is a position in the code. It waits in one
of three places:

    text        `read_text`, the main loop: text is emitted at once, except for the beginning of a possible tag
    call        `_read_call`: the style of the format reads it; an opener that proves to begin no call is emitted as text
    reasoning   `read_reasoning`: ends with its closer, a token that ends reasoning, or a call

        ┌─────────── opener ──────────▶ call ─────────────┐
      text ◀── end of the call, or the text of no call ───┘
        │ ▲
        │ └── closer, ending token, or call ──┐
        └───── opening tag ─────────────▶ reasoning

These rules hold:

- The events do not depend on how the text is cut into fragments. Nothing is decided before the text that decides it
  has arrived, and `reader.taken` keeps the text of an attempt that may fail.
- Emitted text cannot be retracted. So an opener that is ordinary text (a weak one, such as `[`) counts only at the
  start of a message, unless the style declares it as inline; and reasoning before a closer without an opener stays
  text, because the prompt may have opened it, unknown to the caller.
- A call that the model may not have meant must not run. A tag in quoted code is an example. A call inside reasoning is
  held until the reasoning ends with it; reasoning that continues after it makes it a draft, and a text that ends before
  this is known makes it truncated. A closer that closes nothing shows that a value contained the format's own tags, so
  the calls before it become invalid.

The order of the checks in `read_text` follows from these rules. Quoted code is first, because an example may contain
any tag. A halting token ends the turn only after a call: before it, the token is text. The closers of reasoning that a
call ended precede the orphans, because they show that the call was a draft.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from .event_builder import DiagnosticCode
from .markers import (
    HEAD,
    Fences,
    begins_with_special_token,
    code_block_openers,
    foreign_markers,
    is_special_token,
    reasoning_markers,
    remove_special_tokens,
)
from .reader import ForeignFormat, Malformed, Parsing, Terminals, Truncated, terminals
from .style import ParseContext, TurnFormat

_HEAD = re.compile(HEAD).fullmatch
_BARE_JSON = ('{"name": "', '{"name":"')


def parse_turn(form: TurnFormat, turn: ParseContext, *, reasoning: bool) -> Parsing[None]:
    """Read a whole turn; `reasoning`: the prompt has already opened the reasoning."""
    parser = _TurnParser(form, turn)
    if reasoning and form.reasoning:
        yield from parser.read_reasoning(parser.markers.closers)
    elif reasoning:
        yield from form.calls.read_open_reasoning(turn)
    yield from parser.read_text()
    if parser.left_open and not (turn.reader.finished or turn.reader.stopped):
        turn.writer.truncate_held(turn.reader.position)


@lru_cache(256)
def _quotable_tags(stops: Terminals) -> frozenset[str]:
    """Return the tags that may be text about calls."""
    return frozenset(tag for tag in stops.literals if not is_special_token(tag) and "```" not in tag)


class _TurnParser:
    """Read the items of a turn: `read_text` is the main loop, and a style reads each call."""

    def __init__(self, form: TurnFormat, turn: ParseContext) -> None:
        self.form = form
        self.turn = turn
        self.strong = form.calls.openers(turn.offered)  # tags that always open a call
        self.weak = form.calls.weak_openers(turn.offered)  # ordinary text that may open a call
        self.fences = Fences()
        self.markers = reasoning_markers(form.reasoning, (*form.noise, *form.ends_reasoning))
        self.dropped = frozenset((*form.noise, *form.ends_reasoning, *filter(is_special_token, form.halts)))
        self.citations = dict(form.citations)
        self.has_text = False
        self.has_reasoned = False
        self.after_call = False  # no text follows the last call yet
        self.left_open: tuple[str, ...] = ()  # the closers of reasoning that a call ended; one may still follow
        thoughts = (*self.markers.tags, *self.markers.orphans)
        own = (*self.strong, *thoughts, *self.dropped, *form.halts)
        self.foreign = foreign_markers(own)  # tags of other formats, which are reported
        self.closers = form.calls.closers()
        turn.writer.holds_ends = bool(self.closers)
        inline = form.calls.inline_openers(turn.offered)
        self.bare_json = _BARE_JSON if turn.offered and "{" not in self.weak else ()
        self.arrays = "[" in self.weak and "[" not in inline  # arrays of calls, only at the start of the message
        markup = (*thoughts, *self.dropped, *self.citations, *form.halts, *self.foreign, *self.closers, *self.bare_json)
        self.stops = terminals(*self.strong, *inline, *markup)
        self.code_blocks = code_block_openers((*self.strong, *inline))
        # at the start of a message; "[" may begin "[TOOL_CALLS]"
        self.first_literals = (*self.weak, *self.markers.phrases, *self.stops.literals, *self.code_blocks)
        self.in_code_block = False  # the calls are in a code block, whose fences are not text
        self.quotable = _quotable_tags(self.stops)

    def read_text(self) -> Parsing[None]:
        """Read text up to the end of the turn, and handle every tag in it."""
        reader, writer = self.turn.reader, self.turn.writer
        while not (reader.ended and reader.at == len(reader.text)):
            if not self.has_text:
                yield from self._read_message_start()
            found = yield from reader.read_until(self.stops, self._emit_text)
            if found is None:
                return
            if found in self.quotable and self.fences.in_code:
                self._emit_quoted(found)
            elif found in self.strong or found in self.weak:
                yield from self._read_call(found)
            elif found in self.markers.tags:
                yield from self.read_reasoning(self.markers.closers_of[found])
            elif found in self.form.halts and writer.calls:
                yield from self._skip_rest(f"the model must not write {found!r}")
            elif found in self.left_open:
                self._discard_draft(found)
            elif found in self.markers.orphans:
                self._handle_orphan_closer(found)
            else:
                yield from self._read_other(found)

    def _read_other(self, found: str) -> Parsing[None]:
        """Handle markup that is neither a call nor reasoning.

        Dropped tokens and citations are skipped; a call in another format and a stray closer are reported, and are
        text.
        """
        reader = self.turn.reader
        if found in self.dropped:
            rest = reader.text[reader.at :]
            if reader.ended and self._is_partial_tag(found + rest):
                reader.read_to(len(reader.text))
            else:
                yield from self._skip_head(found)
        elif found in self.bare_json:
            yield from self._read_bare_json(found)
        elif found in self.citations:
            yield from self._skip_citation_mark(found, self._emit_text)
        else:
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
        if not (found in self.closers and is_special_token(found)):
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
        """Emit an object as text, and report it once if it names an offered tool: calls look different here."""
        start = self.turn.reader.position - len(opening)
        name = yield from self.turn.reader.read_one_of(tuple(f'{name}"' for name in self.turn.offered.names))
        is_quoted = self.arrays and self.has_text  # an array after text is JSON in an answer
        known = any(note.code == "other_format" for note in self.turn.writer.diagnostics)
        if name is not None and not known and not is_quoted:
            self.turn.writer.add_diagnostic(
                "other_format", start, f"{opening}{name} looks like a call without its tags"
            )
        self._emit_text(opening + (name or ""))

    def _emit_text(self, piece: str) -> None:
        if self.turn.reader.ended and self._is_partial_tag(piece):
            return
        if (self.after_call or not self.has_text) and not piece.isspace():
            self.has_text, self.after_call = True, False
        self.fences.feed(piece)
        self.turn.writer.add_text(piece)

    def _is_partial_tag(self, piece: str) -> bool:
        """Return whether a truncated text ends in the beginning of a tag, and report it.

        It is a tag if it follows a call directly, or if it contains a whole special token. Otherwise it may be text.
        """
        reader = self.turn.reader
        follows_call = self.after_call and not piece.lstrip()[:1].isalnum()
        if reader.finished or not piece.strip() or not (follows_call or begins_with_special_token(piece)):
            return False
        is_partial = any(literal.startswith(piece) and literal != piece for literal in self.stops.literals)
        if is_partial:
            start = reader.offset + len(reader.text) - len(piece)
            self.turn.writer.add_diagnostic("truncated", start, f"the text ends inside a tag: {piece!r}")
        return is_partial

    def _read_message_start(self) -> Parsing[None]:
        """Try to read a call or reasoning at the start of a message.

        Its opener may be ordinary text, or be in a code block. Otherwise everything is unread.
        """
        reader, phrases = self.turn.reader, self.markers.phrases
        reader.taken = []
        yield from reader.read_spaces()
        if not (self.weak or phrases) and (yield from reader.peek()) != "`":
            self._unread_text()
            return
        found = yield from reader.read_one_of(self.first_literals)
        fenced = found in self.code_blocks
        if fenced:
            yield from reader.read_spaces()
            found = yield from reader.read_one_of((*self.weak, *phrases, *self.stops.literals))
        if found in self.weak or found in self.strong:
            self.in_code_block = fenced
            yield from self._read_call(found, before=["".join(reader.taken)[: -len(found)]])
        elif found in phrases and not fenced:
            yield from self.read_reasoning(self.markers.closers_of[found])
        else:
            reader.unread(found or "")
            self._unread_text()

    def _unread_text(self) -> None:
        taken, self.turn.reader.taken = self.turn.reader.taken or [], None
        for piece in filter(None, taken):
            self._emit_text(piece)

    def _read_call(
        self, opener: str, before: Sequence[str] = (), *, emit: Callable[[str], object] | None = None
    ) -> Parsing[bool]:
        """Read the calls after an opener, and return whether there are any. If not, `emit` receives the text.

        Text that is no call is reported, unless the opener may be ordinary text. `before`: text before the opener that
        belongs to it. The rest of the turn is skipped where a call ends the turn.
        """
        reader, writer = self.turn.reader, self.turn.writer
        start, calls = reader.position - len(opener), writer.calls
        reader.taken = [*before, opener]
        self.turn.spans.open_call(start)
        try:
            yield from self.form.calls.read(self.turn, opener)
        except Malformed as error:
            if isinstance(error, Truncated) and reader.ended:
                reader.read_to(len(reader.text))  # it may end with the beginning of a tag
            self._reject_call(error, start, emit or self._emit_text, opener, is_markup=writer.calls > calls)
        reader.taken = None
        has_calls = writer.calls > calls
        if has_calls:
            self.after_call = True
            self.turn.spans.close_calls()
            self.fences.end_line()  # a fence after a call is at the start of a line
            yield from self._read_fence()
            if self.form.one_call:
                self.turn.end_turn("the turn ends after its call")
        if self.turn.end_reason:
            yield from self._skip_rest(self.turn.end_reason)
        return has_calls

    def _reject_call(
        self, error: Malformed, start: int, emit: Callable[[str], object], opener: str, *, is_markup: bool
    ) -> None:
        """Emit the text of an opener that began no call, as far as it was not emitted as one.

        Markup at the end of a truncated text is not emitted: `is_markup` if it follows a call of the same section.
        """
        reader, writer = self.turn.reader, self.turn.writer
        if reader.taken is None:
            return
        markers = (*self.strong, *self.closers, *self.form.calls.markers())
        taken = remove_special_tokens("".join(reader.taken), self.dropped, markers, self.form.heads)
        reader.taken = None
        cut = isinstance(error, Truncated)
        if opener not in self.weak:
            text = f"a call is truncated before its name: {taken[:200]!r}" if cut else str(error)
            code: DiagnosticCode = "other_format" if isinstance(error, ForeignFormat) else "malformed"
            writer.add_diagnostic("truncated" if cut else code, start, text)
        is_markup |= not (opener in self.weak or opener.strip()[:1].isalpha())  # "Action:" may be ordinary text
        if taken and not (cut and is_markup and not reader.finished):
            emit(taken)

    def _read_fence(self) -> Parsing[None]:
        """Read the fence that closes a code block around calls; without one, the white space is unread."""
        reader = self.turn.reader
        if not self.in_code_block:
            return
        reader.taken = []
        yield from reader.read_spaces()
        if (yield from reader.read_one_of(("```",))) is not None:
            self.in_code_block = False
            reader.taken = None
        else:
            self._unread_text()

    def _skip_head(self, token: str) -> Parsing[None]:
        """Drop the name and the attributes after a special token that is dropped; other text after it is kept."""
        closing = next((end for start, end in self.form.heads if token.startswith(start) and end not in token), None)
        if closing is None:
            return
        reader, start = self.turn.reader, self.turn.reader.position - len(token)
        reader.taken = []
        try:
            head, end = yield from reader.read_word(terminals(closing, "\n"))
        except Malformed:
            head, end = "", None
        taken, reader.taken = "".join(reader.taken), None
        if end != closing or _HEAD(head) is None:
            reader.unread(taken)
        elif head:
            self.turn.writer.add_diagnostic("malformed", start, f"the marker {token + head + closing!r} was dropped")

    def _skip_citation_mark(self, opening: str, emit: Callable[[str], object]) -> Parsing[None]:
        """Drop the mark of a citation, up to its closing text on the same line; without that, it is text."""
        reader = self.turn.reader
        closing = self.citations[opening]
        if not closing:
            return
        reader.taken = [opening]
        try:
            _, end = yield from reader.read_word(terminals(closing, "\n"))
        except Malformed:
            end = None
        if end != closing:
            emit("".join(reader.taken))
        reader.taken = None

    def read_reasoning(self, closers: tuple[str, ...]) -> Parsing[None]:
        """Read reasoning up to a closer, a token that ends it, or a call; a mere mention of a call does not end it."""
        reader, emit = self.turn.reader, self.turn.writer.add_reasoning
        self.turn.writer.release()  # a call in earlier reasoning is not a draft if reasoning is opened again
        reader.taken = reader.tape = None
        self.left_open = ()
        self.has_reasoned = True
        stops = terminals(*closers, *self.strong, *self.form.ends_reasoning, *self.markers.silent, *self.citations)
        found = yield from self._read_reasoning_start()
        if found is None:
            found = yield from reader.read_until(stops, emit)
        while found is not None and found not in closers and found not in self.form.ends_reasoning:
            if found in self.citations:
                yield from self._skip_citation_mark(found, emit)
            elif found in self.markers.silent:
                yield from self._skip_head(found)
            elif (yield from self._read_call_in_reasoning(found, closers)):
                return
            found = yield from reader.read_until(stops, emit)
        if found in self.strong:
            reader.unread(found)
        self._end_reasoning()

    def _read_reasoning_start(self) -> Parsing[str | None]:
        """Skip repeated openers, as a model may repeat the one of its prompt; read a weak opener of a call, if any."""
        reader = self.turn.reader
        spaces = yield from reader.read_spaces()
        while (yield from reader.read_one_of(self.markers.openers)) is not None:
            spaces = yield from reader.read_spaces()
        found = (yield from reader.read_one_of((*self.weak, *self.strong))) if self.weak else None
        if found in self.weak:
            reader.unread(found or "")
            self.turn.writer.add_reasoning(spaces)
            return reader.read_to(reader.at + len(found or ""))
        reader.unread(spaces + (found or ""))
        return None

    def _end_reasoning(self) -> None:
        self.turn.writer.end_item()
        self.has_text = False

    def _read_call_in_reasoning(self, opener: str, closers: tuple[str, ...]) -> Parsing[bool]:
        """Read a call inside reasoning; return whether the reasoning ends with it.

        The call may be a draft, so it is held until the end of the turn, unless the format has calls in reasoning.
        """
        reader, writer = self.turn.reader, self.turn.writer
        if self.form.calls_in_reasoning:
            yield from self._read_call(opener, emit=writer.add_reasoning)
            return False
        writer.hold()
        reader.tape = [opener]
        if (yield from self._read_call(opener, emit=writer.add_reasoning)):
            self.left_open = closers
            return True
        reader.tape = None
        writer.release()
        return False

    def _handle_orphan_closer(self, closer: str) -> None:
        """Drop the first closer without an opener: the prompt opened the reasoning, unknown to the caller.

        The reasoning before it stays text, because text cannot be retracted. A closer in the answer is text.
        """
        reader, writer = self.turn.reader, self.turn.writer
        is_text = self.has_reasoned and self.has_text and not is_special_token(closer)
        if self.has_reasoned or self.has_text or writer.calls:
            writer.add_diagnostic("unopened", reader.position - len(closer), f"{closer!r} closes nothing")
        if is_text:
            self._emit_text(closer)
            return
        self.has_reasoned = True
        self._end_reasoning()

    def _discard_draft(self, closing: str) -> None:
        """Treat a call as reasoning if the reasoning continues after it: it was a draft."""
        reader, writer = self.turn.reader, self.turn.writer
        thought = "".join(reader.tape or ())[: -len(closing)]
        reader.tape, self.left_open = None, ()
        writer.drop()
        reader.unread(closing)
        writer.add_reasoning(thought)
        reader.read_to(reader.at + len(closing))
        writer.end_item()
        writer.add_diagnostic(
            "draft", reader.position, "a call inside reasoning that continues after it is a draft and was ignored"
        )
        self.has_text = False

    def _skip_rest(self, reason: str) -> Parsing[None]:
        """Ignore the remaining text and report it with the `reason`; `stopped` signals the caller to stop."""
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
