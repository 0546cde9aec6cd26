"""The chat templates of model families, for a server that takes a raw prompt.

    chat_templates.get("chatml")                                 # by name
    chat_templates.find("qwen3-8b", get_format("hermes"))        # by the model's name, else by a format of one family

Each is written from the markers that the model's own template documents. The tools are not part of it: they are in the
system prompt, as the text format declares them.
"""

from __future__ import annotations

from difflib import get_close_matches

from ..ir.errors import ConfigError
from .engine.chat_template import ChatTemplate, TurnMarkers
from .engine.detection import match_model
from .engine.format import Format

# Each version of Mistral's vocabulary adds names, such as [MODEL_SETTINGS], so all names in upper case are tokens.
_MISTRAL_TOKENS = r"\[/?[A-Z][A-Z_]{2,40}\]|\[control_\d{1,4}\]|<SPECIAL_\d{1,4}>|</?s>|<unk>|<pad>"
_ALL = (
    ChatTemplate(
        "chatml",
        (
            "qwen*",
            "qwq*",
            "*hermes*",
            "hermes-*llama-3*",
            "smollm*",
            "internlm*",
            "olmo-3*",
            "yi-*",
            "lfm2*",
            "mimo*",
            "*step-3.5*",
        ),
        ("internlm2", "olmo3", "lfm2"),
        system=TurnMarkers("<|im_start|>system\n", "<|im_end|>\n"),
        user=TurnMarkers("<|im_start|>user\n", "<|im_end|>\n"),
        assistant=TurnMarkers("<|im_start|>assistant\n", "<|im_end|>\n"),
        tool=TurnMarkers("<|im_start|>tool\n", "<|im_end|>\n"),
        ends=("<|im_end|>", "<|im_start|>"),
    ),
    ChatTemplate(
        "llama3",
        ("*llama-3*", "*llama3*"),
        ("llama3_json", "functionary_v31", "firefunction_v2"),
        system=TurnMarkers("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
        user=TurnMarkers("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        assistant=TurnMarkers("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        tool=TurnMarkers("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"),
        ends=("<|eot_id|>", "<|eom_id|>", "<|start_header_id|>"),
    ),
    ChatTemplate(
        "llama4",
        ("*llama-4*", "*llama4*"),
        ("llama4_pythonic",),
        system=TurnMarkers("<|header_start|>system<|header_end|>\n\n", "<|eot|>"),
        user=TurnMarkers("<|header_start|>user<|header_end|>\n\n", "<|eot|>"),
        assistant=TurnMarkers("<|header_start|>assistant<|header_end|>\n\n", "<|eot|>"),
        tool=TurnMarkers("<|header_start|>ipython<|header_end|>\n\n", "<|eot|>"),
        ends=("<|eot|>", "<|eom|>", "<|header_start|>"),
    ),
    ChatTemplate(
        "mistral",
        ("mistral-small*", "mistral-medium*", "mistral-large*", "magistral*", "devstral*", "ministral-3*"),
        ("mistral_v11", "mistral_v11_callid"),
        system=TurnMarkers("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        user=TurnMarkers("[INST]", "[/INST]"),
        assistant=TurnMarkers("", "</s>"),
        declaration=TurnMarkers("", ""),
        tool=TurnMarkers("", ""),
        opened="[THINK]",
        closed="",
        past=TurnMarkers("[THINK]", "[/THINK]"),
        before_calls="",
        ends=("</s>", "[INST]"),
        token_pattern=_MISTRAL_TOKENS,
    ),
    ChatTemplate(
        "mistral_v3",
        ("mistral-7b*", "mistral-nemo*", "mixtral*", "ministral-8b*"),
        ("mistral_v3_json",),
        user=TurnMarkers("[INST]", "[/INST]"),
        assistant=TurnMarkers("", "</s>"),
        declaration=TurnMarkers("", ""),
        tool=TurnMarkers("", ""),
        before_calls="",
        ends=("</s>", "[INST]"),
        token_pattern=_MISTRAL_TOKENS,
    ),
    ChatTemplate(
        "gemma",
        ("gemma-2*", "gemma2*", "gemma-3*", "gemma3*", "gemma-7b*", "gemma-1*"),
        (),
        user=TurnMarkers("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant=TurnMarkers("<start_of_turn>model\n", "<end_of_turn>\n"),
        ends=("<end_of_turn>", "<start_of_turn>"),
        tokens=("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<start_of_image>"),
    ),
    ChatTemplate(
        "gemma4",
        ("gemma-4*", "gemma4*"),
        ("gemma4",),
        system=TurnMarkers("<|turn>system\n", "<turn|>\n"),
        user=TurnMarkers("<|turn>user\n", "<turn|>\n"),
        assistant=TurnMarkers("<|turn>model\n", "<turn|>\n"),
        tool=TurnMarkers("", ""),
        opened="<|channel>thought\n",
        closed="<|channel>thought\n<channel|>",
        past=TurnMarkers("<|channel>thought\n", "\n<channel|>"),
        before_calls="",
        reasoning="closed",
        ends=("<turn|>", "<|turn>", "<|tool_response>"),
        tokens=("<bos>", "<eos>"),
        continues_after_results=True,
        open_calls=True,
    ),
    ChatTemplate(
        "deepseek",
        ("*deepseek-r1*", "deepseek-v3", "deepseek-v3-0324*", "*deepseek-r1-distill*"),
        ("deepseek_v3",),
        system=TurnMarkers("", ""),
        user=TurnMarkers("<｜User｜>", ""),
        assistant=TurnMarkers("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        tool=TurnMarkers("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
        before_calls="",
        ends=("<｜end▁of▁sentence｜>", "<｜User｜>"),
        continues_after_results=True,
    ),
    ChatTemplate(
        "deepseek_v31",
        ("*deepseek-v3.*", "*deepseek-v4*"),
        ("deepseek_v31", "deepseek_dsml_v32", "deepseek_dsml_v4", "deepseek_dsml_v41"),
        system=TurnMarkers("", ""),
        user=TurnMarkers("<｜User｜>", ""),
        assistant=TurnMarkers("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        tool=TurnMarkers("", ""),
        before_calls="",
        opened="<think>",
        closed="</think>",
        past=TurnMarkers("<think>", "</think>"),
        past_closed="</think>",
        reasoning="closed",
        ends=("<｜end▁of▁sentence｜>", "<｜User｜>"),
        continues_after_results=True,
    ),
    ChatTemplate(
        "glm",
        ("glm-4.5*", "glm-4.6*", "glm4.5*", "glm4.6*"),
        ("glm45",),
        system=TurnMarkers("<|system|>\n", ""),
        user=TurnMarkers("<|user|>\n", ""),
        assistant=TurnMarkers("<|assistant|>", ""),
        tool=TurnMarkers("", ""),
        text=TurnMarkers("\n", ""),
        start="[gMASK]<sop>",
        opened="\n<think>",
        closed="\n<think></think>",
        past=TurnMarkers("\n<think>", "</think>"),
        past_closed="\n<think></think>",
        ends=("<|user|>", "<|observation|>", "<|endoftext|>"),
        tokens=("[gMASK]", "<sop>", "<eop>"),
    ),
    ChatTemplate(
        "glm47",
        ("glm-4.7*", "glm4.7*", "glm-5*", "glm5*"),
        (),
        system=TurnMarkers("<|system|>", ""),
        user=TurnMarkers("<|user|>", ""),
        assistant=TurnMarkers("<|assistant|>", ""),
        tool=TurnMarkers("", ""),
        start="[gMASK]<sop>",
        before_calls="",
        reasoning="open",
        opened="<think>",
        closed="</think>",
        past=TurnMarkers("<think>", "</think>"),
        past_closed="</think>",
        ends=("<|user|>", "<|observation|>", "<|endoftext|>"),
        tokens=("[gMASK]", "<sop>", "<eop>"),
    ),
    ChatTemplate(
        "phi3",
        ("phi-3*", "phi3*"),
        (),
        system=TurnMarkers("<|system|>\n", "<|end|>\n"),
        user=TurnMarkers("<|user|>\n", "<|end|>\n"),
        assistant=TurnMarkers("<|assistant|>\n", "<|end|>\n"),
        ends=("<|end|>", "<|endoftext|>"),
    ),
    ChatTemplate(
        "phi4_mini",
        ("phi-4-mini*", "phi4-mini*"),
        ("phi4mini",),
        system=TurnMarkers("<|system|>", "<|end|>"),
        user=TurnMarkers("<|user|>", "<|end|>"),
        assistant=TurnMarkers("<|assistant|>", "<|end|>"),
        ends=("<|end|>", "<|endoftext|>"),
    ),
    ChatTemplate(
        "phi4",
        ("phi-4*", "phi4*"),
        (),
        system=TurnMarkers("<|im_start|>system<|im_sep|>", "<|im_end|>"),
        user=TurnMarkers("<|im_start|>user<|im_sep|>", "<|im_end|>"),
        assistant=TurnMarkers("<|im_start|>assistant<|im_sep|>", "<|im_end|>"),
        ends=("<|im_end|>", "<|im_start|>"),
    ),
    ChatTemplate(
        "harmony",
        ("*gpt-oss*",),
        ("harmony",),
        start="<|start|>system<|message|># Valid channels: analysis, commentary, final.<|end|>",
        system=TurnMarkers("<|start|>developer<|message|># Instructions\n\n", "<|end|>"),
        user=TurnMarkers("<|start|>user<|message|>", "<|end|>"),
        assistant=TurnMarkers("<|start|>assistant", ""),
        tool=TurnMarkers("", ""),
        text=TurnMarkers("<|channel|>final<|message|>", "<|end|>"),
        before_calls="<|start|>assistant",
        opened="<|channel|>analysis<|message|>",
        closed="<|channel|>analysis<|message|><|end|><|start|>assistant",
        past=TurnMarkers("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        ends=("<|return|>", "<|call|>"),
    ),
    ChatTemplate(
        "kimi",
        ("kimi-k2*", "*kimi-k2*"),
        ("kimi_k2",),
        system=TurnMarkers("<|im_system|>system<|im_middle|>", "<|im_end|>"),
        user=TurnMarkers("<|im_user|>user<|im_middle|>", "<|im_end|>"),
        assistant=TurnMarkers("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
        declaration=TurnMarkers("", ""),
        tool=TurnMarkers("<|im_system|>tool<|im_middle|>", "<|im_end|>"),
        before_calls="",
        ends=("<|im_end|>", "<|im_user|>"),
        tokens=("[BOS]", "[EOS]", "[EOT]"),
    ),
    ChatTemplate(
        "cohere",
        ("command-r7b*", "command-a*", "c4ai-command-r7b*", "c4ai-command-a*"),
        ("cohere_action",),
        system=TurnMarkers("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        user=TurnMarkers("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        assistant=TurnMarkers("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        tool=TurnMarkers("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        text=TurnMarkers("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        opened="<|START_THINKING|>",
        closed="<|START_THINKING|><|END_THINKING|>",
        past=TurnMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
        before_calls="",
        reasoning="closed",
        ends=("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>"),
        tokens=("<BOS_TOKEN>", "<EOS_TOKEN>"),
    ),
    ChatTemplate(
        "granite",
        ("granite-3*", "granite-4*", "granite3*", "granite4*"),
        ("granite3",),
        system=TurnMarkers("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
        user=TurnMarkers("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
        assistant=TurnMarkers("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"),
        ends=("<|end_of_text|>", "<|start_of_role|>"),
    ),
    ChatTemplate(
        "seed_oss",
        ("*seed-oss*",),
        ("seed_oss",),
        system=TurnMarkers("<seed:bos>system\n", "<seed:eos>"),
        user=TurnMarkers("<seed:bos>user\n", "<seed:eos>"),
        assistant=TurnMarkers("<seed:bos>assistant\n", "<seed:eos>"),
        tool=TurnMarkers("<seed:bos>tool\n", "<seed:eos>"),
        opened="<seed:think>",
        closed="<seed:think></seed:think>",
        past=TurnMarkers("<seed:think>", "</seed:think>\n"),
        ends=("<seed:eos>", "<seed:bos>"),
        tokens=("<seed:bos>", "<seed:eos>"),
    ),
    ChatTemplate(
        "minimax",
        ("minimax-m2*",),
        ("minimax_m2",),
        system=TurnMarkers("]~b]system\n", "[e~[\n"),
        user=TurnMarkers("]~b]user\n", "[e~[\n"),
        assistant=TurnMarkers("]~b]ai\n", "[e~[\n"),
        tool=TurnMarkers("]~b]tool\n", "[e~[\n"),
        start="]~!b[",
        reasoning="open",
        ends=("[e~[", "]~b]"),
        tokens=("]~!b[", "]~b]", "[e~["),
    ),
)
_TEMPLATES = {template.name: template for template in _ALL}


def names() -> list[str]:
    """Return the names of all chat templates."""
    return sorted(_TEMPLATES)


def get(name: str) -> ChatTemplate:
    """Return a chat template by its name; ConfigError with the closest name if there is none."""
    if name not in _TEMPLATES:
        close_matches = get_close_matches(name, _TEMPLATES, 1, 0.4)
        hint = f"did you mean {close_matches[0]!r}?" if close_matches else f"use one of {', '.join(names())}"
        raise ConfigError(f"unknown chat template {name!r}", hint=hint)
    return _TEMPLATES[name]


def find(model: str, form: Format) -> ChatTemplate:
    """Return the chat template of a model, by its name, or by a format of only one family; else raise ConfigError."""
    name = match_model(model, ((template.name, template.families) for template in _ALL))
    if name is not None:
        return _TEMPLATES[name]
    for template in _ALL:
        if form.name in template.formats:
            return template
    raise ConfigError(
        f"no chat template is known for {model!r} with the text format {form.name!r}",
        hint=f"set template to one of {', '.join(names())}",
    )
