"""Convert literals of a language to JSON incrementally: Python's, and Gemma's with its own quotes."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...ir.errors import EncodeError, ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...ir.value import Value
from ...stream.strict import parse
from .reader import Malformed, Parsing, Reader, Truncated, terminals

_DEPTH = 64  # levels of recursion through generators, well below Python's limit
_bare = re.compile(r"[^,:()\[\]{}'\"\s<>=|]*").match
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": ""}
_SAME = "\\'\"/"
_COMMON_ESCAPES = (("\\n", "\n"), ("\\t", "\t"), ("\\'", "'"), ('\\"', '"'), ("\\/", "/"))
# text with common escapes, by the first character of the quotes
_string_runs = {quote: re.compile(rf"""[^{quote}\\]*+(?:\\[nt'"/\\][^{quote}\\]*+)*+""").match for quote in ("'", '"')}
_CODES = {"x": 2, "u": 4, "U": 8}
_open_fraction = re.compile(r"(-?)(?=[0-9]|\.[0-9])([0-9]*)\.([0-9]*)\Z").match  # `.5` and `5.` are numbers in Python
_LOOKAHEAD = 32  # characters; spaces and the beginning of the next name decide. More would delay the stream
_after_string = re.compile(r"\s*(?:[,)\]}:]|\Z)").match
# After an unescaped quote, only the beginning of the next argument or item, or the end of the call, ends the string.
_after_doubtful_string = re.compile(
    r"\s*(?:,\s*(?:[^\W\d][\w\-]*\s*(?:=|\Z)|['\"\[{(\d-])|\)\s*[\],;<]|[\]}]\s*[,)\]}])"
).match
_WORD_VALUES: dict[str, JSON] = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}


class LiteralSyntax(Value, frozen=True):
    """The quotes (longest first), whether a backslash escapes, and whether strings and keys may be bare words.

    With `raw_quotes`, a quote inside a string may be unescaped (`'it's'`), and the text after it decides.
    """

    quotes: tuple[str, ...]
    escapes: bool = True
    bare_words: bool = False
    raw_quotes: bool = False


PYTHON = LiteralSyntax(('"""', "'''", '"', "'"))
RAW_PYTHON = LiteralSyntax(PYTHON.quotes, raw_quotes=True)
GEMMA = LiteralSyntax(('<|"|>', "<escape>", '"'), escapes=False, bare_words=True)


def read_literal(
    reader: Reader, language: LiteralSyntax, sink: Callable[[str], object], depth: int = 0
) -> Parsing[JSON]:
    """Read and return one value; `sink` receives it as JSON text, piece by piece.

    Malformed for other text or too many levels, Truncated at the end of the text.
    """
    if depth > _DEPTH:
        raise Malformed(f"nested more than {_DEPTH} levels deep")
    yield from reader.read_spaces()
    quote = yield from reader.read_one_of(language.quotes)
    if quote is not None:
        return (yield from _read_string(reader, language, quote, sink))
    first = yield from reader.peek()
    if first in ("[", "("):
        return (yield from _read_list(reader, language, sink, depth))
    if first == "{":
        return (yield from _read_braces(reader, language, sink, depth))
    return (yield from _read_word(reader, language, sink))


def parse_literal(text: str, language: LiteralSyntax) -> JSON:
    """Parse a text that is one list, tuple, dictionary or string; raise Malformed if it is anything else."""
    reader = Reader()
    reader.feed(text)
    reader.ended = True
    steps = read_literal(reader, language, _discard)
    value: JSON = None
    try:
        next(steps)
    except StopIteration as done:
        value = done.value
    if reader.at < len(text):
        raise Malformed(f"{text[reader.at : reader.at + 64]!r} follows the value")
    return value


def _read_string(reader: Reader, language: LiteralSyntax, quote: str, sink: Callable[[str], object]) -> Parsing[str]:
    """Read a string after its opening quote; `sink` receives it as a JSON string.

    Raise Truncated if the text ends before its end.
    """
    pieces: list[str] = []

    def collect(piece: str) -> None:
        if piece:
            pieces.append(piece)
            sink(dumps(piece)[1:-1])

    sink('"')
    escapes = language.escapes or quote == '"'  # JSON's quotes have JSON's escapes
    stops = terminals(quote, "\\") if escapes else terminals(quote)
    run = _string_runs[quote[0]] if escapes else None
    doubtful = False  # an inner quote was read as text, so the next one is less certain to end the string
    while True:
        if run is not None:
            stop = run(reader.text, reader.at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            collect(_decode_common_escapes(reader.read_to(stop)))
        found = yield from reader.read_until(stops, collect)
        if found is None:
            raise Truncated("the text ends inside a string")
        if found != quote:
            collect((yield from _read_escape(reader)))
        elif not language.raw_quotes or (yield from _ends_string(reader, doubtful=doubtful)):
            sink('"')
            return "".join(pieces)
        else:
            collect(quote)
            doubtful = True


def _ends_string(reader: Reader, *, doubtful: bool) -> Parsing[bool]:
    """Return True if the quote before the unread text ends its string; `doubtful` after an unescaped quote in it."""
    following = yield from reader.peek()
    if doubtful or following.isspace():
        following = yield from reader.peek(_LOOKAHEAD)
    return (_after_doubtful_string if doubtful else _after_string)(following) is not None


def _decode_common_escapes(text: str) -> str:
    r"""Decode `\n`, `\t` and escaped quotes, slashes and backslashes, which are all the escapes in a run."""
    if "\\" not in text:
        return text
    pieces = text.split("\\\\")
    for escape, character in _COMMON_ESCAPES:
        if escape in text:
            pieces = [piece.replace(escape, character) for piece in pieces]
    return "\\".join(pieces)


def _read_escape(reader: Reader) -> Parsing[str]:
    """Read an escape sequence after its backslash. Keep the backslash if the sequence is unknown or invalid.

    Raise Truncated at the end of the text.
    """
    letter = yield from reader.peek()
    if not letter:
        raise Truncated("the text ends inside a string")
    reader.read_to(reader.at + 1)
    if letter in _SIMPLE:
        return _SIMPLE[letter]
    if letter in _SAME:
        return letter
    width = _CODES.get(letter)
    if width is None:
        return "\\" + letter  # not an escape: Python keeps the backslash, as do regular expressions
    digits = yield from reader.peek(width)
    try:
        character = chr(int(digits, 16)) if len(digits) == width else ""
    except (ValueError, OverflowError):
        character = ""
    if not character or 0xD800 <= ord(character) < 0xE000:
        return "\\" + letter
    reader.read_to(reader.at + width)
    return character


def _read_list(
    reader: Reader, language: LiteralSyntax, sink: Callable[[str], object], depth: int
) -> Parsing[list[JSON]]:
    """Read a list or a tuple; JSON has only arrays."""
    close = "]" if reader.text[reader.at] == "[" else ")"
    reader.read_to(reader.at + 1)
    sink("[")
    items: list[JSON] = []
    if not (yield from _read_end(reader, close)):
        items.append((yield from read_literal(reader, language, sink, depth + 1)))
        yield from _read_more_items(reader, language, sink, depth, close, items)
    sink("]")
    return items


def _read_more_items(
    reader: Reader,
    language: LiteralSyntax,
    sink: Callable[[str], object],
    depth: int,
    close: str,
    items: list[JSON],
) -> Parsing[None]:
    """Read the items after the first one, up to `close`. A trailing comma is allowed."""
    while not (yield from _read_end(reader, close)):
        yield from _read_comma(reader)
        if (yield from _read_end(reader, close)):
            return
        sink(",")
        items.append((yield from read_literal(reader, language, sink, depth + 1)))


def _read_braces(reader: Reader, language: LiteralSyntax, sink: Callable[[str], object], depth: int) -> Parsing[JSON]:
    """Read a dictionary or a set, which becomes an array. The text after the first item shows which of them it is.

    Raise Malformed for a key without quotes.
    """
    reader.read_to(reader.at + 1)
    if (yield from _read_end(reader, "}")):
        sink("{}")
        return {}
    if language.bare_words:
        key = yield from read_key(reader, language)
        return (yield from _read_dict(reader, language, sink, depth, key))
    held: list[str] = []
    first = yield from read_literal(reader, language, held.append, depth + 1)
    yield from reader.read_spaces()
    if (yield from reader.peek()) in (",", "}"):
        sink("[" + "".join(held))
        items = [first]
        yield from _read_more_items(reader, language, sink, depth, "}", items)
        sink("]")
        return items
    if not isinstance(first, str):
        raise Malformed("a key has no quotes")
    yield from reader.expect(":")
    return (yield from _read_dict(reader, language, sink, depth, first))


def _read_dict(
    reader: Reader, language: LiteralSyntax, sink: Callable[[str], object], depth: int, key: str
) -> Parsing[Object]:
    """Read a dictionary after its first key. A trailing comma is allowed; a duplicate key raises Malformed."""
    items: Object = {}
    sink("{")
    while True:
        if key in items:
            raise Malformed(f"duplicate key {key!r}")
        sink(dumps(key) + ":")
        items[key] = yield from read_literal(reader, language, sink, depth + 1)
        if (yield from _read_end(reader, "}")):
            break
        yield from _read_comma(reader)
        if (yield from _read_end(reader, "}")):
            break
        sink(",")
        key = yield from read_key(reader, language)
    sink("}")
    return items


def read_key(reader: Reader, language: LiteralSyntax) -> Parsing[str]:
    """Read a key and the colon after it; Malformed for a key without quotes where the language requires them."""
    yield from reader.read_spaces()
    quote = yield from reader.read_one_of(language.quotes)
    if quote is not None:
        key = yield from _read_string(reader, language, quote, _discard)
    else:
        key = yield from _read_token(reader)
        if not key or not language.bare_words:
            raise Malformed("a key has no quotes")
    yield from reader.read_spaces()
    yield from reader.expect(":")
    return key


def _discard(piece: str) -> None:
    del piece


def _read_end(reader: Reader, close: str) -> Parsing[bool]:
    yield from reader.read_spaces()
    return (yield from reader.read_one_of((close,))) is not None


def _read_comma(reader: Reader) -> Parsing[None]:
    yield from reader.expect(",")


def _read_word(reader: Reader, language: LiteralSyntax, sink: Callable[[str], object]) -> Parsing[JSON]:
    """Read a number, a constant or, if the language has bare words, a string without quotes.

    Malformed for any other text, Truncated at the end of the text.
    """
    word = yield from _read_token(reader)
    if not word:
        ended = reader.ended and reader.at == len(reader.text)
        raise (Truncated if ended else Malformed)("a value is missing")
    value = _word_value(word)
    if value is _MISSING:
        if not language.bare_words:
            raise Malformed(f"{word!r} is not a value")
        value = word
    try:
        sink(dumps(value))
    except EncodeError:
        raise Malformed(f"{word!r} is not a value") from None
    return value


_MISSING: JSON = object()  # a sentinel, never returned to callers


def _word_value(word: str) -> JSON:
    """Return the value of a constant or a number such as `+1`, `1_000` or `.5`, or _MISSING."""
    if word in _WORD_VALUES:
        return _WORD_VALUES[word]
    number = word.removeprefix("+").replace("_", "")
    if point := _open_fraction(number):
        number = f"{point[1]}{point[2] or 0}.{point[3] or 0}"
    try:
        return parse(number)
    except ProtocolError:
        return _MISSING


def _read_token(reader: Reader) -> Parsing[str]:
    """Read a number, a bare word or a bare key, up to the next structural character.

    Truncated if the text ends in it.
    """
    pieces: list[str] = []
    while True:
        stop = _bare(reader.text, reader.at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        pieces.append(reader.read_to(stop))
        if stop < len(reader.text):
            return "".join(pieces)
        if reader.ended:
            if pieces != [""]:
                raise Truncated("the text ends inside a value")
            return ""
        yield


def write_literal(value: JSON, language: LiteralSyntax) -> str:
    """Write the value in that language: keys bare where they may be, constants as Python or JSON spells them."""
    if isinstance(value, str):
        return _write_string(value, language)
    if isinstance(value, dict):
        keys = [(key if language.bare_words and _is_plain_key(key) else _write_string(key, language)) for key in value]
        pairs = zip(keys, value.values(), strict=True)
        colon = ":" if language.bare_words else ": "
        return "{" + _write_items(language, [f"{k}{colon}{write_literal(v, language)}" for k, v in pairs]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + _write_items(language, [write_literal(item, language) for item in value]) + "]"
    if language.bare_words or (not isinstance(value, bool) and value is not None):
        return dumps(value)
    return repr(value)


def _write_items(language: LiteralSyntax, items: list[str]) -> str:
    return ("," if language.bare_words else ", ").join(items)


def _is_plain_key(key: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][\w.-]*", key) is not None


def _write_string(text: str, language: LiteralSyntax) -> str:
    """Write a string: in the language's first quotes, or, if it has escapes, in single quotes."""
    if not language.escapes:
        return f"{language.quotes[0]}{text}{language.quotes[0]}"
    plain = (
        text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return "'" + "".join(c if c >= " " else f"\\x{ord(c):02x}" for c in plain) + "'"
