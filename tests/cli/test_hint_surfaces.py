"""Hints of errors in the terms of the surface that shows them: Python, the command line, the gateway's TOML file."""

import ast
import json
import re
from pathlib import Path

import pytest

import toolwire
from source_text import walk
from toolwire import openapi
from toolwire.cli.main import main
from toolwire.ir.errors import ToolwireError
from toolwire.ir.hints import PHRASES, translate_hint
from toolwire.mcp.server.registry import server_json
from toolwire.net.model.client import ModelClient

SOURCE = Path(toolwire.__file__).parent
FOREIGN_URL = "http://models.example.com/v1"
TOOLS = 'def add(a: int) -> int:\n    "Add."\n    return a\n'
API = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {}}


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """A function that runs a command in an empty folder and returns its error message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_KEY", "k" * 20)
    (tmp_path / "hint_tools.py").write_text(TOOLS, encoding="utf-8")

    def run(*arguments):
        assert main(arguments) != 0
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def python_hint(action):
    with pytest.raises(ToolwireError) as caught:
        action()
    return caught.value.hint


@pytest.mark.finding("U6")
def test_unencrypted_address_on_every_surface(command, tmp_path):
    assert "pass insecure=True" in python_hint(lambda: ModelClient("openai/m", base_url=FOREIGN_URL, key="k"))
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'[upstreams.mine]\nbase_url = "{FOREIGN_URL}"\nkey_env = "TEST_KEY"\n', encoding="utf-8")
    shown = command("serve", "--config", str(settings))
    assert "set insecure = true" in shown and "insecure=True" not in shown
    shown = command("run", "hi", "-t", "hint_tools.py", "-m", "m", "--base-url", FOREIGN_URL, "--key-env", "TEST_KEY")
    assert "(use https)" in shown and "insecure" not in shown  # the command has no such option
    (tmp_path / "api.json").write_text(json.dumps(API), encoding="utf-8")
    shown = command("mcp", "serve", "api.json", "--api-url", FOREIGN_URL, "--store", "memory:")
    assert "add --api-insecure" in shown and "insecure=True" not in shown


@pytest.mark.finding("U6")
def test_unknown_document_on_every_surface(command, tmp_path):
    assert python_hint(lambda: toolwire.calls({"what": 1})) == 'pass wire=…, such as wire="openai_chat"'
    (tmp_path / "what.json").write_text('{"what": 1}', encoding="utf-8")
    assert "(add --from WIRE and --kind KIND)" in command("convert", "what.json")


@pytest.mark.finding("U6")
def test_model_without_a_provider_on_every_surface(command):
    assert python_hint(lambda: ModelClient("mistral")).endswith("base_url=…")
    assert "or add --base-url URL)" in command("run", "hi", "-t", "hint_tools.py", "-m", "mistral")


@pytest.mark.finding("U6")
def test_registry_entry_on_every_surface(command):
    assert python_hint(lambda: server_json("io.github.me/a", "1.0.0", "d")) == "pass pypi=…, url=…, or both"
    shown = command("mcp", "server-json", "hint_tools.py", "--name", "io.github.me/a", "--version", "1.0.0")
    assert "--description" in shown and "description=…" not in shown


@pytest.mark.finding("NU4")
@pytest.mark.parametrize(
    ("servers", "python", "option"),
    [
        (
            [{"url": "/v1"}, {"url": "https://api.example.com/v1"}],
            "pass trust_servers=True to use https://api.example.com/v1, the server in the document, or pass base_url=…",
            "add --api-url https://api.example.com/v1, the server in the document, if you trust it",
        ),
        (
            [{"url": "http://10.0.0.1/v1"}],
            (
                'pass the URL of the API: base_url="https://api.example.com"; trust_servers=True uses only https servers,'
                " and the document has http://10.0.0.1/v1"
            ),
            "add --api-url URL; the document has http://10.0.0.1/v1",
        ),
        (
            [{"url": "/v1\x1b[2J"}, {"url": "https://{host}"}],
            (
                'pass the URL of the API: base_url="https://api.example.com"; trust_servers=True uses only https servers,'
                r" and the document has /v1\x1b[2J"
            ),
            r"add --api-url URL; the document has /v1\x1b[2J",
        ),
        (None, 'pass the URL of the API: base_url="https://api.example.com"', "add --api-url URL"),
    ],
)
def test_missing_url_of_an_api_on_every_surface(command, tmp_path, servers, python, option):
    document = API if servers is None else {**API, "servers": servers}
    assert python_hint(lambda: openapi.toolbox(document)) == python
    (tmp_path / "api.json").write_text(json.dumps(document), encoding="utf-8")
    shown = command("mcp", "serve", "api.json", "--store", "memory:")
    assert "--api-url is missing" in shown and option in shown
    assert "trust_servers" not in shown and "base_url" not in shown and "\x1b" not in shown


def library_hints():
    """Yield the location and the source of every hint below the command line and the gateway."""
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if name.startswith(("cli/", "gateway/", "local/")):
            continue
        source = file.read_text(encoding="utf-8")
        for node in walk(ast.parse(source)) if "hint" in source else ():
            hints = [keyword.value for keyword in getattr(node, "keywords", ()) if keyword.arg == "hint"]
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if getattr(target, "id", getattr(target, "attr", "")).endswith("hint"):
                hints.append(node.value)
            for hint in hints:
                yield f"{name}:{hint.lineno}", ast.unparse(hint)


@pytest.mark.finding("U6")
def test_no_hint_of_the_library_names_an_option_or_a_key_of_a_file():
    # a complete command (`toolwire runs list`, pip, pytest) can be run everywhere
    option, command = re.compile(r"--[a-z]"), re.compile(r"toolwire [a-z]+ |pip |pytest ")
    key = re.compile(r"\bset \w+ = ")
    found = [
        (where, text)
        for where, text in library_hints()
        if (option.search(text) and not command.search(text)) or key.search(text)
    ]
    assert found == []


def messages(tree):
    """Yield the strings of a module that are not docstrings."""
    nodes = walk(tree)
    docstrings = {
        id(statement.value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


@pytest.mark.finding("NU5")
def test_no_message_refers_to_a_file_of_the_repository():
    # neither a remote client nor a user of the wheel has it
    file = re.compile(
        r"(?<![\w/.-])(?:docs|examples|bench|tests|deploy)/\w|\b(?:README|CONTRIBUTING|CHANGELOG|SECURITY)\b"
    )
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path, source in sources.items()
        if re.search("(?:docs|examples|bench|tests|deploy)/|README|CONTRIBUTING|CHANGELOG|SECURITY", source)
        for line, text in messages(ast.parse(source))
        if file.search(text)
    ]
    assert found == []


@pytest.mark.finding("U6")
def test_every_translated_phrase_is_in_a_hint_of_the_library():
    everything = "\n".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py") if file.name != "hints.py")
    assert [phrase for phrase in PHRASES if phrase not in everything] == []


@pytest.mark.finding("U6")
def test_hint_without_terms_is_unchanged():
    assert translate_hint("such as https://example.com/v1", "option") == "such as https://example.com/v1"
