"""Fields that clients must not set, because an upstream that is a gateway itself reads them.

FORBIDDEN_FIELDS name the address of an upstream, or its key, and are refused for every client (`user_config` of LiteLLM's
proxy has both, BerriAI/litellm#1296). ROUTING_FIELDS choose another model than `model`, so they are refused for a key
that allows only some models:

- OpenRouter: `models` and `route` are fallbacks, `provider` and `plugins` select them, and a `preset` has a model
  (openrouter.ai/docs/features/model-routing, /presets, /plugins)
- LiteLLM's proxy: the lists of fallbacks, `model_list`, `deployment_id`, and `extra_body`, which it merges into the body
  (docs.litellm.ai/docs/proxy/reliability)
- Vercel's gateway: `providerOptions.gateway.models` (vercel.com/docs/ai-gateway/models-and-providers)
- servers in Go, such as Ollama: `Model`, because their decoder ignores case, and the last name wins
  (pkg.go.dev/encoding/json#Unmarshal). So all these names are refused in any case, and `model` in any but its own. For
  that decoder, U+017F (long s) and U+212A (the Kelvin sign) are letters s and k in another case, as for `casefold`
"""

from __future__ import annotations

import re

from ..ir.errors import ConfigError, ToolwireError
from ..ir.pointer import join

__all__ = ["FORBIDDEN_FIELDS", "ROUTING_NAME", "RoutingRefused", "forbidden_field_error", "may_route"]

FORBIDDEN_FIELDS = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider", "user_config")
ROUTING_FIELDS = (
    *("models", "route", "provider", "preset", "plugins", "providerOptions", "provider_options", "extra_body"),
    *("fallbacks", "fallback_models", "context_window_fallbacks", "content_policy_fallbacks", "model_list"),
    *("deployment_id", "litellm_params"),
)
_ROUTING_NAMES = frozenset(map(str.casefold, ROUTING_FIELDS))
_OTHER_CASES = {"s": "(?:s|\u017f)", "k": "(?:k|\u212a)"}
ROUTING_NAME = (
    rb'(?!model")(?i:model|%b)'
    % re.sub("[sk]", lambda letter: _OTHER_CASES[letter[0]], "|".join(map(re.escape, ROUTING_FIELDS))).encode()
)
"""A pattern of the names that `may_route` refuses, without escaped letters and before a quotation mark."""


def may_route(name: str) -> bool:
    """Return whether a field of this name may choose another model than the field `model`."""
    folded = name.casefold()
    return folded in _ROUTING_NAMES or (folded == "model" and name != "model")


class RoutingRefused(ToolwireError):
    """A field could choose a model that the key does not allow."""

    default_status = 403

    def __init__(self, name: str) -> None:
        message = f"the key allows only some models, and {name} could choose another one"
        super().__init__(message, pointer=join(name), hint="leave it out, and name the model in `model`")


def forbidden_field_error(name: str) -> ConfigError:
    hint = "leave it out; the gateway's settings name the upstreams and their keys"
    return ConfigError(f"{name} must not be set by a client", pointer=join(name), hint=hint)
