"""Chat templates: the turns of a conversation as one prompt, and the choice of a template."""

import pytest

from tables import every_case
from toolwire import ToolCall
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Reasoning
from toolwire.text import chat_templates, get, names
from toolwire.text.engine.chat_template import PromptTurn

TURNS = [
    PromptTurn("system", "Be brief."),
    PromptTurn("user", "Hi"),
    PromptTurn("assistant", "Hello."),
    PromptTurn("user", "Bye"),
]

# The prompts of the models' own templates for the same conversation, without BOS.
PROMPTS = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello."
    "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "mistral": "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]Hello.</s>[INST]Bye[/INST]",
    "gemma": "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
    "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "gemma4": "<|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHello.<turn|>\n<|turn>user\nBye"
    "<turn|>\n<|turn>model\n",
    "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\nBye<|end|>\n"
    "<|assistant|>\n",
    "kimi": "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|>"
    "<|im_assistant|>assistant<|im_middle|>Hello.<|im_end|><|im_user|>user<|im_middle|>Bye<|im_end|>"
    "<|im_assistant|>assistant<|im_middle|>",
    "granite": "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hi"
    "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hello.<|end_of_text|>\n<|start_of_role|>user"
    "<|end_of_role|>Bye<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    "seed_oss": "<seed:bos>system\nBe brief.<seed:eos><seed:bos>user\nHi<seed:eos><seed:bos>assistant\nHello.<seed:eos>"
    "<seed:bos>user\nBye<seed:eos><seed:bos>assistant\n",
    "deepseek": "Be brief.<｜User｜>Hi<｜Assistant｜>Hello.<｜end▁of▁sentence｜><｜User｜>Bye<｜Assistant｜>",
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_is_that_of_the_model(name):
    assert chat_templates.get(name).render(TURNS) == PROMPTS[name]


@every_case("name", chat_templates.names())
def test_every_text_is_in_the_prompt_and_the_prompt_ends_where_the_model_begins(name):
    template = chat_templates.get(name)
    prompt = template.render(TURNS)
    positions = [prompt.index(text) for text in ("Be brief.", "Hi", "Hello.", "Bye")]
    assert positions == sorted(positions)
    assert prompt.endswith(template.assistant.before)
    assert template.render(TURNS, opening="{").endswith(template.assistant.before + "{")


@every_case("name", chat_templates.names())
def test_model_continues_its_own_last_turn(name):
    template = chat_templates.get(name)
    assert template.render([*TURNS, PromptTurn("assistant", "Well")]).endswith(template.assistant.before + "Well")


@every_case("name", chat_templates.names())
def test_template_ends_a_turn_with_one_of_its_stop_sequences(name):
    template = chat_templates.get(name)
    assert template.ends
    rendered = template.render([PromptTurn("user", "Hi"), PromptTurn("assistant", "Hello."), PromptTurn("user", "Bye")])
    after_answer = rendered.partition("Hello.")[2]
    assert after_answer.startswith(template.ends) or template.text.after  # Harmony ends a message, then the turn


@every_case("name", chat_templates.names())
def test_formats_of_a_template_read_its_reasoning(name):
    template = chat_templates.get(name)
    for form in map(get, template.formats):
        [part] = form.parse(f"{template.opened}thought", reasoning=False, finished=False).parts
        assert isinstance(part, Reasoning) and part.text.strip() == "thought"


@every_case(
    ("model", "form", "expected"),
    [
        ("qwen3:8b", "hermes", "chatml"),
        ("Qwen/Qwen3-Coder-30B", "qwen3_xml", "chatml"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes", "chatml"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json", "llama3"),
        ("ibm/granite-4.0-h-tiny", "hermes", "granite"),
        ("gemma-3-27b-it", "generic_json", "gemma"),
        ("phi-4-mini-instruct", "phi4mini", "phi4_mini"),
        ("phi-4", "generic_json", "phi4"),
        ("GLM-4.7-Flash", "glm47", "glm47"),
        ("ibm-granite-granite-4.0-h-tiny", "hermes", "granite"),
        ("models/Qwen_Qwen3-8B/snapshots/main", "hermes", "chatml"),
        ("my-model", "harmony", "harmony"),
        ("my-model", "deepseek_v31", "deepseek_v31"),
    ],
)
def test_template_is_found_by_model_then_by_format(model, form, expected):
    assert chat_templates.find(model, get(form)).name == expected


@pytest.mark.parametrize(
    ("model", "form"), [("my-model", "generic_json"), ("RekaAI/reka-edge", "hermes"), ("Ling-3.0", "glm47")]
)
def test_template_of_an_unknown_family_has_to_be_named(model, form):
    """Several families write these formats, with different turns."""
    with pytest.raises(ConfigError, match=f"no chat template is known for '{model}'") as error:
        chat_templates.find(model, get(form))
    assert "chatml" in error.value.hint


def test_unknown_template_suggests_the_closest_name():
    with pytest.raises(ConfigError, match="unknown chat template 'chat-ml'") as error:
        chat_templates.get("chat-ml")
    assert error.value.hint == "did you mean 'chatml'?"


def test_no_format_has_two_templates():
    formats = [form for name in chat_templates.names() for form in chat_templates.get(name).formats]
    assert len(formats) == len(set(formats)) and set(formats) <= set(names())


def test_calls_and_results_continue_the_turn_of_the_model_where_its_template_does():
    gemma = chat_templates.get("gemma4")
    turns = [
        PromptTurn("user", "Hi"),
        PromptTurn("assistant", get("gemma4").calls.write([ToolCall("", "f", {})]), has_calls=True),
        PromptTurn("tool", "<|tool_response>x<tool_response|>"),
    ]
    assert gemma.render(turns) == (
        "<|turn>user\nHi<turn|>\n<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>x<tool_response|>"
    )


def test_system_prompt_without_a_role_or_a_user_is_a_user_turn():
    assert chat_templates.get("gemma").render([PromptTurn("system", "Be brief.")]) == (
        "<start_of_turn>user\nBe brief.<end_of_turn>\n<start_of_turn>model\n"
    )
