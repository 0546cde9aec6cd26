"""Fields that no client may set, because other gateways read them as the address of an upstream, or as its key."""

from __future__ import annotations

from ..ir.errors import ConfigError
from ..ir.pointer import join

__all__ = ["FORBIDDEN_FIELDS", "forbidden_field_error"]

FORBIDDEN_FIELDS = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider")


def forbidden_field_error(name: str) -> ConfigError:
    hint = "configure upstreams and their keys in the gateway's settings"
    return ConfigError(f"{name} must not be set by a client", pointer=join(name), hint=hint)
