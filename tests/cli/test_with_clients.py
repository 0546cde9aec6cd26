"""The environment and arguments of `toolwire with` for SDKs and known clients."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tables import every_case
from toolwire.cli.serve.client_models import UNKNOWN_LIMITS, ModelLimits
from toolwire.cli.wrapped.clients import SessionGateway, child_command, install_hint
from toolwire.ir.errors import ConfigError

URL, KEY, REAL = "http://127.0.0.1:1234", "sk-tw-of-this-run", "sk-real-key-of-the-user"


def prepared(*command, environment=None, model="gpt-5.6", limits=UNKNOWN_LIMITS):
    with ExitStack() as stack:
        return child_command(command, environment or {}, SessionGateway(URL, KEY, model, limits), stack)


def test_sdk_variables_lead_to_the_gateway():
    environment = prepared("python", "app.py", environment={"PATH": "/bin", "LANG": "C"}).environment
    assert environment["OPENAI_BASE_URL"] == environment["OPENAI_API_BASE"] == f"{URL}/v1"
    assert {environment[f"{name}_BASE_URL"] for name in ("ANTHROPIC", "GOOGLE_GEMINI")} == {URL}
    assert environment["OLLAMA_HOST"] == URL
    assert {environment[name] for name in environment if name.endswith("_KEY")} == {KEY}
    assert (environment["PATH"], environment["LANG"]) == ("/bin", "C")
    assert "NO_PROXY" not in environment


@every_case(
    "name",
    (
        "OPENAI_API_KEY",
        "OPENAI_ADMIN_KEY",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_CUSTOM_HEADERS",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
        "OLLAMA_API_KEY",
    ),
    ids=str,
)
def test_real_key_is_replaced_or_removed(name):
    for program in ("python", "claude", "codex", "gemini", "qwen", "opencode", "aider"):
        environment = prepared(program, environment={name: REAL, "HOME": "/nowhere"}).environment
        assert REAL not in environment.values()


def test_switches_to_other_providers_are_removed():
    given = {"CLAUDE_CODE_USE_BEDROCK": "1", "GOOGLE_GENAI_USE_VERTEXAI": "true", "OPENAI_PROXY": "http://proxy"}
    assert given.keys().isdisjoint(prepared("python", environment=given).environment)


def test_google_key_variable_of_the_user_is_kept_with_another_key():
    """google-genai logs a warning if both of its variables are set."""
    environment = prepared("python", environment={"GOOGLE_API_KEY": REAL}).environment
    assert environment["GOOGLE_API_KEY"] == KEY
    assert "GEMINI_API_KEY" not in environment


def test_gateway_is_excluded_from_a_proxy():
    given = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "intranet.example"}
    environment = prepared("python", environment=given).environment
    assert environment["NO_PROXY"] == environment["no_proxy"] == "intranet.example,127.0.0.1,localhost"


def test_no_argument_contains_the_key(tmp_path):
    for program in ("claude", "codex", "gemini", "qwen", "opencode", "aider", "npx"):
        child = prepared(program, "@openai/codex", environment={"GEMINI_CLI_HOME": str(tmp_path)})
        assert not any(KEY in word for word in child.arguments)


def test_claude_gets_a_token_its_models_and_their_limits():
    given = {"ANTHROPIC_API_KEY": REAL, "ANTHROPIC_MODEL": "opus"}
    child = prepared("claude", "-p", "hi", environment=given, limits=ModelLimits(100_000, 8000))
    environment = child.environment
    assert child.arguments == ["claude", "-p", "hi"]
    assert environment["ANTHROPIC_AUTH_TOKEN"] == KEY
    assert "ANTHROPIC_API_KEY" not in environment
    assert {environment[f"ANTHROPIC_{name}"] for name in ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_HAIKU_MODEL")} == {
        "gpt-5.6"
    }
    assert environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "100000"
    assert environment["CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST"] == "1"


@every_case(
    "command",
    (
        ("codex", "exec", "hi"),
        ("/usr/bin/codex", "exec", "hi"),
        ("npx", "-y", "@openai/codex@0.169.0", "exec", "hi"),
        ("npx", "-y", "-p", "@openai/codex", "codex", "exec", "hi"),
        ("npx", "-w", "web", "@openai/codex", "exec", "hi"),
        ("pnpx", "-w", "@openai/codex", "exec", "hi"),
        ("pnpx", "-c", "--package", "@openai/codex", "codex", "exec", "hi"),
        ("uvx", "-w", "rich", "codex", "exec", "hi"),
    ),
    ids=" ".join,
)
def test_codex_gets_overrides_before_its_arguments(command):
    arguments = prepared(*command).arguments
    assert arguments[-2:] == ["exec", "hi"]
    assert arguments[: len(command) - 2] == list(command[:-2])  # no override is an option of npx
    overrides = dict(word.split("=", 1) for word in arguments if "=" in word)
    assert json.loads(overrides["model_provider"]) == "toolwire"
    assert json.loads(overrides["model_providers.toolwire.base_url"]) == f"{URL}/v1"
    assert json.loads(overrides["model_providers.toolwire.env_key"]) == "TOOLWIRE_KEY"
    assert json.loads(overrides["model"]) == "gpt-5.6"


def test_gemini_gets_a_temporary_home_that_links_to_the_users(tmp_path):
    user = tmp_path / ".gemini"
    (user / "extensions").mkdir(parents=True)
    (user / "GEMINI.md").write_text("Remember")
    text = '{"security": {"auth": {"selectedType": "oauth-personal"}}, "ui": {"theme": "Dracula"}}'
    (user / "settings.json").write_text(text)
    with ExitStack() as stack:
        gateway = SessionGateway(URL, KEY, "gpt-5.6", UNKNOWN_LIMITS)
        environment = child_command(["gemini"], {"GEMINI_CLI_HOME": str(tmp_path)}, gateway, stack).environment
        home = Path(environment["GEMINI_CLI_HOME"])
        settings = json.loads((home / ".gemini" / "settings.json").read_text())
        assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
        assert settings["ui"] == {"theme": "Dracula"}
        assert (home / ".gemini" / "GEMINI.md").read_text() == "Remember"
        assert (home / ".gemini" / "extensions").is_symlink()
        assert home.stat().st_mode & 0o777 == 0o700
    assert not home.exists()
    assert (user / "settings.json").read_text() == text
    assert (user / "extensions").is_dir()


def test_gemini_keeps_its_home_if_its_settings_choose_the_key(tmp_path):
    (tmp_path / ".gemini").mkdir()
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (tmp_path / ".gemini" / "settings.json").write_text(json.dumps(settings))
    environment = prepared("gemini", environment={"GEMINI_CLI_HOME": str(tmp_path)}).environment
    assert environment["GEMINI_CLI_HOME"] == str(tmp_path)
    assert environment["GEMINI_MODEL"] == "gpt-5.6"


def test_qwen_logs_in_with_the_key_unless_the_user_chooses():
    assert prepared("qwen", "-p", "hi").arguments == ["qwen", "--auth-type", "openai", "-p", "hi"]
    assert prepared("qwen", "--auth-type=gemini").arguments == ["qwen", "--auth-type=gemini"]


def test_opencode_gets_settings_beside_the_users():
    given = {"OPENCODE_CONFIG_CONTENT": '{"theme": "system", "provider": {"own": {}}}'}
    environment = prepared("opencode", environment=given, limits=ModelLimits(200_000, None)).environment
    settings = json.loads(environment["OPENCODE_CONFIG_CONTENT"])
    assert settings["theme"] == "system"
    assert settings["provider"].keys() == {"own", "toolwire"}
    assert settings["model"] == "toolwire/gpt-5.6"
    assert settings["provider"]["toolwire"]["models"]["gpt-5.6"]["limit"]["context"] == 200_000


def test_invalid_settings_of_a_client_are_named():
    with pytest.raises(ConfigError, match="OPENCODE_CONFIG_CONTENT is not valid JSON"):
        prepared("opencode", environment={"OPENCODE_CONFIG_CONTENT": "{"})
    with pytest.raises(ConfigError, match="provider in OPENCODE_CONFIG_CONTENT must be a JSON object"):
        prepared("opencode", environment={"OPENCODE_CONFIG_CONTENT": '{"provider": []}'})


def test_without_a_model_clients_choose_among_those_of_the_settings():
    for program in ("claude", "codex", "qwen", "aider"):
        child = prepared(program, model=None)
        assert not any(name.endswith("_MODEL") for name in child.environment)
        assert not any(word.startswith("model=") for word in child.arguments)


def test_missing_client_has_its_installation_as_hint():
    assert "npm install -g @openai/codex" in install_hint(["codex"])
    assert "separately" in install_hint(["claude -p hi"])
