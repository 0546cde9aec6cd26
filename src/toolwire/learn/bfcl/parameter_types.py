"""The leaderboard's parameter types, which are names of Python, Java and JavaScript types, as JSON Schema.

Separate because the leaderboard keeps a type that it does not know, which training formats leave out.
"""

from __future__ import annotations

from ...ir.pointer import Object
from ..formats.type_names import base_type, standard_schema

__all__ = ["parameter_schema"]

_ANY = ("any", "Any", "")


def parameter_schema(parameters: Object, *, any_type: str | None = None) -> Object:
    """Return the JSON Schema of a function's parameters.

    A parameter of any type has no `type`, or `any_type` if that is given: the leaderboard presents it as a string.
    """

    def find_type(name: str) -> str | None:
        return any_type if name in _ANY else base_type(name) or name

    found: Object = standard_schema(parameters, find_type)
    return found
