"""Resolve references inside one document. A reference to another document is an error: nothing is fetched."""

from __future__ import annotations

from urllib.parse import unquote

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object, resolve

__all__ = ["References"]

_MAX_CHAIN = 16
_SHOWN = 200  # characters of a reference in a message


class References:
    """The references of a document."""

    def __init__(self, document: Object) -> None:
        self._document = document

    def at(self, pointer: str) -> JSON:
        """Return the value at a JSON pointer."""
        try:
            return resolve(self._document, pointer)
        except (KeyError, IndexError, TypeError, ValueError):
            raise SchemaError(f"the reference '#{pointer[:_SHOWN]}' cannot be resolved") from None

    def pointer(self, ref: str) -> str:
        """Return the JSON pointer of a reference; SchemaError if it is not one into this document."""
        if ref == "#":
            return ""
        if ref.startswith("#/"):
            return unquote(ref[1:])
        if ref.startswith("#"):
            raise SchemaError(f"the reference {ref[:_SHOWN]!r} is not a JSON pointer")
        raise SchemaError(
            f"the reference {ref[:_SHOWN]!r} is in another document, which is not fetched",
            hint="bundle the document into one file",
        )

    def follow(self, value: JSON) -> Object:
        """Follow the references of an object; return {} for a value that is not an object."""
        for _ in range(_MAX_CHAIN):
            if type(value) is not dict:
                return {}
            ref = value.get("$ref")
            if type(ref) is not str:
                found: Object = value
                return found
            value = self.at(self.pointer(ref))
        raise SchemaError("the references form a cycle")
