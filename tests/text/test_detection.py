"""The format of a model by its name, and by the text of its chat template."""

import pytest

import toolwire
from tables import every_case
from toolwire.text.engine.detection import detect_by_text

# Names as in the documentation of vLLM, SGLang and NVIDIA, in ollama's library, in the test suites of vLLM, and in the
# file names of llama.cpp's models/templates; the formats are those of the parsers that these projects use for them.
MODELS = {
    "anthropic_legacy_xml": "claude-2.1 anthropic/claude-instant-1.2",
    "apertus": "swiss-ai/Apertus-8B-Instruct-2509 swiss-ai/Apertus-70B-Instruct-2509 Apertus-8B-Instruct",
    "apriel": "ServiceNow-AI/Apriel-1.6-15b-Thinker unsloth-Apriel-1.5 Apriel-1.6-15b-Thinker-fixed",
    "cohere_action": (
        "CohereLabs/command-a-reasoning-08-2025 CohereForAI/c4ai-command-a-03-2025 command-r7b:7b "
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use CohereLabs/North-Mini-Code-1.0 Cohere2MoE"
    ),
    "cohere_rplus": (
        "CohereForAI/c4ai-command-r-plus command-r-plus:104b CohereForAI-c4ai-command-r-plus-tool_use command-r:35b "
        "CohereForAI/c4ai-command-r-v01 CohereForAI/c4ai-command-r-08-2024"
    ),
    "deepseek_v3": (
        "deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-V3-0324 deepseek-ai/DeepSeek-R1 deepseek-ai/DeepSeek-R1-0528 "
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-r1:8b "
        "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B llama-cpp-deepseek-r1"
    ),
    "deepseek_v31": "deepseek-ai/DeepSeek-V3.1 deepseek-ai/DeepSeek-V3.1-Terminus deepseek-ai/DeepSeek-V3.2-Exp deepseek-v3.1:671b",
    "deepseek_dsml_v32": "deepseek-ai/DeepSeek-V3.2 deepseek-ai-DeepSeek-V3.2 deepseek-ai/DeepSeek-V3.2-Speciale",
    "deepseek_dsml_v4": "deepseek-ai-DeepSeek-V4 deepseek-ai-DeepSeek-V4-Flash-0731",
    "deepseek_dsml_v41": "deepseek-ai/DeepSeek-V4.1-Flash",
    "dots": "rednote-hilab/dots.llm1.inst",
    "ernie45": "baidu/ERNIE-4.5-21B-A3B-Thinking baidu/ERNIE-4.5-VL-28B-A3B-PT",
    "firefunction_v2": "fireworks-ai/llama-3-firefunction-v2 firefunction-v2:70b",
    "functionary_v31": "meetkai/functionary-small-v3.1 meetkai-functionary-medium-v3.1",
    "functionary_v32": "meetkai/functionary-small-v3.2 meetkai-functionary-medium-v3.2",
    "functiongemma": "google/functiongemma-270m-it functiongemma:270m",
    "gemma4": "google/gemma-4-26B-A4B-it google-gemma-4-31B-it gemma4:31b google-gemma-4-31B-it-interleaved",
    "gigachat3": "ai-sage/GigaChat3-702B-A36B-preview ai-sage/GigaChat3-10B-A1.8B-bf16 GigaChat3.1-10B-A1.8B",
    "glm45": "zai-org/GLM-4.5 zai-org/GLM-4.5-Air zai-org/GLM-4.5V zai-org/GLM-4.6 zai-org/GLM-4.6V GLM-4.6 zai-org/Glyph inclusionAI/Ring-2.6-1T",
    "glm47": "zai-org/GLM-4.7 zai-org/GLM-4.7-Flash glm-4.7-flash:q4_K_M zai-org/GLM-5-FP8 amd/GLM-5.1-MXFP4 zai-org/GLM-5.2-FP8 inclusionAI/Ling-3.0-flash Spark2.5",
    "gorilla": "gorilla-llm/gorilla-openfunctions-v2",
    "granite3": "ibm-granite/granite-3.0-8b-instruct ibm-granite/granite-3.1-8b-instruct ibm-granite-granite-3.3-2B-Instruct granite3.3:8b",
    "granite_20b_fc": "ibm-granite/granite-20b-functioncalling",
    "harmony": "openai/gpt-oss-20b openai-gpt-oss-120b lmsys/gpt-oss-120b-bf16 gpt-oss:20b llm-jp-llm-jp-4.1-8b-thinking",
    "hermes": (
        "NousResearch/Hermes-2-Pro-Llama-3-8B NousResearch/Hermes-2-Pro-Mistral-7B NousResearch/Hermes-2-Theta-Llama-3-8B "
        "NousResearch/Hermes-3-Llama-3.1-8B NousResearch/Hermes-4-70B hermes3:8b "
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen/Qwen2.5-7B-Instruct Qwen-Qwen2.5-7B-Instruct "
        "Qwen/Qwen2.5-Coder-32B-Instruct qwen2.5:7b qwen2.5-coder:32b Qwen/QwQ-32B Qwen-QwQ-32B qwq:32b Qwen/Qwen3-32B "
        "Qwen-Qwen3-0.6B qwen3:8b Qwen/Qwen3-Next-80B-A3B-Instruct Qwen/Qwen3-VL-30B-A3B-Thinking "
        "unsloth/Qwen3-8B-GGUF HuggingFaceTB/SmolLM3-3B HuggingFaceTB-SmolLM3-3B ibm-granite/granite-4.0-h-small "
        "ibm-granite-granite-4.1 granite4:3b Reka-Edge RekaAI/reka-edge XiaomiMiMo/MiMo-VL-7B-RL MiMo-VL "
        "XiaomiMiMo/MiMo-7B-RL speakleash/Bielik-11B-v3.0-Instruct HCompany/Holo2-4B Groq/Llama-3-Groq-8B-Tool-Use "
        "inclusionAI/Ling-2.6-1T inclusionAI/Ring-2.5-1T stepfun-ai/Step3-VL-10B openbmb/MiniCPM-V-4.5 "
        "llama3-groq-tool-use:8b katanemo/Arch-Function-3B EssentialAI/rnj-1-instruct LGAI-EXAONE/EXAONE-4.0-32B"
        " inclusionAI/Ling-flash-2.0 inclusionAI/Ling-1T inclusionAI/Ring-1T inclusionAI/Ring-flash-2.0 Ling-mini-2.0 "
        "LGAI-EXAONE/K-EXAONE-236B-A23B tiiuae/Falcon-H1-34B-Instruct"
    ),
    "hunyuan": "tencent/Hunyuan-7B-Instruct tencent/Hy3-preview",
    "hunyuan_a13b": "tencent/Hunyuan-A13B-Instruct",
    "hy3": "tencent/Hy3 tencent-Hy3",
    "internlm2": (
        "internlm/internlm2-chat-7b internlm/internlm2_5-7b-chat internlm/internlm3-8b-instruct internlm/Intern-S1 "
        "internlm/Intern-S1-mini"
    ),
    "inkling": "thinkingmachines/Inkling thinkingmachines/Inkling-NVFP4",
    "jamba": "ai21labs/AI21-Jamba-1.5-Mini ai21labs/AI21-Jamba-1.5-Large ai21labs/Jamba-tiny-dev",
    "k2_horizon": "IFM/K2-Horizon-36B IFM-K2-Horizon",
    "kimi_k2": "moonshotai/Kimi-K2-Instruct moonshotai/Kimi-K2-Thinking moonshotai/Kimi-K2.5 moonshotai/Kimi-K2.7-Code moonshotai-Kimi-K2 kimi-k2:1t-cloud",
    "kimi_k3": "moonshotai/Kimi-K3 Kimi-K3",
    "lfm2": "LiquidAI/LFM2-8B-A1B LiquidAI/LFM2.5-1.2B-Instruct LFM2.5-8B-A1B lfm2.5-thinking:1.2b",
    "llama3_json": (
        "meta-llama/Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama/Llama-3.3-70B-Instruct "
        "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8 llama3.1:8b llama3.2:1b llama3.3:70b nvidia/Llama-3.1-Nemotron-70B-Instruct"
    ),
    "llama4_pythonic": "meta-llama/Llama-4-Scout-17B-16E-Instruct meta-llama/Llama-4-Maverick-17B-128E-Instruct llama4:scout",
    "longcat": "meituan-longcat/LongCat-Flash-Chat meituan-longcat/LongCat-Flash-Chat-FP8",
    "minicpm4": "openbmb/MiniCPM4-8B openbmb/MiniCPM4.1-8B openbmb/MiniCPM3-4B",
    "minicpm5": "openbmb-MiniCPM5-1B openbmb/MiniCPM5-1B",
    "minimax_m1": "MiniMaxAI/MiniMax-M1-80k MiniMax-M1",
    "minimax_m2": "MiniMaxAI/MiniMax-M2 MiniMaxAI/MiniMax-M2.1 minimax-m2:cloud",
    "minimax_m3": "MiniMaxAI/MiniMax-M3 MiniMax-M3",
    "mistral_v3_json": (
        "mistralai/Mistral-7B-Instruct-v0.3 mistralai-Mistral-Nemo-Instruct-2407 mistralai/Mixtral-8x22B-Instruct-v0.1 "
        "mistralai/Ministral-8B-Instruct-2410 mistralai/Mistral-Large-Instruct-2411 mistralai/Pixtral-12B-2409 "
        "mistralai/Mistral-Small-24B-Instruct-2501 mistral:7b mistral-nemo:12b"
    ),
    "mistral_v11": (
        "unsloth-mistral-Devstral-Small-2507 mistralai/Magistral-Small-2509 mistralai-Ministral-3-14B-Reasoning-2512 "
        "mistralai/Mistral-Medium-3.5-128B mistralai/Mistral-Small-4-119B-2603 mistralai/Devstral-2-123B-Instruct-2512 devstral:24b ministral-3:8b"
    ),
    "mistral_v11_callid": "mistralai/Mistral-Small-3.2-24B-Instruct-2506 Mistral-Small-3.2-24B-Instruct-2506 mistral-small3.2:24b",
    "muse_glimmer": "muse-glimmer Muse-Glimmer-30B-GGUF",
    "nemotron_v2": (
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2 NVIDIA-Nemotron-Nano-v2 nvidia/Llama-3.1-Nemotron-Nano-8B-v1 "
        "nvidia/Llama-3.1-Nemotron-Nano-4B-v1.1 nvidia/Llama-3_3-Nemotron-Super-49B-v1_5 nvidia/Llama-3_1-Nemotron-Ultra-253B-v1"
    ),
    "nexusraven": "Nexusflow/NexusRaven-V2-13B nexusraven:13b",
    "olmo3": "allenai/Olmo-3-7B-Instruct allenai/Olmo-3-32B-Think olmo-3:7b",
    "phi4mini": "microsoft/Phi-4-mini-instruct phi4-mini:3.8b",
    "plamo3": "pfnet/plamo-3-nict-8b-base",
    "poolside_v1": "poolside-Laguna-S-2.1 poolside-Laguna-XS.2 poolside/Laguna-M.1-FP8",
    "pythonic": "Team-ACE/ToolACE-8B fixie-ai/ultravox-v0_4-ToolACE-8B Team-ACE/ToolACE-2-Llama-3.1-8B watt-ai/watt-tool-8B watt-tool-70B",
    "qwen3_xml": (
        "Qwen/Qwen3-Coder-480B-A35B-Instruct Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8 Qwen3-Coder qwen3-coder:30b "
        "Qwen/Qwen3-Coder-Next Qwen3.5-4B qwen3.5:27b Qwen/Qwen3.6-35B-A3B Qwen/Qwen3.8-27B "
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 nemotron-3-nano:30b nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16 nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4 nemotron-3.5-nano stepfun-ai/Step-3.5-Flash "
        "StepFun3.5-Flash stepfun-ai/Step-3.7-Flash XiaomiMiMo/MiMo-V2-Flash XiaomiMiMo/MiMo-V2.5-Pro internLM/Intern-S2-Preview "
        "openbmb/MiniCPM-V-4.6 PrimeIntellect/INTELLECT-3 Firworks/INTELLECT-3-nvfp4"
    ),
    "seed_oss": "ByteDance-Seed/Seed-OSS-36B-Instruct ByteDance-Seed-OSS",
    "solar_open": "upstage/Solar-Open-100B upstage-Solar-Open-100B",
    "step3": "stepfun-ai/step3 stepfun-ai/step3-fp8",
    "trinity": "arcee-ai/Trinity-Mini",
    "xlam": "Salesforce/Llama-xLAM-2-8B-fc-r Salesforce/xLAM-1B-fc-r Salesforce/Qwen-xLAM-32B-fc-r MadeAgents/Hammer2.1-7b Hammer-1.5b",
}
CASES = [(model, name) for name, models in MODELS.items() for model in models.split()]


@pytest.mark.finding("T8", "TX10")
@every_case(("model", "name"), CASES)
def test_model_name_gives_its_format(model, name):
    assert toolwire.text.detect(model) == name


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o",
        "microsoft-Phi-3.5-mini-instruct",
        "google-gemma-2-2b-it",
        "google-translategemma-4b-it",
        "llama-cpp-rwkv-world",
        "",
    ],
)
def test_model_without_a_text_format_of_its_own_is_unknown(model):
    assert toolwire.text.detect(model) is None


@pytest.mark.parametrize(
    "path",
    [
        "/models/Qwen3-8B-Q4_K_M.gguf",
        "/models/Qwen3-8B/",
        "~/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/9c925d64d72725edaf899c6cb9c377fd0709d9c5",
    ],
)
def test_path_of_a_model_gives_its_format(path):
    assert toolwire.text.detect(path) == "hermes"


@pytest.mark.finding("T8")
@every_case(
    ("markers", "name"),
    [
        ("<tool_call> </tool_call>", "hermes"),
        ("<tool_call> <function= <parameter=", "qwen3_xml"),
        ("<function= <parameter=", "function_xml"),
        ("<function= <|python_tag|>", "functionary_v31"),
        ("<tool_call> <arg_key> \n<arg_value>", "glm45"),
        ("<tool_call> <arg_key> <arg_value>", "glm47"),
        ("<tool_call> <arg_key> \n<arg_value> </assistant>", "poolside_v1"),
        ("[TOOL_CALLS] [ARGS] [CALL_ID]", "mistral_v11_callid"),
        ("[TOOL_CALLS] [ARGS]", "mistral_v11"),
        ("[TOOL_CALLS]", "mistral_v3_json"),
        ("<｜tool▁call▁begin｜> ```json", "deepseek_v3"),
        ("<｜tool▁call▁begin｜>", "deepseek_v31"),
        ("set token = '｜DSML｜' … function_calls>", "deepseek_dsml_v32"),
        ("set token = '｜DSML｜' … tool_calls>", "deepseek_dsml_v4"),
        ("<tool_calls> <end_of_sentence>", "minimax_m1"),
        ("<tool_calls>[ <|begin_assistant|>", "apriel"),
        ("<tool_calls>", "jamba"),
        ('<|start_header_id|> "parameters": ', "llama3_json"),
        ("<|tool_call|> <|/tool_call|>", "phi4mini"),
        ("<|tool_call|>", "granite3"),
        ("<|tool_call_start|> ```python", "minicpm4"),
        ("{{ message.content }}", None),
        ("", None),
    ],
)
def test_markers_of_a_chat_template_give_the_format(markers, name):
    assert toolwire.text.detect_template(markers) == name


def test_every_template_rule_names_a_format():
    from toolwire.text.engine.detection import TEMPLATE_RULES

    assert {name for name, _ in TEMPLATE_RULES} <= set(toolwire.text.names())


def test_no_template_rule_is_hidden_by_an_earlier_one():
    from toolwire.text.engine.detection import TEMPLATE_RULES

    for name, markers in TEMPLATE_RULES:
        assert toolwire.text.detect_template("\x00".join(markers)) == name, markers


@pytest.mark.finding("TX4")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('<|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>', "phi4mini"),
        ('<|tool_call|>[{"name": "f", "arguments": {}}]', "granite3"),
        ("<|tool_call_start|>\n```python\nf()\n```\n<|tool_call_end|>", "minicpm4"),
        ("<|tool_call_start|>[f()]<|tool_call_end|>", "lfm2"),
    ],
)
def test_tags_that_formats_share_are_distinguished_by_the_text_after_them(text, name):
    assert detect_by_text(text) == name
