"""Detect the format of a model: by its name, by the opener of a call in a text, or by its chat template.

A template contains its tags as literals, so no template engine is needed. It is more reliable than a name, which a
fine-tuned model or a server may change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .markers import FORMAT_MARKERS

if TYPE_CHECKING:
    from .format import Format


# An opener that several formats share is distinguished by the text after it.
_FORMATS_AFTER_MARKER: dict[str, tuple[tuple[str, str], ...]] = {
    "<tool_call>": (
        (r"\s*\{", "hermes"),
        (r"\s*<function=", "qwen3_xml"),
        (r"\s*[^\s<{]+[ \t]*\n\s*<arg_key>", "glm45"),
        (r"\s*[^\s<{]+\s*(?:<arg_key>|</tool_call>)", "glm47"),
    ),
    "<tool_calls>": ((r"\s*<tool_call>", "hunyuan"), (r"\s*\{", "minimax_m1")),
    "[TOOL_CALLS]": ((r"\s*\[", "mistral_v3_json"), (r"[^\[]*\[CALL_ID\]", "mistral_v11_callid")),
    "<｜tool▁calls▁begin｜>": ((r"\s*<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "deepseek_v3"),),
    "<|tool_call_start|>": ((r"\s*```python", "minicpm4"),),
    "<|tool_call|>": ((r"(?s).*?<\|/tool_call\|>", "phi4mini"),),
    "<function=": ((r"[^<>]*>\s*\{", "functionary_v31"),),
    "<function_calls>": ((r"\s*<invoke", "anthropic_legacy_xml"), (r"\s*[\w.-]+\(", "olmo3")),
}
# Without any opener: the shape of the whole text.
_BARE = (
    (r"\s*\[\s*\{\s*\"", "json_array"),
    (r"[^\n]{0,300}?\[\w{1,64}\([^\n→]{0,300}\) ?\]? ?→", "toolformer"),
    (r"\s*\[\s*[A-Za-z_][\w.-]*\(", "pythonic"),
    (r"\s*\{\s*\"name\"", "llama3_json"),
    (r"(?:(?!Action:).*\n)*Action:.*\n\s*Action Input:", "react"),
    (r">>>\w+\n", "functionary_v32"),
    (r"Call:\s*\w+\(", "nexusraven"),
)


def detect_by_model(model: str, formats: Iterable[Format]) -> str | None:
    """Return the name of the format with the longest pattern that matches the name of the model."""
    return match_model(model, ((form.name, form.families) for form in formats))


def match_model(model: str, families: Iterable[tuple[str, Sequence[str]]]) -> str | None:
    """Return the name whose patterns include the longest one that matches the name of the model.

    A pattern also matches after a hyphen: `qwen3*` is in "unsloth-Qwen3-8B". In a path, the last component that matches
    decides: a revision may follow the name.
    """
    patterns = [(len(pattern.strip("*")), name, pattern) for name, globs in families for pattern in globs]
    for component in reversed(model.lower().replace("_", "-").replace(" ", "-").split("/")):
        fitting = [(length, name) for length, name, pattern in patterns if _matches(component, pattern)]
        if fitting:
            return max(fitting)[1]
    return None


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*-{pattern}")


def detect_by_text(text: str) -> str | None:
    """Return the format of the first call in the text, or None.

    The text after a shared marker may select another one.
    """
    first = min(
        ((text.find(marker), -len(marker), marker, name) for marker, name in FORMAT_MARKERS if marker in text),
        default=None,
    )
    if first is None:
        return next((name for pattern, name in _BARE if re.match(pattern, text, re.MULTILINE)), None)
    at, _, marker, name = first
    following = at + len(marker)
    for pattern, better in _FORMATS_AFTER_MARKER.get(marker, ()):
        if re.compile(pattern).match(text, following):
            return better
    return name


# Detect the format by the text of a model's chat template: the tags with which it writes calls.
#
# A template contains its tags as literals, so no template engine is needed. It may also mention tags of other formats
# (in an example, or as a fallback), so the rules are tried in order, the more specific first.


# The format, and the texts that its templates contain, all of them.
TEMPLATE_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("minimax_m3", ("]<]minimax[>[",)),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("seed_oss", ("<seed:tool_call>",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("muse_glimmer", ("<atem:",)),
    ("step3", ("<steptml:",)),
    ("dots", ("<dots_function_call>",)),
    ("hy3", (":opensource", "tool_calls")),
    ("solar_open", ("<|tool_call:begin|>",)),
    ("k2_horizon", ("<ifm|tool_call",)),
    ("gigachat35", ("｜GCML｜",)),
    ("iquest_q1", ("<iquest_tool_call>",)),
    ("plamo3", ("<|plamo:begin_tool_request",)),
    ("deepseek_dsml_v41", ("｜DSML｜", " calls>")),
    ("deepseek_dsml_v4", ("｜DSML｜", "tool_calls>")),
    ("deepseek_dsml_v32", ("｜DSML｜", "function_calls>")),
    ("deepseek_v3", ("<｜tool▁call▁begin｜>", "```json")),
    ("deepseek_v31", ("<｜tool▁call▁begin｜>",)),
    ("kimi_k3", ("<|open|>", "<|sep|>")),
    ("kimi_k2", ("<|tool_call_begin|>",)),
    ("inkling", ("<|content_invoke_tool_json|>",)),
    ("harmony", ("<|channel|>", "functions.")),
    ("cohere_action", ("<|START_ACTION|>",)),
    ("cohere_rplus", ("Action:", '"tool_name"')),
    ("apertus", ("<|tools_prefix|>",)),
    ("gigachat3", ("<|function_call|>",)),
    ("gigachat3", ("function call", "<|role_sep|>")),
    ("internlm2", ("<|action_start|>",)),
    ("minicpm4", ("<|tool_call_start|>", "```python")),
    ("lfm2", ("<|tool_call_start|>",)),
    ("lfm2", ("<|tool_list_start|>",)),
    ("gemma4", ("<|tool_call>call:",)),
    ("functiongemma", ("<start_function_call>",)),
    ("mistral_v11_callid", ("[TOOL_CALLS]", "[CALL_ID]")),
    ("mistral_v11", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral_v3_json", ("[TOOL_CALLS]",)),
    ("nemotron_v2", ("<TOOLCALL>",)),
    ("firefunction_v2", (" functools[", "<|start_header_id|>")),
    ("phi4mini", ("functools[",)),
    ("phi4mini", ("<|tool_call|>", "<|/tool_call|>")),
    ("granite3", ("<|tool_call|>",)),
    ("granite3", ("<|start_of_role|>available_tools",)),
    ("granite_20b_fc", ("<function_call>",)),
    ("functionary_v32", (">>>all",)),
    ("minicpm5", ("<function name=", "<param name=")),
    ("qwen3_xml", ("<tool_call>", "<function=", "<parameter=")),
    ("function_xml", ("<function=", "<parameter=")),
    ("functionary_v31", ("<function=",)),
    ("hunyuan", ("<tool_sep>", "<arg_key>")),
    ("poolside_v1", ("<arg_key>", "</assistant>")),
    ("glm45", ("<arg_key>", "\n<arg_value>")),
    ("glm47", ("<arg_key>",)),
    ("olmo3", ("<function_calls>", "<functions>")),
    ("anthropic_legacy_xml", ("<function_calls>", "<invoke")),
    ("apriel", ("<tool_calls>[", "<|begin_assistant|>")),
    ("apriel", ("<tool_calls>[", "[BEGIN FINAL RESPONSE]")),
    ("hunyuan_a13b", ("<tool_calls>[", "<|startoftext|>")),
    ("minimax_m1", ("<tool_calls>", "<end_of_sentence>")),
    ("jamba", ("<tool_calls>",)),
    ("hermes", ("<tool_call>",)),
    ("llama4_pythonic", ("<|python_start|>",)),
    ("llama4_pythonic", ("<|header_start|>", "func_name")),
    ("llama3_json", ("<|header_start|>", '"parameters": ')),
    ("llama3_json", ("<|start_header_id|>", '"parameters": ')),
    ("xlam", ('[{"name": "tool_call_name", "arguments"',)),
    ("pythonic", ("[func_name1(",)),
)


def detect_by_template(template: str) -> str | None:
    """Return the first format all of whose markers are in the template."""
    return next((name for name, markers in TEMPLATE_RULES if all(marker in template for marker in markers)), None)
