"""Formats that write the calls of a turn as a JSON array: in tags, after a token or keyword, or bare.

<tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>

Calls of Jamba 1.5: an array in tags.

<tool_calls>[
    {"name": "f", "arguments": {}}
]</tool_calls>
"""

from __future__ import annotations

from ..engine.envelope import CallFields
from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.alternative_calls import AlternativeCalls
from ..styles.json_calls import JsonCalls

JSON_ARRAY = Format(
    name="json_array",
    title="bare JSON array",
    families=(),
    calls=JsonCalls((), (), array=True, bare=("[",)),
)
"""Calls as a bare array: the result of constrained decoding with any model.

[{"name": "f", "parameters": {}}]
"""


HUNYUAN_A13B = Format(
    name="hunyuan_a13b",
    title="JSON array in <tool_calls> tags",
    families=("*hunyuan-a13b*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True),
    noise=("<answer>", "</answer>", "<|eos|>", "<|endoftext|>"),
)
"""Calls of Hunyuan A13B: an array in tags.

<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>
"""


MISTRAL_V3_JSON = Format(
    name="mistral_v3_json",
    title="JSON array after [TOOL_CALLS]",
    families=(
        "mistral:*",
        "*mistral-7b*",
        "*mistral-nemo*",
        "*mixtral-8x22b*",
        "mixtral:8x22b*",
        "*ministral-8b*2410*",
        "*mistral-large*2407*",
        "*mistral-large*2411*",
        "*mistral-small*2409*",
        "*mistral-small*2501*",
        "*mistral-small-3.1*",
        "*pixtral*",
    ),
    calls=JsonCalls(("[TOOL_CALLS]",), keys=CallFields(id_last=True), array=True),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate(
        '[TOOL_RESULTS]{"content": {json}, "call_id": "{id}"}[/TOOL_RESULTS]', role="tool", grouped=False
    ),
)
"""Calls of Mistral 7B v0.3, Nemo and Mixtral 8x22B: an array with ids of nine characters.

[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abcdefghi"}]
"""


APERTUS = Format(
    name="apertus",
    title="JSON array between <|tools_prefix|> and <|tools_suffix|>, names as keys",
    families=("*apertus*",),
    calls=JsonCalls(("<|tools_prefix|>",), ("<|tools_suffix|>",), keys=CallFields(name_is_key=True), array=True),
    reasoning=(("<|inner_prefix|>", "<|inner_suffix|>"),),
    calls_in_reasoning=True,
    noise=("<|tools_suffix|>", "<|assistant_end|>"),
)
"""Calls of Apertus: an array of objects whose only key is the name.

<|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>
"""


APRIEL = Format(
    name="apriel",
    title="JSON array in <tool_calls> tags",
    families=("*apriel*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True),
    reasoning=(("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"), ("<think>", "</think>")),
    noise=("[END FINAL RESPONSE]", "<|end|>"),
)
"""Calls of Apriel 1.5 and 1.6: an array in tags, after reasoning in prose that the prompt may open.

Here are my reasoning steps: … [BEGIN FINAL RESPONSE]
<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>
"""


_CITATIONS = (("<co>", ""), ("<co: ", ">"), ("</co: ", ">"), ("</co>", ""))
"""Marks around a cited text: `<co>text</co: 0:[1]>`, or `<co: 0>text</co: 0>` in Command R."""
_DIRECT_ANSWERS = ("directly_answer", "directly-answer")
"""A tool of the prompt by which Command R states that it needs no other one (its model card, tool use)."""

COHERE_ACTION = Format(
    name="cohere_action",
    title="JSON array between <|START_ACTION|> and <|END_ACTION|>",
    families=("*command-r7b*", "*command-a*", "*command-4*", "*north-mini*", "cohere2moe*"),
    calls=JsonCalls(
        ("<|START_ACTION|>",),
        ("<|END_ACTION|>",),
        keys=CallFields(
            name=("tool_name",),
            arguments=("parameters",),
            id=("tool_call_id",),
            id_first=True,
            direct_answers=_DIRECT_ANSWERS,
        ),
        array=True,
        layout=("[\n    ", ",\n    ", "\n]"),
    ),
    reasoning=(("<|START_THINKING|>", "<|END_THINKING|>"),),
    ends_reasoning=("<|START_RESPONSE|>", "<|START_TEXT|>"),
    noise=(
        "<|END_ACTION|>",
        "<|END_RESPONSE|>",
        "<|END_TEXT|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
    ),
    citations=_CITATIONS,
    halts=("<|START_TOOL_RESULT|>",),
    results=ResultTemplate(
        '<|START_TOOL_RESULT|>[{"tool_call_id": "{id}", "results": {"0": {json}}}]<|END_TOOL_RESULT|>', role="tool"
    ),
)
"""Calls of Command R7B, Command A and later: an array of actions, numbered.

<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {}}]<|END_ACTION|>
"""

_OPEN = tuple(f"Action:{space}```json{line}" for line in ("\n", "\r\n") for space in (line, " ", ""))

COHERE_RPLUS = Format(
    name="cohere_rplus",
    title="JSON array in a code block after Action:",
    families=("*command-r-plus*", "*command-r", "*command-r:*", "*command-r-0*", "*command-r-v01*"),
    calls=JsonCalls(
        _OPEN,
        ("```",),
        keys=CallFields(name=("tool_name",), arguments=("parameters",), direct_answers=_DIRECT_ANSWERS),
        array=True,
        pad=("", "\n"),
    ),
    noise=("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
    citations=_CITATIONS,
    results=ResultTemplate("<results>\n{content}</results>"),
)
"""Calls of Command R+: an array in a code block after "Action:".

Action:
```json
[{"tool_name": "f", "parameters": {}}]
```
"""


FIREFUNCTION_V2 = Format(
    name="firefunction_v2",
    title="JSON array after functools",
    families=("*firefunction-v2*",),
    calls=JsonCalls((" functools", "functools"), (), array=True),
    noise=("<|eot_id|>", "<|end_of_text|>"),
)
"""Calls of FireFunction v2: as `phi4mini`, with a leading space.

functools[{"name": "f", "arguments": {}}]
"""


_HERE = ("Here is", "Here's")  # quantised models write the short form

GRANITE3 = Format(
    name="granite3",
    title="JSON array after <|tool_call|>",
    families=("granite-3*", "granite3*"),
    calls=JsonCalls(("<|tool_call|>", "<tool_call>"), (), array=True, bare=("[",)),
    reasoning=(
        *((f"{here} my thought process:", f"{there} my response:") for here in _HERE for there in _HERE),
        ("<think>", "</think>"),
    ),
    noise=("<response>", "</response>", "<|end_of_text|>"),
    citations=(
        ("<|start_of_cite|> {", "}"),
        ("<|start_of_cite|>{", "}"),
        ("<|start_of_cite|>", ""),
        ("<|end_of_cite|>", ""),
    ),
)
"""Calls of Granite 3: an array after a token, or bare.

    <|tool_call|>[{"name": "f", "arguments": {}}]

Granite 3.2 reasons in prose: Here is my thought process: … Here is my response: …
"""


JAMBA = Format(
    name="jamba",
    title="JSON array in <tool_calls> tags",
    families=("*jamba*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True, layout=("[\n    ", ",\n    ", "\n]")),
    noise=("<|eom|>", "<|endoftext|>"),
)
"""Calls of Jamba 1.5: an array in tags.

<tool_calls>[
    {"name": "f", "arguments": {}}
]</tool_calls>
"""


NEMOTRON_V2 = Format(
    name="nemotron_v2",
    title="JSON array in <TOOLCALL> tags",
    families=(
        "*nemotron-nano*v2*",
        "*nemotron-nano-2*",
        "*nemotron-nano*v1*",
        "*nemotron-super*v1*",
        "*nemotron-ultra*v1*",
    ),
    calls=JsonCalls(("<TOOLCALL>",), ("</TOOLCALL>",), array=True),
    noise=("<SPECIAL_12>", "<SPECIAL_11>", "</s>"),
    results=ResultTemplate("<TOOL_RESPONSE>[{content}]</TOOL_RESPONSE>"),
)
"""Calls of Nemotron Nano v2: an array in tags.

<TOOLCALL>[{"name": "f", "arguments": {}}]</TOOLCALL>
"""


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
"""Calls of Phi-4 mini: an array after a keyword, or in tags.

functools[{"name": "f", "arguments": {}}]
<|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>
"""


XLAM = Format(
    name="xlam",
    title="bare JSON array",
    families=("*xlam*", "hammer*"),  # Hammer: the handler of BFCL (ShishirPatil/gorilla), an array in a code block
    calls=JsonCalls(
        ("```json\n", "[TOOL_CALLS]", "<tool_call>"),
        ("```", "</tool_call>"),
        array=True,
        bare=("[",),
        write_open=False,
    ),
    noise=("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"),
)
"""Calls of xLAM 2: an array, bare or in the tags of the base model's format.

[{"name": "f", "arguments": {}}]
"""
