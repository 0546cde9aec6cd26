"""Rows of data about vendors of models: the wire, the base URL, and how the key is sent. A vendor is one row.

    find("groq").base_url            # 'https://api.groq.com/openai/v1'
    find("azure").surfaces           # the paths of Azure OpenAI, by wire

Deviations in code are in `vendor_codecs`. Base URLs end where the wire's path begins; paths of a vendor are Surfaces.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.hosted import HOSTED_KINDS
from ...ir.value import Value


class ApiKey(Value, frozen=True):
    """An environment variable that holds a key, and the header that carries it."""

    variable: str
    header: str = "authorization"
    prefix: str = "Bearer "
    is_token: bool = False  # an access token that expires, as a key command prints it; not a key that a user passes


class Surface(Value, frozen=True):
    """The path of a wire at a vendor. Braces are settings: `{model}`, `{project}`, `{location}`, `{api_version}`."""

    wire: str  # its name without a version
    path: str
    stream_path: str | None = None  # of streams, if it is not `path`
    api_versions: str = r"[\w.-]+"  # a regular expression for the API versions that use this path; "" is none
    api_version: str = ""  # the default
    version_query: str | None = None  # the query parameter of the API version
    fields: dict[str, str] = {}  # fields of a request that it names differently, besides the vendor's
    counts_on_request: bool = True  # supports `stream_options`
    omitted_fields: tuple[str, ...] = ()  # fields of a body that are in the path instead
    marks_body: bool = True  # supports Anthropic's prompt-cache mark of the whole body
    version_field: str | None = None  # the field of a body for the version of the wire, sent instead of its headers
    in_chunks: bool = False  # streams and errors have Bedrock's envelope
    wire_versions: dict[str, str] = {}  # the values of `version_field` for versions of the wire, if they differ


class Vendor(Value, frozen=True):
    name: str
    base_url: str  # empty if every customer has another one
    keys: tuple[ApiKey, ...] = ()  # the first one that is set is used
    wire: str = "openai_chat"
    base_variable: str | None = None  # an environment variable with another base URL
    keyless: bool = False  # also answers without a key
    dialect: str | None = None  # of schemas, if it is not the wire's own
    id: str | None = None  # a regular expression for call ids, if it is not the wire's own
    id_length: int = 40  # Azure rejects longer call ids
    choice_by_schema: Literal["declared", "stated"] | None = None  # it ignores a forced choice; see `Capabilities`
    limits_tools: bool = True  # the wire's maximum number of tools applies to requests of other wires
    # Wires whose maximum number of tools a source states for this vendor: it applies to requests of the same wire, too.
    stated_tool_limits: tuple[str, ...] = ()
    cache_marks: bool = True  # supports prompt-cache marks; strict servers reject unknown fields
    marks_body: bool = False  # supports Anthropic's prompt-cache mark of the whole body, also without `cache_marks`
    fields: dict[str, str] = {}  # fields of a request that it names differently
    rejected_fields: frozenset[tuple[str, str]] = frozenset()  # fields of the wire that it rejects: (extra, field)
    rejected_kinds: frozenset[str] = frozenset()  # built-in tools and kinds of parts of the wire that it rejects
    hosted: frozenset[str] = frozenset()  # kinds of hosted tools that it runs, if the wire has them
    counts_on_request: bool = True  # supports `stream_options`
    keeps_responses: bool = False  # stores answers of the wire openai_responses under their id
    transport: str | None = None  # `module:class` of the transport, if it is not HTTP
    surfaces: tuple[Surface, ...] = ()  # paths that differ from the wire's
    variables: dict[str, tuple[str, ...]] = {}  # environment variables of the settings in paths; the first one set
    location: str | None = None  # the default location
    base_urls: dict[str, str] = {}  # by location, if it is not `base_url`
    raw_completions: bool = False  # has the wire's completion endpoint, and uses a prompt as it is
    regional_urls: tuple[str, ...] = ()  # the same API for other accounts; a key from the environment is not sent there
    domains: tuple[str, ...] = ()  # domains of the vendor; a key from the environment may be sent to hosts in them


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
    variables={"location": ("AWS_REGION", "AWS_DEFAULT_REGION")},
    domains=("amazonaws.com", "amazonaws.com.cn"),
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
    _BEDROCK,
    replace(_BEDROCK, name="bedrock-anthropic", wire="anthropic@2023-06-01"),
    Vendor(
        "mistral",
        "https://api.mistral.ai/v1",
        _bearer_key("MISTRAL_API_KEY"),
        dialect="mistral",
        id="[a-zA-Z0-9]{9}",
        id_length=9,
        cache_marks=False,
        fields={**_MAX_TOKENS_FIELD, "seed": "random_seed"},
        counts_on_request=False,
    ),
    _hosted_vendor("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    # "'tools': maximum number of items is 128" (gsd-build/gsd-2#4376)
    replace(
        _hosted_vendor("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"), stated_tool_limits=("openai_chat",)
    ),
    _hosted_vendor("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
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
    _hosted_vendor("cohere", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    _hosted_vendor("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    _hosted_vendor("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    _hosted_vendor("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
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
_BY_NAME = {row.name: row for row in _ROWS}


def names() -> list[str]:
    """Return the names of all vendors."""
    return sorted(_BY_NAME)


def find(name: str) -> Vendor:
    """Return the row of a vendor; raise ConfigError with the closest name if there is none."""
    row = _BY_NAME.get(name.lower())
    if row is None:
        close_matches = get_close_matches(name.lower(), names(), 1, 0.7)
        hint = f"did you mean {close_matches[0]!r}?" if close_matches else "`toolwire models` lists the providers"
        raise ConfigError(f"unknown provider {name!r}", hint=hint)
    return row
