"""`toolwire serve client` with gateways that require a key, refuse requests, or answer without a list of models."""

import json
import threading
import tomllib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from toolwire.cli.main import main
from toolwire.cli.serve import client_models as gateway_models
from waiting import SAFETY

MODELS = {"data": [{"id": "fast"}]}
SETTINGS = '[upstreams.up]\nbase_url = "http://localhost:1/v1"\n[models.fast]\nupstream = "up"\n'
KEYS = f'[keys.alice]\nhash = "{"0" * 64}"\n'
CLIENTS = ("claude", "codex", "gemini")


@contextmanager
def gateway(key=None, status=401, description=None):
    """A gateway that answers `status` to requests without the key, and lists one model for the others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            accepted = key in (self.headers["authorization"] or self.headers["x-api-key"]).split()
            answer = (description or {}) if self.path == "/v1/models/fast" else MODELS
            body = json.dumps(answer if accepted else {"error": {"message": "no"}}).encode()
            self.send_response(200 if accepted else status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gateway_models, "_TIMEOUT", SAFETY)


def run_client(tmp_path, url, *arguments):
    return main(["serve", "client", *arguments, "--home", str(tmp_path / "home"), "--url", url])


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("options", [(), ("--model", "fast")], ids=["listed model", "given model"])
@pytest.mark.parametrize("has_settings", [True, False], ids=["settings file", "no file"])
def test_missing_key_is_an_error_and_nothing_is_written(tmp_path, capsys, client, options, has_settings):
    if has_settings:
        (tmp_path / "toolwire.toml").write_text(SETTINGS)
    with gateway("sk-tw-1") as url:
        assert run_client(tmp_path, url, client, *options, "--write") == 2
    output = capsys.readouterr()
    assert f"the gateway at {url} requires a key" in output.err
    assert "--key-env NAME" in output.err
    assert not output.out
    assert not (tmp_path / "home").exists()


def test_key_of_the_variable_is_written_if_the_gateway_accepts_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-tw-1")
    with gateway("sk-tw-1") as url:
        assert run_client(tmp_path, url, "claude", "--key-env", "MY_KEY", "--write") == 0
    written = json.loads((tmp_path / "home" / ".claude" / "settings.json").read_text())["env"]
    assert (written["ANTHROPIC_AUTH_TOKEN"], written["ANTHROPIC_MODEL"]) == ("sk-tw-1", "fast")
    output = capsys.readouterr().out
    assert '"ANTHROPIC_AUTH_TOKEN": "[the key in $MY_KEY, as text]"' in output and "sk-tw-1" not in output


@pytest.mark.parametrize("is_same", [True, False])
def test_preview_shows_neither_the_new_key_nor_secrets_of_the_old_file(tmp_path, capsys, monkeypatch, is_same):
    key = 'tw-new"key\\1234567'
    old = {"ANTHROPIC_AUTH_TOKEN": key if is_same else "tw-OLD", "GITHUB_TOKEN": 'gh"-OLD', "MAX_OUTPUT_TOKENS": "9"}
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude" / "settings.json").write_text(json.dumps({"env": old}, indent=2))
    monkeypatch.setenv("MY_KEY", key)
    assert run_client(tmp_path, "http://127.0.0.1:9", "claude", "--key-env", "MY_KEY", "--model", "m") == 0
    output = capsys.readouterr().out
    lines = [line for line in output.splitlines() if "ANTHROPIC_AUTH_TOKEN" in line and '": "' in line]
    assert [line[0] for line in lines] == ([" "] if is_same else ["-", "+"])
    assert '"[the key in $MY_KEY, as text]"' in lines[-1]
    assert "OLD" not in output and "1234567" not in output and '"MAX_OUTPUT_TOKENS": "9"' in output


def test_preview_hides_secrets_of_settings_in_toml(tmp_path, capsys):
    (tmp_path / "home" / ".codex").mkdir(parents=True)
    before = "experimental_bearer_token = 'OLD-1'\nmodel = 'x'\nenv = {API_KEY = \"OLD-2\"}\n"
    (tmp_path / "home" / ".codex" / "config.toml").write_text(before)
    assert run_client(tmp_path, "http://127.0.0.1:9", "codex", "--model", "m") == 0
    output = capsys.readouterr().out
    assert "OLD" not in output and 'env_key = "TOOLWIRE' in output


SECRETS_IN_JSON = {
    "apiKey": 12345678,
    "headers": {"x-team": "OLD-1"},
    "mcpServers": {"a": {"args": ["--api-key", "OLD-2", "--token=OLD-3"], "env": {"DATABASE_URL": "pg://u:OLD-4@db"}}},
    "credentials": ["OLD-5", {"user": "OLD-6"}],
    "note": "Bearer OLD-789012345",
    "retries": 3,
}
SECRETS_IN_TOML = '''
api_key = """
OLD-1
OLD-2"""
http_headers = { "X-Team" = "OLD-3" }
token = 12345678
args = ["--api-key", "OLD-4"]
model = "old-model"

[mcp_servers.a.headers]
X-Team = "OLD-5"

[profiles.fast]
model = "o3"
'''


@pytest.mark.parametrize("indent", [None, 2])
def test_preview_hides_secrets_of_every_form_in_json(tmp_path, capsys, indent):
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude" / "settings.json").write_text(json.dumps(SECRETS_IN_JSON, indent=indent))
    assert run_client(tmp_path, "http://127.0.0.1:9", "claude", "--model", "m") == 0
    output = capsys.readouterr().out
    assert "OLD" not in output and "12345678" not in output and '"retries": 3' in output


def test_preview_hides_secrets_of_every_form_in_toml(tmp_path, capsys):
    (tmp_path / "home" / ".codex").mkdir(parents=True)
    (tmp_path / "home" / ".codex" / "config.toml").write_text(SECRETS_IN_TOML)
    assert run_client(tmp_path, "http://127.0.0.1:9", "codex", "--model", "m") == 0
    output = capsys.readouterr().out
    assert "OLD" not in output and "12345678" not in output and '-model = "old-model"' in output


def test_settings_of_codex_in_tables_stay_as_they_are(tmp_path):
    file = tmp_path / "home" / ".codex" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(SECRETS_IN_TOML)
    before = tomllib.loads(SECRETS_IN_TOML)
    assert run_client(tmp_path, "http://127.0.0.1:9", "codex", "--model", "m", "--write") == 0
    after = tomllib.loads(file.read_text())
    assert after["model"] == "m" and after["model_providers"].keys() == {"toolwire"}
    assert {**before, "model": "m"} == {name: after[name] for name in before}


@pytest.mark.parametrize("text", ['"model" = "old"\n', "model_providers = {a = {name = 'x'}}\n"])
def test_settings_of_codex_that_cannot_be_edited_are_an_error(tmp_path, capsys, text):
    file = tmp_path / "home" / ".codex" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert run_client(tmp_path, "http://127.0.0.1:9", "codex", "--model", "m", "--write") == 2
    assert "without changing other settings" in capsys.readouterr().err
    assert file.read_text() == text


def test_rejected_key_names_its_variable_and_is_not_printed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-tw-2")
    with gateway("sk-tw-1") as url:
        assert run_client(tmp_path, url, "claude", "--key-env", "MY_KEY", "--write") == 2
    output = capsys.readouterr()
    assert "rejected the key (status 401) (check the key in the environment variable MY_KEY)" in output.err
    assert "sk-tw-2" not in output.err + output.out
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("options", [(), ("--config", "toolwire.toml")])
def test_settings_with_keys_require_one_before_the_gateway_runs(tmp_path, capsys, options):
    (tmp_path / "toolwire.toml").write_text(SETTINGS + KEYS)
    assert run_client(tmp_path, "http://127.0.0.1:9", "claude", *options, "--write") == 2
    assert (
        "requires a key (put your key into an environment variable, and use --key-env NAME)" in capsys.readouterr().err
    )
    assert not (tmp_path / "home").exists()


def test_gateway_without_keys_needs_none_whatever_the_settings_file_has(tmp_path):
    (tmp_path / "toolwire.toml").write_text(SETTINGS + KEYS)
    with gateway("local") as url:
        assert run_client(tmp_path, url, "claude") == 0


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "refuses the request (status 403) (add its host name to hosts in [server])"),
        (404, "returned status 404 for its list of models (check --url, or use --model)"),
    ],
)
def test_other_refusals_are_errors_with_advice_of_their_own(tmp_path, capsys, status, message):
    with gateway(status=status) as url:
        assert run_client(tmp_path, url, "codex", "--write") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


@pytest.mark.finding("CA8")
@pytest.mark.parametrize("is_running", [True, False], ids=["running gateway", "settings file"])
def test_known_limits_of_the_model_are_written(tmp_path, is_running):
    facts = {"max_input_tokens": 65_536, "max_tokens": 8_192}
    if not is_running:
        rows = "capabilities = {window = 65536, max_output = 8192}\n"
        (tmp_path / "toolwire.toml").write_text(SETTINGS + rows)
    with gateway("local", description=facts) as url:
        for client in ("claude", "codex"):
            assert run_client(tmp_path, url if is_running else "http://127.0.0.1:9", client, "--write") == 0
    written = json.loads((tmp_path / "home" / ".claude" / "settings.json").read_text())["env"]
    assert written["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "65536"
    assert written["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "8192"
    codex = tomllib.loads((tmp_path / "home" / ".codex" / "config.toml").read_text())
    assert codex["model_context_window"] == 65_536


@pytest.mark.finding("CA8")
def test_limit_of_the_upstream_is_written(tmp_path):
    limited = SETTINGS.replace("[models", "context_max = 32768\n[models")
    (tmp_path / "toolwire.toml").write_text(limited + "capabilities = {window = 65536}\n")
    assert run_client(tmp_path, "http://127.0.0.1:9", "codex", "--write") == 0
    codex = tomllib.loads((tmp_path / "home" / ".codex" / "config.toml").read_text())
    assert codex["model_context_window"] == 32_768


@pytest.mark.finding("CA8")
def test_unknown_limits_are_not_written(tmp_path):
    with gateway("local") as url:
        assert run_client(tmp_path, url, "claude", "--write") == 0
    written = json.loads((tmp_path / "home" / ".claude" / "settings.json").read_text())["env"]
    assert not any(name.startswith("CLAUDE_CODE_MAX") for name in written)
