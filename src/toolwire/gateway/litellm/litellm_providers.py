"""Rows of data: LiteLLM's provider prefixes with our providers, and prefixes that have no equivalent.

The prefixes and variables are those of LiteLLM's documentation and of `litellm/constants.py` (read 2026-11-16).
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["PROVIDERS", "ProviderPrefix", "find_prefix_problem", "is_chat_model", "split_model"]


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
    "mistral": ProviderPrefix("mistral"),
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
_BEDROCK = "put a server with an OpenAI or Anthropic API in front of it, or use the same model at another provider"
_UNSUPPORTED = {
    "bedrock": ("Amazon Bedrock is not supported", _BEDROCK),
    "bedrock_mantle": ("Amazon Bedrock is not supported", _BEDROCK),
    "sagemaker": ("Amazon SageMaker is not supported", _BEDROCK),
    "sagemaker_chat": ("Amazon SageMaker is not supported", _BEDROCK),
    "text-completion-openai": ("text completion models are not served", "use a chat model"),
    "text-completion-codestral": ("text completion models are not served", "use a chat model"),
    "auto_router": ("LiteLLM chooses another model by the content of a request", "name a model"),
}
_COMPATIBLE_HINT = (
    'if its server has an OpenAI, Anthropic, Gemini or Ollama API: [upstreams.NAME] base_url = "…", wire = "…"'
)
_OTHER_MODES = re.compile(
    r"embed|dall-e|gpt-image|imagen|stable-diffusion|whisper|moderation|realtime|rerank|\btts\b|transcribe|sora|veo-"
)
_BARE_NAMES = (  # LiteLLM's providers of names without a prefix
    (re.compile(r"claude"), "anthropic"),
    (re.compile(r"gemini"), "vertex_ai"),
    (re.compile(r"(?:[a-z]{2}\.)?(?:amazon|anthropic|meta|cohere|ai21|mistral)\."), "bedrock"),
    (re.compile(r"command"), "cohere"),
)


def split_model(model: str, custom_provider: str | None) -> tuple[str, str]:
    """Split LiteLLM's model string into the prefix of its provider and the name of the model."""
    prefix, separator, rest = model.partition("/")
    if custom_provider is not None:
        return custom_provider, rest if separator and prefix == custom_provider else model
    if separator:
        return prefix, rest
    found = (provider for pattern, provider in _BARE_NAMES if pattern.match(model))
    return next(found, "openai"), model


def find_prefix_problem(prefix: str) -> tuple[str, str] | None:
    """Return the reason why a provider cannot be used, and the alternative; None if it can."""
    if prefix in PROVIDERS:
        return None
    return _UNSUPPORTED.get(prefix, (f"unknown provider {prefix!r}", _COMPATIBLE_HINT))


def is_chat_model(model: str, mode: object) -> bool:
    """Check the mode in `model_info`, or else the name: the gateway serves chat models only."""
    if isinstance(mode, str):
        return mode in ("chat", "completion", "responses")
    return not _OTHER_MODES.search(model.lower())
