"""Resolve the references of a document, and name the definitions that its decoding schema has for their targets."""

from __future__ import annotations

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from .decoding_state import SchemaPath, schema_pointer
from .identifiers import Identifiers

__all__ = ["DecodingReferences"]


class DecodingReferences:
    """The definitions of one document, by name, and the targets that are not converted yet.

    `pending` has the name, the pointer and the schema of a target, and whether it is inside a schema with its own
    identifier.
    """

    __slots__ = ("_document", "_identifiers", "_names", "definitions", "pending")

    def __init__(self, document: JSON) -> None:
        self._document = document
        self._identifiers: Identifiers | None = None
        self._names: dict[str, str] = {}  # pointer of a definition → its name
        self.definitions: Object = {}
        self.pending: list[tuple[str, str, JSON, bool]] = []

    def refer(self, ref: str, path: SchemaPath, *, in_resource: bool) -> str:
        """Return a reference to the definition of the target, which is converted later."""
        pointer, target, target_in_resource = self.resolve(ref, path, in_resource=in_resource)
        name = self._names.get(pointer)
        if name is None:
            name = self._names[pointer] = _definition_name(pointer, self.definitions, len(self._names))
            self.definitions[name] = True  # reserves the name
            self.pending.append((name, pointer, target, target_in_resource))
        return f"#/$defs/{name}"

    def resolve(self, ref: str, path: SchemaPath, *, in_resource: bool) -> tuple[str, JSON, bool]:
        """Return the pointer and the schema of a target, and whether it is inside a schema with its own identifier.

        `in_resource`: the reference itself is inside such a schema.
        """
        if not in_resource and (ref == "#" or ref.startswith("#/")) and "%" not in ref:
            pointer = ref[1:]
        else:
            if self._identifiers is None:
                self._identifiers = Identifiers(self._document)
            found = self._identifiers.resolve(ref, schema_pointer(path))
            if found is None:
                raise _unresolved(ref, path)
            pointer = found
        target: JSON = self._document
        target_in_resource = False
        try:
            for segment in pointer.split("/")[1:]:
                if type(target) is list:
                    target = target[int(segment)]
                else:
                    target = target[segment.replace("~1", "/").replace("~0", "~")]
                    target_in_resource = target_in_resource or (type(target) is dict and type(target.get("$id")) is str)
        except (KeyError, IndexError, TypeError, ValueError):
            raise _unresolved(ref, path) from None
        return pointer, target, target_in_resource


def _definition_name(pointer: str, taken: Object, number: int) -> str:
    """Return the last segment of a pointer if it is a plain name, for readable schemas, else a number."""
    name = pointer.rpartition("/")[2]
    return name if name.isidentifier() and name.isascii() and name not in taken else f"definition{number}"


def _unresolved(ref: str, path: SchemaPath) -> SchemaError:
    hint = "define the target in the same document"
    return SchemaError(f"the reference {ref[:200]!r} cannot be resolved", pointer=schema_pointer(path), hint=hint)
