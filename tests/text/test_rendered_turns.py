"""Turns rendered by models' own chat templates are read back with the format that is detected for the model.

`LLAMA_CPP=/path/to/llama.cpp` renders them again with the templates of a checkout (also `make test-templates`).
"""

import os
from pathlib import Path

import pytest

import toolwire
from conversations import CASES
from rendered_turns import LLAMA_CPP, check_turn, load_vectors, render_turn, vectors_of_template
from tables import every_case

TEMPLATES = load_vectors()
WRITING = {name: template for name, template in TEMPLATES.items() if template.turns}
NO_CALLS = {
    "HuggingFaceTB-SmolLM3-3B": "this edition declares no tools and prints only the content of messages",
    "LFM2-8B-A1B": "declares tools, and prints only the content: calls are part of the text",
    "LFM2.5-Instruct": "declares tools, and prints only the content: calls are part of the text",
    "google-gemma-2-2b-it": "the model has no tools",
    "google-translategemma-4b-it": "the model has no tools",
    "ibm-granite-granite-3.3-2B-Instruct": "declares tools, and prints only the content: calls are part of the text",
    "llama-cpp-rwkv-world": "the model has no tools",
    "microsoft-Phi-3.5-mini-instruct": "the model has no tools",
}
CALLS_ONLY = ("one call", "no arguments", "parallel calls", "values of all types", "null")
# Reasons for differences between rendered calls and those of the template, besides white space around the calls.
_PYTHON = "the template prints Python literals; toolwire writes JSON, which the model reads as well"
_HEADER = "the template's text begins or ends with a part of the prompt: the header or the end of a message"
_LINES = "the template breaks lines in other places"
OTHER_RENDERING = {
    "ByteDance-Seed-OSS": _PYTHON,
    "Cohere2MoE": "the template numbers the calls of a conversation; we write their ids",
    "CohereForAI-c4ai-command-r-plus-tool_use": _LINES,
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "the template numbers the calls of a conversation; we write their ids",
    "GigaChat3-10B-A1.8B": "3.0 writes a message header where 3.1 has a token; we write the token, and read both",
    "GigaChat3.1-10B-A1.8B": _HEADER,
    "IFM-K2-Horizon": "the turn begins with the closer of the reasoning that the prompt opened",
    "Kimi-K3": _HEADER,
    "LFM2.5-8B-A1B": "the template does not escape quotes and line breaks; we write Python's escapes",
    "Mistral-7B-Instruct-v0.3": "the template writes the space that SentencePiece puts after a special token",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": _PYTHON,
    "Qwen3-Coder": _PYTHON,
    "Qwen3.5-4B": _PYTHON,
    "Reka-Edge": "the template escapes characters that are not ASCII, and writes no line break between calls",
    "StepFun3.5-Flash": _PYTHON,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "the template does not close the section of a single call",
    "deepseek-ai-DeepSeek-V4": _LINES,
    "deepseek-ai-DeepSeek-V4-Flash-0731": _LINES,
    "google-gemma-4-31B-it": "the template sorts the arguments",
    "google-gemma-4-31B-it-interleaved": "the template sorts the arguments",
    "inclusionai-ling-3.0-flash": _LINES,
    "llm-jp-llm-jp-4.1-8b-thinking": "the template writes the recipient before the channel, as in a history; we write it after it",
    "meetkai-functionary-medium-v3.2": _HEADER,
    "muse-glimmer": _HEADER,
    "openai-gpt-oss-120b": "the template writes the recipient before the channel, as in a history; we write it after it",
    "openbmb-MiniCPM5-1B": _PYTHON,
    "poolside-Laguna-S-2.1": _LINES,
    "unsloth-Apriel-1.5": _HEADER,
    "upstage-Solar-Open-100B": "the token that ends the turn is part of our calls",
}
FOLDER = Path(os.environ["LLAMA_CPP"], "models", "templates") if "LLAMA_CPP" in os.environ else None


@pytest.mark.finding("T16")
@every_case("name", WRITING)
def test_rendered_turns_are_read_back(name):
    template = WRITING[name]
    assert template.format is not None
    assert [difference for turn in template.turns for difference in check_turn(template.format, turn)] == []


@pytest.mark.finding("T16")
def test_all_templates_but_those_without_calls_are_covered():
    assert set(TEMPLATES) - set(WRITING) == set(NO_CALLS)
    assert len(WRITING) >= 60


def test_every_template_renders_calls_with_values_and_answers():
    always = {"one call", "no arguments", "values of all types", "call after a result", "answer after a result"}
    for name, template in WRITING.items():
        cases = [turn.case for turn in template.turns]
        assert always <= set(cases), name
        assert {*cases, *template.omitted} == {case.name for case in CASES}, name


@every_case("name", TEMPLATES)
def test_name_and_template_give_the_same_format(name):
    template = TEMPLATES[name]
    assert toolwire.text.detect(name) == template.format
    if template.by_template is not None:
        assert template.by_template == template.format


@pytest.mark.finding("T16")
@every_case("name", WRITING)
def test_calls_are_rendered_as_the_template_renders_them(name):
    template = WRITING[name]
    different = []
    for turn in template.turns:
        if turn.case in CALLS_ONLY:
            written = render_turn(template.format, turn)
            rendered = turn.text.removeprefix("<think>").lstrip().removeprefix("</think>")
            different += [turn.case] if written.losses or written.text.strip() != rendered.strip() else []
    assert bool(different) == (name in OTHER_RENDERING), different


def test_altered_turn_is_not_read_back():
    turn = WRITING["Qwen-Qwen3-0.6B"].turns[0]
    for old, new in (('"Paris"', '"Rome"'), ("</tool_call>", "</tool_call>!"), ("<tool_call>", "<toolcall>")):
        altered = type(turn)(turn.case, turn.text.replace(old, new), turn.end, turn.reasoning_open)
        assert check_turn("hermes", altered)


@pytest.mark.skipif(FOLDER is None, reason="set LLAMA_CPP to a checkout of llama.cpp")
@pytest.mark.parametrize("name", [name for name, one in TEMPLATES.items() if one.source == LLAMA_CPP])
def test_templates_render_the_same_turns(name):
    path = FOLDER / f"{name}.jinja"
    if not path.exists():
        pytest.skip("another version of llama.cpp")
    assert vectors_of_template(name, path.read_text(encoding="utf-8"), LLAMA_CPP) == TEMPLATES[name]
