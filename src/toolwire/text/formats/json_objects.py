"""Formats that write a call as a JSON object with its name and arguments: in tags, after a token, or bare.

<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>

Calls of Nous Hermes, Qwen 2.5 and 3, Granite 4, SmolLM 3: a JSON object in tags.

    <tool_call>
    {"name": "f", "arguments": {"a": 1}}
    </tool_call>

It is also the format for models without calls of their own that reason in `<thought>` (EXAONE Deep) or `◁think▷` (Kimi-VL).
"""

from __future__ import annotations

from ..engine.envelope import CallFields
from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.json_calls import JsonCalls

GENERIC_JSON = Format(
    name="generic_json",
    title="bare JSON object",
    families=(),
    calls=JsonCalls(("```json\n",), ("```",), bare=("{", "["), write_open=False),
)
"""One call as a bare object, wrapped or not: for models that are only prompted for it.

{"tool_call": {"name": "f", "arguments": {}}}
"""


GIGACHAT3 = Format(
    name="gigachat3",
    title="JSON object after <|function_call|>",
    families=("gigachat3*", "gigachat-3*"),
    calls=JsonCalls(("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n")),
    noise=("</s>", "<|message_sep|>", "<|role_sep|>"),
)


GRANITE_20B_FC = Format(
    name="granite_20b_fc",
    title="JSON object after <function_call>",
    families=("granite-20b-functioncalling*",),
    calls=JsonCalls(("<function_call>",), pad=(" ", "")),
    noise=("<|endoftext|>",),
)
"""Calls of Granite 20B function calling: an opening tag, no closing tag.

<function_call> {"name": "f", "arguments": {}}
"""


LLAMA3_JSON = Format(
    name="llama3_json",
    title="bare JSON object, or after <|python_tag|>",
    families=("*llama-3.1*", "*llama-3.2*", "*llama-3.3*", "*llama3.1*", "*llama3.2*", "*llama3.3*"),
    calls=JsonCalls(
        ("<|python_tag|>",),
        bare=("{", "["),
        bare_inline=('{"name": "', '{"name":"', '[{"name": "', '[{"name":"'),
        keys=CallFields(arguments=("parameters", "arguments")),
        between="; ",
        write_open=False,
    ),
    noise=("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>"),
    results=ResultTemplate("{content}", role="tool", grouped=False),
)
"""Calls of Llama 3.1 to 3.3 and of Llama 4 in JSON: a bare object at the start of the message, or after a token.

<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}
"""


MINIMAX_M1 = Format(
    name="minimax_m1",
    title="JSON objects, one per line, in <tool_calls> tags",
    families=("*minimax-m1*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), pad=("\n", "\n"), shared_tags=True),
    noise=("<end_of_sentence>",),
    results=ResultTemplate("tool name: {name}\ntool result: {content}", role="tool"),
)
"""Calls of MiniMax M1: all calls of a turn in one pair of tags.

<tool_calls>
{"name": "f", "arguments": {}}
{"name": "g", "arguments": {}}
</tool_calls>
"""


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
"""Calls of Nous Hermes, Qwen 2.5 and 3, Granite 4, SmolLM 3: a JSON object in tags.

    <tool_call>
    {"name": "f", "arguments": {"a": 1}}
    </tool_call>

It is also the format for models without calls of their own that reason in `<thought>` (EXAONE Deep) or `◁think▷` (Kimi-VL).
"""


ERNIE45 = Format(
    name="ernie45",
    title="JSON object in <tool_call> tags, text in <response> tags",
    families=("ernie-4.5*", "ernie4.5*"),
    calls=JsonCalls(("<tool_call>",), ("</tool_call>",), pad=("\n", "\n")),
    noise=("<response>", "</response>", "</s>", "<|im_end|>"),
    halts=("<tool_output>",),
)
"""Calls of Ernie 4.5: as in `hermes`, with the answer in its own tags.

<think>…</think><tool_call>{"name": "f", "arguments": {}}</tool_call><response>…</response>
"""


TRINITY = Format(
    name="trinity",
    title="JSON object in <tool_call> tags, also inside reasoning",
    families=("*trinity*",),
    calls=JsonCalls(("<tool_call>",), ("</tool_call>",), pad=("\n", "\n")),
    calls_in_reasoning=True,
    noise=("<|im_end|>", "<|end_of_text|>", "<|endoftext|>"),
    halts=("<tool_response>",),
)
"""Calls of Trinity: as in `hermes`; the model also calls inside its reasoning, and continues it after the call.

<think>I need the weather. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call></think>
"""


LONGCAT = Format(
    name="longcat",
    title="JSON object in <longcat_tool_call> tags",
    families=("longcat*",),
    calls=JsonCalls(("<longcat_tool_call>",), ("</longcat_tool_call>",), pad=("\n", "\n")),
    reasoning=(("<longcat_think>", "</longcat_think>"), ("<think>", "</think>")),
    noise=("</longcat_s>",),
)
"""Calls of LongCat-Flash: as in `hermes`, with its own tags.

<longcat_tool_call>{"name": "f", "arguments": {}}</longcat_tool_call>
"""


INTERNLM2 = Format(
    name="internlm2",
    title="JSON object between <|action_start|> and <|action_end|>",
    families=("internlm2*", "internlm3*", "intern-s1*"),
    calls=JsonCalls(
        ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
        ("<|action_end|>",),
        keys=CallFields(arguments=("parameters", "arguments")),
        pad=("\n", "\n"),
    ),
    noise=("<|action_end|>", "<|im_end|>", "</s>"),
)
"""Calls of InternLM 2: a plugin action.

<|action_start|><|plugin|>{"name": "f", "parameters": {}}<|action_end|>
"""
