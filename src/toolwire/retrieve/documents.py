"""The searchable text of a tool: its fields for the word index, and one text for the encoder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from unicodedata import category

from ..ir.pointer import Object
from ..ir.tools import Tool
from ..ir.value import Value
from ..run.tools.words import split_identifier
from ..run.values.keys import definition_hash

FIELDS = ("name", "description", "parameters")
"""The fields of the word index. `parameters` has the names and descriptions of the parameters."""

MAX_DESCRIPTION = 4_000  # characters; the encoder reads 128 tokens, and longer texts dominate the index by their length
MAX_PARAMETERS = 64  # of a tool; bounds the size of its document, the first ones are the most important
_MAX_DEPTH = 4  # objects inside parameters; deeper names describe the data, not the tool
_MAX_PARAMETER_TEXT = 300  # characters; a sentence or two
_SPACES = re.compile(r"\s+")
_SEPARATORS = re.compile(r"[_./\-]+")


class ToolDocument(Value, frozen=True):
    """The searchable fields of one tool. `key` identifies its declaration."""

    key: str
    name: str
    description: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    server: str = ""
    tags: tuple[str, ...] = ()

    def field_text(self, field: str) -> str:
        """Return the text of a field of the word index. Server and tags belong to the name."""
        if field == "name":
            return " ".join((self.name, self.server, *self.tags))
        if field == "description":
            return self.description
        return " ".join(part for pair in self.parameters for part in pair)

    @property
    def text(self) -> str:
        """The text for the encoder: the name as words, the description, and the names of the parameters."""
        name = _SEPARATORS.sub(" ", split_identifier(self.name))
        names = ", ".join(name for name, _ in self.parameters)
        return ". ".join(part for part in (self.server, name, self.description, names) if part)


def make_document(tool: Tool, *, server: str = "", tags: tuple[str, ...] = ()) -> ToolDocument:
    """Return the document of a tool. Its texts are bounded, and characters that a person cannot see are removed."""
    return ToolDocument(
        definition_hash(tool),
        clean_text(tool.name),
        clean_text(tool.description or "")[:MAX_DESCRIPTION],
        tuple(_list_parameters(tool.input_schema)),
        clean_text(server or tool.namespace or ""),
        tuple(map(clean_text, tags)),
    )


def clean_text(text: str) -> str:
    """Remove control and invisible characters, and collapse spaces."""
    text = text[: 4 * MAX_DESCRIPTION]
    if not text.isprintable():
        text = "".join(
            " " if category(char) in ("Zs", "Zl", "Zp", "Cc") else char for char in text if _is_visible(char)
        )
    return _SPACES.sub(" ", text).strip()


def _is_visible(char: str) -> bool:
    return category(char) not in ("Cf", "Co", "Cn", "Cs")


def _list_parameters(schema: Object | None) -> Iterator[tuple[str, str]]:
    """Yield names and descriptions of a schema's properties, also of nested objects, array items and union members."""
    pending: list[tuple[Any, int]] = [(schema, 0)]
    count = 0
    while pending and count < MAX_PARAMETERS:
        node, depth = pending.pop(0)
        if type(node) is not dict or depth > _MAX_DEPTH:
            continue
        properties = node.get("properties")
        for name, child in properties.items() if type(properties) is dict else ():
            if count == MAX_PARAMETERS:
                break
            description = child.get("description") if type(child) is dict else None
            text = description if type(description) is str else ""
            yield clean_text(str(name)), clean_text(text[:_MAX_PARAMETER_TEXT])
            count += 1
            pending.append((child, depth + 1))
        pending.append((node.get("items"), depth + 1))
        for keyword in ("anyOf", "oneOf", "allOf"):
            members = node.get(keyword)
            pending += [(member, depth + 1) for member in (members if type(members) is list else ())[:8]]
