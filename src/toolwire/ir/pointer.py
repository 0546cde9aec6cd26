"""JSON and pointers into it (RFC 6901)."""

from __future__ import annotations

from typing import Any, TypeAlias

# The type of a parsed JSON document for the type checker. Decoders check types, so `Any` does not spread beyond them.
JSON: TypeAlias = Any
Object: TypeAlias = dict[str, Any]


def join(*segments: str | int) -> str:
    """Build a pointer from segments: `join("tools", 0, "a/b") == "/tools/0/a~1b"`."""
    if len(segments) == 1 and type(only := segments[0]) is str and "/" not in only and "~" not in only:
        return f"/{only}"
    return "".join([f"/{str(segment).replace('~', '~0').replace('/', '~1')}" for segment in segments])


_MAX_CHARACTERS = 2_000  # of a pointer in a message; a hostile document could nest megabyte keys


def child_pointer(pointer: str, *segments: str | int) -> str:
    """Extend a pointer; return it unchanged if the result would exceed 2,000 characters.

    Every pointer below a long key repeats the key. Without a bound, the pointers of a document could use memory
    quadratic in its length.
    """
    longer = pointer + join(*segments)
    return longer if len(longer) <= _MAX_CHARACTERS else pointer


def split(pointer: str) -> list[str]:
    """Split a pointer into its segments, as text: the inverse of `join`."""
    return [segment.replace("~1", "/").replace("~0", "~") for segment in pointer.split("/")[1:]]


def resolve(document: JSON, pointer: str) -> JSON:
    """Return the value at `pointer`; raise KeyError, IndexError or TypeError if it does not exist."""
    for segment in split(pointer):
        document = document[int(segment)] if isinstance(document, list) else document[segment]
    return document


def find_field(document: JSON, pointer: str) -> str | None:
    """Return the pointer of a field that is missing at `pointer`, if exactly one object near it has such a field.

    A canonical value may be spread over nested objects of a document: `/tools/0/x` is `/tools/0/custom/format/x`. If
    there is no such field, the search continues with the object that should have it. None if no object has it.
    """
    outer, _, _ = pointer.rpartition("/")
    if not outer:
        return None
    parent = nearest_existing(document, outer)
    fields = _fields_below(resolve(document, parent), split(pointer)[-1], [], 0)
    if len(fields) == 1:
        return parent + fields[0]
    return None if fields or parent == outer else find_field(document, outer)


_MAX_DEPTH = 6  # levels below the nearest parent; provider documents nest their fields no deeper
_MAX_FOUND = 2  # two are ambiguous already, and neither is used


def _fields_below(value: JSON, name: str, prefix: list[str | int], depth: int) -> list[str]:
    """Return the pointers of the fields `name` in objects below `value`, at most two."""
    if depth > _MAX_DEPTH or not isinstance(value, (dict, list)):
        return []
    found = [join(*prefix, name)] if isinstance(value, dict) and name in value else []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if len(found) >= _MAX_FOUND:
            break
        found += _fields_below(inner, name, [*prefix, key], depth + 1)
    return found[:_MAX_FOUND]


def nearest_existing(document: JSON, pointer: str) -> str:
    """Return the longest prefix of the pointer that exists in the document.

    A field may be in snake_case in the document: protobuf JSON accepts `generation_config` for `generationConfig`.
    """
    existing: list[str] = []
    for segment in split(pointer):
        if isinstance(document, dict) and segment not in document:
            segment = "".join([f"_{letter.lower()}" if letter.isupper() else letter for letter in segment])
        try:
            document = document[int(segment)] if isinstance(document, list) else document[segment]
        except (KeyError, IndexError, TypeError, ValueError):
            break
        existing.append(segment)
    return join(*existing)
