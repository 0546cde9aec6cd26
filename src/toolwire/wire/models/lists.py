"""Lists of models in the shape of each protocol, for clients that ask for one.

No codec and no translation uses them: they are no part of a conversation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256

from ...ir.errors import ProtocolError
from ...ir.pointer import Object
from ...ir.value import Value
from .capabilities import UNKNOWN_MODEL, ModelCapabilities

_MAX_PAGE = 1000  # the largest page of Anthropic and of Gemini, here also the default: many clients read one page only
# The instructions of a Codex session. Codex requires them in a catalogue entry, and uses them instead of its own
# (openai/codex#37122; seen with 0.169.0: without them it refuses the whole list).
_CODEX_INSTRUCTIONS = """\
You are a coding agent in a terminal, working in the user's directory with the tools in this request. \
Read the relevant files before you change them, and search with `rg` where it exists. \
Complete the whole task: make the changes yourself instead of describing them, follow the style of the existing code, \
leave unrelated code alone, and never revert changes of the user. \
Run the tests or the program after a change if you can, and repair any damage. \
Do not commit, and do not run destructive commands, unless the user asks for it. \
If a command needs an approval, request it. Announce each series of commands in one sentence. \
At the end, report briefly your changes, your checks and the open points. Name files as `path:line`."""


class ListedModel(Value, frozen=True):
    """A model for clients: its name, its date in Unix seconds, and facts about it, which may be unknown."""

    name: str
    created: int
    capabilities: ModelCapabilities = UNKNOWN_MODEL
    accepts_tools: bool = True


def model_list(wire: str, models: Sequence[ListedModel], query: Mapping[str, str]) -> Object:
    """Build the list of models in the shape of a protocol. `models` are sorted; `query` may request a page."""
    if wire == "anthropic":
        return _anthropic_page(models, query)
    if wire == "gemini":
        return _gemini_page(models, query)
    entries: list[Object] = [model_entry(wire, model) for model in models]
    if wire == "ollama":
        return {"models": entries}
    # Codex states its version (`?client_version=0.169.0`), and reads its catalogue from `models`.
    catalogue: Object = {"models": [_codex_entry(model) for model in models]} if "client_version" in query else {}
    return {"object": "list", "data": entries, **catalogue}


def _anthropic_page(models: Sequence[ListedModel], query: Mapping[str, str]) -> Object:
    """Return the page after or before a model. A model that no longer exists still has its position in the order."""
    limit = _page_size(query, "limit")
    names = [model.name for model in models]
    if "before_id" in query:
        end = bisect_left(names, query["before_id"])
        page, has_more = models[max(end - limit, 0) : end], end > limit
    else:
        start = bisect_right(names, query["after_id"]) if "after_id" in query else 0
        page, has_more = models[start : start + limit], len(models) > start + limit
    first, last = (page[0].name, page[-1].name) if page else (None, None)
    entries: list[Object] = [model_entry("anthropic", model) for model in page]
    return {"data": entries, "has_more": has_more, "first_id": first, "last_id": last}


def _gemini_page(models: Sequence[ListedModel], query: Mapping[str, str]) -> Object:
    """Return the page after a token, which is the name of the previous page's last model."""
    size = _page_size(query, "pageSize")
    start = bisect_right([model.name for model in models], query["pageToken"]) if query.get("pageToken") else 0
    page = models[start : start + size]
    entries: list[Object] = [model_entry("gemini", model) for model in page]
    return {"models": entries, **({"nextPageToken": page[-1].name} if len(models) > start + size else {})}


def _page_size(query: Mapping[str, str], name: str) -> int:
    """Return the requested size of a page, at most the largest. Raise ProtocolError if it is not positive."""
    text = query.get(name, str(_MAX_PAGE))
    size = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if size < 1:
        raise ProtocolError(f"{name} must be a positive number, got {text[:40]!r}", hint=f"use 1 to {_MAX_PAGE}")
    return min(size, _MAX_PAGE)


def model_entry(wire: str, model: ListedModel) -> Object:
    """Build the description of a model in the shape of a protocol; unknown fields are absent or neutral."""
    name, facts = model.name, model.capabilities
    if wire == "gemini":
        return {
            "name": f"models/{name}",
            "displayName": name,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
            **_known(inputTokenLimit=facts.window, outputTokenLimit=facts.max_output),
        }
    if wire == "ollama":
        return _ollama_entry(model)
    if wire == "anthropic":
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": _format_date(model.created),
            "lifecycle": "active",
            **_known(max_input_tokens=facts.window, max_tokens=facts.max_output),
        }
    return {"id": name, "object": "model", "created": model.created, "owned_by": "toolwire"}


def _ollama_entry(model: ListedModel) -> Object:
    """Build an entry of `/api/tags`. Ollama's own client cuts the digest to 12 characters, and crashes if it is shorter."""
    digest = sha256(model.name.encode("utf-8", "surrogatepass")).hexdigest()
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": _format_date(model.created),
        "size": 0,
        "digest": digest,
        "details": _OLLAMA_DETAILS,
    }


_OLLAMA_DETAILS: Object = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": [],
    "parameter_size": "",
    "quantization_level": "",
}


def ollama_description(model: ListedModel) -> Object:
    """Build the answer of `/api/show`. Clients find the context length by the architecture's name (api/types.go)."""
    facts = model.capabilities
    capabilities = ["completion"]
    capabilities += ["tools"] if model.accepts_tools else []
    capabilities += ["vision"] if facts.media is not None and "image" in facts.media else []
    capabilities += ["thinking"] if facts.thinking else []
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _OLLAMA_DETAILS,
        "model_info": {
            "general.architecture": "toolwire",
            "general.basename": model.name,
            **_known(**{"toolwire.context_length": facts.window}),
        },
        "capabilities": [*capabilities],
        "modified_at": _format_date(model.created),
    }


def _codex_entry(model: ListedModel) -> Object:
    """Build an entry of Codex's catalogue, with every field that its type requires (openai_models.rs, 0.169.0)."""
    facts = model.capabilities
    has_images = facts.media is None or "image" in facts.media
    levels: list[Object] = [{"effort": effort, "description": ""} for effort in facts.efforts or ()]
    return {
        "slug": model.name,
        "display_name": model.name,
        "description": None,
        "supported_reasoning_levels": levels,
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 1,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": _CODEX_INSTRUCTIONS,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",  # every wire gets it as a tool with one text
        "truncation_policy": {"mode": "bytes", "limit": 10_000},  # Codex's own for models that it does not know
        "supports_parallel_tool_calls": True,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"] if has_images else ["text"],
        **_known(default_reasoning_level=facts.default_effort, context_window=facts.window),
    }


def _known(**fields: str | int | None) -> Object:
    return {name: value for name, value in fields.items() if value is not None}


def _format_date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
