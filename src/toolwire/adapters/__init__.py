"""toolwire inside other programs: SDKs in front of any model, and parsers for vLLM and SGLang.

    openai.OpenAI(http_client=transport("anthropic/claude-sonnet-5"), api_key="unused")

    vllm serve MODEL --tool-parser-plugin "$(python -m toolwire.adapters.vllm_plugin)" --tool-call-parser toolwire_hermes …
    sglang serve --model-path MODEL --tool-call-parser toolwire_hermes …

Importing this package imports neither of them. `TurnReader` is the part that they share, for other servers.
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .model_format import format_of_model, prompt_opens_reasoning, without_calls
    from .sdk_transport import TransportOptions, async_transport, transport
    from .sglang_plugin import register_detectors
    from .turn_reader import CallPiece, TurnDelta, TurnReader
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "model_format": ("format_of_model", "prompt_opens_reasoning", "without_calls"),
            "sglang_plugin": ("register_detectors",),
            "sdk_transport": ("TransportOptions", "async_transport", "transport"),
            "turn_reader": ("CallPiece", "TurnDelta", "TurnReader"),
        },
    )

__all__ = [
    "CallPiece",
    "TransportOptions",
    "TurnDelta",
    "TurnReader",
    "async_transport",
    "format_of_model",
    "prompt_opens_reasoning",
    "register_detectors",
    "transport",
    "without_calls",
]
