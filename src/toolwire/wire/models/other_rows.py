"""Rows about the models of Mistral, xAI, Amazon and Cohere, by the rules of `open_rows`."""

from __future__ import annotations

from .capabilities import ModelCapabilities
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
COMMAND = (
    model_row(
        f"{_COMMAND_R} {_COMMAND_A}",
        MODELS_DEV + "cohere; providers/cohere",
        "2026-07-02",
        ModelCapabilities(thinking=False),
    ),
    *(
        model_row(models, LITELLM, "2026-11-16", ModelCapabilities(max_output=limit), ("cohere",), (CHAT,))
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
