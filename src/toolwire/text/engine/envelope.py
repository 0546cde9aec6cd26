"""Read a call as a JSON object: `{"name": …, "arguments": {…}}`, with any key names in any order.

Arguments are passed on as they arrive. They wait if the name, or an id that the caller needs first, comes after them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ...ir.errors import ProtocolError
from ...ir.value import Value
from ...stream.strict import parse
from .json_end_scanner import SHORT_OBJECT, BrokenJson, read_json_value
from .reader import Malformed, Parsing, Terminals, Truncated, terminals
from .style import ParseContext


class CallFields(Value, frozen=True):
    """The keys of a call object; `id_last` if an id follows the arguments.

    An id that is a bare number counts the calls of one turn. It is not unique in a conversation, so it is ignored.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ("id",)
    id_last: bool = False
    id_first: bool = False
    name_is_key: bool = False
    direct_answers: tuple[str, ...] = ()
    """Names by which a model states that it answers without a tool: no calls, unless such a tool is offered."""


_plain_string = re.compile(r'"([^"\\\x00-\x1f]*+)"').match
_GAP = r"[ \t\r\n]*+"
_member_head = re.compile(rf'{_GAP},?{_GAP}"([^"\\\x00-\x1f]*+)"{_GAP}:{_GAP}(?=[^ \t\r\n])').match
_BRACKETS = {"{": 1, "[": 1, "}": -1, "]": -1}
_WRAPPERS = ("function", "tool_call", "function_call")
_IGNORED = ("type", "index", "role", "description")
"""Members that some models add to a call; they have no meaning in it."""


def read_envelope(
    turn: ParseContext, keys: CallFields, terminators: Terminals, *, is_certain: bool = True
) -> Parsing[None]:
    """Read one call object. `terminators` are the terminals of a call that is not JSON.

    If it is not `is_certain` that the object is a call, its name must be an offered one, or arguments must follow it.
    Malformed before the call started, Truncated at the end of the text; broken arguments make the call invalid.
    """
    turn.spans.begin_call()
    if _read_short_call(turn, keys, is_certain=is_certain):
        turn.spans.extend_call()
        return
    yield from turn.reader.expect("{")
    envelope = _Envelope(turn, keys, terminators, is_certain=is_certain)
    try:
        yield from envelope.read()
    except Malformed as error:
        if not turn.writer.in_call:
            envelope.finish_incomplete(is_truncated=isinstance(error, Truncated))
            raise
        if isinstance(error, Truncated):
            turn.writer.end_json(turn.reader.position, is_truncated=True)
            raise
        turn.writer.add_diagnostic("malformed", turn.reader.position, f"a member of the call is malformed: {error}")
        turn.writer.mark_invalid("the arguments are missing or malformed")
        yield from _read_broken_arguments(turn, terminators, BrokenJson(1))
    turn.spans.extend_call()


def _read_short_call(turn: ParseContext, keys: CallFields, *, is_certain: bool) -> bool:
    """Read a call object of a name and short arguments, in this order, in one step. Most calls are like this."""
    reader = turn.reader
    found = _short_call(keys)(reader.text, reader.at)
    if found is None or found[1] in keys.direct_answers or not found[1].strip():
        return False
    reader.read_to(found.end(1) + 1)
    turn.spans.mark_name(reader.offset + found.start(1), reader.offset + found.end(1))
    if not is_certain:
        reader.read_to(found.start(2))  # the arguments show that it is a call
    turn.start_call(found[1].strip())
    reader.read_to(found.start(2))
    turn.spans.begin_arguments()
    turn.writer.add_json_arguments(reader.read_to(found.end(2)))
    turn.writer.end_json(reader.position)
    reader.read_to(found.end())
    return True


@lru_cache(64)
def _short_call(keys: CallFields) -> Callable[[str, int], re.Match[str] | None]:
    """Return a function that matches such an object. It matches nothing if other members must precede the call."""
    if keys.name_is_key or keys.id_last:
        return re.compile("(?!)").match
    names, arguments = ("|".join(map(re.escape, group)) for group in (keys.name, keys.arguments))
    name = rf'"(?:{names})"{_GAP}:{_GAP}"([^"\\\x00-\x1f]++)"'
    return re.compile(rf'\{{{_GAP}{name}{_GAP},{_GAP}"(?:{arguments})"{_GAP}:{_GAP}({SHORT_OBJECT}){_GAP}\}}').match


class _Envelope:
    """The fields read so far."""

    def __init__(self, turn: ParseContext, keys: CallFields, terminators: Terminals, *, is_certain: bool) -> None:
        self.turn = turn
        self.is_certain = is_certain
        self.keys = keys
        self.terminators = terminators
        self.name: str | None = None
        self.id = ""
        self.waiting: list[str] | None = None  # arguments read before the name or the id
        self.partial: list[str] = []  # the beginning of such arguments, if the text ends inside them
        self.answered = False
        self.flaw = ""
        self.key_end = 0  # position after the last key
        self.notes: list[tuple[int, str]] = []  # unknown members, with their positions
        self.unknown = ""  # a member that may be the arguments under another name

    def read(self) -> Parsing[None]:
        """Read the members, emit the call, and read the closing brace, which may be missing after the arguments."""
        reader = self.turn.reader
        while True:
            head = _member_head(reader.text, reader.at)
            if head is not None:  # the common case, in one step
                self.key_end = reader.offset + head.end(1)
                reader.read_to(head.end())
                yield from self._read_field(head[1])
                continue
            yield from reader.read_spaces()
            following = yield from reader.peek()
            if following == "}":
                reader.read_to(reader.at + 1)
                break
            if following == ",":
                reader.read_to(reader.at + 1)
                yield from reader.read_spaces()
            elif following != '"' and self.answered:
                self.turn.report_unclosed("the brace after the arguments")
                return
            key = yield from _read_json_string(self.turn)
            self.key_end = reader.position - 1
            yield from reader.read_spaces()
            yield from reader.expect(":")
            yield from reader.read_spaces()
            yield from self._read_field(key)
        if not self.answered:
            self._answer()

    def _read_field(self, key: str) -> Parsing[None]:
        """Read the value of one member: the name, the arguments, the id, a wrapper object, or an ignored field.

        Arguments that precede the name, or an id that must come first, are collected in `waiting`.
        """
        keys = self.keys
        if keys.name_is_key and not self.answered:
            self.name = _named(key)
            self.turn.spans.mark_name(self.key_end - len(key), self.key_end)
            yield from self._stream_arguments()
        elif key in keys.name and self.name is None:
            start = self.turn.reader.position + 1
            self.name = _named((yield from _read_json_string(self.turn)))
            self.turn.spans.mark_name(start, self.turn.reader.position - 1)
            is_certain = self.is_certain and not self._is_direct_answer()
            if self.waiting is None and not keys.id_last and (is_certain or self._is_offered()):
                self._start()
        elif key in keys.arguments and not self.answered and self.waiting is None:
            if self.name is None or (keys.id_last and not self.id) or self._is_direct_answer():
                yield from self._collect_arguments()
            else:
                yield from self._stream_arguments()
        elif key in _WRAPPERS and self.name is None and (yield from self.turn.reader.peek()) == "{":
            self.turn.reader.read_to(self.turn.reader.at + 1)
            yield from self.read()
        else:
            raw = "".join((yield from _read_raw(self.turn)))
            if key in keys.id:
                self.id = "" if raw.strip('"').isdigit() else raw.strip('"')
            elif key in keys.name or key in keys.arguments:
                self._report_duplicate(key)
            elif key not in _IGNORED:
                self._report_unknown(key, raw)

    def _collect_arguments(self) -> Parsing[None]:
        """Read arguments that must wait for the name or the id. Broken ones of a named call make it invalid at once.

        Raise Truncated if the text ends in them, and Malformed if they are broken and no named call can have them.
        """
        turn = self.turn
        turn.spans.begin_arguments()
        pieces: list[str] = []
        try:
            yield from read_json_value(turn.reader, pieces.append)
        except Truncated:
            self.partial = pieces
            raise
        except Malformed as error:
            if self.name is None or not self.is_certain or self._is_direct_answer():
                raise
            self._start()
            self.answered = True
            turn.writer.add_json_arguments("".join(pieces))
            yield from _read_broken_arguments(turn, self.terminators, error)
            return
        self.waiting = pieces
        turn.spans.end_arguments()

    def _report_duplicate(self, key: str) -> None:
        """Handle a repeated key: the intended value is unknown. A call that has already been emitted is unchanged."""
        self.flaw = f"{key!r} is given twice, or under two names"
        if self.answered:
            self.turn.writer.add_diagnostic(
                "malformed", self.turn.reader.position, f"{self.flaw}; the first one is used"
            )
        elif self.turn.writer.in_call:
            self.turn.writer.mark_invalid(self.flaw)

    def _report_unknown(self, key: str, raw: str) -> None:
        """Report a member without meaning. An object instead of the arguments makes the call invalid."""
        self.notes.append((self.turn.reader.position, f"{key!r} is not a member of a call; {raw[:200]} is ignored"))
        if self.turn.writer.in_call or self.answered:
            self._report_notes()
        if raw.startswith("{") and not self.answered and self.waiting is None:
            self.unknown = key

    def _report_notes(self) -> None:
        """Report unknown members, once it is certain that the object is a call."""
        for position, detail in self.notes:
            self.turn.writer.add_diagnostic("malformed", position, detail)
        self.notes.clear()

    def _start(self) -> None:
        if not self.turn.writer.in_call:
            self.turn.start_call(self.name or "", self.id)
            self._report_notes()
            if self.flaw:
                self.turn.writer.mark_invalid(self.flaw)

    def _stream_arguments(self) -> Parsing[None]:
        self._start()
        self.answered = True
        yield from read_arguments(self.turn, self.terminators)

    def finish_incomplete(self, *, is_truncated: bool) -> None:
        """Emit the call of an object that ends before the id that its events waited for.

        It is complete after its arguments; before or inside them, it is a call only if the text is truncated there.
        """
        if self.name is None or self.answered:
            return
        if self._is_direct_answer():
            self._report_direct_answer()
        elif self.waiting is not None:
            self._answer()
            self.turn.report_unclosed("the brace after the arguments")
        elif is_truncated and (self.is_certain or self.partial or self._is_offered()):
            self._start()
            raw = "".join(self.partial)
            if not raw.startswith(('"', "n")):  # part of a string or of null is no argument text, as in a stream
                self.turn.writer.add_json_arguments(raw)
            self.turn.writer.end_json(self.turn.reader.position, is_truncated=True)

    def _is_offered(self) -> bool:
        return bool(self.turn.offered) and self.turn.offered.has_tool(self.turn.offered.resolve(self.name or ""))

    def _is_direct_answer(self) -> bool:
        return self.name in self.keys.direct_answers and not self._is_offered()

    def _report_direct_answer(self) -> None:
        self.answered = True
        self.turn.reader.taken = None  # it is not text, either
        detail = f"{self.name!r} is not a call: the model answers without a tool"
        self.turn.writer.add_diagnostic("direct_answer", self.turn.reader.position, detail)

    def _answer(self) -> None:
        """Emit the whole call at the end of the object, with the arguments in `waiting` if there are any.

        Raise Malformed if the object has no name, or if nothing shows that it is a call.
        """
        if self.name is None or not (self.is_certain or self.waiting is not None or self._is_offered()):
            raise Malformed("the call has no name" if self.name is None else "the object is not a call")
        if self._is_direct_answer():
            self._report_direct_answer()
            return
        self._start()
        self.answered = True
        if self.waiting is not None:
            _emit_arguments(self.turn, "".join(self.waiting))
        elif self.unknown:
            self.turn.writer.mark_invalid(f"the arguments are missing, and {self.unknown!r} is not their name")
        self.turn.writer.end_json(self.turn.reader.position)


def read_arguments(turn: ParseContext, terminators: Terminals) -> Parsing[None]:
    """Read the arguments of a started call, and end the call; text that is not JSON makes it invalid.

    Truncated, after the call has ended as truncated, if the text ends inside them. Raise Malformed if they begin with
    a letter.
    """
    reader, writer = turn.reader, turn.writer
    turn.spans.begin_arguments()
    first = yield from reader.peek()
    if first == '"' or (first == "n" and (yield from reader.peek(4)) == "null"):
        try:
            raw = yield from _read_raw(turn)
        except Truncated:
            writer.end_json(reader.position, is_truncated=True)
            raise
        _emit_arguments(turn, "".join(raw))
        writer.end_json(reader.position)
        return
    try:
        if first.isalpha():
            raise Malformed("text instead of arguments")
        value = yield from read_json_value(reader, writer.add_json_arguments)
    except Truncated:
        writer.end_json(reader.position, is_truncated=True)
        raise
    except Malformed as error:
        yield from _read_broken_arguments(turn, terminators, error)
        return
    writer.end_json(reader.position, value=value)


def _read_broken_arguments(turn: ParseContext, terminators: Terminals, error: Malformed) -> Parsing[None]:
    """Read the rest of arguments that are not JSON, and end the call.

    They end at the bracket that closes them, so that calls after them are kept, or at one of the terminators.
    """
    reader, writer = turn.reader, turn.writer
    depth = error.depth if isinstance(error, BrokenJson) else 0
    stops = terminals(*terminators.literals, *_BRACKETS, '"', "\\\\", '\\"') if depth else terminators
    in_string = False
    while True:
        found = yield from reader.read_until(stops, writer.add_raw)
        if found is None or found in terminators.literals:
            break
        writer.add_raw(found)
        in_string ^= found == '"'
        depth += 0 if in_string else _BRACKETS.get(found, 0)
        if not depth:
            writer.end_json(reader.position)
            return
    if found is not None:
        reader.unread(found)
    writer.end_json(reader.position, is_truncated=found is None and not reader.finished)


def _emit_arguments(turn: ParseContext, raw: str) -> None:
    """Write complete arguments: an object, an object inside a string, which is reported, or nothing for null."""
    raw = raw.strip()
    if raw == "null":
        raw = ""
    elif raw.startswith('"'):
        try:
            inner = parse(raw)
        except ProtocolError:
            inner = raw
        if isinstance(inner, str):
            raw = inner
            turn.writer.add_diagnostic("unwrapped", turn.reader.position, "the arguments were JSON inside a string")
    if raw:
        turn.writer.add_json_arguments(raw)


def _named(name: str) -> str:
    if not name.strip():
        raise Malformed("the call has no name")
    return name.strip()


def _read_raw(turn: ParseContext) -> Parsing[list[str]]:
    pieces: list[str] = []
    yield from read_json_value(turn.reader, pieces.append)
    return pieces


def _read_json_string(turn: ParseContext) -> Parsing[str]:
    """Read a JSON string and return its decoded value; Malformed or Truncated if there is none."""
    reader = turn.reader
    plain = _plain_string(reader.text, reader.at)
    if plain is not None:
        reader.read_to(plain.end())
        return plain[1]
    if (yield from reader.peek()) != '"':
        raise (Truncated if reader.ended and reader.at == len(reader.text) else Malformed)(
            "expected a string in quotes"
        )
    raw = "".join((yield from _read_raw(turn)))
    try:
        return str(parse(raw))
    except ProtocolError as error:
        raise Malformed(error.message) from None
