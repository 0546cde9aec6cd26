"""Formats that write the name outside JSON: a header with the name, then the arguments as a JSON object.

<function=f>{"a": 1}</function>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.alternative_calls import MistralCalls
from ..styles.header_calls import HeaderCalls

_NOISE = (
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜end▁of▁sentence｜>",
)


DEEPSEEK_V3 = Format(
    name="deepseek_v3",
    title="name and a JSON code block between special tokens",
    families=("*deepseek-v3", "*deepseek-v3-0324*", "*deepseek-chat*", "*deepseek-r1*", "*deepseek-reasoner*"),
    calls=HeaderCalls(
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁call▁begin｜>"),
        ("\n```json\n", "\n```\n", "\r\n```json\r\n"),
        ("\n```<｜tool▁call▁end｜>", "```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        between="\n",
    ),
    ends_reasoning=("<｜tool▁calls▁begin｜>",),
    noise=_NOISE,
    halts=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
    results=ResultTemplate("<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>", role="tool"),
)
"""Calls of DeepSeek V3, R1 and its distillations: the name, then the arguments in a code block.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
```json
{"a": 1}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

DEEPSEEK_V31 = Format(
    name="deepseek_v31",
    title="name and JSON between special tokens",
    families=("*deepseek-v3.1*", "*deepseek-v3.2-exp*", "*deepseek-v3-1*"),
    calls=HeaderCalls(
        ("<｜tool▁call▁begin｜>",),
        ("<｜tool▁sep｜>",),
        ("<｜tool▁call▁end｜>",),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
    ),
    ends_reasoning=("<｜tool▁calls▁begin｜>",),
    noise=_NOISE,
    halts=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
    declare=ToolPrompt("## Tools\n\nYou have access to the following tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>", role="tool"),
)
"""Calls of DeepSeek V3.1: the name, then the arguments.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""


FUNCTIONARY_V31 = Format(
    name="functionary_v31",
    title="JSON in <function=name> tags",
    families=("*functionary*v3.1*", "*functionary-medium-v3.1*"),
    calls=HeaderCalls(("<function=",), (">",), ("</function>",)),
    noise=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
)
"""Calls of Functionary 3.1 and of Llama 3.1 with custom tools.

<function=f>{"a": 1}</function>
"""


KIMI_K2 = Format(
    name="kimi_k2",
    title="functions.name:index and JSON between special tokens",
    families=("*kimi-k2*", "*kimi-vl*"),
    calls=HeaderCalls(
        ("<|tool_call_begin|>",),
        ("<|tool_call_argument_begin|>",),
        ("<|tool_call_end|>",),
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        header=r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.\-/]+?):\d+|\d+)\s*",
        write_header="functions.{name}:{number}",
    ),
    reasoning=(("<think>", "</think>"), ("◁think▷", "◁/think▷")),  # the second pair is of Kimi-VL
    ends_reasoning=("<|tool_calls_section_begin|>",),
    noise=(
        "<|tool_calls_section_end|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|im_end|>",
    ),
    declare=ToolPrompt("<|im_system|>tool_declare<|im_middle|>[", "]<|im_end|>", join=",", explain=False),
    results=ResultTemplate("## Return of {id}\n{content}", role="tool", grouped=False),
)
"""Calls of Kimi K2 to K2.5: a header that is both name and id, counted over the conversation.

<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>
"""


MISTRAL_V11 = Format(
    name="mistral_v11",
    title="[TOOL_CALLS] name [ARGS] JSON",
    families=(
        "*mistral-small*",
        "*mistral-medium*",
        "*mistral-large*",
        "*devstral*",
        "*magistral*",
        "*ministral-3*",
        "*voxtral*",
    ),
    calls=MistralCalls(),
    reasoning=(("[THINK]", "[/THINK]"), ("<think>", "</think>")),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate("[TOOL_RESULTS]{content}[/TOOL_RESULTS]", role="tool", grouped=False),
)
"""Calls of Mistral Small since 2506, Devstral, Magistral: the name, then the arguments.

    [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}

The notation of earlier tokenizers, `[TOOL_CALLS][{…}]`, is read as well.
"""

MISTRAL_V11_CALLID = Format(
    name="mistral_v11_callid",
    title="[TOOL_CALLS] name [CALL_ID] id [ARGS] JSON",
    families=("*mistral-small*2506*", "*mistral-small-3.2*", "*mistral-small3.2*", "*magistral-small-2506*"),
    calls=MistralCalls(ids=True),
    reasoning=(("[THINK]", "[/THINK]"), ("<think>", "</think>")),
    noise=("</s>",),
    declare=ToolPrompt("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]", join=", ", explain=False),
    results=ResultTemplate("[TOOL_RESULTS]{id}[TOOL_CONTENT]{content}[/TOOL_RESULTS]", role="tool", grouped=False),
)
"""As `mistral_v11`, with an id between name and arguments.

[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}
"""


_REQUEST, _REQUEST_END = "<|plamo:begin_tool_request:plamo|>", "<|plamo:end_tool_request:plamo|>"
_NAME, _NAME_END = "<|plamo:begin_tool_name:plamo|>", "<|plamo:end_tool_name:plamo|>"
_ARGUMENTS, _ARGUMENTS_END = "<|plamo:begin_tool_arguments:plamo|>", "<|plamo:end_tool_arguments:plamo|>"
_REQUESTS, _REQUESTS_END = "<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"
_JSON = "<|plamo:constrain|>json<|plamo:msg|>"

PLAMO3 = Format(
    name="plamo3",
    title="name and JSON between <|plamo:…|> markers",
    families=("*plamo-3*", "*plamo3*"),
    calls=HeaderCalls(
        (_REQUEST + _NAME, _NAME),
        (_NAME_END + _ARGUMENTS + _JSON, _NAME_END + _ARGUMENTS, _NAME_END),
        (_ARGUMENTS_END + _REQUEST_END, _ARGUMENTS_END),
        _REQUESTS,
        _REQUESTS_END,
    ),
    reasoning=(("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),),
    noise=(_REQUESTS, _REQUESTS_END, _REQUEST, _REQUEST_END, _ARGUMENTS_END, "<|plamo:tag|>"),
)
"""Calls of PLaMo 3: name and JSON, each between markers of its own.

<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"a": 1}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>
"""


SOLAR_OPEN = Format(
    name="solar_open",
    title="id, name and JSON between special tokens",
    families=("*solar-open*",),
    calls=HeaderCalls(
        ("<|tool_call:begin|>",),
        ("<|tool_call:args|>",),
        ("<|tool_call:end|>",),
        "<|tool_calls|>",
        "<|calls|>",
        header=r"\s*+(?:(?P<id>[a-z0-9_]{6,64})\s*+(?=<)|[^<>]*+)<\|tool_call:name\|>\s*(?P<name>[^\s<>{}]+)\s*",
        write_header="{id}<|tool_call:name|>{name}",
    ),
    reasoning=(("<|think|>", "<|end|>"),),
    ends_reasoning=("<|content|>", "<|tool_calls|>", "<|tool_call:begin|>"),
    noise=(
        "<|begin|>assistant",
        "<|begin|>",
        "<|end|>",
        "<|flush|>",
        "<|tool_call:end|>",
        "<|calls|>",
        "<|endoftext|>",
    ),
    halts=("<|begin|>tool", "<|begin|>user", "<|tool_response|>", "<|tool_response:begin|>"),
    stops=("<|calls|>",),
    declare=ToolPrompt(
        "## Tools\n\n<|tools:begin|><|tool:begin|>",
        "<|tool:end|><|tools:end|>",
        entry="function",
        join="<|tool:end|><|tool:begin|>",
    ),
    results=ResultTemplate(
        "<|tool_response:begin|>{id}<|tool_response:name|>{name}<|tool_response:result|>{content}<|tool_response:end|>",
        role="tool",
    ),
)
"""Calls of Solar Open: id, name and JSON between special tokens, in a message of its own.

<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>f<|tool_call:args|>{"a": 1}<|tool_call:end|><|calls|>
"""
