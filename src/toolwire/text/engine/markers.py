"""The text with which only one format begins a call. One table for detection and for turns with mixed formats."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["FORMAT_MARKERS", "foreign_markers"]

FORMAT_MARKERS: tuple[tuple[str, str], ...] = (
    ("<tool_call>", "hermes"),
    ("<longcat_tool_call>", "longcat"),
    ("<function_call> {", "granite_20b_fc"),
    ("<|function_call|>", "gigachat3"),
    ("<|message_sep|>\n\nfunction call", "gigachat3"),
    ("<|action_start|>", "internlm2"),
    ("<|python_tag|>", "llama3_json"),
    ("<|content_invoke_tool_json|>", "inkling"),
    ("[TOOL_CALLS]", "mistral_v11"),
    ("<|tool_call|>", "granite3"),
    ("<tool_calls>", "jamba"),
    ("<tool_calls:opensource>", "hy3"),
    ("<|tool_call:begin|>", "solar_open"),
    ("<TOOLCALL>", "nemotron_v2"),
    ("functools[", "phi4mini"),
    ("<|START_ACTION|>", "cohere_action"),
    ("<|tools_prefix|>", "apertus"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<|tool_call_begin|>", "kimi_k2"),
    ("<function=", "function_xml"),
    ("<|channel|>", "harmony"),
    ("<seed:tool_call>", "seed_oss"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("]<]minimax[>[", "minimax_m3"),
    ("<｜DSML｜function_calls>", "deepseek_dsml_v32"),
    ("<｜DSML｜tool_calls>", "deepseek_dsml_v4"),
    ("<｜DSML｜ calls>", "deepseek_dsml_v41"),
    ("<｜GCML｜tool_calls>", "gigachat35"),
    ("<iquest_tool_call>", "iquest_q1"),
    ("<ifm|tool_calls>", "k2_horizon"),
    ("<|plamo:begin_tool_requests:plamo|>", "plamo3"),
    ("<steptml:invoke", "step3"),
    ("<dots_function_call>", "dots"),
    ("<atem:function_calls>", "muse_glimmer"),
    ("<function name=", "minicpm5"),
    ("<function_calls>", "anthropic_legacy_xml"),
    ("<|open|>tools", "kimi_k3"),
    ("<|python_start|>", "llama4_pythonic"),
    ("<|tool_call_start|>", "lfm2"),
    ("<|tool_call>call:", "gemma4"),
    ("<start_function_call>", "functiongemma"),
    ("<<function>>", "gorilla"),
)


@lru_cache(256)
def foreign_markers(own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the signatures of other formats that have no meaning in this one."""
    return tuple(mark for mark, _ in FORMAT_MARKERS if not any(_overlaps(mark, word) for word in own))


def _overlaps(mark: str, word: str) -> bool:
    return bool(word) and (mark.startswith(word) or word.startswith(mark))
