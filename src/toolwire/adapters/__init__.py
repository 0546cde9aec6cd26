"""toolwire inside other programs: SDKs in front of any model, toolboxes in agent frameworks, parsers for vLLM and SGLang.

    openai.OpenAI(http_client=transport("anthropic/claude-sonnet-5"), api_key="unused")

    to_pydantic_ai, to_langchain, to_llama_index, to_openai_agents, to_google_adk      a toolbox as their tools
    from_pydantic_ai, from_langchain, …                                                their tools as a toolbox
    StoreDurability                                                                    PydanticAI's steps in our store

    vllm serve MODEL --tool-parser-plugin "$(python -m toolwire.adapters.vllm_plugin)" --tool-call-parser toolwire_hermes …
    sglang serve --model-path MODEL --tool-call-parser toolwire_hermes …

Importing this package imports none of them. `TurnReader` is the part that the parsers share, for other servers.
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .framework_runner import AdapterOptions as AdapterOptions
    from .frameworks import from_google_adk as from_google_adk
    from .frameworks import from_langchain as from_langchain
    from .frameworks import from_llama_index as from_llama_index
    from .frameworks import from_openai_agents as from_openai_agents
    from .frameworks import from_pydantic_ai as from_pydantic_ai
    from .frameworks import to_google_adk as to_google_adk
    from .frameworks import to_langchain as to_langchain
    from .frameworks import to_llama_index as to_llama_index
    from .frameworks import to_openai_agents as to_openai_agents
    from .frameworks import to_pydantic_ai as to_pydantic_ai
    from .model_format import format_of_model as format_of_model
    from .model_format import prompt_opens_reasoning as prompt_opens_reasoning
    from .model_format import without_calls as without_calls
    from .pydantic_ai_durability import ChangedRun as ChangedRun
    from .pydantic_ai_durability import StoreDurability as StoreDurability
    from .pydantic_ai_durability import UnknownStep as UnknownStep
    from .sdk_transport import TransportOptions as TransportOptions
    from .sdk_transport import async_transport as async_transport
    from .sdk_transport import transport as transport
    from .sglang_plugin import register_detectors as register_detectors
    from .turn_reader import CallPiece as CallPiece
    from .turn_reader import TurnDelta as TurnDelta
    from .turn_reader import TurnReader as TurnReader
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "framework_runner": "AdapterOptions",
            "frameworks": (
                "from_google_adk from_langchain from_llama_index from_openai_agents from_pydantic_ai to_google_adk "
                "to_langchain to_llama_index to_openai_agents to_pydantic_ai"
            ),
            "model_format": "format_of_model prompt_opens_reasoning without_calls",
            "pydantic_ai_durability": "ChangedRun StoreDurability UnknownStep",
            "sdk_transport": "TransportOptions async_transport transport",
            "sglang_plugin": "register_detectors",
            "turn_reader": "CallPiece TurnDelta TurnReader",
        },
    )
