"""LiteLLM's `config.yaml`: the settings that are used, and the report about all others."""

import tomllib

import pytest

from tables import every_case
from toolwire.gateway.config.notation import format_settings
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.config.settings import TargetRow
from toolwire.gateway.litellm.conversion import convert_litellm
from toolwire.gateway.litellm.equivalents import group_notes
from toolwire.gateway.settings_file import from_litellm, load_settings, parse_litellm_file, require_complete
from toolwire.ir.errors import ConfigError

KEYS = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "KEY", "OTHER"), "sk-test-0123456789")
LITELLM = """
model_list:
  - model_name: fast
    litellm_params: {model: openai/gpt-4o-mini, api_key: os.environ/KEY, timeout: 30, weight: 3}
  - model_name: fast
    litellm_params: {model: anthropic/claude-haiku, api_key: os.environ/OTHER, weight: 1}
  - model_name: mine
    litellm_params: {model: some-model, api_base: http://localhost:8000/v1, max_retries: 5}
general_settings: {master_key: os.environ/MASTER}
"""
EVERYTHING = """
model_list:
  - model_name: gpt
    litellm_params:
      model: openai/gpt-4o
      api_key: os.environ/OPENAI_API_KEY
      rpm: 480
      temperature: 0.2
      max_tokens: 500
      stop: END
      extra_headers: {X-Team: a, X-Secret: os.environ/OTHER}
      organization: org-1
      input_cost_per_token: 0.1
      some_new_thing: 1
    model_info: {supports_function_calling: false, id: a}
    tpm: 20000
  - model_name: vllm
    litellm_params: {model: hosted_vllm/qwen, api_base: http://vllm:8000/v1, num_retries: 0, stream_timeout: 20}
  - model_name: local
    litellm_params: {model: ollama_chat/llama3}
  - model_name: text-embedding
    litellm_params: {model: openai/text-embedding-3-small}
  - model_name: rock
    litellm_params: {model: sagemaker/anthropic.claude-3, aws_region_name: us-east-1}
  - model_name: "anthropic/*"
    litellm_params: {model: "anthropic/*", api_key: os.environ/ANTHROPIC_API_KEY}
litellm_settings:
  drop_params: true
  num_retries: 5
  request_timeout: 50
  context_window_fallbacks: [{gpt: [vllm]}]
  success_callback: [langfuse]
  cache: true
router_settings:
  fallbacks: [{gpt: [vllm, missing]}]
  default_fallbacks: [local]
  cooldown_time: 7
  allowed_fails: 3
  routing_strategy: simple-shuffle
  model_group_alias: {gpt-4: gpt, broken: nothing}
general_settings: {master_key: sk-master, database_url: postgresql://user:password@host/db}
guardrails: [{guardrail_name: x}]
environment_variables: {REDIS_HOST: localhost}
"""


def converted(text, **environment):
    return from_litellm(text, {**KEYS, **environment})


def locations(imported, kind):
    return {note.location for note in imported.notes if note.kind == kind}


def test_file_is_converted(tmp_path, monkeypatch):
    for name, value in {**KEYS, "MASTER": "sk-master"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "config.yaml").write_text(LITELLM)
    settings = load_settings(tmp_path / "config.yaml")
    fast = settings.models["fast"].targets
    assert [(target.model, target.weight) for target in fast] == [("gpt-4o-mini", 3.0), ("claude-haiku", 1.0)]
    first = settings.upstreams[fast[0].upstream]
    assert (first.provider, first.key_env, first.timeout) == ("openai-chat", "KEY", 30.0)
    (mine,) = settings.models["mine"].targets
    own = settings.upstreams[mine.upstream]
    assert (own.provider, own.base_url, own.retries, mine.model) == (None, "http://localhost:8000/v1", 5, "some-model")
    assert settings.keys["master"].models == ("*",)


@pytest.mark.finding("U11")
def test_everything_with_a_meaning_is_used_and_the_rest_is_one_report():
    imported = converted(EVERYTHING)
    settings = imported.settings
    assert list(settings.models) == ["gpt-4", "gpt", "vllm", "local", "text-embedding", "anthropic/*"]
    (target,) = settings.models["gpt"].targets
    gpt = settings.upstreams[target.upstream]
    assert (gpt.provider, gpt.retries, gpt.timeout) == ("openai-chat", 5, 50.0)
    assert gpt.defaults == {"temperature": 0.2, "stop": ["END"], "max_tokens": 500}
    assert gpt.headers == {"X-Team": "a", "X-Secret": "${OTHER}", "OpenAI-Organization": "org-1"}
    assert settings.models["gpt"].tools is False
    assert settings.models["gpt"].fallbacks == ("vllm", "local")
    vllm = settings.upstreams[settings.models["vllm"].targets[0].upstream]
    assert (vllm.provider, vllm.retries, vllm.idle, vllm.insecure) == ("vllm", 0, 20.0, True)
    assert settings.upstreams[settings.models["local"].targets[0].upstream].provider == "ollama"
    assert settings.limits.cooldown == 7.0
    assert imported.variables == {"REDIS_HOST": "localhost"}
    assert {note.model for note in imported.notes if note.kind == "skipped"} == {"rock", "broken"}
    assert locations(imported, "ignored") == {
        "guardrails",
        "litellm_settings.context_window_fallbacks",
        "litellm_settings.success_callback",
        "litellm_settings.cache",
        "router_settings.allowed_fails",
        "router_settings.fallbacks[0]",
        "general_settings.database_url",
        "model_list[0].litellm_params.input_cost_per_token",
        "model_list[0].litellm_params.some_new_thing",
    }
    assert locations(imported, "changed") == {
        "model_list[0].litellm_params.rpm",
        "model_list[1].litellm_params.api_base",
        "general_settings.master_key",
    }


def test_no_secret_is_in_the_report():
    text = EVERYTHING.replace("os.environ/OPENAI_API_KEY", "sk-in-the-file-123")
    imported = converted(text)
    assert imported.secrets == {"TOOLWIRE_LITELLM_KEY_1": "sk-in-the-file-123"}
    shown = repr(imported) + repr(imported.notes) + format_settings(imported.settings)
    for secret in ("sk-in-the-file-123", "sk-master", "password"):
        assert secret not in shown


@pytest.mark.finding("U11")
@every_case(
    ("model", "provider", "name"),
    [
        ("gpt-4o", "openai-chat", "gpt-4o"),
        ("claude-3-haiku", "anthropic", "claude-3-haiku"),
        ("openai/responses/gpt-5", "openai", "gpt-5"),
        ("gemini/gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        ("groq/llama", "groq", "llama"),
        ("together_ai/meta/llama", "together", "meta/llama"),
        ("fireworks_ai/accounts/x", "fireworks", "accounts/x"),
        ("openrouter/anthropic/claude", "openrouter", "anthropic/claude"),
        ("xai/grok", "xai", "grok"),
        ("deepseek/deepseek-chat", "deepseek", "deepseek-chat"),
        ("mistral/mistral-large", "mistral", "mistral-large"),
        ("hosted_vllm/qwen", "vllm", "qwen"),
        ("ollama/llama3", "ollama", "llama3"),
        ("lm_studio/x", "lmstudio", "x"),
        ("nvidia_nim/x", "nvidia", "x"),
    ],
)
def test_prefixes_are_mapped_to_providers(model, provider, name):
    entry = {"model_name": "m", "litellm_params": {"model": model, "api_key": "os.environ/KEY"}}
    settings = convert_litellm({"model_list": [entry]}, KEYS).settings
    (target,) = settings.models["m"].targets
    assert (settings.upstreams[target.upstream].provider, target.model) == (provider, name)


@pytest.mark.parametrize(
    ("model", "params", "name", "region"),
    [
        ("bedrock/us.anthropic.claude-sonnet-5-v1:0", {"aws_region_name": "us-east-1"}, "us.anthropic.claude-sonnet-5-v1:0", "us-east-1"),
        ("bedrock/converse/amazon.nova-pro-v1:0", {}, "amazon.nova-pro-v1:0", "eu-central-1"),
        ("bedrock/invoke/us-gov-west-1/anthropic.claude-x", {}, "anthropic.claude-x", "us-gov-west-1"),
        ("bedrock/us-west-2/mistral.m", {"aws_region_name": "us-east-1"}, "mistral.m", "us-east-1"),
        ("bedrock/converse/arn:aws:bedrock:us-east-1:1:inference-profile/x", {}, "arn:aws:bedrock:us-east-1:1:inference-profile/x", "eu-central-1"),
        ("anthropic.claude-3-haiku-20240307-v1:0", {}, "anthropic.claude-3-haiku-20240307-v1:0", "eu-central-1"),
    ],
)  # fmt: skip
def test_models_of_bedrock_are_sent_to_converse(model, params, name, region):
    entry = {"model_name": "m", "litellm_params": {"model": model, **params}}
    environment = {"AWS_BEARER_TOKEN_BEDROCK": "k" * 20, "AWS_REGION_NAME": "eu-central-1"}
    imported = convert_litellm({"model_list": [entry]}, environment)
    (target,) = imported.settings.models["m"].targets
    upstream = imported.settings.upstreams[target.upstream]
    assert (upstream.provider, target.model, upstream.location) == ("bedrock", name, region)
    assert imported.notes == ()


def test_variables_of_litellm_are_used_where_ours_have_other_names():
    text = "model_list: [{model_name: m, litellm_params: {model: azure/d}}]"
    settings = converted(text, AZURE_API_KEY="k" * 20, AZURE_API_BASE="https://r.openai.azure.com").settings
    (upstream,) = settings.upstreams.values()
    assert (upstream.key_env, upstream.base_url) == ("AZURE_API_KEY", "https://r.openai.azure.com")


def test_rate_limits_are_weights_of_targets():
    entries = (
        "{model_name: m, litellm_params: {model: a, rpm: 30}}, {model_name: m, litellm_params: {model: b, rpm: 10}}"
    )
    targets = converted(f"model_list: [{entries}]").settings.models["m"].targets
    assert targets == (TargetRow("openai", "a", 30.0), TargetRow("openai", "b", 10.0))


def test_alias_of_a_pattern_is_skipped():
    imported = converted("""
model_list: [{model_name: "a/*", litellm_params: {model: "anthropic/*"}}]
router_settings: {model_group_alias: {b: "a/*"}}
""")
    assert list(imported.settings.models) == ["a/*"]
    (note,) = imported.notes
    assert (note.model, "exactly one `*`" in note.meaning) == ("b", True)


def test_targets_without_a_key_are_skipped():
    text = """
model_list:
  - {model_name: m, litellm_params: {model: openai/a, api_key: os.environ/KEY}}
  - {model_name: m, litellm_params: {model: groq/b, api_key: os.environ/UNSET}}
  - {model_name: n, litellm_params: {model: groq/c, api_key: os.environ/UNSET}}
router_settings: {fallbacks: [{m: [n]}]}
"""
    imported = converted(text)
    assert [target.model for target in imported.settings.models["m"].targets] == ["a"]
    assert list(imported.settings.models) == ["m"]
    assert imported.settings.models["m"].fallbacks == ()
    assert [note.meaning for note in imported.notes] == ["environment variable UNSET is not set"] * 2


def test_environment_references_and_wildcard_models_are_converted():
    settings = converted(
        """
model_list:
  - {model_name: mine, litellm_params: {model: openai/x, api_base: os.environ/BASE}}
  - {model_name: "*", litellm_params: {model: "openai/*", api_key: os.environ/KEY}}
  - {model_name: "claude/*", litellm_params: {model: "anthropic/claude-*"}}
""",
        BASE="https://models.example/v1",
    ).settings
    assert settings.upstreams[settings.models["mine"].targets[0].upstream].base_url == "https://models.example/v1"
    assert settings.models["*"].targets[0].model is None  # the name that the client uses
    assert settings.models["claude/*"].targets[0].model == "claude-*"


@every_case(
    ("entry", "reason"),
    [
        ("{model_name: a/*/*, litellm_params: {model: openai/*}}", "unsupported pattern"),
        ("{model_name: x, litellm_params: {model: x, api_base: os.environ/NONE}}", "NONE is not set"),
        ("{litellm_params: {model: x}}", "has no model_name"),
        ("{model_name: x}", "litellm_params is not a table"),
        ("{model_name: x, litellm_params: {}}", "has no model"),
        ("{model_name: x, litellm_params: {model: nobody/x}}", "unknown provider 'nobody'"),
        ("{model_name: x, litellm_params: {model: x, timeout: soon}}", "timeout must be a positive number"),
        ("{model_name: x, litellm_params: {model: x, weight: [1]}}", "weight must be a positive number"),
        ("{model_name: x, litellm_params: {model: x, weight: 0}}", "weight must be a positive number"),
        ("{model_name: x, litellm_params: {model: x, max_retries: many}}", "max_retries must be"),
        ("{model_name: x, litellm_params: {model: x, api_base: [7]}}", "api_base is not a text"),
        ("{model_name: x, litellm_params: {model: x, api_key: [7]}}", "api_key is not a text"),
        ("{model_name: x, litellm_params: {model: x, api_key: os.environ/}}", "no valid name"),
        ("{model_name: x, litellm_params: {model: x, temperature: hot}}", "temperature"),
        ("{model_name: x, litellm_params: {model: litellm_proxy/x}}", "has no api_base"),
        (
            "{model_name: x, litellm_params: {model: vertex_ai/mistral-large}}",
            "vertex_ai/mistral-large is not supported",
        ),
        ("7", "the entry is not a table"),
    ],
)
def test_unusable_models_are_skipped_with_a_reason(entry, reason):
    usable = "{model_name: usable, litellm_params: {model: gpt-4o}}"
    imported = converted(f"model_list: [{entry}, {usable}]")
    assert list(imported.settings.models) == ["usable"]
    (skipped,) = [note for note in imported.notes if note.kind == "skipped"]
    assert reason in skipped.meaning
    assert skipped.location == "model_list[0]"
    with pytest.raises(ConfigError, match="model_list"):
        require_complete(imported)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model_list: [", "not valid YAML"),
        ("7", "the file is not a table"),
        ("model_list: {}", "no model of the file can be used"),
        ("{}", "no model of the file can be used"),
        ("model_list: [{model_name: x, litellm_params: {model: sagemaker/x}}]", "x: Amazon SageMaker is not supported"),
        (LITELLM, "master_key: environment variable MASTER is not set"),
    ],
)
def test_files_that_cannot_be_served_are_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        converted(text)


def test_strict_accepts_a_file_that_is_fully_used():
    text = "model_list: [{model_name: m, litellm_params: {model: gpt-4o}}]\nlitellm_settings: {drop_params: true}"
    assert list(require_complete(converted(text)).models) == ["m"]
    with pytest.raises(ConfigError, match=r"litellm_settings\.cache: caches responses"):
        require_complete(converted(text.replace("drop_params", "cache")))


def test_included_files_are_merged(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "include: [more.yaml]\nmodel_list: [{model_name: a, litellm_params: {model: a}}]"
    )
    (tmp_path / "more.yaml").write_text("model_list: [{model_name: b, litellm_params: {model: b}}]")
    assert list(parse_litellm_file(tmp_path / "config.yaml", KEYS).settings.models) == ["a", "b"]
    (tmp_path / "more.yaml").unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*more\.yaml"):
        parse_litellm_file(tmp_path / "config.yaml", KEYS)


def test_equal_notes_are_one_row_with_a_bounded_number_of_locations():
    entries = ", ".join(f"{{model_name: m{n}, litellm_params: {{model: gpt, tags: [a]}}}}" for n in range(30))
    (row,) = group_notes(converted(f"model_list: [{entries}]").notes)
    assert row.where.startswith("model_list[0].litellm_params.tags, model_list[1]")
    assert row.where.endswith("and 26 more")


def test_converted_settings_survive_the_text_of_a_settings_file():
    settings = converted(EVERYTHING).settings
    assert parse_settings(tomllib.loads(format_settings(settings))) == settings


def test_semantic_tool_filter_becomes_retrieve_of_every_model():
    text = """
model_list:
  - {model_name: a, litellm_params: {model: openai/gpt-4o}}
  - {model_name: b, litellm_params: {model: openai/gpt-4o}, model_info: {supports_function_calling: false}}
litellm_settings:
  mcp_semantic_tool_filter: {enabled: true, embedding_model: text-embedding-3-small, top_k: 5, similarity_threshold: 0.3}
"""
    imported = converted(text)
    models = imported.settings.models
    assert models["a"].retrieval.k == 5
    assert models["b"].retrieval is None
    assert "litellm_settings.mcp_semantic_tool_filter" in locations(imported, "changed")
    assert locations(imported, "ignored") == {"litellm_settings.mcp_semantic_tool_filter.similarity_threshold"}
    assert converted(text.replace("enabled: true", "enabled: false")).settings.models["a"].retrieval is None
    assert converted(text.replace("top_k: 5", "top_k: many")).settings.models["a"].retrieval.k == 8
    assert parse_settings(tomllib.loads(format_settings(imported.settings))) == imported.settings
