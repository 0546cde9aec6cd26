"""Requests as programs: whatever a document contains, the program sends exactly the document."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import urllib.request

import pytest

from hostile_strings import HOSTILE
from tables import every_case
from toolwire.gateway.console.messages import SnippetRequest
from toolwire.gateway.console.snippets import snippet_view
from toolwire.ir.errors import ConfigError, ProtocolError
from toolwire.ir.tools import Tool
from toolwire.wire import get, names

NUMBERS = {
    "big": 2**53 + 1,
    "small": 1e-7,
    "whole": 1.0,
    "negative": -0.5,
    "true": True,
    "none": None,
    "empty": [{}, []],
}
HOSTILE_DOCUMENT = {
    "model": HOSTILE[0],
    "messages": [{"role": "user", "content": text} for text in HOSTILE],
    "keys": {text: text for text in HOSTILE},
}
DOCUMENTS = [
    *({"model": "m", "messages": [{"role": "user", "content": text}], text: [text]} for text in HOSTILE),
    HOSTILE_DOCUMENT,
    {"model": "m", "numbers": NUMBERS},
    {"model": "m", "__proto__": {"a": 1}, "constructor": 1},
    {},
]


def snippet(language, document, wire="openai_chat", **options):
    text = json.dumps(document, ensure_ascii=False)
    return snippet_view(SnippetRequest(language, wire, text, **options)).text


def programs(language):
    return [snippet(language, document) for document in DOCUMENTS]


def test_shell_runs_curl_with_the_document(tmp_path):
    """One shell runs every program with a function `curl` that prints its last argument."""
    shell = 'curl() { for last; do :; done; printf "%s\\n" "$last"; }\nset -u\nOPENAI_API_KEY=key\n'
    script = tmp_path / "all.sh"
    script.write_text(shell + "".join(programs("curl")), encoding="utf-8")
    done = subprocess.run(
        ["sh", str(script)], cwd=tmp_path, capture_output=True, text=True, check=True, encoding="utf-8", timeout=300
    )
    assert done.stderr == ""
    assert list(map(json.loads, done.stdout.splitlines())) == DOCUMENTS
    assert [path.name for path in tmp_path.iterdir()] == ["all.sh"]


def test_curl_is_one_command_without_history_expansion():
    for program in programs("curl"):
        assert "!" not in program
        assert program.isascii() or program.replace("\n", "").isprintable()
        assert program.count("\n") == program.count(" \\\n") + 1


def test_python_program_sends_the_document(monkeypatch):
    sent = []

    @contextlib.contextmanager
    def urlopen(request):
        sent.append(json.loads(request.data))
        yield io.BytesIO(b"done\n")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with contextlib.redirect_stdout(io.StringIO()):
        for program in programs("python"):
            assert program.replace("\n", "").isprintable()
            exec(compile(program, "program", "exec"), {})
    assert sent == DOCUMENTS


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_script_sends_the_document(tmp_path):
    """One Node process runs every program; each is a function of its own."""
    node = shutil.which("node")
    shim = "globalThis.fetch = async (url, options) => (sent.push(options.body), {text: async () => ''});\n"
    quiet = "console.log = () => {};\nconst sent = [];\n"
    blocks = "".join(f"await (async () => {{\n{program}}})();\n" for program in programs("typescript"))
    script = tmp_path / "all.mjs"
    script.write_text(quiet + shim + blocks + "process.stdout.write(JSON.stringify(sent));\n", encoding="utf-8")
    done = subprocess.run(
        [node, str(script)],
        cwd=tmp_path,
        env={**os.environ, "OPENAI_API_KEY": "key"},
        capture_output=True,
        check=True,
        timeout=300,
    )
    sent = list(map(json.loads, json.loads(done.stdout)))
    assert sent == DOCUMENTS
    assert [path.name for path in tmp_path.iterdir()] == ["all.mjs"]
    assert all(program.replace("\n", "").isprintable() for program in programs("typescript"))


def test_numbers_are_exact_in_every_language():
    document = {"model": "m", "numbers": NUMBERS}
    for language in ("curl", "python", "typescript"):
        assert str(2**53 + 1) in snippet(language, document)
        assert "1.0" in snippet(language, document)


@every_case("wire", names())
@every_case("language", ["curl", "python", "typescript"])
def test_keys_come_from_the_environment(wire, language):
    program = snippet(language, {"model": "m"}, wire)
    variable = {
        "anthropic": "ANTHROPIC_API_KEY",
        "cohere": "CO_API_KEY",
        "gemini": "GOOGLE_API_KEY",
        "gemini_interactions": "GOOGLE_API_KEY",
        "ollama": "OLLAMA_API_KEY",
    }
    name = variable.get(wire, "OPENAI_API_KEY")
    assert (name in program) == (wire != "ollama" or "OLLAMA" in program)
    assert "http" in program


@every_case("language", ["curl", "python", "typescript"])
def test_secrets_of_the_document_are_removed(language):
    document = {
        "model": "m",
        "api_key": "hunter2hunter2",
        "tools": [{"type": "mcp", "headers": {"Authorization": "Bearer abcdefghijklmnop"}}],
        "messages": [{"role": "user", "content": "my key is sk-abcdefghijklmnop1234"}],
    }
    url = "https://ann:hunter2hunter2@example.com/v1?key=AIzaabcdefghijklmnopqrstuvwxyz#frag"
    program = snippet(language, document, url=url)
    for secret in ("hunter2", "abcdefghijkl", "frag"):
        assert secret not in program
    assert "example.com/v1" in program


@every_case("url", ["file:///etc/passwd", "javascript:alert(1)", "//x", "http://", "x", "http://[::1"])
def test_other_addresses_are_refused(url):
    with pytest.raises(ConfigError, match="invalid URL"):
        snippet("curl", {}, url=url)


@every_case("url", ["http://x/'; touch PWNED; '", "http://x/$(touch PWNED)`touch PWNED`", 'http://x/\\"\n'])
@every_case("language", ["curl", "python", "typescript"])
def test_hostile_address_stays_one_text(url, language, tmp_path=None):
    program = snippet(language, {"model": "m"}, url=url)
    if language == "python":
        compile(program, "program", "exec")
    elif language == "curl":
        shell = "curl() { :; }\nOPENAI_API_KEY=key\n"
        done = subprocess.run(
            ["sh", "-eu"], input=shell + program, text=True, capture_output=True, check=True, timeout=300
        )
        assert (done.stdout, done.stderr) == ("", "")


def test_stream_and_model_are_in_the_path():
    assert "models/gemini-3-pro:streamGenerateContent?alt=sse" in snippet(
        "curl", {"contents": []}, "gemini", model="gemini-3-pro", stream=True
    )
    assert sys.version_info >= (3, 11)


@every_case("wire", names())
def test_list_of_tools_becomes_a_request_that_declares_them(wire):
    tool = Tool("look", "Look.", {"type": "object"})
    tools, _ = get(wire).encode_tools((tool,))
    text = snippet("curl", tools, wire)
    request = get(wire).decode_request(json.loads(text[text.index("'{") + 1 : text.rindex("'")]))
    assert [declared.name for declared in request.tools] == ["look"]
    assert [message.text for message in request.messages] == ["QUESTION"]
    with pytest.raises(ProtocolError):
        snippet("curl", "text", wire)
