"""Turns rendered by models' own chat templates are read back with the format that is detected for the model.

`LLAMA_CPP=/path/to/llama.cpp` renders them again with the templates of a checkout (also `make test-templates`).
"""

import os
from pathlib import Path

import pytest
from conversations import CASES
from rendered_turns import check_turn, load_vectors, vectors_of_template

import toolwire

TEMPLATES = load_vectors()
WRITING = {name: template for name, template in TEMPLATES.items() if template.turns}
NO_CALLS = {
    "HuggingFaceTB-SmolLM3-3B": "this edition declares no tools and prints only the content of messages",
    "LFM2-8B-A1B": "declares tools, and prints only the content: calls are part of the text",
    "LFM2.5-Instruct": "declares tools, and prints only the content: calls are part of the text",
    "google-gemma-2-2b-it": "the model has no tools",
    "ibm-granite-granite-3.3-2B-Instruct": "declares tools, and prints only the content: calls are part of the text",
    "llama-cpp-rwkv-world": "the model has no tools",
    "microsoft-Phi-3.5-mini-instruct": "the model has no tools",
}
FOLDER = Path(os.environ["LLAMA_CPP"], "models", "templates") if "LLAMA_CPP" in os.environ else None


@pytest.mark.finding("T16")
@pytest.mark.parametrize("name", WRITING)
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


@pytest.mark.parametrize("name", TEMPLATES)
def test_name_and_template_give_the_same_format(name):
    template = TEMPLATES[name]
    assert toolwire.text.detect(name) == template.format
    if template.by_template is not None:
        assert template.by_template == template.format


def test_altered_turn_is_not_read_back():
    turn = WRITING["Qwen-Qwen3-0.6B"].turns[0]
    for old, new in (('"Paris"', '"Rome"'), ("</tool_call>", "</tool_call>!"), ("<tool_call>", "<toolcall>")):
        altered = type(turn)(turn.case, turn.text.replace(old, new), turn.end, turn.reasoning_open)
        assert check_turn("hermes", altered)


@pytest.mark.skipif(FOLDER is None, reason="set LLAMA_CPP to a checkout of llama.cpp")
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_render_the_same_turns(name):
    source = (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    assert vectors_of_template(name, source) == TEMPLATES[name]
