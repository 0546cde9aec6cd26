"""Fields that no client may set, because other gateways read them as the address of an upstream, or as its key."""

from __future__ import annotations

from ..ir.errors import ConfigError
from ..ir.pointer import join

__all__ = ["FORBIDDEN_FIELDS", "forbidden_field_error"]

FORBIDDEN_FIELDS = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider")


def forbidden_field_error(name: str) -> ConfigError:
    hint = "leave it out; the gateway's settings name the upstreams and their keys"
    return ConfigError(f"{name} must not be set by a client", pointer=join(name), hint=hint)
