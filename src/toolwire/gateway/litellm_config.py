"""Read the models and keys in LiteLLM's `config.yaml`, for users who migrate from LiteLLM.

model_list[].model_name, litellm_params.{model, api_base, api_key, timeout, weight}, api_version for Azure, vertex_project
and vertex_location for Vertex AI, general_settings.master_key, and `os.environ/NAME` for values. Any other setting in
the file is refused by name, not ignored.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

from ..ir.errors import ConfigError, MissingExtra
from ..ir.pointer import JSON, Object
from ..wire.vendors import names
from .settings import KeyRow, ModelRow, Settings, TargetRow, UpstreamRow

__all__ = ["from_litellm"]

_ENVIRONMENT = "os.environ/"
_ROUTER = {"model_list", "general_settings", "litellm_settings", "router_settings"}
_ENTRY = {"model_name", "litellm_params", "model_info"}  # the last is descriptive only
_PARAMS = {"model", "api_base", "api_key", "timeout", "weight", "max_retries"}
_PROVIDER_PARAMS = {  # settings of a provider, and ours
    "azure": {"api_version": "api_version"},
    "vertex_ai": {"vertex_project": "project", "vertex_location": "location"},
}
_VERTEX_CREDENTIALS = ("gcloud", "auth", "application-default", "print-access-token")  # those that LiteLLM uses


def from_litellm(text: str) -> Settings:
    """Convert a LiteLLM file to settings. ConfigError for a setting that is not supported."""
    document = _parse_yaml(text)
    _refuse_unknown(document, _ROUTER, "the file")
    for section in ("litellm_settings", "router_settings"):
        if document.get(section):
            raise ConfigError(f"{section} is not supported", hint="remove it, or write a toolwire.toml")
    upstreams: dict[str, UpstreamRow] = {}
    targets: dict[str, list[TargetRow]] = {}
    for number, entry in enumerate(_require_objects(document.get("model_list"), "model_list")):
        location = f"model_list[{number}]"
        _refuse_unknown(entry, _ENTRY, location)
        name = _require_text(entry, "model_name", location)
        params = _require_object(entry.get("litellm_params"), f"{location}.litellm_params")
        upstream, model = _parse_upstream(params, f"{location}.litellm_params")
        upstream_model = _upstream_model(name, model, f"{location}.litellm_params")
        label = next((item for item, row in upstreams.items() if row == upstream), f"litellm-{len(upstreams)}")
        upstreams[label] = upstream
        weight = _read_number(params, "weight", 1.0, f"{location}.litellm_params")
        targets.setdefault(name, []).append(TargetRow(label, upstream_model, weight))
    models = {name: ModelRow(targets=tuple(rows)) for name, rows in targets.items()}
    return Settings(upstreams=upstreams, models=models, keys=_master_key(document.get("general_settings")))


def _upstream_model(name: str, model: str, location: str) -> str | None:
    """Return the model's name at its upstream, or None if it is the name that the client uses."""
    if "*" not in model:
        return model
    if name == model == "*":
        return None
    raise ConfigError(f"{location}.model: unsupported pattern {model!r}", hint="use `*` for both names, or no pattern")


def _parse_upstream(params: Object, location: str) -> tuple[UpstreamRow, str]:
    """Convert `litellm_params` to an upstream and its model. A key in the file is refused: it must be in a variable."""
    provider, separator, model = _require_text(params, "model", location).partition("/")
    if not separator:
        provider, model = "openai", provider
    own_params = _PROVIDER_PARAMS.get(provider, {})
    _refuse_unknown(params, _PARAMS | set(own_params), location)
    own: dict[str, Any] = {
        ours: _resolve_environment(_require_text(params, theirs, location), f"{location}.{theirs}")
        for theirs, ours in own_params.items()
        if theirs in params
    }
    if provider == "vertex_ai":
        provider = _vertex_provider(model, location)
    if provider not in names():
        raise ConfigError(f"{location}.model: unknown provider {provider!r}", hint=f"known: {', '.join(names())}")
    if provider == "openai":
        provider = "openai-chat"  # the protocol that LiteLLM uses for it
    key = params.get("api_key")
    if key is not None and not (isinstance(key, str) and key.startswith(_ENVIRONMENT)):
        raise ConfigError(f"{location}.api_key must not be in the file", hint=f"write {_ENVIRONMENT}NAME")
    row = UpstreamRow(
        provider,
        base_url=_resolve_environment(_require_text(params, "api_base", location), f"{location}.api_base")
        if "api_base" in params
        else None,
        key_env=None if key is None else key.removeprefix(_ENVIRONMENT),
        timeout=_read_number(params, "timeout", 600.0, location),
        retries=int(_read_number(params, "max_retries", 2.0, location, minimum=0.0)),
        key_command=_VERTEX_CREDENTIALS if key is None and provider.startswith("vertex") else None,
        **own,
    )
    return row, model


def _vertex_provider(model: str, location: str) -> str:
    """Return our provider for a model of Vertex AI: its publisher decides the protocol."""
    if model.startswith("gemini"):
        return "vertex"
    if model.startswith("claude"):
        return "vertex-anthropic"
    hint = "Gemini and Claude models are supported"
    raise ConfigError(f"{location}.model: vertex_ai/{model} is not supported", hint=hint)


def _master_key(general: JSON) -> dict[str, KeyRow]:
    """Convert `master_key` to a key for all models, stored as its hash."""
    if general is None:
        return {}
    settings = _require_object(general, "general_settings")
    _refuse_unknown(settings, {"master_key"}, "general_settings")
    key = settings.get("master_key")
    if key is None:
        return {}
    return {
        "master": KeyRow(sha256(_resolve_environment(str(key), "general_settings.master_key").encode()).hexdigest())
    }


def _resolve_environment(value: str, location: str) -> str:
    """Return a value, or that of the environment variable that it names."""
    if not value.startswith(_ENVIRONMENT):
        return value
    variable = value.removeprefix(_ENVIRONMENT)
    found = os.environ.get(variable)
    if not found:
        raise ConfigError(f"{location}: environment variable {variable} is not set")
    return found


def _parse_yaml(text: str) -> Object:
    try:
        import yaml
    except ImportError:
        raise MissingExtra(
            "a YAML file needs PyYAML", hint="pip install -e '.[gateway]' in a checkout of toolwire"
        ) from None
    try:
        return _require_object(yaml.safe_load(text), "the file")
    except yaml.YAMLError as error:
        raise ConfigError(f"the file is not valid YAML: {error}") from None


def _require_object(value: JSON, location: str) -> Object:
    if not isinstance(value, dict):
        raise ConfigError(f"{location} is not a table")
    return value


def _require_objects(value: JSON, location: str) -> list[Object]:
    if not isinstance(value, list):
        raise ConfigError(f"{location} is not a list")
    return [_require_object(item, f"{location}[{number}]") for number, item in enumerate(value)]


def _require_text(value: Object, name: str, location: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found:
        raise ConfigError(f"{location} has no {name}")
    return found


def _read_number(value: Object, name: str, default: float, location: str, *, minimum: float | None = None) -> float:
    """Read a number that must be positive, or at least `minimum`."""
    found = value.get(name, default)
    if not isinstance(found, (int, float)) or isinstance(found, bool) or found < (minimum or 0):
        raise ConfigError(f"{location}.{name} must be a number of at least 0, got {found!r}")
    if found == 0 and minimum is None:
        raise ConfigError(f"{location}.{name} must be positive, got 0", hint="remove it, or the model")
    return float(found)


def _refuse_unknown(value: Object, known: set[str], location: str) -> None:
    unknown = sorted(set(value) - known)
    if unknown:
        raise ConfigError(
            f"{location}: {', '.join(unknown)} is not supported", hint=f"known: {', '.join(sorted(known))}"
        )
