"""Calls of Phi-4 mini: an array after a keyword, or in tags.

functools[{"name": "f", "arguments": {}}]
<|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.alternative_calls import AlternativeCalls
from ..styles.json_calls import JsonCalls

__all__ = ["PHI4MINI"]

# The model's own template does not write calls. vLLM's asks for the keyword; Ollama's and llama.cpp's
# (ggml-org/llama.cpp#12288) write tags, and vllm-project/vllm#14682 writes them in the plural.
PHI4MINI = Format(
    name="phi4mini",
    title="JSON array after functools",
    families=("*phi-4-mini*", "*phi4-mini*"),
    calls=AlternativeCalls(
        (
            JsonCalls(("functools",), (), array=True),
            JsonCalls(("<|tool_call|>", "<|tool_calls|>"), ("<|/tool_call|>", "<|/tool_calls|>"), array=True),
        )
    ),
    noise=("<|end|>", "<|/tool_call|>", "<|/tool_calls|>", "<|endoftext|>"),
)
