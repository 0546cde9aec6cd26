"""Detect the format by the text of a model's chat template: the tags with which it writes calls.

A template contains its tags as literals, so no template engine is needed. It may also mention tags of other formats (in an
example, or as a fallback), so the rules are tried in order, the more specific first.
"""

from __future__ import annotations

__all__ = ["TEMPLATE_RULES", "detect_by_template"]

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
