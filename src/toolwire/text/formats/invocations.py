"""Formats that write invocations: tags with the name of the tool and of each parameter as an attribute.

<invoke name="f">
<parameter name="a">1</parameter>
</invoke>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.alternative_calls import AlternativeCalls
from ..styles.tagged_calls import TaggedCalls, invocations


def _dsml_calls(section: str, prefix: str = "｜DSML｜") -> TaggedCalls:
    """Return the style of invocations in a section. Each argument states whether it is a string."""
    opening, closing = f"<{prefix}{section}>", f"</{prefix}{section}>"
    return invocations(opening, closing, prefix=prefix, bare=True, type_attribute="string", json_body=True)


DEEPSEEK_DSML_V32 = Format(
    name="deepseek_dsml_v32",
    title="<｜DSML｜invoke> in <｜DSML｜function_calls>",
    families=("*deepseek-v3.2*",),
    calls=_dsml_calls("function_calls"),
    noise=("<｜end▁of▁sentence｜>",),
    halts=("<function_results>",),
    results=ResultTemplate("<function_results>\n<result>{content}</result>\n</function_results>", role="tool"),
)
"""Calls of DeepSeek V3.2: invocations whose arguments state whether they are strings.

<｜DSML｜function_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

DEEPSEEK_DSML_V4 = Format(
    name="deepseek_dsml_v4",
    title="<｜DSML｜invoke> in <｜DSML｜tool_calls>",
    families=("*deepseek-v4*",),
    calls=_dsml_calls("tool_calls"),
    noise=("<｜end▁of▁sentence｜>", "<｜DSML｜toolcalls>", "<｜DSML｜tool>"),  # two damaged section openers
    halts=("<function_results>",),
    results=ResultTemplate("<tool_result>{content}</tool_result>", role="tool"),
)
"""Calls of DeepSeek V4: invocations whose arguments state whether they are strings.

<｜DSML｜tool_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>
"""

DEEPSEEK_DSML_V41 = Format(
    name="deepseek_dsml_v41",
    title="<｜DSML｜ invoke> in <｜DSML｜ calls>",
    families=("*deepseek-v4.1*", "*deepseek-v4-1*"),
    calls=_dsml_calls("calls", prefix="｜DSML｜ "),
    noise=("<｜end▁of▁sentence｜>",),
    halts=("<function_results>",),
    results=ResultTemplate("<function_results>\n<result>{content}</result>\n</function_results>", role="tool"),
)
"""Calls of DeepSeek V4.1: as V4, with a space after the special token of every tag.

<｜DSML｜ calls>
<｜DSML｜ invoke name="f">
<｜DSML｜ parameter name="a" string="false">1</｜DSML｜ parameter>
</｜DSML｜ invoke>
</｜DSML｜ calls>
"""


MINIMAX_M2 = Format(
    name="minimax_m2",
    title="<invoke> in <minimax:tool_call>",
    families=("*minimax-m2*",),
    calls=invocations("<minimax:tool_call>", "</minimax:tool_call>"),
    noise=("[e~[",),
    results=ResultTemplate("<response>{content}</response>", role="tool"),
)
"""Calls of MiniMax M2: invocations in a section.

<minimax:tool_call>
<invoke name="f">
<parameter name="a">1</parameter>
</invoke>
</minimax:tool_call>
"""


ANTHROPIC_LEGACY_XML = Format(
    name="anthropic_legacy_xml",
    title="<invoke> in <function_calls>",
    families=("*claude-2*", "*claude-instant*"),
    calls=invocations("<function_calls>", "</function_calls>"),
    halts=("<function_results>",),
    stops=("</function_calls>",),
    results=ResultTemplate(
        "<function_results>\n<result>\n<tool_name>{name}</tool_name>\n<stdout>\n{content}\n</stdout>\n</result>\n</function_results>"
    ),
)
"""Calls of Claude 2 and of prompts in its style.

<function_calls>
<invoke name="f">
<parameter name="a">1</parameter>
</invoke>
</function_calls>
"""


DOTS = Format(
    name="dots",
    title="<invoke> in <dots_function_call>",
    families=("*dots.llm*", "dots*"),
    calls=invocations("<dots_function_call>", "</dots_function_call>", json_body=True, line=""),
    noise=("<dots_function_call>", "</dots_function_call>", "<|endofresponse|>", "<|endoftext|>"),
)
"""Calls of dots: invocations, or a JSON object, in a section.

<dots_function_call><invoke name="f"><parameter name="a">1</parameter></invoke></dots_function_call>
"""


GIGACHAT35 = Format(
    name="gigachat35",
    title="<｜GCML｜invoke> in <｜GCML｜tool_calls>",
    families=("*gigachat3.5*", "*gigachat-3.5*"),
    calls=invocations(
        "<｜GCML｜tool_calls>", "</｜GCML｜tool_calls>", prefix="｜GCML｜", bare=True, type_attribute="string"
    ),
    noise=("<|message_sep|>", "</s>"),
)
"""Calls of GigaChat 3.5: invocations whose arguments state whether they are strings.

<｜GCML｜tool_calls>
<｜GCML｜invoke name="f">
<｜GCML｜parameter name="a" string="false">1</｜GCML｜parameter>
</｜GCML｜invoke>
</｜GCML｜tool_calls>
"""


_OPENERS = ("<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_begin｜>")  # a model may leave out the type


def _invocations(section: str) -> TaggedCalls:
    return invocations(section, "<｜tool_call_end｜>", prefix="steptml:", own_section=True, line="")


STEP3 = Format(
    name="step3",
    title="<steptml:invoke> between special tokens",
    families=("step-3", "step3", "step-3-*", "step3-*"),
    calls=AlternativeCalls(tuple(_invocations(opener) for opener in _OPENERS)),
    ends_reasoning=("<｜tool_calls_begin｜>",),
    noise=("<｜tool_call_end｜>", "<｜tool_calls_end｜>", "<｜end▁of▁sentence｜>", "<|EOT|>"),
)
"""Calls of Step-3: invocations between special tokens.

<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="a">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>
"""
