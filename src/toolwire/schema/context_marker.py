"""Recognise a parameter for the context of a call, such as `CallContext[Deps]`.

Separate because schemas are inferred here and functions are called in `run`, which this package does not import. The
class of the context is recognised by an attribute.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

__all__ = ["CONTEXT_MARKER", "is_context"]

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
