"""`toolwire serve check`."""

import asyncio
import json

import pytest

from toolwire.cli.main import main

WRONG = """\
[server]
prot = 1

[upstreams.a]
base_url = "http://127.0.0.1:9/v1"
timeout = "long"

[upstreams.b]
provider = "opnai"

[upstreams.c]
provider = "openai"
key_env = "MISSING_KEY"

[models."gpt-4.1"]
targets = [{ upstream = "a", weight = -1 }, { upstream = "zz" }]

[models.x]
upstraem = "a"

[keys.me]
hash = "no hash"

[state]
url_env = "MISSING_URL"

[tools."*"]
files = ["missing.py"]

[hosted.web_search]
tool = "search"

[hosted.web_fetch]
command = "fetch"
max_calls = 0
"""
GOOD = '[upstreams.a]\nbase_url = "{url}"\nkey_env = "A_KEY"\n[models.m]\nupstream = "a"\n'
BODY = b'{"data": [{"id": "a-mode"}]}'
SECRET = "sk-secret-0123456789"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MISSING_KEY", raising=False)
    monkeypatch.setenv("A_KEY", SECRET)
    return tmp_path


def check(*arguments):
    return main(["serve", "check", *arguments])


def test_all_problems_are_listed_with_line_and_location(folder, capsys):
    (folder / "toolwire.toml").write_text(WRONG)
    assert check("--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert [(row["line"], row["location"]) for row in report["problems"]] == [
        (2, "[server] prot"),
        (6, "[upstreams.a] timeout"),
        (8, "[upstreams.b]"),
        (11, "[upstreams.c]"),
        (16, '[models."gpt-4.1"] targets[0].weight'),
        (16, '[models."gpt-4.1"] targets[1].upstream'),
        (19, "[models.x] upstraem"),
        (22, "[keys.me] hash"),
        (24, "[state] url"),
        (28, '[tools."*"] files[0]'),
        (30, "[hosted.web_search]"),
        (35, "[hosted.web_fetch] max_calls"),
    ]
    assert report["problems"][0]["fix"] == "did you mean 'port'?"
    assert "MISSING_KEY is not set" in report["problems"][3]["problem"]


def test_valid_settings_have_no_problems_and_no_key_is_shown(folder, capsys):
    (folder / "toolwire.toml").write_text(GOOD.format(url="http://127.0.0.1:9/v1"))
    assert check() == 0
    printed = capsys.readouterr().out
    assert printed == "toolwire.toml: 1 upstream, 1 model, 0 keys; no problems\n"


def test_syntax_errors_have_their_line(folder, capsys):
    (folder / "other.toml").write_text("[server]\nport = = 1\n")
    assert check("other.toml", "--json") == 1
    (row,) = json.loads(capsys.readouterr().out)["problems"]
    assert (row["line"], "not valid TOML" in row["problem"]) == (2, True)


def test_missing_file_and_invalid_timeout_are_wrong_usage(folder, capsys):
    assert check("missing.toml") == 2
    assert "cannot read missing.toml" in capsys.readouterr().err
    (folder / "toolwire.toml").write_text("")
    assert check("--timeout", "0") == 2


def test_file_without_models_and_keys_is_a_problem(folder, capsys, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (folder / "toolwire.toml").write_text("")
    assert check() == 1
    assert "no model is configured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "expected", "code"), [(200, "ok", 0), (401, "key refused", 1), (404, "reachable", 0)]
)
def test_probe_asks_the_upstream_for_its_models(folder, capsys, status, expected, code):
    heads = []

    async def answer(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 %d Some\r\ncontent-length: 28\r\nconnection: close\r\n\r\n%s" % (status, BODY))
        await writer.drain()
        writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            (folder / "toolwire.toml").write_text(GOOD.format(url=f"http://127.0.0.1:{port}/v1"))
            return await asyncio.to_thread(check, "--probe", "--json", "--timeout", "60")

    assert asyncio.run(run()) == code
    printed = capsys.readouterr().out
    (probe,) = json.loads(printed)["probes"]
    assert (probe["upstream"], probe["status"]) == ("a", expected)
    assert heads[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert SECRET.encode() in heads[0]
    assert SECRET not in printed


def test_probe_of_an_unreachable_upstream_fails(folder, capsys):
    (folder / "toolwire.toml").write_text(GOOD.format(url="http://127.0.0.1:9/v1"))
    assert check("--probe") == 1
    printed = capsys.readouterr().out
    assert "unreachable" in printed
    assert SECRET not in printed


def test_probe_of_a_silent_upstream_is_bounded(folder, capsys):
    async def stay_silent(reader, writer):
        await reader.read()
        writer.close()

    async def run():
        server = await asyncio.start_server(stay_silent, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            (folder / "toolwire.toml").write_text(GOOD.format(url=f"http://127.0.0.1:{port}/v1"))
            return await asyncio.to_thread(check, "--probe", "--timeout", "0.2")

    assert asyncio.run(run()) == 1
    assert "no answer within 0.2 s" in capsys.readouterr().out


@pytest.mark.finding("U11")
def test_litellm_file_is_checked_with_its_report(folder, capsys):
    entry = (
        "{model_name: m, litellm_params: {model: openai/x, api_base: http://localhost:1/v1, api_key: os.environ/A_KEY}}"
    )
    (folder / "config.yaml").write_text(
        f"model_list: [{entry}]\nlitellm_settings: {{cache: true, set_verbose: true}}\n"
    )
    assert check("config.yaml", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["models"] == ["m"]
    assert [(row["location"], row["problem"]) for row in report["problems"]] == [
        ("litellm_settings.cache", "ignored: caches responses")
    ]
    (folder / "config.yaml").write_text(f"model_list: [{entry}]\ngeneral_settings: {{master_key: sk-1}}\n")
    assert check("config.yaml") == 0
    assert "changed: a key in the file" in capsys.readouterr().out
    (folder / "config.yaml").write_text("model_list: [{model_name: m, litellm_params: {model: bedrock/x}}]\n")
    assert check("config.yaml") == 1
    assert "no model of the file can be used" in capsys.readouterr().out


def test_unusable_upstream_is_part_of_the_verdict(folder, capsys):
    (folder / "toolwire.toml").write_text(GOOD.format(url="http://127.0.0.1:9/v1"))
    assert check("--probe") == 1
    assert capsys.readouterr().out.endswith("toolwire.toml: 1 upstream, 1 model, 0 keys; 1 upstream cannot be used\n")


def test_ignored_settings_of_a_litellm_file_are_notes(folder, capsys, monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    entry = "{model_name: m, litellm_params: {model: openai/x, api_base: http://localhost:1/v1, api_key: sk-1}}"
    (folder / "config.yaml").write_text(
        f"model_list: [{entry}]\nlitellm_settings: {{cache: true, callbacks: [prometheus]}}\n"
    )
    assert check("config.yaml") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("; no problems, 3 notes")
    (folder / "config.yaml").write_text(f"model_list: [{entry}]\ngeneral_settings: {{master_key: os.environ/NO_KEY}}\n")
    assert check("config.yaml") == 1
    printed = capsys.readouterr().out
    assert printed.count("NO_KEY is not set") == 1
    assert printed.splitlines()[-1].endswith("; 1 problem, 1 note")
