"""Formats that write calls as messages or labelled lines: a header or a label determines the kind of the content.

<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.channel_calls import ChannelCalls
from ..styles.message_calls import MessageCalls, ReactCalls, RecipientCalls
from ..styles.tagged_calls import invocations

FUNCTIONARY_V32 = Format(
    name="functionary_v32",
    title=">>>name and JSON on the next line",
    families=("*functionary*v3.2*",),
    calls=RecipientCalls(),
    noise=("<|eot_id|>", "<|end_of_text|>"),
)
"""Calls of Functionary 3.2: messages to recipients, each after three angle brackets; `all` is the user.

`>>>all` Let me look. `>>>f` {"a": 1}, with a line break after each name.
"""


REACT = Format(
    name="react",
    title="Thought / Action / Action Input",
    families=(),
    calls=ReactCalls(),
    halts=("\nObservation:",),
    stops=("\nObservation:",),
    one_call=True,
    declare=ToolPrompt("You can use these tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("Observation: {content}", grouped=False),
)
"""Calls in the style of ReAct: thoughts, an action, its input.

Thought: I need the weather.
Action: f
Action Input: {"a": 1}
"""


HARMONY = Format(
    name="harmony",
    title="messages on channels, addressed to functions",
    families=("*gpt-oss*", "*llm-jp-4*"),
    calls=ChannelCalls(
        start="<|start|>",
        message="<|message|>",
        ends=("<|call|>", "<|end|>", "<|return|>"),
        channel="<|channel|>",
        constrain="<|constrain|>",
        tool_prefix="functions.",
        reasoning_channels=("analysis",),
        user_recipients=("user", "assistant"),
    ),
    reasoning=(),
    noise=("<|call|>", "<|end|>", "<|return|>", "<|message|>", "<|constrain|>"),
    stops=("<|call|>",),
    declare=ToolPrompt(
        "# Tools\n\n## functions\n\nnamespace functions {\n\n",
        "\n\n} // namespace functions",
        entry="typescript",
        join="\n\n",
        explain=False,
    ),
    results=ResultTemplate(
        "<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{content}<|end|>", role="tool"
    ),
)
"""Calls of gpt-oss: messages on channels, addressed to a function.

<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
"""


INKLING = Format(
    name="inkling",
    title="JSON object in a separate message",
    families=("inkling*",),
    calls=MessageCalls(),
    reasoning=(("<|content_thinking|>", "<|end_message|>"),),
    ends_reasoning=(
        "<|content_text|>",
        "<|message_model|>",
        "<|content_invoke_tool_json|>",
        "<|content_invoke_tool_text|>",
    ),
    noise=(
        "<|end_message|>",
        "<|content_model_end_sampling|>",
        "<|content_tool_error|>",
        "<|message_user|>",
        "<|content_audio_input|>",
        "<|audio_end|>",
    ),
)
"""Calls of Inkling: messages of typed content; the name in the payload is used.

<|message_model|>f<|content_invoke_tool_json|>{"name": "f", "args": {}}<|end_message|>
"""


MUSE_GLIMMER = Format(
    name="muse_glimmer",
    title="<atem:invoke> in messages addressed to tools",
    families=("*muse-glimmer*",),
    calls=ChannelCalls(
        start="<|start|>",
        message="<|message|>",
        ends=("<|eom|>", "<|eot|>"),
        reasoning_channels=("self",),
        user_recipients=("user",),
        body=invocations("<atem:function_calls>", "</atem:function_calls>", prefix="atem:"),
        closed=True,
    ),
    reasoning=(),
    noise=("<|eom|>", "<|eot|>"),
    results=ResultTemplate('<tool_output name="{name}">\n{content}\n</tool_output>', role="tool"),
)
"""Calls of Muse Glimmer: messages with a recipient; those to a tool contain invocations.

<|start|>assistant to=f<|message|><atem:function_calls>
<atem:invoke name="f">
<atem:parameter name="a">1</atem:parameter>
</atem:invoke>
</atem:function_calls><|eom|>
"""
