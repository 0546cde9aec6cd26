"""Check, find and rename fields of a JSON object that arrives in pieces, without parsing it or holding it. No I/O.

Regular expressions skip the strings, and the brackets outside them are kept as a stack, so that the depth of every name is
known. Refused, as by the parser of smaller bodies: brackets of another kind, nesting beyond 200 levels, control characters
and invalid escapes in strings, bytes that are not UTF-8, text after the document, and a document without its end. Commas,
numbers and literals are left to the upstream: they may be cut anywhere, and they change no depth and no name.

Pairs of brackets are removed by `bytes.replace` from the inside out, at most once for each level. That is much faster than
a loop over the brackets: 1 MB of a usual conversation costs less than 0.1 ms.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jiter

_CHARACTERS = rb'[^"\\\x00-\x1f]*+'
_ESCAPE = rb'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})'
_CONTENTS = _CHARACTERS + rb"(?:" + _ESCAPE + _CHARACTERS + rb")*+"
_STRING = rb'"' + _CONTENTS + rb'"'
# everything before the last string, whose end, or the colon after it, may be in the next piece
_COMPLETE = re.compile(rb'(?:[^"]++|' + _STRING + rb"\s*+(?!\Z))*+")
_OPEN_STRING = re.compile(rb'"' + _CONTENTS + rb"(\\?+(?:(?<=\\)u[0-9A-Fa-f]{0,3}+)?+)\Z")
_CLOSED_STRING = re.compile(_STRING + rb"\s*+\Z")
_NAMES_AND_STRINGS = re.compile(rb"(" + _STRING + rb"\s*+:)|" + _STRING)
_STRINGS = re.compile(_STRING)
_COLON = re.compile(rb"\s*+:")
_NOT_JSON = re.compile(rb'[^ \t\r\n0-9{}\[\],:"+\-.eEtrufalsn]')
_BRACKETS = re.compile(rb"[\[\]{},]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}<"))
_CONTROLS = bytes(range(0x20))
_SPACE = b" \t\r\n"
_MAX_DEPTH = 201  # brackets: 200 levels in the document's own, as the parser of `stream.strict` counts
_TOO_DEEP = f"nested more than {_MAX_DEPTH - 1} levels deep"
_LETTER = rb"u(?:00[4-7]|017[fF]|212[aA])"  # escaped, with those that ignoring the case makes s or k
_LONGEST_NAME = 256  # bytes, with every letter escaped
_LONG_STRING = b'"~'  # instead of the contents of a string that is too long for a name


class InvalidPiece(ValueError):
    """The piece is not a part of a JSON document."""


class FieldFound(ValueError):
    """The document has a field that is searched, or one that is renamed twice. `name` is empty if it has escaped letters."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class CountedObjects(NamedTuple):
    """A field at the top level, and the maximum number of objects at a depth inside it; the document has depth 1."""

    field: str
    depth: int
    limit: int


class FieldScan:
    """Searches the top level of one object for the fields `names`, in any spelling, and renames the fields in `renamed`.

    FieldFound also reports the field of `counted` if it has too many objects, and fields whose names match `pattern`.

    A new name must not be longer: spaces after it keep the length of the document. A name that may be incomplete is
    held until the next piece if fields are renamed.
    """

    def __init__(
        self,
        names: Iterable[str],
        renamed: Mapping[str, str] | None = None,
        counted: CountedObjects | None = None,
        *,
        pattern: bytes = b"",
    ) -> None:
        self._renamed = {old.encode(): new.encode() for old, new in (renamed or {}).items()}
        self._new_names = frozenset(self._renamed.values())
        self._used_names: set[bytes] = set()  # of the new ones
        self._counted = counted
        self._counted_name = b"" if counted is None else counted.field.encode()
        self._is_counting = False  # inside the counted field
        self._objects = 0
        searched = [*(name.encode() for name in names), *self._renamed, *self._new_names, self._counted_name]
        plain = b"|".join(filter(None, [*map(re.escape, searched), pattern]))
        escaped_letter = rb'(?:[^"\\]|\\(?!' + _LETTER + rb").)*+(\\" + _LETTER + rb")"
        any_name = rb"(?:" + escaped_letter + rb')?+(?:[^"\\]|\\.)*+"'  # each name is matched whole: linear cost
        self._find_names = re.compile(rb'"(?:(' + plain + rb')"|' + any_name + rb")", re.DOTALL).finditer
        self._search_names = re.compile(rb'"(?:' + plain + rb')"\s*+:|\\' + _LETTER).search  # also within strings
        self._open = b""  # the open brackets, the first one as `<`: only the end of the document closes it
        self._is_complete = False
        self._decode = getincrementaldecoder("utf-8")().decode
        self._is_ascii = True  # no byte waits for the rest of its character
        self._last_string = b""  # it may be the beginning of a name
        self._sent = 0  # bytes of it that `feed` has returned

    @property
    def held(self) -> bytes:
        """The end of the pieces that `feed` has not returned."""
        return self._last_string[self._sent :] if self._renamed else b""

    def feed(self, piece: bytes) -> bytes:
        """Check the next piece, and return the bytes that can be sent on, with new names. The rest is held.

        Raise FieldFound for a field that is searched, and InvalidPiece if the piece is no part of a JSON document.
        """
        self._check_encoding(piece)
        if self._last_string == _LONG_STRING and not self.held and b'"' not in piece and b"\\" not in piece:
            if _has_controls(piece):
                raise InvalidPiece("a control character in a string")
            return piece  # such as a part of a picture
        text = self._last_string + piece
        complete = _COMPLETE.match(text)
        end = 0 if complete is None else complete.end()
        checked, last_string = self._check(text[:end]), text[end:]
        self._last_string = _shorten(last_string)
        if not self._renamed:
            return piece
        ready = checked[self._sent :]
        self._sent = self._sent if end == 0 else 0
        if len(last_string) <= _LONGEST_NAME:
            return ready
        if self._sent == 0 and self._last_string == last_string.rstrip() and _CLOSED_STRING.match(last_string):
            return ready + last_string[len(self._last_string) :]  # many spaces before a colon are moved before the name
        sent, self._sent = self._sent, len(self._last_string)
        return ready + last_string[sent:]

    def close(self) -> None:
        """Raise InvalidPiece if the document has not ended."""
        self._check_encoding(b"", is_last=True)
        if self._last_string or not self._is_complete:
            raise InvalidPiece("the document ends in the middle of a value")

    def _check_encoding(self, piece: bytes, *, is_last: bool = False) -> None:
        """Raise InvalidPiece if the pieces so far are not UTF-8. A character may be split between two pieces."""
        if self._is_ascii and piece.isascii():
            return
        try:
            self._decode(piece, is_last)
        except UnicodeDecodeError:
            raise InvalidPiece("not UTF-8") from None
        self._is_ascii = piece[-1:].isascii()

    @property
    def _depth(self) -> int:
        return len(self._open)

    def _check(self, text: bytes) -> bytes:
        """Check complete text, follow its brackets, and return it with the new names.

        Raise FieldFound for a name at the top level that is searched, and InvalidPiece for text that is not JSON.
        """
        if self._search_names(text) is None:
            self._count_brackets(text)
            return text
        # each value becomes an empty string, because a string after the document is refused
        names, position, depth, has_old_name = _NAMES_AND_STRINGS.sub(rb'\1""', text), 0, self._depth, False
        for found in self._find_names(names):
            if found.lastindex is None or len(found.group()) > _LONGEST_NAME:
                continue  # a longer name of pieces has been shortened, so its escaped letters are not seen there
            self._count_brackets(names[position : found.start()])
            position = found.start()
            if self._depth <= 1:
                has_old_name = self._use_name(found.group(1) or b"") or has_old_name
        self._count_brackets(names[position:])
        return self._rename(text, depth) if has_old_name else text

    def _use_name(self, name: bytes) -> bool:
        """Note a name at the top level, and return whether it is an old name, which has to be replaced.

        The counted field starts the count. Raise FieldFound if the name is searched, or its new name was used before.
        """
        if name and name == self._counted_name:
            self._is_counting = True
            return False
        new_name = self._renamed.get(name, name)
        if new_name not in self._new_names or new_name in self._used_names:
            raise FieldFound(name.decode())
        self._used_names.add(new_name)
        return name in self._renamed

    def _rename(self, text: bytes, depth: int) -> bytes:
        """Replace the old names at the top level of a text that begins at a depth."""
        replaced: list[bytes] = []
        copied = position = 0
        for string in _STRINGS.finditer(text):
            depth += _count_depth(text[position : string.start()])
            position = string.end()
            new_name = self._renamed.get(string.group()[1:-1])
            if new_name is not None and depth <= 1 and _COLON.match(text, position):
                replaced += (text[copied : string.start()], (b'"%b"' % new_name).ljust(len(string.group())))
                copied = position
        return b"".join([*replaced, text[copied:]])

    def _count_brackets(self, names: bytes) -> None:
        """Follow the brackets of a text, and count its objects inside the counted field. Raise as `_check` does."""
        structure = _STRINGS.sub(b'"', names)
        if _NOT_JSON.search(structure) is not None:
            raise InvalidPiece("text that is neither a string, a number nor a literal")
        if self._is_counting:
            self._count_objects(structure)
        self._move(structure)

    def _move(self, structure: bytes) -> None:
        """Open and close the brackets of a text without strings. Note the end of the document.

        Raise InvalidPiece for brackets that do not match, and for text before or after the document.
        """
        if not self._open:
            structure = structure.lstrip(_SPACE)
            if not structure:
                return
            if self._is_complete:
                raise InvalidPiece("text after the document")
            if structure[:1] != b"{":
                raise InvalidPiece("the document must be an object")
            structure = b"<" + structure[1:]  # marks the document's own bracket, which no pair below removes
        brackets = self._open + structure.translate(None, _NOT_BRACKETS)
        self._open = _close_pairs(brackets)
        if self._open == b"<}":
            # the last bracket, and the last text, must be the end of the document
            if _close_pairs(brackets[:-1]) != b"<" or not structure.rstrip(_SPACE).endswith(b"}"):
                raise InvalidPiece("text after the document")
            self._open, self._is_complete = b"", True
        elif b"}" in self._open or b"]" in self._open:
            raise InvalidPiece("a closing bracket without an opening one of its kind")

    def _count_objects(self, structure: bytes) -> None:
        """Count the objects of the counted field, which ends at a comma of the document. Raise FieldFound at too many."""
        assert self._counted is not None
        depth = self._depth
        for bracket in _BRACKETS.findall(structure):
            if bracket in (b"{", b"["):
                depth += 1
                self._objects += bracket == b"{" and depth == self._counted.depth
            elif bracket != b",":
                depth -= 1
            elif depth <= 1:
                self._is_counting = False
                break
        if self._objects > self._counted.limit:
            raise FieldFound(self._counted.field)


def _has_controls(piece: bytes) -> bool:
    """Return whether a part of a string has control characters. The parser is 6 times as fast as `translate`."""
    if not piece.isascii():  # the parser would refuse half a character
        return len(piece.translate(None, _CONTROLS)) < len(piece)
    try:
        jiter.from_json(b'"%b"' % piece, cache_mode="none")
    except ValueError:
        return True
    return False


def _close_pairs(brackets: bytes) -> bytes:
    """Return the brackets without matching pairs. Raise InvalidPiece if they are nested too deep."""
    rounds, unpaired, size = 0, brackets, -1
    while size != len(unpaired):
        rounds, size = rounds + 1, len(unpaired)
        unpaired = unpaired.replace(b"{}", b"").replace(b"[]", b"")
        if rounds > _MAX_DEPTH:
            raise InvalidPiece(_TOO_DEEP)
    # A round removes one level or two, so the exact depth is needed only beyond this bound.
    if len(unpaired) + 2 * rounds > _MAX_DEPTH and _deepest(brackets) > _MAX_DEPTH:
        raise InvalidPiece(_TOO_DEEP)
    return unpaired


def _deepest(brackets: bytes) -> int:
    depth = deepest = 0
    for bracket in brackets:
        depth += 1 if bracket in b"{[<" else -1
        deepest = max(depth, deepest)
    return deepest


def _count_depth(structure: bytes) -> int:
    return structure.count(b"{") + structure.count(b"[") - structure.count(b"}") - structure.count(b"]")


def _shorten(string: bytes) -> bytes:
    """Return the last string, without its contents if it is too long for a name.

    Raise InvalidPiece if it is not the beginning of a string.
    """
    if not string:
        return string
    is_open = _OPEN_STRING.match(string)
    if is_open is None and _CLOSED_STRING.match(string) is None:
        raise InvalidPiece("an invalid escape or a control character in a string")
    if len(string) <= _LONGEST_NAME:
        return string
    if is_open is not None:
        return _LONG_STRING + is_open.group(1)
    closed = string.rstrip()
    return closed if len(closed) <= _LONGEST_NAME else _LONG_STRING + b'"'
