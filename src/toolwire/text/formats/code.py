"""Formats that write calls as code: Python calls, in a list or inside a sentence, and Gemma's literals.

[f(a='x'), g()]
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.literal import RAW_PYTHON, LiteralSyntax
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.code_calls import InlineCalls, LiteralCalls, PythonicCalls

PYTHONIC = Format(
    name="pythonic",
    title="list of Python calls",
    families=("*toolace*", "*toolace*llama*", "watt-tool*"),  # watt-tool: the prompt of BFCL (its model card)
    calls=PythonicCalls(bare=True, open=("<|python_start|>",), close=("<|python_end|>",), write_open=False),
    noise=("<|eot_id|>", "<|eom_id|>", "<|python_end|>", "<|end_of_text|>", "<end_of_turn>"),
)
"""Calls of Llama 3.2 and ToolACE: a list of Python calls.

[f(a='x', b=[1]), g()]
"""


MINICPM4 = Format(
    name="minicpm4",
    title="Python calls in a code block between <|tool_call_start|> and <|tool_call_end|>",
    families=("*minicpm3*", "*minicpm4*"),
    calls=PythonicCalls(
        open=("<|tool_call_start|>\n```python\n", "<|tool_call_start|>"),
        close=("\n```\n<|tool_call_end|>", "```\n<|tool_call_end|>", "```<|tool_call_end|>", "<|tool_call_end|>"),
        brackets=False,
        separator="\n",
        json=True,
    ),
    reasoning=(("<think>", "</think>"), ("<|thought_start|>", "<|thought_end|>")),
    noise=("<|im_end|>", "<|tool_call_end|>", "</s>"),
)
"""Calls of MiniCPM 3 and 4: Python calls, one per line, in a code block between tokens (hiyouga/LlamaFactory#8314).

<|tool_call_start|>
```python
f(a='x')
```
<|tool_call_end|>
"""


FUNCTIONGEMMA = Format(
    name="functiongemma",
    title="call:name{…} between <start_function_call> and <end_function_call>",
    families=("*functiongemma*",),
    calls=LiteralCalls(
        "<start_function_call>",
        "<end_function_call>",
        language=LiteralSyntax(("<escape>", '"'), escapes=False, bare_words=True),
    ),
    noise=("<end_of_turn>", "<eos>"),
    halts=("<start_function_response>",),
    results=ResultTemplate(
        "<start_function_response>response:{name}{value:<escape>{content}<escape>}<end_function_response>", role="tool"
    ),
)
"""Calls of FunctionGemma: as `gemma4`, with other tokens.

<start_function_call>call:f{a:<escape>x<escape>}<end_function_call>
"""

GEMMA4 = Format(
    name="gemma4",
    title="call:name{…} between <|tool_call> and <tool_call|>",
    families=("*gemma-4-*", "gemma-4", "*gemma4*"),
    calls=LiteralCalls("<|tool_call>", "<tool_call|>"),
    reasoning=(
        ("<|channel>thought\n", "<channel|>"),
        ("<|channel>thought", "<channel|>"),
        ("<|channel>", "<channel|>"),
        ("thought\n", "<channel|>"),  # a model may leave out the first token
    ),
    noise=("<turn|>", "<tool_call|>", "<eos>"),
    halts=("<|tool_response>",),
    results=ResultTemplate('<|tool_response>response:{name}{value:<|"|>{content}<|"|>}<tool_response|>', role="tool"),
)
"""Calls of Gemma 4: a literal with its own quotes.

<|tool_call>call:f{a:<|"|>x<|"|>,n:1}<tool_call|>
"""


GORILLA = Format(
    name="gorilla",
    title="Python calls after <<function>>",
    families=("*gorilla*",),
    calls=PythonicCalls(open=("<<function>>", "<<<api_call>>>:"), brackets=False, separator="<<function>>"),
    noise=("<|EOT|>", "<｜end▁of▁sentence｜>"),
)
"""Calls of Gorilla OpenFunctions: Python calls after a mark.

<<function>>f(a='x')
"""


LFM2 = Format(
    name="lfm2",
    title="list of Python calls between <|tool_call_start|> and <|tool_call_end|>",
    families=("*lfm2*",),
    calls=PythonicCalls(
        open=("<|tool_call_start|>",), close=("<|tool_call_end|>",), bare_start=True, json=True, values=RAW_PYTHON
    ),
    noise=("<|im_end|>", "<|tool_call_end|>", "<|endoftext|>"),
    halts=("<|tool_response_start|>",),
    declare=ToolPrompt(
        "List of tools: <|tool_list_start|>[", "]<|tool_list_end|>", entry="function", join=", ", explain=False
    ),
    results=ResultTemplate("<|tool_response_start|>{content}<|tool_response_end|>", role="tool"),
)
"""Calls of LFM 2 and 2.5: a list of Python calls between tokens; JSON is accepted too.

The template of LFM 2.5 writes strings in single quotes and escapes nothing, so quotes inside strings are read as well.
Servers that drop special tokens leave only the list.

<|tool_call_start|>[f(a="x")]<|tool_call_end|>
"""


LLAMA4_PYTHONIC = Format(
    name="llama4_pythonic",
    title="list of Python calls between <|python_start|> and <|python_end|>",
    families=("*llama-4*", "*llama4*"),
    calls=PythonicCalls(bare=True, open=("<|python_start|>",), close=("<|python_end|>",)),
    noise=("<|eot|>", "<|eom|>", "<|python_end|>", "<|end_of_text|>"),
)
"""Calls of Llama 4: a list of Python calls, optionally between tokens.

<|python_start|>[f(a='x')]<|python_end|>
"""


NEXUSRAVEN = Format(
    name="nexusraven",
    title="Python calls after Call:",
    families=("*nexusraven*",),
    calls=PythonicCalls(open=("Call:",), close=("<bot_end>",), brackets=False, separator="; "),
    noise=("<bot_end>", "</s>"),
    stops=("<bot_end>",),
)
"""Calls of NexusRaven: Python calls after a keyword, in sequence.

Call: f(a='x'); g()<bot_end>
"""


OLMO3 = Format(
    name="olmo3",
    title="Python calls, one per line, in <function_calls>",
    families=("*olmo-3*", "*olmo3*"),
    calls=PythonicCalls(open=("<function_calls>",), close=("</function_calls>",), brackets=False, separator="\n"),
    noise=("<|im_end|>", "<|endoftext|>"),
)
"""Calls of OLMo 3: Python calls, one per line, in tags.

<function_calls>f(a='x')
g()</function_calls>
"""


TOOLFORMER = Format(
    name="toolformer",
    title="Python call in brackets inside a sentence",
    families=("*toolformer*",),
    calls=InlineCalls(),
    stops=("→",),
    needs_tools=True,
    declare=ToolPrompt("You can use these tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("→ {content}", grouped=False),
)
"""Calls of Toolformer: a Python call in brackets inside a sentence. The arrow after it asks for the result.

The answer is [Calculator(400 / 1400)] → 0.29
"""
