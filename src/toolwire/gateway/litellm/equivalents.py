"""Rows of data: LiteLLM's settings, with their equivalents here or the lack of any. `wire.models.litellm` has its prefixes.

`ImportReport` collects the lacks that concern a file: skipped models, ignored settings, and settings with another effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from ...wire.models.litellm import PROVIDERS, UNSUPPORTED

_COMPATIBLE_HINT = (
    'if its server has an OpenAI, Anthropic, Gemini or Ollama API: [upstreams.NAME] base_url = "…", wire = "…"'
)
_BARE_NAMES = (  # LiteLLM's providers of names without a prefix
    (re.compile(r"claude"), "anthropic"),
    (re.compile(r"gemini"), "vertex_ai"),
    (re.compile(r"(?:[a-z]{2}\.)?(?:amazon|anthropic|meta|cohere|ai21|mistral)\."), "bedrock"),
    (re.compile(r"command"), "cohere"),
)


def split_model(model: str, custom_provider: str | None) -> tuple[str, str]:
    """Split LiteLLM's model string into the prefix of its provider and the name of the model.

    A name without a prefix belongs to the provider that LiteLLM assigns to it, or to `openai`.
    """
    prefix, separator, name = model.partition("/")
    if custom_provider is not None:
        return custom_provider, name if separator and prefix == custom_provider else model
    if separator:
        return prefix, name
    assigned = (provider for pattern, provider in _BARE_NAMES if pattern.match(model))
    return next(assigned, "openai"), model


def find_prefix_problem(prefix: str) -> tuple[str, str] | None:
    """Return the reason why a provider cannot be used, and the alternative, or None if it can."""
    if prefix in PROVIDERS:
        return None
    return UNSUPPORTED.get(prefix, (f"unknown provider {prefix!r}", _COMPATIBLE_HINT))


# Rows of data: settings of LiteLLM without an equivalent in a settings file of toolwire, by key.
#
# Each row has the effect of the setting in LiteLLM and the alternative here. Sources: LiteLLM's page "All settings"
# and the example files of its repository (read 2026-11-16).


class SettingNote(NamedTuple):
    meaning: str
    instead: str = ""


_DATABASE = "keys are in [keys.NAME]; usage is recorded with [state] usage"
_CALLBACKS = "metrics: /metrics, with client keys by [server] metrics_key_env; spans: [trace] otel = true; recordings: [trace] record"
_PRICES = SettingNote("prices of tokens", "toolwire counts tokens, not money: [state] usage")
_CACHE = SettingNote("caches responses", "set cache = SECONDS in [models.NAME]")
_REDIS = SettingNote("shares the router's state in Redis", '[state] url_env = "REDIS_URL" shares limits')
_AWS = SettingNote("credentials of AWS", "set the variables of AWS, or profile of the upstream")
_GUARDRAILS = SettingNote("checks requests and answers", "run such checks in the client or in a proxy in front")
_FILES = SettingNote("endpoints for files, batches or fine-tuning, which toolwire does not serve")
_TAGS = SettingNote(
    "routes requests by tags", "give each route a model name of its own, and limit keys with models = […]"
)
_ALERTS = SettingNote("sends alerts", "alert on /metrics")
_HEALTH = SettingNote("health checks of models", "`toolwire serve check --probe`; failing targets are in cooldown")
_BUDGET = SettingNote("limits spending", "tokens_per_day in [keys.NAME]")

KNOWN_SETTINGS: dict[str, SettingNote] = {
    # top level
    "mcp_servers": SettingNote("MCP servers", 'write their mcpServers file and set mcp = FILE in [tools."*"]'),
    "guardrails": _GUARDRAILS,
    "policies": _GUARDRAILS,
    "policy_attachments": _GUARDRAILS,
    "files_settings": _FILES,
    "finetune_settings": _FILES,
    "batch_settings": _FILES,
    "assistant_settings": SettingNote("the Assistants API, which toolwire does not serve", "use /v1/responses"),
    "search_tools": SettingNote("tools that LiteLLM runs", 'add tools to [tools."*"]'),
    "sandbox_tools": SettingNote("tools that LiteLLM runs", 'add tools to [tools."*"]'),
    "vector_store_registry": SettingNote("retrieval by LiteLLM", "offer the search as a tool"),
    "prompts": SettingNote("prompt templates of LiteLLM", "write them in the client"),
    "callback_settings": SettingNote("options of callbacks", _CALLBACKS),
    # litellm_params
    "stream_timeout": SettingNote("time limit of streams"),
    "input_cost_per_token": _PRICES,
    "output_cost_per_token": _PRICES,
    "input_cost_per_second": _PRICES,
    "output_cost_per_second": _PRICES,
    "cost_per_query": _PRICES,
    "tags": _TAGS,
    "region_name": SettingNote("selects deployments by region", "use fallbacks or separate model names"),
    "use_in_pass_through": SettingNote("passes provider paths through", "use the client's own protocol at the gateway"),
    "use_litellm_proxy": SettingNote("sends requests to another LiteLLM", "set base_url of the upstream"),
    "mock_response": SettingNote("test answers", "use toolwire.testing.Upstream"),
    "mock_timeout": SettingNote("test failures", "use toolwire.testing.Upstream"),
    "vertex_credentials": SettingNote(
        "a service account's key file", "log in with gcloud, or set key_command of the upstream to print a token"
    ),
    "tenant_id": SettingNote("Azure login", "set key_command of the upstream to print a token"),
    "client_id": SettingNote("Azure login", "set key_command of the upstream to print a token"),
    "client_secret": SettingNote("Azure login", "set key_command of the upstream to print a token"),
    "azure_ad_token": SettingNote("Azure login", 'set key_env and auth = "bearer", or key_command'),
    "adaptive_router_config": SettingNote("chooses models by their past answers", "use weights"),
    "realtime_protocol": SettingNote("the realtime API, which toolwire does not serve"),
    "max_parallel_requests": SettingNote("limits concurrent requests of a deployment", "[limits] connections"),
    "cooldown_time": SettingNote("cooldown of one deployment", "[limits] cooldown, for all"),
    "order": SettingNote("the order of deployments", "use fallbacks"),
    "max_budget": _BUDGET,
    "budget_duration": _BUDGET,
    "max_new_tokens": SettingNote("a provider's name for max_tokens", "set max_tokens in the defaults of the upstream"),
    **dict.fromkeys(("aws_access_key_id", "aws_secret_access_key", "aws_batch_role_arn"), _AWS),
    **dict.fromkeys(("aws_session_token", "aws_role_name", "aws_session_name"), _AWS),
    **dict.fromkeys(("s3_bucket_name", "s3_region_name", "s3_access_key_id", "s3_secret_access_key"), _FILES),
    # router_settings
    "routing_strategy": SettingNote("chooses deployments by load, latency or cost", "targets are chosen by weight"),
    "routing_strategy_args": SettingNote("options of the routing strategy", "targets are chosen by weight"),
    "allowed_fails": SettingNote("failures before a cooldown", "a cooldown begins at the first failure"),
    "allowed_fails_policy": SettingNote("failures before a cooldown", "a cooldown begins at the first failure"),
    "retry_policy": SettingNote(
        "retries by kind of error", "retries of the upstream; only transient errors are retried"
    ),
    "model_group_retry_policy": SettingNote("retries by kind of error", "retries of the upstream"),
    "retry_after": SettingNote("the pause before a retry", "the provider's retry-after, or increasing pauses"),
    "enable_pre_call_checks": SettingNote("checks the length of requests before routing", "use separate model names"),
    "enable_tag_filtering": _TAGS,
    "context_window_fallbacks": SettingNote(
        "other models for requests that are too long",
        "request a model with a larger context; fallbacks are for failures",
    ),
    "content_policy_fallbacks": SettingNote("other models for refused requests", "fallbacks are for failures"),
    "disable_cooldowns": SettingNote("no cooldowns", "[limits] cooldown = 0"),
    "cache_responses": _CACHE,
    **dict.fromkeys(("redis_host", "redis_port", "redis_password", "redis_url", "coordination_redis"), _REDIS),
    # litellm_settings
    "callbacks": SettingNote("sends logs to other services", _CALLBACKS),
    "success_callback": SettingNote("sends logs to other services", _CALLBACKS),
    "failure_callback": SettingNote("sends logs to other services", _CALLBACKS),
    "service_callback": SettingNote("sends logs to other services", _CALLBACKS),
    "s3_callback_params": SettingNote("sends logs to other services", _CALLBACKS),
    "default_team_settings": SettingNote("callbacks of teams", _CALLBACKS),
    "cache": _CACHE,
    "cache_params": _CACHE,
    "modify_params": SettingNote(
        "repairs histories that a provider refuses", "toolwire normalises histories for each wire"
    ),
    "default_internal_user_params": SettingNote("users of LiteLLM's console", _DATABASE),
    "include_cost_in_streaming_usage": _PRICES,
    "disable_end_user_cost_tracking_prometheus_only": _PRICES,
    "require_auth_for_metrics_endpoint": SettingNote(
        "a key for /metrics", "set metrics_key_env in [server]; keys of clients do not read /metrics"
    ),
    "websearch_interception_params": SettingNote("searches that LiteLLM runs", 'add a search tool to [tools."*"]'),
    "code_interpreter_interception_params": SettingNote("code that LiteLLM runs", 'add a tool to [tools."*"]'),
    "turn_off_message_logging": SettingNote("no content in logs", "content is in no log unless [log] bodies = true"),
    "redact_user_api_key_info": SettingNote("no keys in logs", "keys are in no log"),
    "upperbound_key_generate_params": SettingNote("limits of new keys", _DATABASE),
    # general_settings
    "database_url": SettingNote("the database of keys, teams and spending", _DATABASE),
    "database_connection_pool_limit": SettingNote("the database of keys, teams and spending", _DATABASE),
    "store_model_in_db": SettingNote("models in the database", "models are in [models.NAME]; SIGHUP reloads the file"),
    "store_prompts_in_spend_logs": SettingNote("content in the database", '[trace] record = "traces"'),
    "disable_prisma_schema_update": SettingNote("the database of keys, teams and spending", _DATABASE),
    "use_redis_transaction_buffer": SettingNote("the database of keys, teams and spending", _DATABASE),
    "proxy_batch_write_at": SettingNote("the database of keys, teams and spending", _DATABASE),
    "proxy_budget_rescheduler_min_time": _BUDGET,
    "proxy_budget_rescheduler_max_time": _BUDGET,
    "custom_auth": SettingNote("a Python function that checks keys", _DATABASE),
    "enable_jwt_auth": SettingNote("login with tokens of an identity provider", "put a proxy in front that adds a key"),
    "pass_through_endpoints": SettingNote("paths of other services", "route them in a proxy in front"),
    "forward_client_headers_to_llm_api": SettingNote("passes client headers on", "set headers of the upstream"),
    "alerting": _ALERTS,
    "alerting_threshold": _ALERTS,
    "alerting_args": _ALERTS,
    "background_health_checks": _HEALTH,
    "health_check_interval": _HEALTH,
    "key_management_system": SettingNote("keys in a secret manager", "set key_command of the upstream"),
    "key_management_settings": SettingNote("keys in a secret manager", "set key_command of the upstream"),
    "reject_clientside_metadata_tags": _TAGS,
    "otel": SettingNote("OpenTelemetry spans", "[trace] otel = true"),
    "max_request_size_mb": SettingNote("the size of requests", "[limits] body, in bytes"),
    "global_max_parallel_requests": SettingNote("limits concurrent requests", "[limits] memory and connections"),
    "allowed_ips": SettingNote("client addresses", "limit them in a proxy in front"),
    "ui_access_mode": SettingNote("LiteLLM's console"),
}
MASTER_KEY = "general_settings.master_key"
"""The location of the key of LiteLLM's clients."""
SILENT_SETTINGS = frozenset({"set_verbose", "telemetry", "json_logs", "debug", "drop_params", "model_info"})
"""Settings that need no note: their effect is toolwire's own, or they have none."""
_UNKNOWN = SettingNote("a setting that toolwire does not know")


def find_note(key: str) -> SettingNote:
    return KNOWN_SETTINGS.get(key, _UNKNOWN)


# The report about a LiteLLM file: skipped models, ignored settings, and settings with another effect.


NoteKind: TypeAlias = Literal["skipped", "ignored", "changed"]

_MAX_LOCATIONS = 4  # in a row of the report, so that it is one line
_ORDER = ("skipped", "ignored", "changed")


class ImportNote(NamedTuple):
    """One setting: `skipped` is a model that cannot be used, `changed` a setting whose effect differs here."""

    kind: NoteKind
    location: str  # the path of the key, such as `router_settings.allowed_fails`
    meaning: str  # its effect in LiteLLM, or the reason for skipping
    instead: str = ""
    model: str = ""


class ReportRow(NamedTuple):
    """Notes with the same text, and their locations."""

    kind: NoteKind
    locations: tuple[str, ...]
    meaning: str
    instead: str

    @property
    def where(self) -> str:
        rest = len(self.locations) - _MAX_LOCATIONS
        shown = ", ".join(self.locations[:_MAX_LOCATIONS])
        return f"{shown} and {rest} more" if rest > 0 else shown


class ImportReport:
    """Collect notes while a file is read."""

    def __init__(self) -> None:
        self.notes: list[ImportNote] = []

    def skip(self, location: str, reason: str, instead: str = "", *, model: str = "") -> None:
        self.notes.append(ImportNote("skipped", location, reason, instead, model))

    def ignore(self, location: str, meaning: str, instead: str = "") -> None:
        self.notes.append(ImportNote("ignored", location, meaning, instead))

    def change(self, location: str, meaning: str, instead: str = "") -> None:
        self.notes.append(ImportNote("changed", location, meaning, instead))


def group_notes(notes: Iterable[ImportNote]) -> list[ReportRow]:
    """Group notes with the same text: a setting of thirty models is one row. Skipped models come first."""
    groups: dict[tuple[NoteKind, str, str], list[str]] = {}
    for note in notes:
        location = f"{note.model} ({note.location})" if note.model else note.location
        groups.setdefault((note.kind, note.meaning, note.instead), []).append(location)
    rows = [ReportRow(kind, tuple(places), meaning, instead) for (kind, meaning, instead), places in groups.items()]
    return sorted(rows, key=lambda row: _ORDER.index(row.kind))
