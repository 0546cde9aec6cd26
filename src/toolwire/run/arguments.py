"""Copy the arguments of a call, so that a call runs with exactly the arguments that were checked and approved.

Separate because signatures, approvals and the store of a run need it.
"""

from __future__ import annotations

from typing import Any

from ..ir.pointer import JSON

__all__ = ["copy_json"]


def copy_json(value: JSON) -> Any:
    """Copy the lists and objects of a JSON value. Other values are immutable and shared."""
    if isinstance(value, dict):
        return {name: copy_json(inner) if isinstance(inner, (dict, list)) else inner for name, inner in value.items()}
    if isinstance(value, list):
        return [copy_json(inner) if isinstance(inner, (dict, list)) else inner for inner in value]
    return value
