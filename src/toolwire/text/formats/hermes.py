"""Calls of Nous Hermes, Qwen 2.5 and 3, Granite 4, SmolLM 3: a JSON object in tags.

    <tool_call>
    {"name": "f", "arguments": {"a": 1}}
    </tool_call>

It is also the format for models without calls of their own that reason in `<thought>` (EXAONE Deep) or `◁think▷` (Kimi-VL).
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ToolPrompt
from ..styles.json_calls import JsonCalls

__all__ = ["HERMES"]

HERMES = Format(
    name="hermes",
    title="JSON object in <tool_call> tags",
    families=(
        "*hermes*",
        "*hermes*llama*",
        "*hermes*mistral*",
        "*hermes*mixtral*",
        "qwen2*",
        "qwen3*",
        "qwq*",
        "mimo*",
        # Ling and Ring 2: LING_TOOL_PROMPT of LlamaFactory; K-EXAONE: its model card, vLLM with the parser "hermes";
        # Falcon-H1: its template (hiyouga/LlamaFactory#10775, tiiuae/Falcon-H1#5)
        "ling-2*",
        "ling-1t*",
        "ling-flash*",
        "ling-mini*",
        "ring-2*",
        "ring-1t*",
        "ring-flash*",
        "ring-mini*",
        "k-exaone*",
        "falcon-h1*",
        "step3-vl*",
        "minicpm-v-4.5*",
        "granite-4*",
        "granite4*",
        "smollm3*",
        "reka-edge*",
        "bielik*",
        "holo2*",
        "exaone-deep*",
        "kimi-dev*",
        "llama-3-groq*tool-use*",
        "llama3-groq-tool-use*",
        "arch-function*",
        "rnj-1*",
        "exaone-4*",
    ),
    calls=JsonCalls(("<tool_call>",), ("</tool_call>",), pad=("\n", "\n")),
    reasoning=(("<think>", "</think>"), ("<thought>", "</thought>"), ("◁think▷", "◁/think▷")),
    noise=("<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "<|eot_id|>"),
    halts=("<tool_response>",),
    declare=ToolPrompt(
        before=(
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        ),
    ),
)
