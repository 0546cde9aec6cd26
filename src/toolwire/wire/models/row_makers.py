"""Make rows about models that many vendors serve, and name the sources that many rows cite."""

from __future__ import annotations

from .capabilities import CapabilityRow, ModelCapabilities

CHAT = "openai_chat"
_WIRES = (CHAT, "openai_responses", "anthropic", "bedrock", "ollama")
ANYWHERE = ("*",)
LITELLM = "https://pypi.org/project/litellm/1.109.1 model_prices_and_context_window"
MODELS_DEV = "https://github.com/anomalyco/models.dev@f3fc6922 models/"
PYDANTIC_AI = "https://github.com/pydantic/pydantic-ai (2.66.0) "
PENALTIES = ("presence_penalty", "frequency_penalty")


def model_row(
    models: str,
    source: str,
    date: str,
    capabilities: ModelCapabilities,
    vendors: tuple[str, ...] = ANYWHERE,
    wires: tuple[str, ...] = _WIRES,
) -> CapabilityRow:
    """Make a row; `models` are patterns, separated by spaces."""
    return CapabilityRow(tuple(models.split()), capabilities, source, date, wires, vendors)


def vendor_row(
    vendor: str, models: str, source: str, date: str, capabilities: ModelCapabilities, wires: tuple[str, ...] = (CHAT,)
) -> CapabilityRow:
    """Make a row about the API of one vendor."""
    return model_row(models, source, date, capabilities, (vendor,), wires)


def media_rows(models: str, kinds: tuple[str, ...], source: str, date: str) -> tuple[CapabilityRow, CapabilityRow]:
    """Make the rows about the media that models accept. OpenRouter and Mistral read PDF files for every model."""
    pdf = f"https://openrouter.ai/docs/features/multimodal/pdfs; recorded: mistral.jsonl, document_url, 200; {source}"
    with_files = ModelCapabilities(media=tuple(dict.fromkeys((*kinds, "file"))))
    return (
        model_row(models, pdf, date, with_files, ("openrouter", "mistral")),
        model_row(models, source, date, ModelCapabilities(media=kinds)),
    )


def window_rows(source: str, date: str, windows: dict[str, int]) -> tuple[CapabilityRow, ...]:
    """Make the rows about windows. An Ollama server reports its own, and the names of its models have no size."""
    facts = {models: ModelCapabilities(window=size) for models, size in windows.items()}
    return tuple([model_row(models, source, date, known, wires=_WIRES[:-1]) for models, known in facts.items()])
