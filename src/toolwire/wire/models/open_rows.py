"""Rows about models with open weights: Moonshot, Z.ai, MiniMax, Alibaba, DeepSeek, and OpenAI's gpt-oss.

Many vendors serve these models. A fact of the model itself, such as its window, holds on every wire and vendor. A
refusal is a fact of one vendor's API, and is stated only for that vendor.

A window is the length that a server gives the model without special configuration, not an extended one (YaRN), and
rather the smaller one where sources disagree: agents compact a conversation by it. No prompt is refused by a window that
is stated for every vendor (`Endpoint.window`).

Patterns have the names that the maker publishes. A derivative, such as `llama-3.1-nemotron-nano-vl-8b-v1`, may have
other media and other reasoning.
"""

from __future__ import annotations

from .capabilities import CapabilityRow, ModelCapabilities
from .other_rows import COMMAND, GROK, LLAMA, MISTRAL, NOVA
from .row_makers import (
    ANYWHERE,
    CHAT,
    LITELLM,
    MODELS_DEV,
    PENALTIES,
    PYDANTIC_AI,
    media_rows,
    model_row,
    vendor_row,
    window_rows,
)

_ALWAYS_THINKS = ModelCapabilities(thinking_off=False, forced_choice_when_thinking=False)
_THINKS_UNLESS_DISABLED = ModelCapabilities(
    thinking_off=True, thinking_off_type="disabled", forced_choice_when_thinking=False
)

# The model in this process (toolwire.local) among them.
_SMOLLM2 = model_row("smollm2*", "https://arxiv.org/abs/2502.02737", "2026-11-18", ModelCapabilities(media=()))

_KIMI = (
    # "tool_choice 'specified' is incompatible with thinking enabled"; `thinking: {"type": "disabled"}` is the switch of
    # K2.5 and K2.6, and the effort `none` is refused.
    vendor_row(
        "moonshot",
        "kimi-k2.5* kimi-k2.6*",
        "https://github.com/can1357/oh-my-pi/issues/1077; https://github.com/pydantic/pydantic-ai/pull/6208",
        "2026-05-14",
        _THINKS_UNLESS_DISABLED,
    ),
    vendor_row(
        "moonshot",
        "kimi-k3*",
        "https://platform.kimi.ai/docs/guide/use-reasoning-effort; https://github.com/enricoros/big-AGI/issues/1161",
        "2026-07-17",
        ModelCapabilities(
            thinking_off=False, efforts=("low", "high", "max"), default_effort="max", forced_choice_when_thinking=False
        ),
    ),
    vendor_row(
        "moonshot",
        "kimi-k2.7-code* kimi-k2-thinking*",
        PYDANTIC_AI + "providers/moonshotai.py; https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model",
        "2026-11-16",
        _ALWAYS_THINKS,
    ),
    # Other values than the default are answered with 400.
    vendor_row(
        "moonshot",
        "kimi-k2.[567]* kimi-k3*",
        "https://github.com/enricoros/big-AGI/issues/1161; https://platform.kimi.ai/docs/api/models-overview",
        "2026-07-17",
        ModelCapabilities(refused_params=("temperature", "top_p", "n", *PENALTIES)),
    ),
    # "thinking is enabled but reasoning_content is missing in assistant tool call message at index 7"
    vendor_row(
        "moonshot",
        "kimi-k2.[567]* kimi-k2-thinking* kimi-k3*",
        "https://github.com/QuantumNous/new-api/issues/3121; "
        "https://github.com/openai/openai-agents-python/issues/2669",
        "2026-03-05",
        ModelCapabilities(reasoning_replay="required"),
    ),
    model_row(
        "kimi-k2-instruct* kimi-k2-0711* kimi-k2-0905* kimi-k2-turbo* kimi-k2:1t* moonshot-v1*",
        MODELS_DEV + "moonshotai; providers/moonshotai",
        "2026-07-02",
        ModelCapabilities(thinking=False),
    ),
    *media_rows("kimi-k2.[567]* kimi-k3*", ("image", "video"), MODELS_DEV + "moonshotai; " + LITELLM, "2026-11-16"),
    *media_rows(
        "kimi-k2 kimi-k2-instruct* kimi-k2-0711* kimi-k2-0905* kimi-k2-turbo* kimi-k2-thinking* kimi-k2:1t* "
        "moonshot-v1-8k moonshot-v1-32k moonshot-v1-128k",
        (),
        MODELS_DEV + "moonshotai; providers/moonshotai",
        "2026-07-02",
    ),
    *window_rows(
        LITELLM + "; " + MODELS_DEV + "moonshotai",
        "2026-11-16",
        {
            "kimi-k3*": 1_048_576,
            "kimi-k2-0905* kimi-k2-instruct-0905* kimi-k2-turbo* kimi-k2-thinking* kimi-k2.[567]*": 262_144,
            "kimi-k2 kimi-k2-0711* kimi-k2-instruct*": 131_072,
            "moonshot-v1-8k*": 8192,
            "moonshot-v1-32k*": 32_768,
            "moonshot-v1-128k* moonshot-v1-auto": 131_072,
        },
    ),
)

_GLM_VISION = "glm-4.[56]v* glm-5v* glm-5.3-flash*"
_GLM_TEXT = (
    "glm-4.[567] glm-4.5-air* glm-4.5-x glm-4.5-flash* glm-4.7-flash* glm-4.[567]-fp8 glm-5 glm-5-turbo* glm-5-fp8 "
    "glm-5.[123]"
)
_GLM = (
    # `{"message": "Tool choice must be auto", "code": 400, "metadata": {"provider_name": "Z.AI"}}`
    vendor_row(
        "zai",
        "glm-*",
        "https://github.com/vectorize-io/hindsight/issues/4246",
        "2026-09-09",
        ModelCapabilities(forced_choice=False),
    ),
    vendor_row(
        "zai",
        "glm-5.3*",
        PYDANTIC_AI + "profiles/zai.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "high", "max")),
    ),
    vendor_row(
        "zai",
        "glm-4.[567]* glm-5 glm-5-* glm-5.[12]* glm-5v*",
        "https://docs.z.ai/guides/capabilities/thinking-mode",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, thinking_off_type="disabled"),
    ),
    # "thinking blocks should be explicitly preserved and returned together with the tool results"; their absence is no
    # error (openai/openai-agents-python#2669).
    model_row(
        "glm-4.[567]* glm-5*",
        "https://docs.z.ai/guides/capabilities/thinking-mode",
        "2026-11-16",
        ModelCapabilities(reasoning_replay="accepted"),
    ),
    vendor_row(
        "zai",
        "glm-4.5 glm-4.5-*",
        "https://docs.bigmodel.cn/cn/guide/models/text/glm-4.5; " + MODELS_DEV + "zhipuai",
        "2026-07-02",
        ModelCapabilities(max_output=98_304),
    ),
    vendor_row(
        "zai",
        "glm-4.6 glm-4.6-* glm-4.7* glm-5*",
        MODELS_DEV + "zhipuai; " + LITELLM,
        "2026-11-16",
        ModelCapabilities(max_output=131_072),
    ),
    *media_rows(_GLM_VISION, ("image", "video"), MODELS_DEV + "zhipuai; " + LITELLM, "2026-11-16"),
    *media_rows(_GLM_TEXT, (), MODELS_DEV + "zhipuai; " + LITELLM, "2026-11-16"),
    *window_rows(
        MODELS_DEV + "zhipuai; " + LITELLM,
        "2026-11-16",
        {
            "glm-4.5v*": 64_000,
            "glm-4.6v*": 128_000,
            "glm-4.5*": 131_072,
            "glm-4.[67]* glm-5 glm-5-* glm-5.1* glm-5v*": 200_000,
            "glm-5.[23]*": 1_000_000,
        },
    ),
)

_MINIMAX = (
    # Chat has no effort. M2 has no off: "M2.x models keep thinking enabled even when disabled is requested". M3.1 Flash
    # answers `disabled` with 400, so the row of M3 is not its own.
    vendor_row(
        "minimax",
        "minimax-m2 minimax-m2.*",
        "https://java.agentscope.io/v2/en/integration/model/minimax; https://github.com/anomalyco/models.dev/pull/2305",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=()),
    ),
    vendor_row(
        "minimax",
        "minimax-m3",
        "https://github.com/anomalyco/models.dev/pull/1961; https://github.com/cuplivo/cuplivo/pull/721",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, thinking_off_type="disabled", efforts=()),
    ),
    *media_rows("minimax-m2 minimax-m2.[0-9] minimax-m2.[0-9]-[hl]*", (), MODELS_DEV + "minimax", "2026-11-16"),
    *media_rows("minimax-m3*", ("image", "video"), MODELS_DEV + "minimax; " + LITELLM, "2026-11-16"),
    *window_rows(
        MODELS_DEV + "minimax; " + LITELLM + " (novita, fireworks)",
        "2026-11-16",
        {"minimax-m2": 196_608, "minimax-m2.*": 204_800, "minimax-m3*": 512_000, "minimax-m1*": 1_000_000},
    ),
)

_QWEN_CODER_CARD = "https://huggingface.co/Qwen/Qwen3-Coder-480B-A35B-Instruct"
_QWEN_CARD = "https://huggingface.co/Qwen/Qwen3-32B"
_QWEN_2_5 = "https://huggingface.co/Qwen/Qwen2.5-"
_QWEN_TEXT = (
    "qwen3 qwen3-[0-9]*b qwen3-[0-9]*b-instruct* qwen3-[0-9]*b-thinking* qwen3-[0-9]*b-fp8 qwen3-[0-9]*b-awq "
    "qwen3-[0-9]*b-gguf qwen3-coder* qwen3-next-* qwen3-max* qwen2.5 qwen2.5-[0-9]*b qwen2.5-[0-9]*b-instruct* "
    "qwen2.5-coder* qwq qwq-*"
)
_QWEN = (
    # "The tool_choice parameter does not support being set to required or object in thinking mode"
    vendor_row(
        "alibaba",
        "qwen-plus* qwen-flash* qwen-turbo* qwen3-max* qwen3-[0-9]* qwen3.[5-9]*",
        "https://github.com/cloudwego/eino/issues/994; https://github.com/agentscope-ai/agentscope/issues/1608",
        "2026-09-07",
        ModelCapabilities(thinking_off_type="enable_thinking", forced_choice_when_thinking=False),
    ),
    # "supports only non-thinking mode"
    model_row(
        "qwen3-coder* qwen3-[0-9]*-instruct* qwen3-next-*-instruct* qwen3-vl-*-instruct* qwen2.5 qwen2.5-[0-9]*b "
        "qwen2.5-[0-9]*b-instruct* qwen2.5-coder* qwen2.5-vl*",
        _QWEN_CODER_CARD,
        "2026-11-16",
        ModelCapabilities(thinking=False),
    ),
    # Groq accepts only `none` and `default`.
    vendor_row(
        "groq",
        "qwen3-32b*",
        PYDANTIC_AI + "profiles/groq.py; https://console.groq.com/docs/reasoning#reasoning-effort",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, efforts=("none",)),
    ),
    *media_rows("qwen3.[56]-[0-9]*b*", ("image", "video", "audio"), MODELS_DEV + "alibaba", "2026-07-02"),
    *media_rows(
        "qwen3-vl* qwen2.5-vl* qwen-vl* qwen3.[5-9]-plus*", ("image", "video"), MODELS_DEV + "alibaba", "2026-07-02"
    ),
    *media_rows(_QWEN_TEXT, (), MODELS_DEV + "alibaba; " + _QWEN_CODER_CARD, "2026-07-02"),
    *window_rows(_QWEN_CODER_CARD, "2026-11-16", {"qwen3*-1m*": 1_000_000}),
    *window_rows(_QWEN_2_5 + "14B-Instruct-1M", "2026-11-18", {"qwen2.5*-1m*": 1_000_000}),
    # Their own lengths
    model_row(
        "qwen3-[0-9]*b qwen3-next* qwen3-vl-*b*",
        MODELS_DEV + "../providers/alibaba; " + MODELS_DEV + "../providers/groq",
        "2026-07-02",
        ModelCapabilities(window=131_072),
        ("alibaba", "groq"),
        (CHAT,),
    ),
    *window_rows(MODELS_DEV + "alibaba", "2026-07-02", {"qwen3-coder-plus* qwen3-coder-flash*": 1_000_000}),
    *window_rows(_QWEN_CODER_CARD, "2026-11-16", {"qwen3-coder* qwen3-next*": 262_144}),
    *window_rows(
        MODELS_DEV + "alibaba; " + LITELLM + "; " + _QWEN_CARD + " (max_position_embeddings)",
        "2026-11-16",
        {
            "qwen-plus* qwen-flash* qwen3.[5-9]-plus* qwen3.[5-9]-flash*": 1_000_000,
            "qwen3-*-2507* qwen3-vl-* qwen3-max* qwen3.[5-9]-[0-9]*b*": 262_144,
            "qwen3-[0-9]*b*": 40_960,
        },
    ),
    *window_rows(_QWEN_2_5 + "7B-Instruct; " + LITELLM, "2026-11-18", {"qwen2.5-[0-9]*b* qwen2.5-coder-*": 32_768}),
)

_GPT_OSS_DOCS = "https://developers.openai.com/api/docs/models/gpt-oss-120b"
_GPT_OSS_NAMES = "gpt-oss gpt-oss-20b gpt-oss-120b gpt-oss-*0b-1 gpt-oss-*0b-maas gpt-oss-*0b-gguf"
_GPT_OSS = (
    # The model has three levels and no off (openai/harmony); Cerebras and Groq answer `none` with 400.
    model_row(
        "gpt-oss*",
        _GPT_OSS_DOCS + "; recorded: groq.jsonl, openai/gpt-oss-120b, status 200; " + PYDANTIC_AI + "profiles/groq.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "medium", "high")),
        ANYWHERE,
        (CHAT, "openai_responses", "ollama"),
    ),
    # The chain of thought "is crucial for the performance of tool calling".
    model_row(
        "gpt-oss*",
        "https://github.com/openai/openai-cookbook/pull/1982 articles/gpt-oss/handle-raw-cot.md",
        "2026-11-16",
        ModelCapabilities(reasoning_replay="accepted"),
    ),
    *media_rows(_GPT_OSS_NAMES, (), _GPT_OSS_DOCS, "2026-11-16"),
    *window_rows(_GPT_OSS_DOCS, "2026-11-16", {_GPT_OSS_NAMES: 131_072}),
)

_DEEPSEEK_DOCS = "https://api-docs.deepseek.com/"
_DEEPSEEK_THINKING = "deepseek-v4* deepseek-flash*"
_DEEPSEEK = (
    # "This response_format type is unavailable now" (UKGovernmentBEIS/inspect_ai#4916, llm-exe/llm-exe#662)
    vendor_row(
        "deepseek",
        "deepseek*",
        _DEEPSEEK_DOCS + "guides/json_mode",
        "2026-08-17",
        ModelCapabilities(output_schemas=False),
    ),
    # "Thinking mode does not support this tool_choice" for `required` and a named tool; thinking is on by default.
    vendor_row(
        "deepseek",
        _DEEPSEEK_THINKING,
        "https://github.com/deepseek-ai/DeepSeek-V3/issues/1376; " + _DEEPSEEK_DOCS + "guides/thinking_mode",
        "2026-09-22",
        _THINKS_UNLESS_DISABLED,
    ),
    vendor_row(
        "deepseek",
        _DEEPSEEK_THINKING,
        "https://github.com/deepseek-ai/DeepSeek-V3/issues/1376; " + _DEEPSEEK_DOCS + "guides/thinking_mode",
        "2026-09-22",
        ModelCapabilities(thinking_off=True, forced_choice_when_thinking=False),
        ("openai_responses", "anthropic"),
    ),
    vendor_row(
        "deepseek",
        "deepseek-reasoner",
        PYDANTIC_AI + "providers/deepseek.py",
        "2026-11-16",
        _ALWAYS_THINKS,
        (CHAT, "openai_responses", "anthropic"),
    ),
    vendor_row(
        "deepseek",
        _DEEPSEEK_THINKING + " deepseek-reasoner",
        _DEEPSEEK_DOCS + "guides/thinking_mode",
        "2026-09-22",
        ModelCapabilities(default_effort="high", reasoning_replay="required"),
    ),
    vendor_row(
        "deepseek",
        "deepseek-chat deepseek-reasoner " + _DEEPSEEK_THINKING,
        _DEEPSEEK_DOCS + "quick_start/pricing",
        "2026-11-16",
        ModelCapabilities(max_output=393_216),
        (CHAT, "openai_responses", "anthropic"),
    ),
    # DeepSeek answers `deepseek-v4-flash` with V4.1 Flash, which reads images; the open weights of that name do not.
    *media_rows(
        "deepseek-v4-pro deepseek-v3 deepseek-v3-* deepseek-v3.[12]* deepseek-r1 deepseek-r1-0528* "
        "deepseek-r1-distill-llama-*b deepseek-r1-distill-qwen-*b",
        (),
        _DEEPSEEK_DOCS + "quick_start/pricing",
        "2026-11-16",
    ),
    *window_rows(
        _DEEPSEEK_DOCS + "quick_start/pricing; " + LITELLM,
        "2026-11-16",
        {
            "deepseek-v4* deepseek-flash* deepseek-chat deepseek-reasoner": 1_000_000,
            "deepseek-v3 deepseek-v3-* deepseek-v3.* deepseek.v3*": 163_840,
        },
    ),
    *window_rows(MODELS_DEV + "deepseek", "2026-07-02", {"deepseek-r1 deepseek-r1-0528* deepseek.r1*": 128_000}),
)

_PARALLEL = (
    model_row(
        "kimi-k2 kimi-k2[.-]* kimi-k3* glm-4.[567]* glm-5* minimax-m[23]* qwen3 qwen3[.-]* deepseek-v3* deepseek-v4* "
        "deepseek-flash deepseek-chat",
        LITELLM + " (together, novita, deepseek)",
        "2026-11-16",
        ModelCapabilities(parallel_calls=True),
    ),
)

OPEN_ROWS: tuple[CapabilityRow, ...] = (
    *(_KIMI + _GLM + _MINIMAX + _QWEN + MISTRAL + GROK + LLAMA + _GPT_OSS + _DEEPSEEK + NOVA + COMMAND + _PARALLEL),
    _SMOLLM2,
)
