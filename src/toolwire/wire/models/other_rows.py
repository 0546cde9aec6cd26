"""Rows about the models of Google, Meta, Mistral, xAI, Amazon and Cohere, by the rules of `open_rows`."""

from __future__ import annotations

from msgspec.structs import replace

from .capabilities import CapabilityRow, ModelCapabilities
from .row_makers import (
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
LLAMA = (
    # "Parallel tool calls are not supported" for Llama 3; its chat template rejects a turn with two calls: "This model
    # only supports single tool-calls at once!"
    vendor_row(
        "vllm",
        _LLAMA_3,
        "https://docs.vllm.ai/en/v0.9.0/features/tool_calling.html; "
        "https://github.com/oracle/langchain-oracle/commit/6583478e",
        "2026-11-16",
        ModelCapabilities(parallel_calls=False),
    ),
    model_row(_LLAMA_3 + " " + _LLAMA_4, MODELS_DEV + "meta", "2026-07-02", ModelCapabilities(thinking=False)),
    *media_rows(f"{_LLAMA_VISION} {_LLAMA_4}", ("image",), MODELS_DEV + "meta; providers/amazon-bedrock", "2026-07-02"),
    *media_rows(
        f"{_LLAMA_TEXT} {_LLAMA_FIRST} llama3-8b llama3-70b llama3-8b-instruct* llama3-70b-instruct*",
        (),
        MODELS_DEV + "meta; providers/amazon-bedrock",
        "2026-07-02",
    ),
    *window_rows(
        LITELLM + "; " + MODELS_DEV + "meta",
        "2026-11-16",
        {
            _LLAMA_3: 128_000,  # Llama 4 Scout has 10,000,000, which no vendor offers
            "llama-4-maverick* llama4-maverick*": 1_000_000,
            _LLAMA_FIRST: 8192,
        },
    ),
)


_GEMINI_DOCS = "https://ai.google.dev/gemini-api/docs/"


def _gemini(models: tuple[str, ...], source: str, date: str, capabilities: ModelCapabilities) -> CapabilityRow:
    vendors = ("google*", "gemini*", "vertex*", "compatible")
    return CapabilityRow(models, capabilities, source, date, ("gemini", "gemini_interactions"), vendors)


GEMINI = (
    _gemini(
        ("gemini-3-pro*",),
        _GEMINI_DOCS + "thinking",
        "2026-11-09",
        ModelCapabilities(thinking_off=False, efforts=("low", "high")),
    ),
    _gemini(
        ("gemini-3.[0-9]-pro*", "gemini-3.[78]-flash", "gemini-3.[78]-flash-preview*"),
        "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/guides/gemini-3-8-flash",
        "2026-09-02",
        ModelCapabilities(thinking_off=False, efforts=("low", "medium", "high")),
    ),
    _gemini(
        ("gemini-3-flash*", "gemini-3.[156]-flash*", "gemini-3.*-flash-lite*"),
        "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/guides/gemini-3-5-flash",
        "2026-08-22",
        ModelCapabilities(thinking_off=False, efforts=("minimal", "low", "medium", "high")),
    ),
    _gemini(
        ("gemini-2.5-pro*",),
        _GEMINI_DOCS + "thinking#set-budget",
        "2026-11-09",
        ModelCapabilities(thinking_off=False, efforts=(), min_budget=128, max_budget=32768),
    ),
    _gemini(
        ("gemini-2.5-flash-lite*",),
        _GEMINI_DOCS + "thinking#set-budget",
        "2026-11-09",
        ModelCapabilities(thinking_off=True, efforts=(), min_budget=512, max_budget=24576),
    ),
    _gemini(
        ("gemini-2.5-flash*",),
        _GEMINI_DOCS + "thinking#set-budget; recorded: gemini.jsonl, gemini-2.5-flash with budget 0, status 200",
        "2026-11-09",
        ModelCapabilities(thinking_off=True, efforts=(), max_budget=24576),
    ),
    _gemini(("gemini-2.0-flash-thinking*",), _GEMINI_DOCS + "thinking", "2026-11-09", ModelCapabilities(efforts=())),
    _gemini(
        ("gemini-1*", "gemini-2.0*"),
        _GEMINI_DOCS + "thinking",
        "2026-11-09",
        ModelCapabilities(thinking=False, efforts=()),
    ),
    # of prompt; 65,536 of answer are counted apart
    _gemini(
        ("gemini-2.5-pro*", "gemini-2.5-flash", "gemini-2.5-flash-lite*", "gemini-2.5-flash-preview*", "gemini-3*"),
        _GEMINI_DOCS + "models; https://github.com/anomalyco/models.dev@f3fc6922 models/google",
        "2026-11-16",
        ModelCapabilities(window=1_048_576),
    ),
    _gemini(
        ("gemini-3*",), "https://github.com/crewAIInc/crewAI/pull/6973", "2026-08-20", ModelCapabilities(prefill=False)
    ),
    # "Function calling with a response mime type: 'application/json' is unsupported" (googleapis/python-genai#867);
    # recorded: gemini.jsonl, gemini-3-flash-preview with both, status 200.
    _gemini(
        ("gemini-1*", "gemini-2*"),
        _GEMINI_DOCS + "tool-combination",
        "2026-11-09",
        ModelCapabilities(output_with_tools=False, hosted_with_functions=False),
    ),
    # Thought signatures on function calls are checked since Gemini 3.
    _gemini(
        ("gemini-1*", "gemini-2*", "gemma-*"),
        _GEMINI_DOCS + "thought-signatures",
        "2026-11-09",
        ModelCapabilities(signed_calls=False),
    ),
)


_NONE_OR_HIGH = ModelCapabilities(thinking_off=True, efforts=("none", "high"))
MISTRAL = (
    # They reason only with the effort `high`, not without one, and refuse `low` (checked live 2026-10-22).
    vendor_row(
        "mistral",
        "mistral-small-latest mistral-small-2603* mistral-medium-latest mistral-medium "
        "mistral-medium-3 mistral-medium-3[.-]5* mistral-medium-2604* magistral-medium-latest magistral-small-latest",
        PYDANTIC_AI + "providers/mistral.py; https://docs.mistral.ai/capabilities/reasoning/adjustable",
        "2026-10-22",
        ModelCapabilities(thinking_off=True, efforts=("none", "high"), default_effort="none"),
    ),
    # https://docs.mistral.ai/inference/conversations/reasoning has more levels; sources disagree about the default.
    vendor_row("mistral", "mistral-large-4*", LITELLM, "2026-11-18", _NONE_OR_HIGH),
    model_row(
        "codestral* devstral* ministral-[38]b* ministral-3-*-instruct* mistral-large-2* mistral-large-3* mistral-nemo "
        "mistral-nemo-instruct* open-mistral* open-mixtral* mixtral-8x* pixtral* mistral-small-24* mistral-small-25* "
        "mistral-medium-25*",
        MODELS_DEV + "mistral; providers/mistral",
        "2026-07-02",
        ModelCapabilities(thinking=False),
    ),
    *media_rows(
        "mistral-large-2512* mistral-large-latest mistral-large-3* mistral-large-4* mistral-medium* "
        "mistral-small-2506* mistral-small-26* mistral-small-latest mistral-small3.[12]* ministral-*-2512* "
        "ministral-3* pixtral*",
        ("image",),
        MODELS_DEV + "mistral; " + LITELLM,
        "2026-11-16",
    ),
    *media_rows(
        "codestral* devstral devstral-2512* devstral-medium* devstral-small-250* devstral-2 mistral-large-24* "
        "mistral-nemo mistral-nemo-instruct* open-mistral* open-mixtral* mixtral-8x*",
        (),
        MODELS_DEV + "mistral; providers/mistral",
        "2026-07-02",
    ),
    # LiteLLM has 1,048,576.
    *window_rows("https://vercel.com/ai-gateway/models/mistral-large-4", "2026-11-18", {"mistral-large-4*": 524_288}),
    *window_rows(
        MODELS_DEV + "mistral; " + LITELLM,
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
GROK = (
    # "presencePenalty, frequencyPenalty, and stop cannot be used with reasoning models"; the penalties are refused by
    # every model since Grok 4 (miaoxworld/NativeTavern#83).
    vendor_row(
        "xai",
        "grok-4*non-reasoning*",
        "https://github.com/miaoxworld/NativeTavern/issues/83",
        "2026-09-15",
        ModelCapabilities(refused_params=PENALTIES),
    ),
    vendor_row(
        "xai",
        _GROK_REASONING,
        "https://docs.x.ai/docs/guides/reasoning; https://github.com/langchain-ai/langchain/pull/38335",
        "2026-09-23",
        ModelCapabilities(refused_params=(*PENALTIES, "stop")),
    ),
    # xAI answers retired names with Grok 4.3: https://docs.x.ai/developers/migration/may-15-retirement
    vendor_row(
        "xai",
        _GROK_AS_4_3,
        PYDANTIC_AI + "profiles/grok.py; https://docs.x.ai/developers/model-capabilities/text/reasoning",
        "2026-11-16",
        ModelCapabilities(thinking_off=True, efforts=("none", "low", "medium", "high")),
        (CHAT, "openai_responses"),
    ),
    vendor_row(
        "xai",
        "grok-4.[56]* grok-build-latest",
        PYDANTIC_AI + "profiles/grok.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "medium", "high")),
        (CHAT, "openai_responses"),
    ),
    vendor_row(
        "xai",
        "grok-4.7*",
        PYDANTIC_AI + "profiles/grok.py",
        "2026-11-16",
        ModelCapabilities(thinking_off=False, efforts=("low", "medium", "high", "xhigh")),
        (CHAT, "openai_responses"),
    ),
    *media_rows("grok-4*", ("image", "file"), MODELS_DEV + "xai; " + LITELLM, "2026-11-16"),
    *window_rows(
        LITELLM + "; https://openrouter.ai/x-ai/grok-4; https://openrouter.ai/x-ai/grok-4-fast",
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

NOVA = (
    # "The maximum tokens you requested exceeds the model limit of 10000"
    model_row(
        "nova-micro* nova-lite* nova-pro* nova-premier*",
        "https://github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/175",
        "2026-01-27",
        ModelCapabilities(max_output=10_000, thinking=False),
    ),
    model_row(
        "nova-2-*", "https://docs.rs/mixtape-core; " + LITELLM, "2026-11-16", ModelCapabilities(max_output=65_535)
    ),
    *media_rows("nova-micro*", (), "https://vercel.com/ai-gateway/models/nova-micro; " + LITELLM, "2026-11-18"),
    *media_rows(
        "nova-lite* nova-pro* nova-premier* nova-2-lite* nova-2-pro*",
        ("image", "video", "file"),
        "https://docs.aws.amazon.com/nova/latest/userguide/modalities.html; "
        "https://docs.aws.amazon.com/nova/latest/nova2-userguide/using-multimodal-models.html; " + LITELLM,
        "2026-11-18",
    ),
    *window_rows(
        LITELLM, "2026-11-16", {"nova-premier* nova-2-*": 1_000_000, "nova-micro*": 128_000, "nova-[lp]*": 300_000}
    ),
)

_COMMAND_A = "command-a command-a-03-2025"
_COMMAND_R = "command-r command-r-* command-r7b* c4ai-command-r*"
_COMMAND_ROWS = (
    model_row(
        f"{_COMMAND_R} {_COMMAND_A}",
        MODELS_DEV + "cohere; providers/cohere",
        "2026-07-02",
        ModelCapabilities(thinking=False),
    ),
    *(
        model_row(
            models,
            LITELLM,
            "2026-11-16",
            ModelCapabilities(max_output=limit),
            ("cohere", "cohere-chat"),
            (CHAT,),
        )
        for models, limit in ((_COMMAND_R, 4096), (_COMMAND_A, 8192), ("command-a-reasoning*", 32_768))
    ),
    *media_rows("command-a-vision*", ("image",), MODELS_DEV + "../providers/cohere", "2026-07-02"),
    *media_rows(
        f"{_COMMAND_R} {_COMMAND_A} command-a-reasoning*", (), MODELS_DEV + "cohere; providers/cohere", "2026-07-02"
    ),
    *window_rows(
        "https://docs.cohere.com/docs/command-a-reasoning",
        "2026-11-16",
        {f"{_COMMAND_A} command-a-reasoning*": 256_000, f"{_COMMAND_R} command-a-vision*": 128_000},
    ),
)
COMMAND = tuple([replace(row, wires=(*row.wires, "cohere")) for row in _COMMAND_ROWS])

# Converse has one form for all models; these rows name the features of some of them, and come after all other rows.
_CONVERSE_DOCS = "https://docs.aws.amazon.com/bedrock/latest/userguide/"
BEDROCK = (
    model_row(
        "claude-*",
        _CONVERSE_DOCS + "prompt-caching.html; botocore 1.44.5, ContentBlock",
        "2026-11-18",
        ModelCapabilities(cache_marks=True, budgets=True, adaptive=True, system="after_user"),
        wires=("bedrock",),
    ),
    model_row(
        "nova-*",
        _CONVERSE_DOCS + "prompt-caching.html",
        "2026-11-18",
        ModelCapabilities(cache_marks=True),
        wires=("bedrock",),
    ),
    # Bedrock refuses a cache point and a field of another model: "extraneous key [thinking] is not permitted".
    model_row(
        "?*",
        _CONVERSE_DOCS + "prompt-caching.html; conversation-inference-supported-models-features.html",
        "2026-11-18",
        ModelCapabilities(cache_marks=False, budgets=False, adaptive=False, system="start"),
        wires=("bedrock",),
    ),
)
