"""Canonical JSON of calls and tools: idempotency keys, call identities and definition hashes.

A key is given by the caller, made by the tool, or derived from the call. A definition consists of the parts of a
declaration that a model and a person rely on.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import to_bytes
from ...ir.tools import Tool

# Idempotency keys: given by the caller, made by the tool, or derived from the call.
#
# `tool_call_id` is not a key: a model makes a new id for every attempt. A call is identified by the run, the tool,
# the arguments and its ordinal number among the identical calls of the conversation, so that a deliberate second call
# is not dropped.


KEY_ARGUMENT = "idempotency_key"
"""The argument in which a caller may pass its key; it is removed before the arguments are validated."""

_MAX_KEY_LENGTH = 255  # characters; the limit of Stripe's idempotency keys


def canonical_json(value: JSON) -> bytes:
    """Encode JSON with sorted keys, so that equal values have equal bytes."""
    return to_bytes(value, sort_keys=True)


def call_identity(call: ToolCall) -> tuple[str, bytes]:
    """Return the name and the arguments of a call. Identical calls have equal identities."""
    return call.name, canonical_json(call.arguments) if call.arguments is not None else (call.raw or "").encode()


def list_calls(messages: Iterable[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of a conversation, in order."""
    return tuple(part for message in messages for part in message.parts if isinstance(part, ToolCall))


def fingerprint(tool: str, arguments: Object, tenant: str = "") -> str:
    """Hash a call. The same key with a different fingerprint is a conflict."""
    return sha256(b"\x00".join((tenant.encode(), tool.encode(), canonical_json(arguments)))).hexdigest()


def derive_key(run_id: str, tool: str, arguments: Object, occurrence: int, tenant: str = "") -> str:
    parts = (tenant.encode(), run_id.encode(), tool.encode(), canonical_json(arguments), str(occurrence).encode())
    return "tw-" + sha256(b"\x00".join(parts)).hexdigest()


def store_key(key: str, tenant: str = "") -> str:
    """Return the store key for a key that the caller or the tool chose; each tenant has its own namespace.

    Raise ConfigError for an empty or a long key.
    """
    if not key or len(key) > _MAX_KEY_LENGTH:
        raise ConfigError(f"an idempotency key must have 1 to {_MAX_KEY_LENGTH} characters, got {len(key)}")
    return f"{tenant}/{key}" if tenant else key


# The definition of a tool: the parts of its declaration that a model and a person rely on.


def definition_hash(tool: Tool) -> str:
    """Hash the name, the description, the schema and the effect of a tool."""
    definition = {
        "name": tool.name,
        "description": tool.description,
        "schema": tool.input_schema,
        "effect": tool.effect,
    }
    return sha256(canonical_json(definition)).hexdigest()


def has_same_definition(tool: Tool, other: Tool) -> bool:
    """Return True if both tools have the same name, description, schema and effect."""
    if tool is other:
        return True
    if tool.name != other.name or tool.description != other.description or tool.effect != other.effect:
        return False
    if tool.input_schema is other.input_schema or tool.input_schema == other.input_schema:
        return True
    return definition_hash(tool) == definition_hash(other)  # equal JSON, such as a list and a tuple
