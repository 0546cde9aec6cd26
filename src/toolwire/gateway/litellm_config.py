"""Read the models and keys in LiteLLM's `config.yaml`, for users who migrate from LiteLLM.

model_list[].model_name, litellm_params.{model, api_base, api_key, timeout, weight}, general_settings.master_key, and
`os.environ/NAME` for values. Any other setting in the file is refused by name, not ignored.
"""

from __future__ import annotations

import os
from hashlib import sha256

from ..ir.errors import ConfigError, MissingExtra
from ..ir.pointer import JSON, Object
from ..wire.vendors import names
from .settings import KeyRow, ModelRow, Settings, TargetRow, UpstreamRow

__all__ = ["from_litellm"]

_ENVIRONMENT = "os.environ/"
_ROUTER = {"model_list", "general_settings", "litellm_settings", "router_settings"}
_ENTRY = {"model_name", "litellm_params", "model_info"}  # the last is descriptive only
_PARAMS = {"model", "api_base", "api_key", "timeout", "weight", "max_retries"}


def from_litellm(text: str) -> Settings:
    """Convert a LiteLLM file to settings. ConfigError for a setting that is not supported."""
    document = _parsed(text)
    _only(document, _ROUTER, "the file")
    for section in ("litellm_settings", "router_settings"):
        if document.get(section):
            raise ConfigError(f"{section} is not supported", hint="remove it, or write a toolwire.toml")
    upstreams: dict[str, UpstreamRow] = {}
    targets: dict[str, list[TargetRow]] = {}
    for number, entry in enumerate(_list(document.get("model_list"), "model_list")):
        where = f"model_list[{number}]"
        _only(entry, _ENTRY, where)
        name = _text(entry, "model_name", where)
        params = _object(entry.get("litellm_params"), f"{where}.litellm_params")
        _only(params, _PARAMS, f"{where}.litellm_params")
        upstream, model = _upstream(params, f"{where}.litellm_params")
        own = _own(name, model, f"{where}.litellm_params")
        label = next((one for one, row in upstreams.items() if row == upstream), f"litellm-{len(upstreams)}")
        upstreams[label] = upstream
        weight = _number(params, "weight", 1.0, f"{where}.litellm_params")
        targets.setdefault(name, []).append(TargetRow(label, own, weight))
    models = {name: ModelRow(targets=tuple(rows)) for name, rows in targets.items()}
    return Settings(upstreams=upstreams, models=models, keys=_master(document.get("general_settings")))


def _own(name: str, model: str, where: str) -> str | None:
    """Return the model's name at its upstream, or None if it is the name that the client uses."""
    if "*" not in model:
        return model
    if name == model == "*":
        return None
    raise ConfigError(f"{where}.model: unsupported pattern {model!r}", hint="use `*` for both names, or no pattern")


def _upstream(params: Object, where: str) -> tuple[UpstreamRow, str]:
    provider, mark, model = _text(params, "model", where).partition("/")
    if not mark:
        provider, model = "openai", provider
    if provider not in names():
        raise ConfigError(f"{where}.model: unknown provider {provider!r}", hint=f"known: {', '.join(names())}")
    if provider == "openai":
        provider = "openai-chat"  # the protocol that LiteLLM uses for it
    key = params.get("api_key")
    if key is not None and not (isinstance(key, str) and key.startswith(_ENVIRONMENT)):
        raise ConfigError(f"{where}.api_key must not be in the file", hint=f"write {_ENVIRONMENT}NAME")
    row = UpstreamRow(
        provider,
        base_url=_said(_text(params, "api_base", where), f"{where}.api_base") if "api_base" in params else None,
        key_env=None if key is None else key.removeprefix(_ENVIRONMENT),
        timeout=_number(params, "timeout", 600.0, where),
        retries=int(_number(params, "max_retries", 2.0, where, least=0.0)),
    )
    return row, model


def _master(general: JSON) -> dict[str, KeyRow]:
    if general is None:
        return {}
    settings = _object(general, "general_settings")
    _only(settings, {"master_key"}, "general_settings")
    key = settings.get("master_key")
    if key is None:
        return {}
    return {"master": KeyRow(sha256(_said(str(key), "general_settings.master_key").encode()).hexdigest())}


def _said(value: str, where: str) -> str:
    """Return a value, or that of the environment variable that it names."""
    if not value.startswith(_ENVIRONMENT):
        return value
    variable = value.removeprefix(_ENVIRONMENT)
    found = os.environ.get(variable)
    if not found:
        raise ConfigError(f"{where}: environment variable {variable} is not set")
    return found


def _parsed(text: str) -> Object:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("a YAML file needs PyYAML", hint="pip install 'toolwire[gateway]'") from None
    try:
        return _object(yaml.safe_load(text), "the file")
    except yaml.YAMLError as error:
        raise ConfigError(f"the file is not valid YAML: {error}") from None


def _object(value: JSON, where: str) -> Object:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is not a table")
    return value


def _list(value: JSON, where: str) -> list[Object]:
    if not isinstance(value, list):
        raise ConfigError(f"{where} is not a list")
    return [_object(one, f"{where}[{number}]") for number, one in enumerate(value)]


def _text(value: Object, name: str, where: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found:
        raise ConfigError(f"{where} has no {name}")
    return found


def _number(value: Object, name: str, default: float, where: str, *, least: float | None = None) -> float:
    """Read a number that must be positive, or at least `least`."""
    found = value.get(name, default)
    if not isinstance(found, (int, float)) or isinstance(found, bool) or found < (least or 0):
        raise ConfigError(f"{where}.{name} must be a number of at least 0, got {found!r}")
    if found == 0 and least is None:
        raise ConfigError(f"{where}.{name} must be positive, got 0", hint="remove it, or the model")
    return float(found)


def _only(value: Object, known: set[str], where: str) -> None:
    unknown = sorted(set(value) - known)
    if unknown:
        raise ConfigError(f"{where}: {', '.join(unknown)} is not supported", hint=f"known: {', '.join(sorted(known))}")
