"""Idempotency keys: the caller's, the tool's own, or made of what is asked.

`tool_call_id` is not one: a model makes a new id for every try. What identifies a call is the run, the tool, the arguments,
and the how-manieth identical call of the conversation it is, so that a deliberate second one is not swallowed.
"""

from __future__ import annotations

from hashlib import sha256

from ..ir.errors import ConfigError
from ..ir.pointer import JSON, Object
from ..ir.text import to_bytes

__all__ = ["ARGUMENT", "canonical", "derived_key", "fingerprint", "given_key"]

ARGUMENT = "idempotency_key"
"""A caller may put its key into the arguments; it is taken out before they are checked."""

_LONGEST = 255


def canonical(value: JSON) -> bytes:
    """JSON with its keys in order: equal values, equal bytes."""
    return to_bytes(_ordered(value))


def _ordered(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_ordered(item) for item in value]
    return value


def fingerprint(tool: str, arguments: Object, tenant: str = "") -> str:
    """What was asked: the same key with another fingerprint is a conflict."""
    return sha256(b"\x00".join((tenant.encode(), tool.encode(), canonical(arguments)))).hexdigest()


def derived_key(run_id: str, tool: str, arguments: Object, occurrence: int, tenant: str = "") -> str:
    parts = (tenant.encode(), run_id.encode(), tool.encode(), canonical(arguments), str(occurrence).encode())
    return "tw-" + sha256(b"\x00".join(parts)).hexdigest()


def given_key(key: str, tenant: str = "") -> str:
    """A key that somebody chose; each tenant has its own."""
    if not key or len(key) > _LONGEST:
        raise ConfigError(f"an idempotency key has 1 to {_LONGEST} characters, not {len(key)}")
    return f"{tenant}/{key}" if tenant else key
