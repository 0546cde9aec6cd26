"""toolwire inside other programs: SDKs in front of any model, toolboxes in agent frameworks, parsers for vLLM and SGLang.

    openai.OpenAI(http_client=transport("anthropic/claude-sonnet-5"), api_key="unused")

    to_pydantic_ai, to_langchain, to_llama_index, to_openai_agents, to_google_adk      a toolbox as their tools
    from_pydantic_ai, from_langchain, …                                                their tools as a toolbox

    vllm serve MODEL --tool-parser-plugin "$(python -m toolwire.adapters.vllm_plugin)" --tool-call-parser toolwire_hermes …
    sglang serve --model-path MODEL --tool-call-parser toolwire_hermes …

Importing this package imports none of them. `TurnReader` is the part that the parsers share, for other servers.
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .framework_runner import AdapterOptions
    from .frameworks import (
        from_google_adk,
        from_langchain,
        from_llama_index,
        from_openai_agents,
        from_pydantic_ai,
        to_google_adk,
        to_langchain,
        to_llama_index,
        to_openai_agents,
        to_pydantic_ai,
    )
    from .model_format import format_of_model, prompt_opens_reasoning, without_calls
    from .sdk_transport import TransportOptions, async_transport, transport
    from .sglang_plugin import register_detectors
    from .turn_reader import CallPiece, TurnDelta, TurnReader
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "framework_runner": ("AdapterOptions",),
            "frameworks": (
                "from_google_adk",
                "from_langchain",
                "from_llama_index",
                "from_openai_agents",
                "from_pydantic_ai",
                "to_google_adk",
                "to_langchain",
                "to_llama_index",
                "to_openai_agents",
                "to_pydantic_ai",
            ),
            "model_format": ("format_of_model", "prompt_opens_reasoning", "without_calls"),
            "sglang_plugin": ("register_detectors",),
            "sdk_transport": ("TransportOptions", "async_transport", "transport"),
            "turn_reader": ("CallPiece", "TurnDelta", "TurnReader"),
        },
    )

__all__ = [
    "AdapterOptions",
    "CallPiece",
    "TransportOptions",
    "TurnDelta",
    "TurnReader",
    "async_transport",
    "format_of_model",
    "from_google_adk",
    "from_langchain",
    "from_llama_index",
    "from_openai_agents",
    "from_pydantic_ai",
    "prompt_opens_reasoning",
    "register_detectors",
    "to_google_adk",
    "to_langchain",
    "to_llama_index",
    "to_openai_agents",
    "to_pydantic_ai",
    "transport",
    "without_calls",
]
