"""Shapes of request bodies: the fields of each object, their types, and the required ones.

A shape is a line of `name*:kind` entries, where `*` marks a required field. Kinds are str, int, num, bool, object, any,
null, `'literal'`, `[kind]` for a list, `@Shape` for an object, and alternatives with `|`. The files are generated from
the types of the official SDKs; a test compares them with the installed SDKs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeAlias

from ....ir.pointer import JSON, Object, child_pointer
from ....ir.text import shorten

__all__ = ["ShapeProblem", "check_shape", "load_shapes"]

_TOKEN = re.compile(r"'[^']*'|@\w+|\w+|[\[\]|]")
_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "num": (int, float),
    "bool": (bool,),
    "object": (dict,),
    "null": (type(None),),
}
_TAGS = ("type", "role")
_LABELS = {"str": "a string", "int": "an integer", "num": "a number", "bool": "true or false", "object": "an object"}


class Field(NamedTuple):
    kind: FieldType
    required: bool


FieldType: TypeAlias = "tuple[str | ListOf, ...]"
Shape: TypeAlias = dict[str, Field]


class ListOf(NamedTuple):
    kind: FieldType


class ShapeProblem(NamedTuple):
    """A difference from a shape. `kind` is "unknown", "missing", "type" or "tag"."""

    kind: str
    path: str
    message: str


@cache
def load_shapes(wire: str) -> dict[str, Shape]:
    """Load the shapes of a wire by name. The shape of the body is `Body`."""
    text = files(__package__).joinpath(f"{wire}.toml").read_text(encoding="utf-8")
    return {name: _parse_shape(row) for name, row in tomllib.loads(text).items()}


def _parse_shape(row: str) -> Shape:
    fields: Shape = {}
    for entry in row.split():
        name, _, kind = entry.partition(":")
        fields[name.removesuffix("*")] = Field(_parse_kind(_TOKEN.findall(kind)), name.endswith("*"))
    return fields


def _parse_kind(tokens: list[str]) -> FieldType:
    """Parse alternatives up to the end or a closing bracket; consume the tokens."""
    alternatives: list[str | ListOf] = []
    while tokens:
        mark = tokens.pop(0)
        if mark == "]":
            break
        if mark == "[":
            alternatives.append(ListOf(_parse_kind(tokens)))
        elif mark != "|":
            alternatives.append(mark)
    return tuple(alternatives)


def check_shape(body: Object, wire: str) -> Iterator[ShapeProblem]:
    """Compare a body with the shapes of a wire."""
    walk = _Walk(load_shapes(wire), snake=wire == "gemini", null=wire.startswith("openai"))
    yield from walk.check_object(body, "Body", "")


class _Walk:
    """A comparison of one body.

    `snake`: fields may also be in snake_case, as protobuf JSON accepts them. `null`: an optional field may be null.
    """

    def __init__(self, shapes: dict[str, Shape], *, snake: bool, null: bool) -> None:
        self._shapes = shapes
        self._snake = snake
        self._null = null

    def check_object(self, value: Object, name: str, at: str) -> Iterator[ShapeProblem]:
        """Report unknown and missing fields, and check the values of the others.

        null is accepted for optional fields if the provider reads it as absent.
        """
        shape = self._shapes[name]
        seen: set[str] = set()
        for key, inner in value.items():
            known = _camel(key) if self._snake and "_" in key else key
            if known not in shape:
                yield ShapeProblem("unknown", child_pointer(at, key), f"{key!r} is not a field here")
                continue
            seen.add(known)
            if inner is None and self._null and not shape[known].required:
                continue
            yield from self.check_value(inner, shape[known].kind, child_pointer(at, key))
        for key, field in shape.items():
            if field.required and key not in seen:
                yield ShapeProblem("missing", at, f"the field {key!r} is missing")

    def check_value(self, value: JSON, kind: FieldType, at: str) -> Iterator[ShapeProblem]:
        if type(value) is dict:
            yield from self._check_dict(value, kind, at)
        elif type(value) is list:
            yield from self._check_list(value, kind, at)
        elif not any(_is_scalar(value, one) for one in kind):
            yield ShapeProblem("type", at, f"{_shown(value)} must be {_describe(kind)}")

    def _check_dict(self, value: Object, kind: FieldType, at: str) -> Iterator[ShapeProblem]:
        """Check an object against the named shapes of `kind`; "object" and "any" accept every object."""
        names = [one[1:] for one in kind if type(one) is str and one.startswith("@")]
        if "object" in kind or "any" in kind:
            return
        if not names:
            yield ShapeProblem("type", at, f"an object must be {_describe(kind)}")
        elif len(names) == 1:
            yield from self.check_object(value, names[0], at)
        else:
            yield from self._check_union(value, names, at)

    def _check_list(self, value: list[JSON], kind: FieldType, at: str) -> Iterator[ShapeProblem]:
        """Check each item against the item types of all lists in `kind`; "any" accepts every list."""
        lists = [one for one in kind if type(one) is ListOf]
        if "any" in kind:
            return
        if not lists:
            yield ShapeProblem("type", at, f"a list must be {_describe(kind)}")
            return
        inner = tuple(one for alternative in lists for one in alternative.kind)
        for index, item in enumerate(value):
            yield from self.check_value(item, inner, child_pointer(at, index))

    def _check_union(self, value: Object, names: Sequence[str], at: str) -> Iterator[ShapeProblem]:
        """Choose the shapes with the value's tag, and report the problems of the shape with the fewest problems."""
        for tag in _TAGS:
            names = self._matching(value, names, tag)
            if not names:
                yield ShapeProblem("tag", child_pointer(at, tag), f"{_shown(value[tag])} is not a known {tag} here")
                return
        best: list[ShapeProblem] | None = None
        for name in names:
            problems = list(self.check_object(value, name, at))
            if best is None or len(problems) < len(best):
                best = problems
            if not best:
                return
        yield from best or ()

    def _matching(self, value: Object, names: Sequence[str], tag: str) -> list[str]:
        """Return the shapes that allow the value's tag; without a tag, the shapes that do not require it, or all.

        A shape may leave its tag out, or not have it.
        """
        allowed: list[str] = []
        for name in names:
            field = self._shapes[name].get(tag)
            if tag not in value:
                if field is None or not field.required:
                    allowed.append(name)
            elif field is not None and any(_is_scalar(value[tag], one) for one in field.kind):
                allowed.append(name)
        return allowed if allowed or tag in value else list(names)


def _is_scalar(value: JSON, kind: str | ListOf) -> bool:
    if type(kind) is not str:
        return False
    if kind.startswith("'"):
        return type(value) is str and value == kind[1:-1]
    return kind == "any" or type(value) in _PLAIN.get(kind, ())


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _describe(kind: FieldType) -> str:
    words: dict[str, None] = {}
    for one in kind:
        if type(one) is ListOf:
            words["a list"] = None
        elif type(one) is str and one != "null":
            words["an object" if one.startswith("@") else _LABELS.get(one, one)] = None
    return " or ".join(words) or "null"


def _shown(value: JSON) -> str:
    return shorten(repr(value), 60)
