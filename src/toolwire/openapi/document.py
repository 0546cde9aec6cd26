"""Load OpenAPI documents within limits (bytes, nodes and depth), and resolve references inside a document.

A document may come from an untrusted source. A reference to another document is an error: nothing is fetched.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from urllib.parse import unquote

import jiter

from ..ir.errors import ConfigError, SchemaError
from ..ir.pointer import JSON, Object, resolve

MAX_BYTES = 32 * 1024 * 1024  # GitHub's document, one of the largest in use, has about 12 MB
MAX_NODES = 2_000_000  # GitHub's document, one of the largest in use, has about 900,000
MAX_DEPTH = 100  # levels; Python's stack has 1,000 frames, and a reader needs several for each level
_BOM = b"\xef\xbb\xbf"
_SCALARS = frozenset({str, int, float, bool, type(None)})


def load_document(source: Object | str | PathLike[str]) -> Object:
    """Return the checked document of a file in JSON or YAML, or of an object. Nothing is fetched from the network.

    Raise ConfigError for a URL or an unreadable file, and SchemaError for an invalid document.
    """
    if isinstance(source, dict):
        return check_document(source)
    name = str(source)
    if name.startswith(("http://", "https://")):
        raise ConfigError("an OpenAPI document is not fetched from a URL", hint="download it and pass the file")
    try:
        with Path(source).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read {name}: {error.strerror}", hint="pass the file of an OpenAPI document"
        ) from None
    return parse_document(data)


def parse_document(data: bytes | str) -> Object:
    """Parse a document in JSON or YAML; SchemaError if it is invalid or exceeds a limit."""
    data = (data.encode() if isinstance(data, str) else data).removeprefix(_BOM)
    if len(data) > MAX_BYTES:
        raise SchemaError(f"the document exceeds {MAX_BYTES} bytes", hint="remove the operations that are not needed")
    if data.lstrip()[:1] == b"{":
        try:
            return check_document(jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True))
        except ValueError as error:
            raise SchemaError(f"the document is not valid JSON: {error}") from None
    from .yaml_values import parse_yaml

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SchemaError(f"the document is not UTF-8: byte {error.start} is invalid") from None
    return check_document(parse_yaml(text, max_nodes=MAX_NODES, max_depth=MAX_DEPTH))


def looks_like_openapi(document: JSON) -> bool:
    return type(document) is dict and str(document.get("openapi", "")).startswith("3.")


def check_document(document: JSON) -> Object:
    """Return the document if it is OpenAPI 3 within the limits; else raise SchemaError."""
    if looks_like_openapi(document) and "paths" not in document:
        raise SchemaError("the document has no paths, and therefore no operations")
    if not looks_like_openapi(document) or type(document.get("paths")) is not dict:
        is_old = type(document) is dict and "swagger" in document
        hint = "convert it to OpenAPI 3" if is_old else 'the document needs "openapi": "3.…" and "paths"'
        raise SchemaError("not an OpenAPI 3 document", hint=hint)
    _check_values(document)
    checked: Object = document
    return checked


def _check_values(document: JSON) -> None:
    """Raise SchemaError for too many nodes, too many levels, or a key or value that JSON does not have.

    A shared node counts each time, and a cycle exceeds the depth.
    """
    count = 0
    pending = [(document, 1)]
    while pending:
        container, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise SchemaError(f"the document is nested more than {MAX_DEPTH} levels deep")
        count += len(container)
        if count > MAX_NODES:
            hint = "remove the operations that are not needed"
            raise SchemaError(f"the document has more than {MAX_NODES:,} nodes", hint=hint)
        if type(container) is dict and not all(type(key) is str for key in container):
            hint = "load the file with toolwire.openapi.load_document"
            raise SchemaError("the document has a key that is not a text", hint=hint)
        for inner in container.values() if type(container) is dict else container:
            kind = type(inner)
            if kind is dict or kind is list:
                pending.append((inner, depth + 1))
            elif kind not in _SCALARS:
                raise SchemaError(f"the document contains a value of type {kind.__name__}, which is not JSON")


_MAX_CHAIN = 16  # references to references; real documents have one or two, and a cycle must end
_SHOWN = 200  # characters of a reference in a message


class References:
    """The references of a document."""

    def __init__(self, document: Object) -> None:
        self._document = document

    def at(self, pointer: str) -> JSON:
        """Return the value at a JSON pointer. Raise SchemaError if there is none."""
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
        """Follow the references of an object; return {} for a value that is not an object.

        SchemaError for a reference that cannot be resolved, or for a chain that is too long.
        """
        for _ in range(_MAX_CHAIN):
            if type(value) is not dict:
                return {}
            ref = value.get("$ref")
            if type(ref) is not str:
                found: Object = value
                return found
            value = self.at(self.pointer(ref))
        raise SchemaError("the references form a cycle")
