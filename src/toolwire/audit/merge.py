"""Merge the hits of a rule on one tool with the same message into one finding, with a count and some property names.

A rule gives equal problems equal messages; different messages are different problems.
Separate because it is about the wording of a finding, and no rule needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .findings import Finding, Hit

__all__ = ["merge_hits"]

_SHOWN = 3  # hits that the message describes
_MAX_LABEL = 60


def merge_hits(finding: Finding, hits: Sequence[Hit]) -> Finding:
    """Return the finding of the first hit, extended by the others."""
    distinct = list(dict.fromkeys(hits))
    if len(distinct) == 1:
        return finding
    shown, rest = distinct[:_SHOWN], ", …" if len(distinct) > _SHOWN else ""
    message = f"{finding.message}, {len(distinct)} times: {', '.join(_label(hit.path) for hit in shown)}{rest}"
    return msgspec.structs.replace(finding, message=message, paths=tuple(hit.path for hit in distinct))


def _label(path: str) -> str:
    """Return the name of the property that a pointer is about, or the pointer."""
    _, found, name = path.rpartition("/properties/")
    name = name.partition("/")[0] if found else path or "/"
    return name if len(name) <= _MAX_LABEL else f"{name[: _MAX_LABEL - 1]}…"
