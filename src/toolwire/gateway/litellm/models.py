"""Convert one entry of LiteLLM's `model_list`: `litellm_params` become an upstream and a target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...net.model.endpoint_settings import parse_defaults
from ...wire.loopback import is_loopback
from ...wire.models.litellm import PROVIDERS, ProviderPrefix, provider_of
from ...wire.models.vendors import find
from ..config.settings import UpstreamRow
from .equivalents import (
    SILENT_SETTINGS,
    ImportReport,
    find_note,
    find_prefix_problem,
    split_model,
)

ENVIRONMENT = "os.environ/"
_VERTEX_CREDENTIALS = ("gcloud", "auth", "application-default", "print-access-token")  # those that LiteLLM uses
_READ = frozenset(
    {
        *("model", "api_base", "base_url", "api_key", "api_version", "timeout", "request_timeout", "stream_timeout"),
        *("weight", "rpm", "tpm", "max_retries", "num_retries", "extra_headers", "headers", "extra_body"),
        *("custom_llm_provider", "organization", "vertex_project", "vertex_location", "vertex_ai_project"),
        *("aws_region_name", "aws_profile_name"),
        *("vertex_ai_location", "deployment_id", "max_tokens", "max_completion_tokens", "reasoning_effort"),
    }
)
_DEFAULTS = ("temperature", "top_p", "top_k", "stop", "seed", "presence_penalty", "frequency_penalty", "service_tier")
_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_OPENAI_HOST = "api.openai.com"
# LiteLLM's operation and region before the name of a model at Bedrock, which may be an ARN with slashes. Converse serves all
# models, so the operation selects nothing.
_BEDROCK_MODEL = re.compile(
    r"(?:(?:converse|converse_like|invoke)/)?(?:(?P<region>[a-z]{2}(?:-[a-z]++)++-\d)/)?(?P<model>.+)"
)
_is_variable = re.compile(r"[A-Za-z_]\w*").fullmatch
_MAX_NAME = 512  # characters, as of a model in a request


class UnusableEntry(Exception):
    """The entry is skipped. `reason` and `instead` are for the report."""

    def __init__(self, reason: str, instead: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.instead = instead


class UpstreamDefaults(NamedTuple):
    """Settings of the router for all models that do not set them."""

    timeout: float = 600.0
    idle: float = 300.0
    retries: int = 2


class ConvertedEntry(NamedTuple):
    """The parts of an entry. `share` is the weight, or the rate limit that LiteLLM uses as one."""

    name: str
    prefix: str
    upstream: UpstreamRow
    model: str | None
    share: float | None
    has_tools: bool


class EntryConverter:
    """Convert entries. Keys that are in the file are collected in `secrets`, by the name of a new variable."""

    def __init__(self, environment: Mapping[str, str], report: ImportReport, defaults: UpstreamDefaults) -> None:
        self._environment = environment
        self._report = report
        self._defaults = defaults
        self.secrets: dict[str, str] = {}

    def convert(self, entry: JSON, location: str) -> ConvertedEntry:
        """Convert an entry, and report its settings without an equivalent. Raise UnusableEntry if it is skipped."""
        name, params, info = _read_entry(entry)
        prefix, model = split_model(_require_text(params, "model"), _text(params.get("custom_llm_provider")))
        problem = find_prefix_problem(prefix)
        if problem is not None:
            raise UnusableEntry(*problem)
        if prefix in ("bedrock", "bedrock_converse") and (parts := _BEDROCK_MODEL.fullmatch(model)):
            model, region = parts["model"], parts["region"] or self._environment.get("AWS_REGION_NAME")
            params = {**({"aws_region_name": region} if region else {}), **params}
        prefix_row, model = _choose_provider(PROVIDERS[prefix], prefix, model)
        upstream = self._make_upstream(prefix_row, params, f"{location}.litellm_params")
        self._report_rest(params, f"{location}.litellm_params")
        has_tools = info.get("supports_function_calling") is not False
        share = self._read_share({**_table(entry), **params}, f"{location}.litellm_params")
        return ConvertedEntry(name, prefix, upstream, _target_model(name, model, params), share, has_tools)

    def _make_upstream(self, prefix: ProviderPrefix, params: Object, location: str) -> UpstreamRow:
        """Return the upstream of an entry. Report plain HTTP and a key in the file.

        Raise UnusableEntry for an invalid value.
        """
        base_url = self._read_base_url(prefix, params)
        provider = _provider_at(base_url, prefix.provider)
        is_insecure = _is_plain_http(base_url)
        if is_insecure:
            self._report.change(f"{location}.api_base", "plain HTTP to another machine (insecure = true)", "use https")
        defaults = self._defaults
        return UpstreamRow(
            provider,
            base_url=base_url,
            timeout=read_number(params, ("timeout", "request_timeout"), defaults.timeout),
            idle=read_number(params, ("stream_timeout",), defaults.idle),
            retries=int(read_number(params, ("max_retries", "num_retries"), defaults.retries, may_be_zero=True)),
            headers=self._read_headers(params),
            extra_body=_table(params.get("extra_body")),
            defaults=_read_defaults(params),
            insecure=is_insecure,
            **self._read_key(prefix, provider, params, location),
            **self._read_provider_settings(provider, params),
        )

    def _read_base_url(self, prefix: ProviderPrefix, params: Object) -> str | None:
        """Return the address of the upstream, or None for the provider's. Raise UnusableEntry if it needs one."""
        value = params.get("api_base", params.get("base_url"))
        base_url = None if value is None else self._resolve(value, "api_base")
        if base_url is None and prefix.base_variable is not None:
            base_url = self._environment.get(prefix.base_variable, "").strip() or None
        if base_url is None and prefix.needs_base:
            raise UnusableEntry("has no api_base", "set api_base")
        return base_url

    def _read_key(self, prefix: ProviderPrefix, provider: str | None, params: Object, location: str) -> dict[str, Any]:
        """Return the setting of the key: a variable, or the command that prints Google's token.

        A key in the file is reported, and stored in `secrets` under a new variable. No setting is needed for the
        provider's usual variable. Raise UnusableEntry if the key is not a text.
        """
        key = params.get("api_key")
        if key is None or key == "":
            if provider is not None and provider.startswith("vertex"):
                return {"key_command": _VERTEX_CREDENTIALS}
            set_names = (name for name in prefix.key_variables if self._environment.get(name, "").strip())
            return {"key_env": variable} if (variable := next(set_names, None)) is not None else {}
        if not isinstance(key, str):
            raise UnusableEntry("api_key is not a text", f"write {ENVIRONMENT}NAME")
        if key.startswith(ENVIRONMENT):
            return {} if _variable_name(key) == _usual_variable(provider) else {"key_env": _variable_name(key)}
        self._report.change(
            f"{location}.api_key", "a key in the file", f"write {ENVIRONMENT}NAME, and set the variable"
        )
        known = (name for name, value in self.secrets.items() if value == key)
        variable = next(known, f"TOOLWIRE_LITELLM_KEY_{len(self.secrets) + 1}")
        self.secrets[variable] = key
        return {"key_env": variable}

    def _read_provider_settings(self, provider: str | None, params: Object) -> dict[str, Any]:
        """Return the API version for Azure, and the project, region or profile for other clouds."""
        if provider is None:
            return {}
        if provider.startswith("azure"):
            version = params.get("api_version")
            return {} if version is None else {"api_version": self._resolve(version, "api_version")}
        names: dict[str, tuple[str, ...]] = {}
        if provider.startswith("vertex"):
            names = {
                "project": ("vertex_project", "vertex_ai_project"),
                "location": ("vertex_location", "vertex_ai_location"),
            }
        elif provider.startswith("bedrock"):
            names = {"location": ("aws_region_name",), "profile": ("aws_profile_name",)}
        found = {
            ours: next((params[name] for name in theirs if params.get(name)), None) for ours, theirs in names.items()
        }
        return {ours: self._resolve(value, names[ours][0]) for ours, value in found.items() if value is not None}

    def _read_headers(self, params: Object) -> dict[str, str]:
        """Return additional headers; a reference to the environment stays one."""
        headers = {**_table(params.get("headers")), **_table(params.get("extra_headers"))}
        if params.get("organization") is not None:
            headers["OpenAI-Organization"] = params["organization"]
        return {
            name: f"${{{_variable_name(value)}}}" if str(value).startswith(ENVIRONMENT) else str(value)
            for name, value in headers.items()
        }

    def _resolve(self, value: JSON, name: str) -> str:
        """Return a text, or the content of the environment variable that it names.

        Raise UnusableEntry if that is empty; `name` is the parameter, for the message.
        """
        text = str(value) if not isinstance(value, (dict, list)) else ""
        if text.startswith(ENVIRONMENT):
            variable = _variable_name(text)
            text = self._environment.get(variable, "").strip()
            if not text:
                raise UnusableEntry(f"{name}: environment variable {variable} is not set", f"set {variable}")
        if not text:
            raise UnusableEntry(f"{name} is not a text")
        return text

    def _read_share(self, params: Object, location: str) -> float | None:
        """Return the weight, or a rate limit in its place, which is reported, or None if there is neither."""
        if params.get("weight") is not None:
            return read_number(params, ("weight",), 1.0)
        for name in ("rpm", "tpm"):
            if params.get(name) is not None:
                share = read_number(params, (name,), 1.0)
                meaning = "a rate limit of a deployment; used as its weight, not as a limit"
                self._report.change(f"{location}.{name}", meaning, "requests_per_minute in [keys.NAME] limits clients")
                return share
        return None

    def _report_rest(self, params: Object, location: str) -> None:
        for name in params:
            if name not in _READ and name not in _DEFAULTS and name not in SILENT_SETTINGS:
                self._report.ignore(f"{location}.{name}", *find_note(str(name)))


def _read_entry(entry: JSON) -> tuple[str, Object, Object]:
    """Return the name, the parameters and the `model_info` of an entry. Raise UnusableEntry if one has a wrong type."""
    if not isinstance(entry, dict):
        raise UnusableEntry("the entry is not a table")
    name = entry.get("model_name")
    params = entry.get("litellm_params")
    if not isinstance(name, str) or not name or len(name) > _MAX_NAME:
        raise UnusableEntry("has no model_name")
    if not isinstance(params, dict):
        raise UnusableEntry("litellm_params is not a table")
    return name, params, _table(entry.get("model_info"))


def _choose_provider(row: ProviderPrefix, prefix: str, model: str) -> tuple[ProviderPrefix, str]:
    """Return the provider of a model, and its name. Its publisher at a cloud, or `responses/`, decides the protocol.

    Raise UnusableEntry for other publishers than Google and Anthropic.
    """
    if prefix.startswith("vertex_ai"):
        if not model.startswith(("gemini", "claude")):
            raise UnusableEntry(f"vertex_ai/{model} is not supported", "Gemini and Claude models are supported")
    if model.startswith("responses/") and prefix in ("openai", "azure"):
        return row._replace(provider={"openai": "openai", "azure": "azure-responses"}[prefix]), model[10:]
    return row._replace(provider=row.provider and provider_of(row.provider, model)), model


def _provider_at(base_url: str | None, provider: str | None) -> str | None:
    """Return the provider of an address: the prefix `openai` is also used for every server with an OpenAI API."""
    host = "" if base_url is None else urlsplit(base_url).hostname or ""
    if provider is None and host.endswith(_AZURE_HOSTS):
        return "azure"
    return None if provider == "openai-chat" and host and host != _OPENAI_HOST else provider


def _usual_variable(provider: str | None) -> str | None:
    """Return the variable that is used for a provider without a setting."""
    keys = () if provider is None else find(provider).keys
    return keys[0].variable if keys and not keys[0].is_token else None


def _is_plain_http(base_url: str | None) -> bool:
    if base_url is None or not base_url.startswith("http://"):
        return False
    return not is_loopback(urlsplit(base_url).hostname or "")


def _target_model(name: str, model: str, params: Object) -> str | None:
    """Return the model's name at its upstream, or None for the client's own name. `*` is the part that it matches.

    Raise UnusableEntry if the wildcards of both names do not correspond.
    """
    if not model:  # such as `azure/`, where another setting names the deployment
        return _require_text(params, "deployment_id")
    if "*" not in model:
        return model
    if name == model == "*":
        return None
    if name.count("*") != 1 or model.count("*") != 1:
        raise UnusableEntry(f"unsupported pattern {model!r}", "use one `*` in both names")
    return model


def _read_defaults(params: Object) -> dict[str, Any]:
    """Return parameters for requests that do not set them, in our terms. Raise UnusableEntry if one is invalid."""
    found = {name: params[name] for name in _DEFAULTS if params.get(name) is not None}
    tokens = params.get("max_completion_tokens", params.get("max_tokens"))
    if tokens is not None:
        found["max_tokens"] = tokens
    if isinstance(found.get("stop"), str):
        found["stop"] = [found["stop"]]
    if params.get("reasoning_effort") is not None:
        found["reasoning"] = {"effort": params["reasoning_effort"]}
    try:
        parse_defaults(found)
    except ConfigError as error:
        raise UnusableEntry(error.message) from None
    return found


def read_number(params: Object, names: tuple[str, ...], default: float, *, may_be_zero: bool = False) -> float:
    """Return the first of `names` that is set, as a number, or `default`. It may be written as a text.

    Raise UnusableEntry if it is not positive; `may_be_zero` also accepts 0.
    """
    for name in names:
        value = params.get(name)
        if value is None:
            continue
        try:
            number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else -1.0
        except ValueError:
            number = -1.0
        if not (0 <= number < 1e12) or (number == 0 and not may_be_zero):
            raise UnusableEntry(f"{name} must be a positive number")
        return number
    return default


def _variable_name(value: JSON) -> str:
    """Return the name of the variable in a reference. Raise UnusableEntry if it is invalid."""
    name = str(value).removeprefix(ENVIRONMENT)
    if not _is_variable(name):
        raise UnusableEntry("a reference to the environment has no valid name", f"write {ENVIRONMENT}NAME")
    return name


def _require_text(params: Object, name: str) -> str:
    value = _text(params.get(name))
    if not value:
        raise UnusableEntry(f"has no {name}")
    return value


def _text(value: JSON) -> str | None:
    return value[:_MAX_NAME] if isinstance(value, str) else None


def _table(value: JSON) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
