"""Rows about the models of Moonshot, Z.ai, MiniMax, Alibaba, Mistral, xAI, Meta, DeepSeek, Amazon and Cohere.

Many vendors serve these models. A fact of the model itself, such as its window, holds on every wire and vendor. A
refusal is a fact of one vendor's API, and is stated only for that vendor.

A window is the length that a server gives the model without special configuration, not an extended one (YaRN), and
rather the smaller one where sources disagree: agents compact a conversation by it. No prompt is refused by a window that is stated for
every vendor (`Endpoint.window`).

Patterns have the names that the maker publishes. A derivative, such as `llama-3.1-nemotron-nano-vl-8b-v1`, may have
other media and other reasoning.
"""

from __future__ import annotations

from .capability_rows import CapabilityRow, ModelCapabilities

__all__ = ["OPEN_ROWS"]

_CHAT = "openai_chat"
_WIRES = (_CHAT, "openai_responses", "anthropic", "ollama")
_ANYWHERE = ("*",)
_LITELLM = "https://pypi.org/project/litellm/1.109.1 model_prices_and_context_window"
_MODELS_DEV = "https://github.com/anomalyco/models.dev@f3fc6922 models/"
_PYDANTIC = "https://github.com/pydantic/pydantic-ai (2.66.0) "
_PENALTIES = ("presence_penalty", "frequency_penalty")


def _row(
    models: str,
    source: str,
    date: str,
    capabilities: ModelCapabilities,
    vendors: tuple[str, ...] = _ANYWHERE,
    wires: tuple[str, ...] = _WIRES,
) -> CapabilityRow:
    """Make a row; `models` are patterns, separated by spaces."""
    return CapabilityRow(tuple(models.split()), capabilities, source, date, wires, vendors)


def _at(
    vendor: str, models: str, source: str, date: str, capabilities: ModelCapabilities, wires: tuple[str, ...] = (_CHAT,)
) -> CapabilityRow:
    """Make a row about the API of one vendor."""
    return _row(models, source, date, capabilities, (vendor,), wires)


def _media(models: str, kinds: tuple[str, ...], source: str, date: str) -> tuple[CapabilityRow, CapabilityRow]:
    """Make the rows about the media that models accept. OpenRouter and Mistral read PDF files for every model."""
    pdf = f"https://openrouter.ai/docs/features/multimodal/pdfs; recorded: mistral.jsonl, document_url, 200; {source}"
    with_files = ModelCapabilities(media=tuple(dict.fromkeys((*kinds, "file"))))
    return (
        _row(models, pdf, date, with_files, ("openrouter", "mistral")),
        _row(models, source, date, ModelCapabilities(media=kinds)),
    )


def _windows(source: str, date: str, windows: dict[str, int]) -> tuple[CapabilityRow, ...]:
    """Make the rows about windows. An Ollama server reports its own, and the names of its models have no size."""
    facts = {models: ModelCapabilities(window=size) for models, size in windows.items()}
    return tuple([_row(models, source, date, known, wires=_WIRES[:-1]) for models, known in facts.items()])


_ALWAYS_THINKS = ModelCapabilities(thinking_off=False, forced_choice_when_thinking=False)
_THINKS_UNLESS_DISABLED = ModelCapabilities(
    thinking_off=True, thinking_off_type="disabled", forced_choice_when_thinking=False
)

_KIMI = (
    # "tool_choice 'specified' is incompatible with thinking enabled"; `thinking: {"type": "disabled"}` is the switch of
    # K2.5 and K2.6, and the effort `none` is refused.
    _at(
        "moonshot",
        "kimi-k2.5* kimi-k2.6*",
        "https://github.com/can1357/oh-my-pi/issues/1077; https://github.com/pydantic/pydantic-ai/pull/6208",
        "2026-05-14",
        _THINKS_UNLESS_DISABLED,
    ),
    _at(
        "moonshot",
        "kimi-k3*",
        "https://platform.kimi.ai/docs/guide/use-reasoning-effort; https://github.com/enricoros/big-AGI/issues/1161",
        "2026-07-17",
        ModelCapabilities(
            thinking_off=False, efforts=("low", "high", "max"), default_effort="max", forced_choice_when_thinking=False
        ),
    ),
    _at(
        "moonshot",
        "kimi-k2.7-code* kimi-k2-thinking*",
        _PYDANTIC + "providers/moonshotai.py; https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model",
        "2026-11-16",
        _ALWAYS_THINKS,
    ),
    # Other values than the default are answered with 400.
    _at(
        "moonshot",
        "kimi-k2.[567]* kimi-k3*",
        "https://github.com/enricoros/big-AGI/issues/1161; https://platform.kimi.ai/docs/api/models-overview",
        "2026-07-17",
        ModelCapabilities(refused_params=("temperature", "top_p", "n", *_PENALTIES)),
    ),
    # "thinking is enabled but reasoning_content is missing in assistant tool call message at index 7"
    _at(
        "moonshot",
        "kimi-k2.[567]* kimi-k2-thinking* kimi-k3*",
        "https://github.com/QuantumNous/new-api/issues/3121; "
        "https://github.com/openai/openai-agents-python/issues/2669",
        "2026-03-05",
        ModelCapabilities(reasoning_replay="required"),
    ),
    _row(
        "kimi-k2-instruct* kimi-k2-0711* kimi-k2-0905* kimi-k2-turbo* kimi-k2:1t* moonshot-v1*",
        _MODELS_DEV + "moonshotai; providers/moonshotai",
        "2026-07-02",
        ModelCapabilities(thinking=False),
    ),
    *_media("kimi-k2.[567]* kimi-k3*", ("image", "video"), _MODELS_DEV + "moonshotai; " + _LITELLM, "2026-11-16"),
    *_media(
        "kimi-k2 kimi-k2-instruct* kimi-k2-0711* kimi-k2-0905* kimi-k2-turbo* kimi-k2-thinking* kimi-k2:1t* "
        "moonshot-v1-8k moonshot-v1-32k moonshot-v1-128k",
        (),
        _MODELS_DEV + "moonshotai; providers/moonshotai",
        "2026-07-02",
    ),
    *_windows(
        _LITELLM + "; " + _MODELS_DEV + "moonshotai",
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
    _at(
        "zai",
        "glm-*",
        "https://github.com/vectorize-io/hindsight/issues/4246",
        "2026-09-09",
        ModelCapabilities(forced_choice=False),
    ),
    _at(
        "zai",
        "glm-5.3*",
        _PYDANTIC + "profiles/zai.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "high", "max")),
    ),
    _at(
        "zai",
        "glm-4.[567]* glm-5 glm-5-* glm-5.[12]* glm-5v*",
        "https://docs.z.ai/guides/capabilities/thinking-mode",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, thinking_off_type="disabled"),
    ),
    # "thinking blocks should be explicitly preserved and returned together with the tool results"; their absence is no
    # error (openai/openai-agents-python#2669).
    _row(
        "glm-4.[567]* glm-5*",
        "https://docs.z.ai/guides/capabilities/thinking-mode",
        "2026-11-16",
        ModelCapabilities(reasoning_replay="accepted"),
    ),
    _at(
        "zai",
        "glm-4.5 glm-4.5-*",
        "https://docs.bigmodel.cn/cn/guide/models/text/glm-4.5; " + _MODELS_DEV + "zhipuai",
        "2026-07-02",
        ModelCapabilities(max_output=98_304),
    ),
    _at(
        "zai",
        "glm-4.6 glm-4.6-* glm-4.7* glm-5*",
        _MODELS_DEV + "zhipuai; " + _LITELLM,
        "2026-11-16",
        ModelCapabilities(max_output=131_072),
    ),
    *_media(_GLM_VISION, ("image", "video"), _MODELS_DEV + "zhipuai; " + _LITELLM, "2026-11-16"),
    *_media(_GLM_TEXT, (), _MODELS_DEV + "zhipuai; " + _LITELLM, "2026-11-16"),
    *_windows(
        _MODELS_DEV + "zhipuai; " + _LITELLM,
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
    _at(
        "minimax",
        "minimax-m2 minimax-m2.*",
        "https://java.agentscope.io/v2/en/integration/model/minimax; https://github.com/anomalyco/models.dev/pull/2305",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=()),
    ),
    _at(
        "minimax",
        "minimax-m3",
        "https://github.com/anomalyco/models.dev/pull/1961; https://github.com/cuplivo/cuplivo/pull/721",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, thinking_off_type="disabled", efforts=()),
    ),
    *_media("minimax-m2 minimax-m2.[0-9] minimax-m2.[0-9]-[hl]*", (), _MODELS_DEV + "minimax", "2026-11-16"),
    *_media("minimax-m3*", ("image", "video"), _MODELS_DEV + "minimax; " + _LITELLM, "2026-11-16"),
    *_windows(
        _MODELS_DEV + "minimax; " + _LITELLM + " (novita, fireworks)",
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
    _at(
        "alibaba",
        "qwen-plus* qwen-flash* qwen-turbo* qwen3-max* qwen3-[0-9]* qwen3.[5-9]*",
        "https://github.com/cloudwego/eino/issues/994; https://github.com/agentscope-ai/agentscope/issues/1608",
        "2026-09-07",
        ModelCapabilities(thinking_off_type="enable_thinking", forced_choice_when_thinking=False),
    ),
    # "supports only non-thinking mode"
    _row(
        "qwen3-coder* qwen3-[0-9]*-instruct* qwen3-next-*-instruct* qwen3-vl-*-instruct* qwen2.5 qwen2.5-[0-9]*b "
        "qwen2.5-[0-9]*b-instruct* qwen2.5-coder* qwen2.5-vl*",
        _QWEN_CODER_CARD,
        "2026-11-16",
        ModelCapabilities(thinking=False),
    ),
    # Groq accepts only `none` and `default`.
    _at(
        "groq",
        "qwen3-32b*",
        _PYDANTIC + "profiles/groq.py; https://console.groq.com/docs/reasoning#reasoning-effort",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, efforts=("none",)),
    ),
    *_media("qwen3.[56]-[0-9]*b*", ("image", "video", "audio"), _MODELS_DEV + "alibaba", "2026-07-02"),
    *_media(
        "qwen3-vl* qwen2.5-vl* qwen-vl* qwen3.[5-9]-plus*", ("image", "video"), _MODELS_DEV + "alibaba", "2026-07-02"
    ),
    *_media(_QWEN_TEXT, (), _MODELS_DEV + "alibaba; " + _QWEN_CODER_CARD, "2026-07-02"),
    *_windows(_QWEN_CODER_CARD, "2026-11-16", {"qwen3*-1m*": 1_000_000}),
    *_windows(_QWEN_2_5 + "14B-Instruct-1M", "2026-11-18", {"qwen2.5*-1m*": 1_000_000}),
    # Their own lengths
    _row(
        "qwen3-[0-9]*b qwen3-next* qwen3-vl-*b*",
        _MODELS_DEV + "../providers/alibaba; " + _MODELS_DEV + "../providers/groq",
        "2026-07-02",
        ModelCapabilities(window=131_072),
        ("alibaba", "groq"),
        (_CHAT,),
    ),
    *_windows(_MODELS_DEV + "alibaba", "2026-07-02", {"qwen3-coder-plus* qwen3-coder-flash*": 1_000_000}),
    *_windows(_QWEN_CODER_CARD, "2026-11-16", {"qwen3-coder* qwen3-next*": 262_144}),
    *_windows(
        _MODELS_DEV + "alibaba; " + _LITELLM + "; " + _QWEN_CARD + " (max_position_embeddings)",
        "2026-11-16",
        {
            "qwen-plus* qwen-flash* qwen3.[5-9]-plus* qwen3.[5-9]-flash*": 1_000_000,
            "qwen3-*-2507* qwen3-vl-* qwen3-max* qwen3.[5-9]-[0-9]*b*": 262_144,
            "qwen3-[0-9]*b*": 40_960,
        },
    ),
    *_windows(_QWEN_2_5 + "7B-Instruct; " + _LITELLM, "2026-11-18", {"qwen2.5-[0-9]*b* qwen2.5-coder-*": 32_768}),
)

_NONE_OR_HIGH = ModelCapabilities(thinking_off=True, efforts=("none", "high"))
_MISTRAL = (
    # They reason only with the effort `high`, not without one, and refuse `low` (checked live 2026-10-22).
    _at(
        "mistral",
        "mistral-small-latest mistral-small-2603* mistral-medium-latest mistral-medium "
        "mistral-medium-3 mistral-medium-3[.-]5* mistral-medium-2604* magistral-medium-latest magistral-small-latest",
        _PYDANTIC + "providers/mistral.py; https://docs.mistral.ai/capabilities/reasoning/adjustable",
        "2026-10-22",
        ModelCapabilities(thinking_off=True, efforts=("none", "high"), default_effort="none"),
    ),
    # https://docs.mistral.ai/inference/conversations/reasoning has more levels; sources disagree about the default.
    _at("mistral", "mistral-large-4*", _LITELLM, "2026-11-18", _NONE_OR_HIGH),
    _row(
        "codestral* devstral* ministral-[38]b* ministral-3-*-instruct* mistral-large-2* mistral-large-3* mistral-nemo "
        "mistral-nemo-instruct* open-mistral* open-mixtral* mixtral-8x* pixtral* mistral-small-24* mistral-small-25* "
        "mistral-medium-25*",
        _MODELS_DEV + "mistral; providers/mistral",
        "2026-07-02",
        ModelCapabilities(thinking=False),
    ),
    *_media(
        "mistral-large-2512* mistral-large-latest mistral-large-3* mistral-large-4* mistral-medium* "
        "mistral-small-2506* mistral-small-26* mistral-small-latest mistral-small3.[12]* ministral-*-2512* "
        "ministral-3* pixtral*",
        ("image",),
        _MODELS_DEV + "mistral; " + _LITELLM,
        "2026-11-16",
    ),
    *_media(
        "codestral* devstral devstral-2512* devstral-medium* devstral-small-250* devstral-2 mistral-large-24* "
        "mistral-nemo mistral-nemo-instruct* open-mistral* open-mixtral* mixtral-8x*",
        (),
        _MODELS_DEV + "mistral; providers/mistral",
        "2026-07-02",
    ),
    # LiteLLM has 1,048,576.
    *_windows("https://vercel.com/ai-gateway/models/mistral-large-4", "2026-11-18", {"mistral-large-4*": 524_288}),
    *_windows(
        _MODELS_DEV + "mistral; " + _LITELLM,
        "2026-11-16",
        {
            "mistral-large-24* pixtral* mistral-medium-25* mistral-small-2503* mistral-small-2506* ministral* "
            "devstral devstral-small-250* devstral-medium-2507* magistral-*": 128_000,
            "codestral-25* codestral-latest mistral-large-2512* mistral-large-3* mistral-large-latest "
            "mistral-medium-latest mistral-medium-3[.-]5* mistral-medium-2604* mistral-small-2603* mistral-small-latest "
            "devstral-2512* devstral-small-2* devstral-2 devstral-2-*": 256_000,
            "open-mixtral-8x22b* mixtral-8x22b*": 65_536,
            "open-mixtral-8x7b* mixtral-8x7b* open-mistral-7b*": 32_768,
        },
    ),
)

_GROK_REASONING = "grok-4.[3567]* grok-4-* grok-4.20* grok-4 grok-3-mini* grok-code-fast* grok-build*"
_GROK_AS_4_3 = "grok-4.3* grok-latest grok-4-0709 grok-4-fast* grok-4-1-fast* grok-3"
_GROK = (
    # "presencePenalty, frequencyPenalty, and stop cannot be used with reasoning models"; the penalties are refused by
    # every model since Grok 4 (miaoxworld/NativeTavern#83).
    _at(
        "xai",
        "grok-4*non-reasoning*",
        "https://github.com/miaoxworld/NativeTavern/issues/83",
        "2026-09-15",
        ModelCapabilities(refused_params=_PENALTIES),
    ),
    _at(
        "xai",
        _GROK_REASONING,
        "https://docs.x.ai/docs/guides/reasoning; https://github.com/langchain-ai/langchain/pull/38335",
        "2026-09-23",
        ModelCapabilities(refused_params=(*_PENALTIES, "stop")),
    ),
    # xAI answers retired names with Grok 4.3: https://docs.x.ai/developers/migration/may-15-retirement
    _at(
        "xai",
        _GROK_AS_4_3,
        _PYDANTIC + "profiles/grok.py; https://docs.x.ai/developers/model-capabilities/text/reasoning",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, efforts=("none", "low", "medium", "high")),
        (_CHAT, "openai_responses"),
    ),
    _at(
        "xai",
        "grok-4.[56]* grok-build-latest",
        _PYDANTIC + "profiles/grok.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "medium", "high")),
        (_CHAT, "openai_responses"),
    ),
    _at(
        "xai",
        "grok-4.7*",
        _PYDANTIC + "profiles/grok.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "medium", "high", "xhigh")),
        (_CHAT, "openai_responses"),
    ),
    *_media("grok-4*", ("image", "file"), _MODELS_DEV + "xai; " + _LITELLM, "2026-11-16"),
    *_windows(
        _LITELLM + "; https://openrouter.ai/x-ai/grok-4; https://openrouter.ai/x-ai/grok-4-fast",
        "2026-11-18",
        {
            "grok-4-fast* grok-4[.-]1-fast*": 2_000_000,
            "grok-4.20* grok-4.3* grok-latest": 1_000_000,
            "grok-4.[567]* grok-build-latest": 500_000,
            "grok-4 grok-4-0709 grok-4-latest grok-code-fast* grok-build-0.1": 256_000,
            "grok-3 grok-3-mini*": 131_072,
        },
    ),
)

# Meta's names, those of clouds (`llama3-1-8b-instruct-v1:0`), of Fireworks, and of Ollama
_LLAMA_TEXT = (
    "llama-3.[13]-[0-9]*b llama-3.[13]-[0-9]*b-instruct llama-3.[13]-[0-9]*b-instruct-[ft]* llama-3.3-70b-versatile "
    "llama-3.1-8b-instant llama3-[13]-[0-9]*b-instruct llama-v3.[13]-[0-9]*b-instruct llama3.[123] llama-3.2-[13]b "
    "llama-3.2-[13]b-instruct* llama3-2-[13]b-instruct llama-v3.2-[13]b-instruct"
)
_LLAMA_VISION = (
    "llama-3.2-11b-vision* llama-3.2-90b-vision* llama3.2-vision llama3-2-11b-instruct* llama3-2-90b-instruct* "
    "llama-v3.2-11b-vision* llama-v3.2-90b-vision*"
)
_LLAMA_3 = f"{_LLAMA_TEXT} {_LLAMA_VISION}"
_LLAMA_4 = "llama-4-scout* llama-4-maverick* llama4 llama4-scout* llama4-maverick*"
_LLAMA_FIRST = "llama3 llama-3-8b-instruct llama-3-70b-instruct llama-3-8b-chat-hf llama-3-70b-chat-hf"
_LLAMA = (
    # "Parallel tool calls are not supported" for Llama 3; its chat template rejects a turn with two calls: "This model
    # only supports single tool-calls at once!"
    _at(
        "vllm",
        _LLAMA_3,
        "https://docs.vllm.ai/en/v0.9.0/features/tool_calling.html; "
        "https://github.com/oracle/langchain-oracle/commit/6583478e",
        "2026-11-16",
        ModelCapabilities(parallel_calls=False),
    ),
    _row(_LLAMA_3 + " " + _LLAMA_4, _MODELS_DEV + "meta", "2026-07-02", ModelCapabilities(thinking=False)),
    *_media(f"{_LLAMA_VISION} {_LLAMA_4}", ("image",), _MODELS_DEV + "meta; providers/amazon-bedrock", "2026-07-02"),
    *_media(
        f"{_LLAMA_TEXT} {_LLAMA_FIRST} llama3-8b llama3-70b llama3-8b-instruct* llama3-70b-instruct*",
        (),
        _MODELS_DEV + "meta; providers/amazon-bedrock",
        "2026-07-02",
    ),
    *_windows(
        _LITELLM + "; " + _MODELS_DEV + "meta",
        "2026-11-16",
        {
            _LLAMA_3: 128_000,  # Llama 4 Scout has 10,000,000, which no vendor offers
            "llama-4-maverick* llama4-maverick*": 1_000_000,
            _LLAMA_FIRST: 8192,
        },
    ),
)

_GPT_OSS_DOCS = "https://developers.openai.com/api/docs/models/gpt-oss-120b"
_GPT_OSS_NAMES = "gpt-oss gpt-oss-20b gpt-oss-120b gpt-oss-*0b-1 gpt-oss-*0b-maas gpt-oss-*0b-gguf"
_GPT_OSS = (
    # The model has three levels and no off (openai/harmony); Cerebras and Groq answer `none` with 400.
    _row(
        "gpt-oss*",
        _GPT_OSS_DOCS + "; recorded: groq.jsonl, openai/gpt-oss-120b, status 200; " + _PYDANTIC + "profiles/groq.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "medium", "high")),
        _ANYWHERE,
        (_CHAT, "openai_responses", "ollama"),
    ),
    # The chain of thought "is crucial for the performance of tool calling".
    _row(
        "gpt-oss*",
        "https://github.com/openai/openai-cookbook/pull/1982 articles/gpt-oss/handle-raw-cot.md",
        "2026-11-16",
        ModelCapabilities(reasoning_replay="accepted"),
    ),
    *_media(_GPT_OSS_NAMES, (), _GPT_OSS_DOCS, "2026-11-16"),
    *_windows(_GPT_OSS_DOCS, "2026-11-16", {_GPT_OSS_NAMES: 131_072}),
)

_DEEPSEEK_DOCS = "https://api-docs.deepseek.com/"
_DEEPSEEK_THINKING = "deepseek-v4* deepseek-flash*"
_DEEPSEEK = (
    # "This response_format type is unavailable now" (UKGovernmentBEIS/inspect_ai#4916, llm-exe/llm-exe#662)
    _at(
        "deepseek",
        "deepseek*",
        _DEEPSEEK_DOCS + "guides/json_mode",
        "2026-08-17",
        ModelCapabilities(output_schemas=False),
    ),
    # "Thinking mode does not support this tool_choice" for `required` and a named tool; thinking is on by default.
    _at(
        "deepseek",
        _DEEPSEEK_THINKING,
        "https://github.com/deepseek-ai/DeepSeek-V3/issues/1376; " + _DEEPSEEK_DOCS + "guides/thinking_mode",
        "2026-09-22",
        _THINKS_UNLESS_DISABLED,
    ),
    _at(
        "deepseek",
        _DEEPSEEK_THINKING,
        "https://github.com/deepseek-ai/DeepSeek-V3/issues/1376; " + _DEEPSEEK_DOCS + "guides/thinking_mode",
        "2026-09-22",
        ModelCapabilities(thinking_off=True, forced_choice_when_thinking=False),
        ("openai_responses", "anthropic"),
    ),
    _at(
        "deepseek",
        "deepseek-reasoner",
        _PYDANTIC + "providers/deepseek.py",
        "2026-11-16",
        _ALWAYS_THINKS,
        (_CHAT, "openai_responses", "anthropic"),
    ),
    _at(
        "deepseek",
        _DEEPSEEK_THINKING + " deepseek-reasoner",
        _DEEPSEEK_DOCS + "guides/thinking_mode",
        "2026-09-22",
        ModelCapabilities(default_effort="high", reasoning_replay="required"),
    ),
    _at(
        "deepseek",
        "deepseek-chat deepseek-reasoner " + _DEEPSEEK_THINKING,
        _DEEPSEEK_DOCS + "quick_start/pricing",
        "2026-11-16",
        ModelCapabilities(max_output=393_216),
        (_CHAT, "openai_responses", "anthropic"),
    ),
    # DeepSeek answers `deepseek-v4-flash` with V4.1 Flash, which reads images; the open weights of that name do not.
    *_media(
        "deepseek-v4-pro deepseek-v3 deepseek-v3-* deepseek-v3.[12]* deepseek-r1 deepseek-r1-0528* "
        "deepseek-r1-distill-llama-*b deepseek-r1-distill-qwen-*b",
        (),
        _DEEPSEEK_DOCS + "quick_start/pricing",
        "2026-11-16",
    ),
    *_windows(
        _DEEPSEEK_DOCS + "quick_start/pricing; " + _LITELLM,
        "2026-11-16",
        {
            "deepseek-v4* deepseek-flash* deepseek-chat deepseek-reasoner": 1_000_000,
            "deepseek-v3 deepseek-v3-* deepseek-v3.* deepseek.v3*": 163_840,
        },
    ),
    *_windows(_MODELS_DEV + "deepseek", "2026-07-02", {"deepseek-r1 deepseek-r1-0528* deepseek.r1*": 128_000}),
)

_NOVA = (
    # "The maximum tokens you requested exceeds the model limit of 10000"
    _row(
        "nova-micro* nova-lite* nova-pro* nova-premier*",
        "https://github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/175",
        "2026-01-27",
        ModelCapabilities(max_output=10_000, thinking=False),
    ),
    _row("nova-2-*", "https://docs.rs/mixtape-core; " + _LITELLM, "2026-11-16", ModelCapabilities(max_output=65_535)),
    *_media("nova-micro*", (), "https://vercel.com/ai-gateway/models/nova-micro; " + _LITELLM, "2026-11-18"),
    *_media(
        "nova-lite* nova-pro* nova-premier* nova-2-lite* nova-2-pro*",
        ("image", "video", "file"),
        "https://docs.aws.amazon.com/nova/latest/userguide/modalities.html; "
        "https://docs.aws.amazon.com/nova/latest/nova2-userguide/using-multimodal-models.html; " + _LITELLM,
        "2026-11-18",
    ),
    *_windows(
        _LITELLM, "2026-11-16", {"nova-premier* nova-2-*": 1_000_000, "nova-micro*": 128_000, "nova-[lp]*": 300_000}
    ),
)

_COMMAND_A = "command-a command-a-03-2025"
_COMMAND_R = "command-r command-r-* command-r7b* c4ai-command-r*"
_COMMAND = (
    _row(
        f"{_COMMAND_R} {_COMMAND_A}",
        _MODELS_DEV + "cohere; providers/cohere",
        "2026-07-02",
        ModelCapabilities(thinking=False),
    ),
    *(
        _row(models, _LITELLM, "2026-11-16", ModelCapabilities(max_output=limit), ("cohere",), (_CHAT,))
        for models, limit in ((_COMMAND_R, 4096), (_COMMAND_A, 8192), ("command-a-reasoning*", 32_768))
    ),
    *_media("command-a-vision*", ("image",), _MODELS_DEV + "../providers/cohere", "2026-07-02"),
    *_media(
        f"{_COMMAND_R} {_COMMAND_A} command-a-reasoning*", (), _MODELS_DEV + "cohere; providers/cohere", "2026-07-02"
    ),
    *_windows(
        "https://docs.cohere.com/docs/command-a-reasoning",
        "2026-11-16",
        {f"{_COMMAND_A} command-a-reasoning*": 256_000, f"{_COMMAND_R} command-a-vision*": 128_000},
    ),
)

_PARALLEL = (
    _row(
        "kimi-k2 kimi-k2[.-]* kimi-k3* glm-4.[567]* glm-5* minimax-m[23]* qwen3 qwen3[.-]* deepseek-v3* deepseek-v4* "
        "deepseek-flash deepseek-chat",
        _LITELLM + " (together, novita, deepseek)",
        "2026-11-16",
        ModelCapabilities(parallel_calls=True),
    ),
)

OPEN_ROWS: tuple[CapabilityRow, ...] = (
    _KIMI + _GLM + _MINIMAX + _QWEN + _MISTRAL + _GROK + _LLAMA + _GPT_OSS + _DEEPSEEK + _NOVA + _COMMAND + _PARALLEL
)
