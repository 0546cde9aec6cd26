"""Commands and settings for clients, with the models of the gateway."""

import json
import shlex

import pytest

from toolwire.cli.main import main
from toolwire.cli.serve.client_models import AvailableModels, choose_models, client_commands, list_models
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.routing.router import Router

URL = "http://127.0.0.1:4141"


def settings(models, provider=None):
    upstream = {"base_url": "http://localhost:1/v1"} if provider is None else {"provider": provider}
    rows = {name: {"upstream": "up", **row} for name, row in models.items()}
    return parse_settings({"upstreams": {"up": upstream}, "models": rows})


def command_of(client, configured, key="local"):
    lines = client_commands(URL, list_models(configured), key)
    return next((line for line in lines if line.split()[0] == client), None)


def assignments(command):
    return dict(word.split("=", 1) for word in shlex.split(command) if "=" in word)


@pytest.mark.finding("U8")
def test_claude_command_names_models_that_the_gateway_serves():
    configured = settings({"gpt-5.6": {}, "gpt-5.6-mini": {}, "plain": {"tools": False}})
    variables = assignments(command_of("claude", configured))
    assert variables["ANTHROPIC_MODEL"] == "gpt-5.6"
    assert variables["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "gpt-5.6-mini"
    router: Router = Gateway(configured, environment={})._router
    for name in ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"):
        assert router.plan(variables[name], tools=True)


def test_model_of_the_own_family_is_preferred():
    configured = settings({"gpt-5.6": {}, "claude-haiku-5-5": {}, "claude-sonnet-5": {}, "gemini-3-pro": {}})
    available = list_models(configured)
    assert choose_models("claude", available) == ("claude-sonnet-5", "claude-haiku-5-5")
    assert choose_models("codex", available) == ("gpt-5.6", "gpt-5.6")
    assert choose_models("gemini", available) == ("gemini-3-pro", "gemini-3-pro")


@pytest.mark.finding("U8")
@pytest.mark.parametrize(
    "configured",
    [
        settings({"plain": {"tools": False}}),
        settings({"legacy-*": {}}),
        settings({"small": {"model": "smollm2"}}, "local"),
    ],
    ids=["without tools", "patterns of other names", "4,096 tokens"],
)
def test_agents_without_a_usable_model_are_not_suggested(configured):
    commands = client_commands(URL, list_models(configured))
    assert [line.split()[0] for line in commands] == ["openai", "anthropic", "google", "ollama"]
    assert "Read a.txt" not in "".join(commands)


def test_pattern_for_all_names_needs_no_model_in_the_command():
    configured = settings({"*": {"model": "qwen3:8b"}})
    assert "MODEL" not in command_of("claude", configured)
    assert command_of("gemini", configured).endswith("gemini -p 'Read a.txt'")
    assert "--model" not in command_of("codex", configured)


def test_codex_command_sets_model_and_key():
    command = command_of("codex", settings({"fast": {}}), key="$YOUR_KEY")
    assert "export TOOLWIRE_KEY=$YOUR_KEY; toolwire serve client codex" in command
    assert "--model fast --key-env TOOLWIRE_KEY --write && codex exec" in command


def test_upstreams_without_model_names_get_a_placeholder():
    available = list_models(parse_settings({}), ("anthropic", "openai"))
    lines = client_commands(URL, available)
    assert "ANTHROPIC_MODEL=anthropic/MODEL" in lines[1]
    assert lines[-1].endswith("replace MODEL by a model of the upstream (anthropic, openai).")


def test_names_are_quoted_for_the_shell_and_the_terminal():
    lines = client_commands(URL, AvailableModels(("a; rm x\x1b[2J",), ("a; rm x\x1b[2J",)))
    assert all(line.isprintable() for line in lines)
    assert "ANTHROPIC_MODEL='a; rm x" in lines[1]


def test_commands_stay_whole_and_prose_wraps_in_a_narrow_terminal(monkeypatch):
    rows = settings({f"house-model-number-{number}": {} for number in range(9)})
    cases = [(list_models(rows), "local"), (list_models(parse_settings({}), ("anthropic", "openai", "ollama")), "$K")]
    for available, key in cases:
        monkeypatch.setenv("COLUMNS", "10000")  # the widest that counts
        wide = client_commands(URL, available, key)
        monkeypatch.setenv("COLUMNS", "80")
        narrow = client_commands(URL, available, key)
        commands = [line.split("   # ")[0].split(maxsplit=1) for line in wide if "No model" not in line]
        for name, command in commands:
            assert narrow[narrow.index(f"  {name}") + 1] == f"    {command}"
        prose = [line for line in narrow if line.strip() not in [text for pair in commands for text in pair]]
        assert prose and all(len(line) <= 80 for line in prose)


def run_client(tmp_path, *arguments):
    return main(["serve", "client", *arguments, "--home", str(tmp_path), "--url", "http://127.0.0.1:9"])


@pytest.mark.finding("U8")
def test_model_option_sets_the_small_model_of_claude_too(tmp_path, capsys):
    assert run_client(tmp_path, "claude", "--model", "fast", "--write") == 0
    written = json.loads((tmp_path / ".claude" / "settings.json").read_text())["env"]
    assert {name: value for name, value in written.items() if "MODEL" in name} == {
        "ANTHROPIC_MODEL": "fast",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "fast",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "fast",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "fast",
    }
    run_client(tmp_path, "claude", "--model", "fast", "--small-model", "tiny")
    assert "ANTHROPIC_DEFAULT_HAIKU_MODEL=tiny" in capsys.readouterr().out


def test_models_come_from_the_settings_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolwire.toml").write_text(
        '[upstreams.up]\nbase_url = "http://localhost:1/v1"\n[models.fast]\nupstream = "up"\n'
    )
    assert run_client(tmp_path, "claude") == 0
    assert "ANTHROPIC_MODEL=fast" in capsys.readouterr().out
    (tmp_path / "other.toml").write_text(
        '[upstreams.up]\nbase_url = "http://localhost:1/v1"\n[models.plain]\nupstream = "up"\ntools = false\n'
    )
    assert run_client(tmp_path, "gemini", "--config", "other.toml") == 2
    assert "no model that gemini can use; its models: plain" in capsys.readouterr().err


def test_small_model_of_another_client_is_refused(tmp_path, capsys):
    assert run_client(tmp_path, "codex", "--small-model", "x") == 2
    assert "codex has no small model" in capsys.readouterr().err


def test_unreachable_gateway_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_client(tmp_path, "gemini") == 0
    assert "cannot reach http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.finding("NU7")
def test_every_protocol_is_offered_if_no_coding_agent_can_use_a_model():
    lines = client_commands(URL, list_models(settings({"small": {"model": "smollm2"}}, "local")))
    assert [line.split()[0] for line in lines] == ["openai", "anthropic", "google", "ollama"]
    assert f"ANTHROPIC_BASE_URL={URL} ANTHROPIC_API_KEY=local" in lines[1]
    assert f"GOOGLE_GEMINI_BASE_URL={URL} GEMINI_API_KEY=local" in lines[2]
