"""Restrict the arguments of a call to values of the request, for a model that invents values.

A model of 135 million parameters writes a limit of 3 or a made-up id into every optional parameter that it sees. In 97 % of
the requests that were written for `bench/tool_calls`, a text in the right call is a part of the request. So the grammar of a
call has the parts of the request as the possible texts, and its numbers as the possible numbers. A parameter that has no
possible value and is not required is left out.

A long request has too many parts for a grammar: its texts are free. Numbers are free if one of them has a notation that is
not understood, and if the schema of a parameter accepts none of them: a grammar without a value is refused by the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..run.tools.words import split_words
from ..schema.validation.validator import validator

_MAX_TEXT = 2_000  # characters of a request whose parts are listed
_MAX_SPANS = 600  # parts of a request in a grammar; not measured
# Characters of the texts in the grammar of a call, in which each parameter has its own texts. Their number alone would not
# bound it: a few hundred long parts in a dozen parameters are megabytes. A sentence of 30 long terms fits. Not
# measured.
_MAX_CHARACTERS = 60_000
_LENGTHS = frozenset(
    {"minLength", "maxLength", "format"}
)  # the parts are filtered by length; a format is an annotation
_TOKEN = re.compile(r"\S+")
_EDGES = "\"'`\u201c\u201d\u2018\u2019«».,;:!?()[]{}<>"  # with typographic quotes
_QUOTED = re.compile(
    r"\"([^\"\n]{1,300})\"|\u201c([^\u201d\n]{1,300})\u201d|`([^`\n]{1,300})`|(?<!\w)'([^'\n]{1,300})'(?!\w)"
)
# A number is a part between spaces: digits with thousands groups, a sign, decimals, and a short unit, as in 6h or $5,
# or a hyphenated one, as in 5-minute. Without a limit of the digits, `int` refuses them, or `float` returns infinity.
_NUMBER = re.compile(
    r"[#$€£]?([-+]?(?:[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,15})?)(?:°?([^\W\d_]{0,3})|-[A-Za-z-]+|[$€£])"
)
_NO_UNIT = frozenset(
    "k m b g t bn mn tn mio mrd tsd st nd rd th am pm e".split()
)  # multiples, ordinals, times of a day
_SCIENTIFIC = re.compile(r"[-+]?[0-9.]+e[-+]?[0-9]+", re.IGNORECASE)
# A name with digits is not a number: v2, 5.csv, 10.0.0.1; and 7f2b or 91acde, of letters, digits and hyphens.
_NAME = re.compile(r"[^0-9A-Za-z_]*[A-Za-z_]|[0-9]{1,15}\.[A-Za-z]|[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\Z")
_PLAIN = re.compile(r"[0-9A-Za-z_-]+")
_MIXED = re.compile(r"[A-Za-z]{4}|[A-Za-z][0-9]")
_SEPARATOR = re.compile(r"[\s=;()\[\]{}<>\"`\u201c\u201d«»]+|(?<=[A-Za-z])[-:/#]")
_NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
        " eighteen nineteen twenty".split()
    )
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100}
_NUMBER_WORDS |= {"dozen": 12, "once": 1, "twice": 2, "couple": 2}
_ANY_WORD = rf"(?:{'|'.join(_NUMBER_WORDS)})"
_COMPOSED = re.compile(  # composed notations: twenty-five, 3 hundred, 1 200, ten percent
    rf"\b(?:{_ANY_WORD}|[0-9])[\s-]+(?:and\s+)?{_ANY_WORD}\b|\b[0-9]{{1,3}}\s[0-9]{{3}}\b|\b{_ANY_WORD}[\s-]+[0-9]"
    r"|%|\b(?:per\s?cent|hundreds?\s+and|thousands?|[mb]illions?|minus|negative|half|hal(?:f|ves)|quarters?|dozens)\b"
    r"|\b(?:second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth)\b"
)
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COMBINATORS = frozenset({"allOf", "anyOf", "oneOf", "not", "if"})


class RequestValues:
    """The possible values of arguments in the text of a request."""

    def __init__(self, text: str) -> None:
        self.words = frozenset(split_words(text))
        self.numbers = _find_numbers(text)
        self.texts = list(dict.fromkeys(_find_texts(text))) if len(text) <= _MAX_TEXT else []
        self._left = _MAX_CHARACTERS

    def restrict_call(self, shape: Object) -> Object:
        """Return the schema of a call with the values of the request only."""
        properties = shape["properties"]
        return {**shape, "properties": {**properties, "arguments": self.restrict(properties["arguments"])}}

    def restrict(self, schema: Object) -> Object:
        """Return the schema of a function's arguments with the values of the request only."""
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not _COMBINATORS.isdisjoint(schema):
            return schema  # a combinator may require another value of the same parameter
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        kept = {
            name: self._restrict_value(part)
            for name, part in properties.items()
            if name in needed or self._is_possible(name, part)
        }
        return {**schema, "properties": kept}

    def _is_possible(self, name: str, schema: JSON) -> bool:
        """Return whether the request may have a value for an optional parameter."""
        part = _without_null(schema)
        if part is None:
            return True
        kind = part.get("type")
        if kind in ("integer", "number") and "enum" not in part:
            return self.numbers is None or any(_is_number(kind, number) for number in self.numbers)
        return (kind in ("string", "array") and "enum" not in part) or self._mentions(name, part)

    def _mentions(self, name: str, schema: Object) -> bool:
        """Return whether the request mentions the name, the description or a value of a parameter."""
        described = schema.get("description")
        values = schema.get("enum")
        texts = [
            name,
            described if isinstance(described, str) else "",
            *map(str, values if isinstance(values, list) else ()),
        ]
        return not self.words.isdisjoint(split_words(" ".join(texts)))

    def _restrict_value(self, schema: JSON) -> JSON:
        """Return the schema of a value with the texts and numbers of the request only, at all depths."""
        if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
            return schema
        kind = schema.get("type")
        if "allOf" in schema or (("type" in schema or "properties" in schema) and not _COMBINATORS.isdisjoint(schema)):
            return schema  # two parts of a schema may leave no common value
        if kind == "string":
            return self._restrict_text(schema)
        if kind in ("integer", "number"):
            return self._restrict_number(schema)
        restricted: Object = {}
        for key, value in schema.items():
            if key in ("items", "additionalProperties"):
                restricted[key] = self._restrict_value(value)
            elif key in ("properties", "$defs", "definitions") and isinstance(value, dict):
                restricted[key] = {name: self._restrict_value(part) for name, part in value.items()}
            elif key in ("anyOf", "oneOf", "prefixItems") and isinstance(value, list):
                restricted[key] = [self._restrict_value(part) for part in value]
            else:
                restricted[key] = value
        return restricted

    def _restrict_number(self, schema: Object) -> Object:
        """Return the schema with the numbers of the request that it accepts; without such a number it is unchanged."""
        try:
            bounds = validator({key: schema[key] for key in _BOUNDS if key in schema})
        except SchemaError:  # such as the boolean `exclusiveMaximum` of an old draft
            return schema
        possible = [
            number for number in self.numbers or () if _is_number(schema["type"], number) and bounds.accepts(number)
        ]
        if not possible:
            return schema
        return {**{key: value for key, value in schema.items() if key not in _BOUNDS}, "enum": possible}

    def _restrict_text(self, schema: Object) -> Object:
        least, most = schema.get("minLength"), schema.get("maxLength")
        least, most = least if type(least) is int else 0, most if type(most) is int else _MAX_TEXT
        possible = [text for text in self.texts if least <= len(text) <= most]
        size = sum(map(len, possible))
        if "pattern" in schema or not possible or size > self._left:
            return schema
        self._left -= size
        return {**{key: value for key, value in schema.items() if key not in _LENGTHS}, "enum": possible}


def value_text(request: Request) -> str | None:
    """Return the texts of a system message and one user message; None for other conversations."""
    if sum(message.role not in ("system", "developer") for message in request.messages) != 1:
        return None
    return "\n".join(message.text for message in reversed(request.messages))


def _without_null(schema: JSON) -> Object | None:
    """Return the schema of an optional value; None if it is not a simple one."""
    if not isinstance(schema, dict) or "$ref" in schema:
        return None
    branches = schema.get("anyOf")
    if isinstance(branches, list):
        others = [branch for branch in branches if branch != {"type": "null"}]
        if len(others) != 1 or not isinstance(others[0], dict):
            return None
        return {**others[0], "description": schema.get("description", others[0].get("description"))}
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        return {**schema, "type": kinds[0]} if len(kinds) == 1 else None
    return schema


def _is_number(kind: JSON, number: float) -> bool:
    return kind == "number" or type(number) is int


def _find_numbers(text: str) -> list[int | float] | None:
    """Return the numbers of a text; None if it has a notation that is not understood, such as 1.200,50, 3k or 10%.

    The value of such a notation is unknown, so the numbers of a call cannot be limited to the others.
    """
    lowered = text.lower()
    if _COMPOSED.search(lowered):
        return None
    found: list[int | float] = []
    for part in _SEPARATOR.split(text):
        word = part.strip(_EDGES)
        if not any(map(str.isnumeric, word)):
            continue
        number = _NUMBER.fullmatch(word)
        if number is not None and (number[2] or "").lower() not in _NO_UNIT:
            digits = number[1].replace(",", "")
            found.append(float(digits) if "." in digits else int(digits))
        elif not _is_name(word):
            return None
    found += [_NUMBER_WORDS[word] for word in re.findall(r"[a-z]+", lowered) if word in _NUMBER_WORDS]
    return list(dict.fromkeys(found))


def _is_name(word: str) -> bool:
    if _NAME.match(word):
        return True
    return bool(_PLAIN.fullmatch(word) and _MIXED.search(word) and not _SCIENTIFIC.fullmatch(word))


def _find_texts(text: str) -> Iterator[str]:
    """Yield quotations, and all contiguous parts without the punctuation around them, short ones first."""
    for quotation in _QUOTED.finditer(text):
        yield next(part for part in quotation.groups() if part)
    places = [found.span() for found in _TOKEN.finditer(text)]
    count = 0
    for length in range(1, len(places) + 1):
        for start in range(len(places) - length + 1):
            if count >= _MAX_SPANS:
                return
            count += 1
            span = text[places[start][0] : places[start + length - 1][1]]
            stripped = span.strip(_EDGES)
            if stripped and "\x7f" not in span:  # the engine refuses a grammar with this character
                yield from (stripped, stripped.removesuffix("'s"), span.rstrip(",;:"))
