"""Rows of data about vendors of models: the wire, the base URL, and how the key is sent. A vendor is one row.

    find("groq").base_url            # 'https://api.groq.com/openai/v1'
    find("azure").surfaces           # the paths of Azure OpenAI, by wire

Deviations in code are in `vendor_codecs`. Base URLs end where the wire's path begins; paths of a vendor are Surfaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.hosted import HOSTED_KINDS
from .vendor_types import ApiKey, Surface, Vendor


def _bearer_key(variable: str) -> tuple[ApiKey, ...]:
    return (ApiKey(variable),)


ALL_HOSTED = frozenset(HOSTED_KINDS)
_MAX_TOKENS_FIELD = {"max_completion_tokens": "max_tokens"}
_OPENAI = Vendor(
    "openai",
    "https://api.openai.com/v1",
    _bearer_key("OPENAI_API_KEY"),
    "openai_responses",
    base_variable="OPENAI_BASE_URL",
    # "Invalid 'tools': array too long. Expected an array with maximum length 128" (zed-industries/zed#32946)
    stated_tool_limits=("openai_chat",),
    keeps_responses=True,
    hosted=ALL_HOSTED,
)
_GEMINI = Vendor(
    "gemini",
    "https://generativelanguage.googleapis.com",
    (ApiKey("GOOGLE_API_KEY", "x-goog-api-key", ""), ApiKey("GEMINI_API_KEY", "x-goog-api-key", "")),
    "gemini",
    base_variable="GOOGLE_GEMINI_BASE_URL",
    hosted=ALL_HOSTED,
    stated_tool_limits=("gemini",),  # google-genai 3.1.0, types.py: `Tool.function_declarations`
    # Fields that only Vertex AI has: google-genai 3.1.0 raises for them in the mode of the Gemini API
    # (models.py, `_*_to_mldev`; read 2026-11-16).
    rejected_fields=frozenset(
        {
            ("gemini", "modelArmorConfig"),
            ("gemini", "safetySettings/method"),
            ("gemini", "googleMaps/groundingTypes"),
            ("gemini", "googleSearch/blockingConfidence"),
            ("gemini", "googleSearch/excludeDomains"),
            ("gemini/generationConfig", "audioTimestamp"),
            ("gemini/generationConfig", "imageConfig/imageOutputOptions"),
            ("gemini/generationConfig", "imageConfig/personGeneration"),
            ("gemini/generationConfig", "imageConfig/prominentPeople"),
            ("gemini/generationConfig", "modelConfig"),
            ("gemini/generationConfig", "routingConfig"),
            ("gemini/functionCallingConfig", "streamFunctionCallArguments"),
            ("gemini/functionCall", "partialArgs"),
            ("gemini/functionCall", "willContinue"),
        }
    ),
    rejected_kinds=frozenset({"enterpriseWebSearch", "exaAiSearch", "parallelAiSearch", "retrieval"}),
)

# Azure OpenAI: `/openai/v1` takes no API version, or `preview`; deployments take a dated one.
# openai 3.49.0, lib/azure.py, and recorded traffic.
_OLD_DATED = r"(?:202[0-3]|2024-0[1-8])-[\d-]+(?:preview)?"
_DATED = r"\d{4}-\d\d-\d\d(?:-preview)?"
_UNDATED = r"(?:v1|preview|latest)?"


def _azure_surface(wire: str, path: str, api_versions: str) -> Surface:
    return Surface(wire, path, api_versions=api_versions, version_query="api-version")


_AZURE = Vendor(
    "azure",
    "",
    (
        ApiKey("AZURE_OPENAI_AD_TOKEN", is_token=True),  # before the key, as in the SDK
        ApiKey("AZURE_OPENAI_API_KEY", "api-key", ""),
    ),
    base_variable="AZURE_OPENAI_ENDPOINT",
    keeps_responses=True,
    hosted=ALL_HOSTED,
    stated_tool_limits=("openai_chat",),  # OpenAI's models and limits
    # "string too long. Expected a string with maximum length 40": still enforced here (2026-07)
    id="[a-zA-Z0-9_-]+",
    id_length=40,
    cache_marks=False,  # the name of a deployment hides its model, and only the newest ones have them
    surfaces=(
        _azure_surface("openai_chat", "/openai/v1/chat/completions", _UNDATED),
        # `max_completion_tokens` and `stream_options` were added in 2024-09-01-preview (API version lifecycle page)
        replace(
            _azure_surface("openai_chat", "/openai/deployments/{model}/chat/completions", _OLD_DATED),
            fields=_MAX_TOKENS_FIELD,
            counts_on_request=False,
        ),
        _azure_surface("openai_chat", "/openai/deployments/{model}/chat/completions", _DATED),
        _azure_surface("openai_responses", "/openai/v1/responses", _UNDATED),
        _azure_surface("openai_responses", "/openai/responses", _DATED),
    ),
    variables={"api_version": ("OPENAI_API_VERSION",)},
    domains=tuple(
        f"{service}.azure.{suffix}"
        for service in ("openai", "cognitiveservices", "services.ai")
        for suffix in ("com", "us", "cn")
    ),
)

# Vertex AI: google-genai 3.1.0, _api_client.py; anthropic 2.8.0, lib/vertex; and recorded traffic.
_VERTEX_MODELS = "/{api_version}/projects/{project}/locations/{location}/publishers"
_VERTEX = Vendor(
    "vertex",
    "https://{location}-aiplatform.googleapis.com",
    (ApiKey("CLOUDSDK_AUTH_ACCESS_TOKEN", is_token=True),),
    "gemini",
    base_variable="GOOGLE_VERTEX_BASE_URL",
    hosted=ALL_HOSTED,
    stated_tool_limits=("gemini",),
    surfaces=(
        Surface(
            "gemini",
            f"{_VERTEX_MODELS}/google/models/{{model}}:generateContent",
            f"{_VERTEX_MODELS}/google/models/{{model}}:streamGenerateContent?alt=sse",
            api_version="v1beta1",
        ),
        # google-genai 3.3.0, _gaos/google_genai.py (get_google_genai_api_version)
        Surface(
            "gemini_interactions",
            "/{api_version}/projects/{project}/locations/{location}/interactions",
            api_version="v1beta1",
        ),
        Surface(
            "anthropic",
            f"{_VERTEX_MODELS}/anthropic/models/{{model}}:rawPredict",
            f"{_VERTEX_MODELS}/anthropic/models/{{model}}:streamRawPredict",
            api_version="v1",
            omitted_fields=("model",),
            marks_body=False,  # "cache_control: Extra inputs are not permitted" (UKGovernmentBEIS/inspect_ai#3851)
            version_field="anthropic_version",
            wire_versions={"2023-06-01": "vertex-2023-10-16"},
        ),
    ),
    variables={
        "project": ("GOOGLE_CLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID"),
        "location": ("GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION"),
    },
    location="global",
    base_urls={
        "global": "https://aiplatform.googleapis.com",
        "us": "https://aiplatform.us.rep.googleapis.com",
        "eu": "https://aiplatform.eu.rep.googleapis.com",
    },
    domains=("googleapis.com",),
    # Fields that only the Gemini API has: google-genai 3.1.0 raises for them in the mode of Vertex AI
    # (models.py, `_*_to_vertex`; read 2026-11-16).
    rejected_fields=frozenset(
        {
            ("gemini", "store"),
            ("gemini", "partMetadata"),
            ("gemini/generationConfig", "enableEnhancedCivicAnswers"),
            ("gemini/toolConfig", "includeServerSideToolInvocations"),
            ("gemini/functionResponse", "willContinue"),
        }
    ),
    rejected_kinds=frozenset({"fileSearch", "toolCall", "toolResponse"}),
)


def _hosted_vendor(name: str, base_url: str, variable: str, *regional_urls: str) -> Vendor:
    """Make the row of a vendor with OpenAI's chat protocol, whose key is in the environment `variable`."""
    return Vendor(
        name, base_url, _bearer_key(variable), cache_marks=False, fields=_MAX_TOKENS_FIELD, regional_urls=regional_urls
    )


def _local_vendor(name: str, base_url: str, variable: str, dialect: str | None = None) -> Vendor:
    """Make the row of a server that runs open models; only Ollama has a `dialect` of its own."""
    return Vendor(
        name,
        base_url,
        _bearer_key(variable),
        keyless=True,
        dialect=dialect,
        # OpenAI's maximum is not theirs: they put any number of tools into the model's chat template.
        limits_tools=False,
        cache_marks=False,
        fields=_MAX_TOKENS_FIELD,
        # `tool_choice` is no field of Ollama's /v1/chat/completions (openai/openai.go)
        choice_by_schema=None if dialect is None else "declared",
        raw_completions=dialect is None,  # Ollama's /v1/completions puts the prompt into the model's own template
    )


COMPATIBLE = Vendor("compatible", "", keyless=True, cache_marks=False, fields=_MAX_TOKENS_FIELD, raw_completions=True)
"""A server of which only the base URL is known."""

# Claude by Anthropic's own API in the accounts of cloud customers: anthropic 2.10.0, lib/aws, lib/foundry and
# lib/google_cloud (read 2026-11-19).
_AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_WORKSPACE_AT_AWS = Vendor(
    "anthropic-aws",
    "https://aws-external-anthropic.{location}.api.aws",
    _bearer_key("ANTHROPIC_AWS_API_KEY"),
    "anthropic",
    base_variable="ANTHROPIC_AWS_BASE_URL",
    hosted=ALL_HOSTED,
    variables={"location": _AWS_REGION, "workspace": ("ANTHROPIC_AWS_WORKSPACE_ID",)},
    headers={"anthropic-workspace-id": "{workspace}"},
    hosts=r"aws-external-anthropic\.[a-z0-9-]+\.api\.aws",
    signing_name="aws-external-anthropic",
)
_FOUNDRY = Vendor(
    "anthropic-foundry",
    "https://{resource}.services.ai.azure.com/anthropic",
    (ApiKey("ANTHROPIC_FOUNDRY_API_KEY", "x-api-key", ""),),
    "anthropic",
    base_variable="ANTHROPIC_FOUNDRY_BASE_URL",
    hosted=ALL_HOSTED,
    variables={"resource": ("ANTHROPIC_FOUNDRY_RESOURCE",)},
    domains=("services.ai.azure.com",),
)
_WORKSPACE_AT_GOOGLE = Vendor(
    "anthropic-google-cloud",
    "https://claude.googleapis.com/v1/projects/{project}/locations/{location}/workspaces/{workspace}/invoke",
    (ApiKey("CLOUDSDK_AUTH_ACCESS_TOKEN", is_token=True),),
    "anthropic",
    base_variable="ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
    hosted=ALL_HOSTED,
    variables={
        "project": ("ANTHROPIC_GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT"),
        "location": ("ANTHROPIC_GOOGLE_CLOUD_LOCATION",),
        "workspace": ("ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID",),
    },
    location="global",
    domains=("googleapis.com",),
)

# Amazon Bedrock with the wires of others: openai 3.51.0, providers/bedrock.py; anthropic 2.10.0, lib/bedrock/_mantle.py
# (read 2026-11-19). It runs none of the tools of those providers.
_MANTLE = Vendor(
    "bedrock-mantle",
    "https://bedrock-mantle.{location}.api.aws/openai/v1",
    _bearer_key("AWS_BEARER_TOKEN_BEDROCK"),
    base_variable="AWS_BEDROCK_BASE_URL",
    cache_marks=False,
    variables={"location": _AWS_REGION},
    hosts=r"bedrock-mantle\.[a-z0-9-]+\.api\.aws",
    signing_name="bedrock-mantle",
)
_RUNTIME = "https://bedrock-runtime.{location}.amazonaws.com/openai/v1"
_BEDROCK_OPENAI = replace(
    _MANTLE,
    name="bedrock-openai",
    base_url=_RUNTIME,
    base_urls={
        location: _RUNTIME.replace("{location}", location).replace("amazonaws.com", domain)
        for location, domain in (
            ("cn-north-1", "amazonaws.com.cn"),
            ("cn-northwest-1", "amazonaws.com.cn"),
            ("eusc-de-east-1", "amazonaws.eu"),
        )
    },
    # also with FIPS, and the endpoints of private networks
    hosts=r"(?:vpce-[\w-]+\.)?bedrock-runtime(?:-fips)?\.[a-z0-9-]+\.(?:vpce\.)?amazonaws\.(?:com|com\.cn|eu)",
    signing_name="bedrock",
)
# Amazon Bedrock's runtime: botocore 1.44.5 (service description, utils.py); anthropic 2.9.0, lib/bedrock (InvokeModel).
_BEDROCK = Vendor(
    "bedrock",
    "https://bedrock-runtime.{location}.amazonaws.com",
    _bearer_key("AWS_BEARER_TOKEN_BEDROCK"),
    "bedrock",
    base_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    surfaces=(
        Surface("bedrock", "/model/{model}/converse", "/model/{model}/converse-stream", api_versions=""),
        Surface(
            "anthropic",
            "/model/{model}/invoke",
            "/model/{model}/invoke-with-response-stream",
            api_versions="",
            omitted_fields=("model", "stream"),
            marks_body=False,
            version_field="anthropic_version",
            in_chunks=True,
            wire_versions={"2023-06-01": "bedrock-2023-05-31"},
        ),
    ),
    base_urls={location: url.removesuffix("/openai/v1") for location, url in _BEDROCK_OPENAI.base_urls.items()},
    variables={"location": _AWS_REGION},
    hosts=_BEDROCK_OPENAI.hosts,
    signing_name="bedrock",
)
_MISTRAL = Vendor(
    "mistral",
    "https://api.mistral.ai/v1",
    _bearer_key("MISTRAL_API_KEY"),
    dialect="mistral",
    id="[a-zA-Z0-9]{9}",
    id_length=9,
    cache_marks=False,
    fields={**_MAX_TOKENS_FIELD, "seed": "random_seed"},
    counts_on_request=False,
    regional_urls=("https://api.eu.mistral.ai", "https://api.us.mistral.ai"),  # mistralai 3.7.0, sdkconfiguration.py
)

_ROWS = (
    _OPENAI,
    replace(_OPENAI, name="openai-chat", wire="openai_chat"),
    Vendor(
        "anthropic",
        "https://api.anthropic.com",
        (ApiKey("ANTHROPIC_API_KEY", "x-api-key", ""), ApiKey("ANTHROPIC_AUTH_TOKEN")),
        "anthropic",
        base_variable="ANTHROPIC_BASE_URL",
        hosted=ALL_HOSTED,
    ),
    _GEMINI,
    replace(_GEMINI, name="google"),
    _AZURE,
    # its ids have the limits of the wire
    replace(_AZURE, name="azure-responses", wire="openai_responses", id=None),
    _VERTEX,
    # the documented version; `wire = "anthropic"` selects the newest one
    replace(
        _VERTEX,
        name="vertex-anthropic",
        wire="anthropic@2023-06-01",
        # https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/web-search
        hosted=frozenset({"web_search"}),
        base_variable="ANTHROPIC_VERTEX_BASE_URL",
        variables={
            "project": ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"),
            "location": ("CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION"),
        },
        rejected_fields=frozenset(),
        rejected_kinds=frozenset(),
    ),
    _WORKSPACE_AT_AWS,
    _FOUNDRY,
    _WORKSPACE_AT_GOOGLE,
    _MANTLE,
    replace(_MANTLE, name="bedrock-mantle-responses", wire="openai_responses"),
    replace(
        _MANTLE,
        name="bedrock-mantle-anthropic",
        base_url="https://bedrock-mantle.{location}.api.aws/anthropic",
        wire="anthropic",
        keys=(ApiKey("AWS_BEARER_TOKEN_BEDROCK"), ApiKey("ANTHROPIC_AWS_API_KEY")),
        base_variable="ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
        cache_marks=True,
    ),
    _BEDROCK,
    replace(_BEDROCK, name="bedrock-anthropic", wire="anthropic@2023-06-01"),
    _BEDROCK_OPENAI,
    replace(_BEDROCK_OPENAI, name="bedrock-openai-responses", wire="openai_responses"),
    _MISTRAL,
    # "Responses are not stored. Only client-executed function tools are supported." mistralai 3.7.0, client/responses.py
    replace(_MISTRAL, name="mistral-responses", wire="openai_responses", fields={}, counts_on_request=True),
    _hosted_vendor("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    # "'tools': maximum number of items is 128" (gsd-build/gsd-2#4376)
    replace(
        _hosted_vendor("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"), stated_tool_limits=("openai_chat",)
    ),
    # together 3.1.1, _client.py: the domain of the API has changed
    _hosted_vendor("together", "https://api.together.ai/v1", "TOGETHER_API_KEY", "https://api.together.xyz"),
    # https://openrouter.ai/docs/guides/best-practices/prompt-caching: `cache_control` in the body of a Chat request
    replace(_hosted_vendor("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"), marks_body=True),
    _hosted_vendor("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _hosted_vendor("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    _hosted_vendor("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    _hosted_vendor("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    _hosted_vendor("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", "https://api.moonshot.cn"),
    _hosted_vendor("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", "https://open.bigmodel.cn"),
    _hosted_vendor("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY", "https://api.minimaxi.com"),
    _hosted_vendor(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "https://dashscope.aliyuncs.com",
        "https://dashscope-us.aliyuncs.com",
    ),
    # cohere 7.3.1, environment.py, base_client.py, client_v2.py
    Vendor(
        "cohere",
        "https://api.cohere.com",
        (ApiKey("CO_API_KEY"), ApiKey("COHERE_API_KEY")),
        "cohere",
        base_variable="CO_API_URL",
        surfaces=(
            Surface("cohere", "/v2/chat", api_versions=""),
            Surface("openai_chat", "/compatibility/v1/chat/completions", api_versions=""),
        ),
        domains=("cohere.com", "cohere.ai"),
    ),
    replace(
        _hosted_vendor("cohere-chat", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
        keys=(ApiKey("COHERE_API_KEY"), ApiKey("CO_API_KEY")),
        domains=("cohere.com", "cohere.ai"),
    ),
    _hosted_vendor("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    _hosted_vendor("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    replace(  # huggingface_hub 2.4.0, utils/_auth.py: the older name still works
        _hosted_vendor("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
        keys=(ApiKey("HF_TOKEN"), ApiKey("HUGGING_FACE_HUB_TOKEN")),
    ),
    Vendor(
        "ollama",
        "http://localhost:11434",
        _bearer_key("OLLAMA_API_KEY"),
        "ollama",
        keyless=True,
        raw_completions=True,
    ),
    _local_vendor("ollama-chat", "http://localhost:11434/v1", "OLLAMA_API_KEY", dialect="ollama"),
    _local_vendor("vllm", "http://localhost:8000/v1", "VLLM_API_KEY"),
    _local_vendor("tgi", "http://localhost:8080/v1", "HF_TOKEN"),
    _local_vendor("llamacpp", "http://localhost:8080/v1", "LLAMA_API_KEY"),
    _local_vendor("lmstudio", "http://localhost:1234/v1", "LMSTUDIO_API_KEY"),
    _local_vendor("sglang", "http://localhost:30000/v1", "SGLANG_API_KEY"),
    Vendor(
        "local",
        "http://localhost",
        keyless=True,
        cache_marks=False,
        fields=_MAX_TOKENS_FIELD,
        transport="toolwire.local.transport:LocalTransport",
    ),
    Vendor(  # the name of a model is the folder of a head; see docs/toolkengpt.md
        "toolken",
        "http://localhost",
        keyless=True,
        cache_marks=False,
        fields=_MAX_TOKENS_FIELD,
        transport="toolwire.learn.toolken.serving:ToolkenTransport",
    ),
)
BUILTIN: Mapping[str, Vendor] = {row.name: row for row in _ROWS}
_by_name = dict(BUILTIN)  # with the rows of an update; see `row_update`


def use_rows(rows: Iterable[Vendor]) -> None:
    """Use these rows, and the built-in rows of other vendors, in this process."""
    _by_name.clear()
    _by_name.update(BUILTIN, **{row.name: row for row in rows})


def names() -> list[str]:
    """Return the names of all vendors."""
    return sorted(_by_name)


def find(name: str) -> Vendor:
    """Return the row of a vendor; raise ConfigError with the closest name if there is none."""
    row = _by_name.get(name.lower())
    if row is None:
        close_matches = get_close_matches(name.lower(), names(), 1, 0.7)
        hint = f"did you mean {close_matches[0]!r}?" if close_matches else "`toolwire models` lists the providers"
        raise ConfigError(f"unknown provider {name!r}", hint=hint)
    return row
