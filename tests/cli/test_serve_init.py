"""`toolwire serve init`."""

import asyncio
import json
import os
import tomllib

import pytest

from toolwire.cli.main import main
from toolwire.cli.models import LocalServer, find_local_servers
from toolwire.cli.serve import settings as serve_init
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.settings_file import load_settings
from waiting import SAFETY

SECRET = "sk-secret-0123456789"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN")):
            monkeypatch.delenv(name)
    return tmp_path


def init(*arguments):
    return main(["serve", "init", "--no-probe", *arguments])


def test_providers_with_a_key_become_upstreams_without_the_key(folder, capsys, monkeypatch):
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    assert init() == 0
    text = (folder / "toolwire.toml").read_text()
    assert list(load_settings(folder / "toolwire.toml").upstreams) == ["gemini", "huggingface", "openai"]
    printed = capsys.readouterr()
    assert "The key is in GEMINI_API_KEY" in text
    assert "toolwire serve check --probe" in printed.out
    assert SECRET not in text + printed.out + printed.err
    assert main(["serve", "check"]) == 0


def test_existing_file_is_not_overwritten_without_force(folder, capsys):
    (folder / "toolwire.toml").write_text("# mine\n")
    assert init() == 2
    assert "already exists (use --force to overwrite it" in capsys.readouterr().err
    assert (folder / "toolwire.toml").read_text() == "# mine\n"
    assert init("--force") == 0
    assert "# mine" not in (folder / "toolwire.toml").read_text()


def test_machine_without_keys_and_servers_gets_examples(folder, capsys):
    assert init("other.toml") == 0
    assert tomllib.loads((folder / "other.toml").read_text()) == {}
    captured = capsys.readouterr()
    assert "the file has only examples" in captured.err
    assert "toolwire serve --config other.toml" in captured.out


def test_examples_in_the_file_are_valid_settings():
    uncommented = "\n".join(line.removeprefix("# ") for line in serve_init._EXAMPLE.splitlines() if line != "#")
    assert list(parse_settings(tomllib.loads(uncommented)).models) == ["fast"]


def test_other_file_types_are_refused(folder, capsys):
    assert init("config.yaml") == 2
    assert "use --from-litellm to read a YAML file" in capsys.readouterr().err


@pytest.mark.finding("U11")
def test_litellm_file_is_converted_with_the_report_as_comments(folder, capsys, monkeypatch):
    (folder / "config.yaml").write_text(
        f"""
model_list:
  - {{model_name: gpt, litellm_params: {{model: gpt-4o, api_key: {SECRET}, tags: [a]}}}}
  - {{model_name: rock, litellm_params: {{model: sagemaker/x}}}}
environment_variables: {{SOME_PASSWORD: {SECRET}}}
general_settings: {{master_key: os.environ/UNSET_MASTER}}
"""
    )
    assert init("--from-litellm", "config.yaml") == 0
    text = (folder / "toolwire.toml").read_text()
    settings = load_settings(folder / "toolwire.toml")
    assert (settings.models["gpt"].upstream, settings.models["gpt"].model) == ("openai", "gpt-4o")
    assert settings.upstreams["openai"].key_env == "TOOLWIRE_LITELLM_KEY_1"
    for expected in ("# skipped: rock", "SOME_PASSWORD", "UNSET_MASTER", "toolwire serve keys new NAME"):
        assert expected in text
    captured = capsys.readouterr()
    assert "Amazon SageMaker is not supported" in captured.err
    assert SECRET not in text + captured.out + captured.err
    assert init("--from-litellm", "config.yaml", "--force", "--strict") == 2


def test_hostile_names_stay_in_their_comments_and_strings(folder):
    name = 'x"\n[server]\nport = 1\n#\u2028\x7f'
    document = {"model_list": [{"model_name": name, "litellm_params": {"model": f"gpt-{name}", name: 1}}]}
    (folder / "config.yaml").write_text(json.dumps(document))
    assert init("--from-litellm", "config.yaml") == 0
    settings = load_settings(folder / "toolwire.toml")
    assert list(settings.models) == [name]
    assert settings.server.port is None


def serve_models(document):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(document).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    return answer


def find_at(document, provider):
    async def run():
        async with await asyncio.start_server(serve_models(document), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            path = "" if provider == "ollama" else "/v1"
            addresses = {provider: f"http://127.0.0.1:{port}{path}", "sglang": "http://127.0.0.1:9/v1"}
            return await find_local_servers(addresses, seconds=SAFETY), addresses[provider]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("provider", "document"),
    [
        ("ollama", {"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}]}),
        ("llamacpp", {"data": [{"id": "qwen3:8b", "owned_by": "llamacpp"}, {"id": "x" * 500}]}),
    ],
)
def test_servers_on_this_machine_are_found_with_their_models(provider, document):
    found, address = find_at(document, provider)
    assert found == [LocalServer(provider, address, ("qwen3:8b",))]


def test_other_programs_on_the_port_are_ignored():
    assert find_at({"hello": "world"}, "vllm")[0] == []
    assert find_at([1], "vllm")[0] == []


def test_found_server_becomes_an_upstream_with_its_models(folder, monkeypatch):
    async def found():
        return [LocalServer("ollama", "http://127.0.0.1:11434", ("qwen3:8b", "a*", *(f"m{n}" for n in range(30))))]

    monkeypatch.setattr("toolwire.cli.models.find_local_servers", found)
    assert main(["serve", "init"]) == 0
    settings = load_settings(folder / "toolwire.toml")
    assert settings.models["qwen3:8b"].upstream == "ollama"
    assert "a*" not in settings.models
    assert len(settings.models) == 19
    assert "12 more models" in (folder / "toolwire.toml").read_text()
