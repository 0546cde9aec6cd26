"""The parts of a function's signature that pydantic does not read: parameter descriptions, and the context parameter.

Descriptions are in the docstring, in the style of Google, NumPy or Sphinx. A parameter for the context of a call is not
part of the schema; its class is recognised by an attribute, because it belongs to `run`, a higher layer.

Read the parameter descriptions of a docstring, in the three common styles.

    Google      Args:                     NumPy     Parameters           Sphinx    :param city: the place
                    city: the place                 ----------
                                                    city : str
                                                        the place

Descriptions of parameters move to the parameters. Sections for readers of the code (returns, raises, examples) are left
out of the description that a model gets.
"""

from __future__ import annotations

import inspect
import re
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
_OTHER_SECTIONS = frozenset(
    "returns return yields yield raises raise warns warnings examples example note notes see also references "
    "attributes todo".split()
) | {"see also"}
_SPHINX = re.compile(r"^:(param|parameter|arg|argument|key|keyword)\s++(?:[^:\s]++\s++)*?\*{0,2}(\w++)\s*+:\s*+(.*)$")
_SPHINX_OTHER = re.compile(r"^:(?:returns?|rtype|raises?|yields?|type\s++\w|meta\s++\w)[^:]*+:")
_GOOGLE = re.compile(r"^\*{0,2}(\w++)\s*+(?:\([^)]*+\)\s*+)?+:\s*+(.*)$")
_NUMPY = re.compile(r"^\*{0,2}(\w++(?:\s*+,\s*+\*{0,2}\w++)*+)\s*(?::.*)?$")


class Docstring(NamedTuple):
    """A docstring without its sections: the text about the function, and the description of each parameter."""

    text: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> Docstring:
    """Split a docstring into the text about the function and the text about each parameter.

    Sections in the styles of Google, NumPy and Sphinx are recognised; sections about anything else are dropped.
    """
    lines = inspect.cleandoc(docstring or "").splitlines()
    text_lines: list[str] = []
    parameters: dict[str, list[str]] = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        name = line.strip().rstrip(":").lower()
        underlined = position + 1 < len(lines) and re.fullmatch(r"-{3,}|={3,}", lines[position + 1].strip())
        if underlined and name in _PARAMETERS | _OTHER_SECTIONS:
            position = _read_numpy(lines, position + 2, parameters if name in _PARAMETERS else {})
        elif line.strip().endswith(":") and name in _PARAMETERS | _OTHER_SECTIONS and not line.startswith(" "):
            position = _read_google(lines, position + 1, parameters if name in _PARAMETERS else {})
        elif _SPHINX.match(line) or _SPHINX_OTHER.match(line):
            position = _read_sphinx(lines, position, parameters)
        else:
            text_lines.append(line)
            position += 1
    joined = {name: " ".join(part for part in description if part) for name, description in parameters.items()}
    return Docstring(
        "\n".join(text_lines).strip(), {name: description for name, description in joined.items() if description}
    )


def _read_google(lines: list[str], position: int, into: dict[str, list[str]]) -> int:
    """Read the entries of an indented Google section into `into`; return the position of the first line after it."""
    indent: int | None = None
    current: list[str] | None = None
    while position < len(lines):
        line = lines[position]
        if line.strip() and not line.startswith((" ", "\t")):
            return position
        depth = len(line) - len(line.lstrip())
        if line.strip():
            indent = depth if indent is None else indent
            found = _GOOGLE.match(line.strip()) if depth == indent else None
            if found is not None:
                current = into.setdefault(found[1], [])
                current.append(found[2].strip())
            elif current is not None:
                current.append(line.strip())
        position += 1
    return position


def _read_numpy(lines: list[str], position: int, into: dict[str, list[str]]) -> int:
    """Read the entries of a NumPy section into `into`, up to the next underlined title; return the position there."""
    current: list[list[str]] = []
    while position < len(lines):
        line = lines[position]
        next_line = lines[position + 1].strip() if position + 1 < len(lines) else ""
        if re.fullmatch(r"-{3,}|={3,}", next_line):
            return position
        if line.strip() and not line.startswith((" ", "\t")):
            found = _NUMPY.match(line.strip())
            names = [name.strip().lstrip("*") for name in found[1].split(",")] if found is not None else []
            current = [into.setdefault(name, []) for name in names]
        else:
            for description in current:
                description.append(line.strip())
        position += 1
    return position


def _read_sphinx(lines: list[str], position: int, into: dict[str, list[str]]) -> int:
    """Read one Sphinx field and its continuation lines into `into`; return the position after them.

    A field that is not a parameter is skipped.
    """
    found = _SPHINX.match(lines[position])
    description = into.setdefault(found[2], []) if found is not None else []
    if found is not None:
        description.append(found[3].strip())
    position += 1
    while position < len(lines) and lines[position].startswith((" ", "\t")):
        description.append(lines[position].strip())
        position += 1
    return position


# Recognise a parameter for the context of a call, such as `CallContext[Deps]`. The class of the context is recognised
# by an attribute.


CONTEXT_MARKER = "__toolwire_context__"
"""An attribute of the class of contexts."""


def is_context(annotation: Any) -> bool:
    """Return True for the class of contexts, also with type arguments, in `Annotated`, or in a union with None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return is_context(get_args(annotation)[0])
    if origin in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return len(members) == 1 and is_context(members[0])
    return getattr(origin or annotation, CONTEXT_MARKER, None) is True
