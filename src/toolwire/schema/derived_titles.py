"""Clean the schemas that pydantic generates.

Separate because the schemas of parameters and of output types both need it.
"""

from __future__ import annotations

from math import isfinite

from ..ir.pointer import Object

__all__ = ["remove_derived_titles"]


def remove_derived_titles(schema: Object) -> Object:
    """Remove titles that pydantic derives from names, useless to a model, and defaults that JSON cannot express."""
    schema.pop("title", None)
    for name, definition in (("", schema), *schema.get("$defs", {}).items()):
        if definition.get("title") == name:
            del definition["title"]
        for key, field in definition.get("properties", {}).items():
            if field.get("title") == key.replace("_", " ").title():
                del field["title"]
            if isinstance(field.get("default"), float) and not isfinite(field["default"]):
                del field["default"]
    return schema
