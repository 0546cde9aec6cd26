"""Rows of data about vendors of models: the wire, the base URL, and how the key is sent. A vendor is one row.

    find("groq").base_url            # 'https://api.groq.com/openai/v1'
    vendor_codec(find("mistral"))    # openai_chat with Mistral's rule for ids and its dialect

Anything that needs code does not belong here. Base URLs end where the path of the wire begins.
"""

from __future__ import annotations

from difflib import get_close_matches

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.value import Value
from . import get
from .codec import WireCodec
from .protocol import Wire

__all__ = ["COMPATIBLE", "ApiKey", "Vendor", "find", "names", "vendor_codec"]


class ApiKey(Value, frozen=True):
    """An environment variable that holds a key, and the header that carries it."""

    variable: str
    header: str = "authorization"
    prefix: str = "Bearer "


class Vendor(Value, frozen=True):
    name: str
    base_url: str
    keys: tuple[ApiKey, ...] = ()  # the first one that is set is used
    wire: str = "openai_chat"
    base_variable: str | None = None  # an environment variable with another base URL
    keyless: bool = False  # also answers without a key
    dialect: str | None = None  # of schemas, if it is not the wire's own
    id: str | None = None  # a regular expression for call ids, if it is not the wire's own
    id_length: int = 40
    fields: dict[str, str] = {}  # fields of a request that it names differently
    counts_on_request: bool = True  # supports `stream_options`
    keeps_responses: bool = False  # stores answers of the wire openai_responses under their id
    transport: str | None = None  # `module:class` of the transport, if it is not HTTP


def _bearer_key(variable: str) -> tuple[ApiKey, ...]:
    return (ApiKey(variable),)


_MAX_TOKENS_FIELD = {"max_completion_tokens": "max_tokens"}
_OPENAI = Vendor(
    "openai",
    "https://api.openai.com/v1",
    _bearer_key("OPENAI_API_KEY"),
    "openai_responses",
    base_variable="OPENAI_BASE_URL",
    keeps_responses=True,
)
_GEMINI = Vendor(
    "gemini",
    "https://generativelanguage.googleapis.com",
    (ApiKey("GOOGLE_API_KEY", "x-goog-api-key", ""), ApiKey("GEMINI_API_KEY", "x-goog-api-key", "")),
    "gemini",
    base_variable="GOOGLE_GEMINI_BASE_URL",
)


def _hosted_vendor(name: str, base_url: str, variable: str) -> Vendor:
    return Vendor(name, base_url, _bearer_key(variable), fields=_MAX_TOKENS_FIELD)


def _local_vendor(name: str, base_url: str, variable: str, dialect: str | None = None) -> Vendor:
    return Vendor(name, base_url, _bearer_key(variable), keyless=True, dialect=dialect, fields=_MAX_TOKENS_FIELD)


COMPATIBLE = Vendor("compatible", "", keyless=True, fields=_MAX_TOKENS_FIELD)
"""A server of which only the base URL is known."""

_ROWS = (
    _OPENAI,
    replace(_OPENAI, name="openai-chat", wire="openai_chat"),
    Vendor(
        "anthropic",
        "https://api.anthropic.com",
        (ApiKey("ANTHROPIC_API_KEY", "x-api-key", ""), ApiKey("ANTHROPIC_AUTH_TOKEN")),
        "anthropic",
        base_variable="ANTHROPIC_BASE_URL",
    ),
    _GEMINI,
    replace(_GEMINI, name="google"),
    Vendor(
        "mistral",
        "https://api.mistral.ai/v1",
        _bearer_key("MISTRAL_API_KEY"),
        dialect="mistral",
        id="[a-zA-Z0-9]{9}",
        id_length=9,
        fields={**_MAX_TOKENS_FIELD, "seed": "random_seed"},
        counts_on_request=False,
    ),
    _hosted_vendor("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    _hosted_vendor("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    _hosted_vendor("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    _hosted_vendor("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    _hosted_vendor("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _hosted_vendor("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    _hosted_vendor("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    _hosted_vendor("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    _hosted_vendor("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    _hosted_vendor("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    _hosted_vendor("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    _hosted_vendor("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
    Vendor("ollama", "http://localhost:11434", _bearer_key("OLLAMA_API_KEY"), "ollama", keyless=True),
    _local_vendor("ollama-chat", "http://localhost:11434/v1", "OLLAMA_API_KEY", dialect="ollama"),
    _local_vendor("vllm", "http://localhost:8000/v1", "VLLM_API_KEY"),
    _local_vendor("tgi", "http://localhost:8080/v1", "HF_TOKEN"),
    _local_vendor("llamacpp", "http://localhost:8080/v1", "LLAMA_API_KEY"),
    _local_vendor("lmstudio", "http://localhost:1234/v1", "LMSTUDIO_API_KEY"),
    _local_vendor("sglang", "http://localhost:30000/v1", "SGLANG_API_KEY"),
    Vendor(
        "local",
        "http://localhost",
        keyless=True,
        fields=_MAX_TOKENS_FIELD,
        transport="toolwire.local.transport:LocalTransport",
    ),
)
_BY_NAME = {row.name: row for row in _ROWS}


def names() -> list[str]:
    """Return the names of all vendors."""
    return sorted(_BY_NAME)


def find(name: str) -> Vendor:
    """Return the row of a vendor; raise ConfigError with the closest name if there is none."""
    row = _BY_NAME.get(name.lower())
    if row is None:
        close_matches = get_close_matches(name.lower(), names(), 1, 0.5)
        hint = f"did you mean {close_matches[0]!r}?" if close_matches else f"use one of {', '.join(names())}"
        raise ConfigError(f"unknown provider {name!r}", hint=hint)
    return row


def vendor_codec(vendor: Vendor, wire: str | None = None) -> Wire:
    """Return the codec of the vendor's wire, or of `wire`, with the vendor's deviations."""
    codec = get(wire or vendor.wire)
    if not isinstance(codec, WireCodec) or codec.name != get(vendor.wire).name:
        return codec  # a third party's implementation declares its own deviations
    changes: dict[str, object] = {}
    if vendor.dialect is not None:
        changes["dialect"] = vendor.dialect
    if vendor.id is not None:
        changes["limits"] = replace(codec.limits, id=vendor.id, id_length=vendor.id_length)
    if not vendor.counts_on_request:
        changes["capabilities"] = replace(codec.capabilities, counts_on_request=False)
    return replace(codec, **changes) if changes else codec
