"""Rows of data: LiteLLM's provider prefixes with our providers, and prefixes that have no equivalent.

The gateway reads them in a `config.yaml`, a client in the name of a model. The prefixes and variables are from LiteLLM's
documentation and from `litellm/constants.py` (read 2026-11-16).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from ...ir.errors import ConfigError
from .vendor_types import ApiKey, Vendor
from .vendors import find


class ProviderPrefix(NamedTuple):
    """A prefix of LiteLLM. `provider` is ours; None: only the address counts, so `api_base` is required."""

    provider: str | None
    key_variables: tuple[str, ...] = ()  # read by LiteLLM, but not by us
    base_variable: str | None = None
    needs_base: bool = False  # LiteLLM has no default address


PROVIDERS = {
    "openai": ProviderPrefix("openai-chat"),  # the protocol that LiteLLM uses for it
    "azure": ProviderPrefix("azure", ("AZURE_API_KEY",), "AZURE_API_BASE"),
    "anthropic": ProviderPrefix("anthropic"),
    "gemini": ProviderPrefix("gemini"),
    "vertex_ai": ProviderPrefix("vertex"),
    "vertex_ai_beta": ProviderPrefix("vertex"),
    "bedrock_mantle": ProviderPrefix("bedrock-mantle", ("BEDROCK_MANTLE_API_KEY",), "BEDROCK_MANTLE_API_BASE"),
    "bedrock": ProviderPrefix("bedrock", (), "AWS_BEDROCK_RUNTIME_ENDPOINT"),
    "bedrock_converse": ProviderPrefix("bedrock", (), "AWS_BEDROCK_RUNTIME_ENDPOINT"),
    "mistral": ProviderPrefix("mistral"),
    "cohere": ProviderPrefix("cohere", (), "COHERE_API_BASE"),
    "cohere_chat": ProviderPrefix("cohere", (), "COHERE_API_BASE"),
    "deepseek": ProviderPrefix("deepseek"),
    "groq": ProviderPrefix("groq"),
    "together_ai": ProviderPrefix("together", ("TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY")),
    "openrouter": ProviderPrefix("openrouter", ("OR_API_KEY",)),
    "fireworks_ai": ProviderPrefix("fireworks", ("FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY")),
    "xai": ProviderPrefix("xai"),
    "cerebras": ProviderPrefix("cerebras"),
    "perplexity": ProviderPrefix("perplexity", ("PERPLEXITYAI_API_KEY",)),
    "moonshot": ProviderPrefix("moonshot"),
    "zai": ProviderPrefix("zai"),
    "minimax": ProviderPrefix("minimax"),
    "qwencloud": ProviderPrefix("alibaba", ("QWENCLOUD_API_KEY",)),
    "deepinfra": ProviderPrefix("deepinfra"),
    "nvidia_nim": ProviderPrefix("nvidia", ("NVIDIA_NIM_API_KEY",)),
    "huggingface": ProviderPrefix("huggingface", ("HUGGINGFACE_API_KEY",)),
    "ollama": ProviderPrefix("ollama", (), "OLLAMA_API_BASE"),
    "ollama_chat": ProviderPrefix("ollama", (), "OLLAMA_API_BASE"),
    "hosted_vllm": ProviderPrefix("vllm", ("HOSTED_VLLM_API_KEY",), "HOSTED_VLLM_API_BASE"),
    "vllm": ProviderPrefix("vllm"),
    "lm_studio": ProviderPrefix("lmstudio", ("LM_STUDIO_API_KEY",), "LM_STUDIO_API_BASE"),
    "llamafile": ProviderPrefix(None, (), "LLAMAFILE_API_BASE", needs_base=True),
    "litellm_proxy": ProviderPrefix(None, ("LITELLM_PROXY_API_KEY",), "LITELLM_PROXY_API_BASE", needs_base=True),
    "openai_like": ProviderPrefix(None, ("OPENAI_LIKE_API_KEY",), "OPENAI_LIKE_API_BASE", needs_base=True),
    "custom_openai": ProviderPrefix(None, (), None, needs_base=True),
    "azure_ai": ProviderPrefix(None, ("AZURE_AI_API_KEY",), "AZURE_AI_API_BASE", needs_base=True),
}
_OTHER_API = "put a server with an OpenAI or Anthropic API in front of it, or use the same model at another provider"
UNSUPPORTED = {
    "sagemaker": ("Amazon SageMaker is not supported", _OTHER_API),
    "sagemaker_chat": ("Amazon SageMaker is not supported", _OTHER_API),
    "text-completion-openai": ("text completion models are not served", "use a chat model"),
    "text-completion-codestral": ("text completion models are not served", "use a chat model"),
    "auto_router": ("LiteLLM chooses another model by the content of a request", "name a model"),
}


def provider_of(provider: str, model: str) -> str:
    """Return the provider of a model: Claude has a wire of its own at Vertex AI and at Bedrock Mantle."""
    is_claude = {"vertex": model.startswith("claude"), "bedrock-mantle": "anthropic.claude" in model}
    return f"{provider}-anthropic" if is_claude.get(provider) else provider


def find_prefixed(prefix: str, model: str) -> Vendor | None:
    """Return the vendor of a prefix of LiteLLM, which also reads LiteLLM's variables; None for other prefixes.

    The case is ignored, as in names of vendors. Raise ConfigError for a prefix that has no equivalent, or no address of its own.
    """
    prefix = prefix.lower()
    if prefix in UNSUPPORTED:
        problem, hint = UNSUPPORTED[prefix]
        raise ConfigError(f"{prefix}/{model}: {problem}", hint=hint)
    row = PROVIDERS.get(prefix)
    if row is None:
        return None
    if row.provider is None:
        raise ConfigError(f"{prefix!r} has no address of its own", hint=f"pass base_url=…, and {model!r} as the model")
    vendor = find(provider_of(row.provider, model))
    keys = (*vendor.keys, *(ApiKey(variable) for variable in row.key_variables))
    return replace(vendor, keys=keys, base_variable=row.base_variable or vendor.base_variable)
