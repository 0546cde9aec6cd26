"""Azure OpenAI, Vertex AI and the settings of an upstream, through a gateway on a real socket."""

import asyncio
import json
import logging
import sys
from functools import wraps

import openai
import pytest
import yaml

from gateway_client import post
from serving import serving
from tables import every_case
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.litellm.conversion import convert_litellm
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.gateway.routing.upstreams import upstreams_from_environment
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text
from toolwire.ir.response import Fault, Response, Stop
from toolwire.testing import RawReply, Upstream

KEY = "secret-key-0123456789"
HELLO = Response(parts=(Text("Hello"),), stop=Stop("stop"))
CHAT = {"model": "azure/gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
MESSAGES = {"model": "claude/c", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
ENVIRONMENT = {"UPSTREAM_KEY": KEY, "TEAM_TOKEN": "team-secret-value"}
RESPONSES_PATH, MESSAGES_PATH = "/v1/responses", "/v1/messages"
GEMINI_PATH = "/v1beta/models/vertex/gemini-3:generateContent"


def in_loop(test):
    @wraps(test)
    def run(*arguments, **keywords):
        return asyncio.run(test(*arguments, **keywords))

    return run


def azure(url, **more):
    return {"azure": {"provider": "azure", "base_url": url, "key_env": "UPSTREAM_KEY", "retries": 0, **more}}


def vertex(url, provider="vertex", name="vertex", **more):
    row = {"provider": provider, "base_url": url, "project": "p", "key_env": "UPSTREAM_KEY", "retries": 0, **more}
    return {name: row}


def numbered_keys(path):
    code = (
        "import sys, pathlib\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "log.write_text((log.read_text() if log.exists() else '') + 'x')\n"
        "print(f'key-number-{len(log.read_text())}-0123456789')\n"
    )
    return [sys.executable, "-c", code, str(path)]


@in_loop
async def test_chat_client_reaches_an_azure_deployment():
    """The official client, through the gateway, whole and streamed; equal wires pass unchanged."""
    async with Upstream(HELLO, HELLO) as upstream:
        async with (
            serving({"upstreams": azure(upstream.url, api_version="2024-10-21")}, environment=ENVIRONMENT) as served,
            openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client,
        ):
            whole = await client.chat.completions.create(**CHAT)
            stream = await client.chat.completions.create(**CHAT, stream=True)
            texts = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
        assert whole.choices[0].message.content == "Hello" == "".join(filter(None, texts))
        for heard in upstream.requests:
            assert heard.path == "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21"
            assert heard.headers["api-key"] == KEY
            assert "authorization" not in heard.headers
        assert json.loads(upstream.requests[0].body) == {**CHAT, "model": "gpt-4o"}
        assert [turn.passed_through for turn in served.turns] == [True, True]


LONG_ID = "call_" + "x" * 60


@pytest.mark.parametrize(("call_id", "passed"), [("call_1", True), (LONG_ID, False)])
@in_loop
async def test_call_ids_that_azure_rejects_are_shortened(call_id, passed):
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "ok"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with Upstream(HELLO) as upstream:
        async with serving({"upstreams": azure(upstream.url)}, environment=ENVIRONMENT) as served:
            await post(served.url, body={**CHAT, "messages": messages, "tools": tools})
        sent = json.loads(upstream.requests[0].body)["messages"]
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]
        assert len(sent[2]["tool_call_id"]) <= 40
        assert served.turns[0].passed_through is passed


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("version", "sent"), [("2023-06-01", "vertex-2023-10-16"), ("2026-10-21", "2026-10-21")])
@in_loop
async def test_messages_client_reaches_claude_on_vertex(version, sent, stream):
    """The model moves to the path, the version to the body; unknown fields of the client are kept."""
    body = {**MESSAGES, "stream": stream, "a_field_of_tomorrow": {"x": 1}}
    headers = {"anthropic-version": version, "anthropic-beta": "a-beta"}
    async with Upstream(HELLO) as upstream:
        rows = vertex(upstream.url, "vertex-anthropic", "claude", location="europe-west1")
        async with serving({"upstreams": rows}, environment=ENVIRONMENT) as served:
            status, _, answer = await post(served.url, MESSAGES_PATH, body, headers)
        assert (status, b"Hello" in answer) == (200, True)
        (heard,) = upstream.requests
        verb = "streamRawPredict" if stream else "rawPredict"
        assert heard.path == f"/v1/projects/p/locations/europe-west1/publishers/anthropic/models/c:{verb}"
        del body["model"]
        assert json.loads(heard.body) == {**body, "anthropic_version": sent}
        assert heard.headers["authorization"] == f"Bearer {KEY}"
        assert heard.headers["anthropic-beta"] == "a-beta"
        assert "anthropic-version" not in heard.headers
        assert served.turns[0].passed_through


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "model": "vertex/gemini-3"}),
        (RESPONSES_PATH, {"model": "vertex/gemini-3", "input": "hi"}),
        (MESSAGES_PATH, {**MESSAGES, "model": "vertex/gemini-3"}),
        (GEMINI_PATH, {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "labels": {"team": "a"}}),
    ],
)
@in_loop
async def test_every_client_reaches_gemini_on_vertex(path, body):
    async with Upstream(HELLO) as upstream:
        async with serving({"upstreams": vertex(upstream.url)}, environment=ENVIRONMENT) as served:
            status, _, answer = await post(served.url, path, body)
        assert (status, b"Hello" in answer) == (200, True)
        expected = "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-3:generateContent"
        assert upstream.requests[0].path == expected
        assert upstream.requests[0].headers["authorization"] == f"Bearer {KEY}"


@in_loop
async def test_settings_of_an_upstream_reach_its_requests():
    settings = {
        "provider": "groq",
        "headers": {"X-Team-Token": "${TEAM_TOKEN}", "X-Title": "tests"},
        "extra_body": {"provider": {"sort": "price"}},
        "defaults": {"temperature": 0.25, "max_tokens": 7},
    }
    async with Upstream(HELLO, HELLO) as upstream:
        rows = azure(upstream.url, **settings)
        async with serving({"upstreams": rows}, environment=ENVIRONMENT) as served:
            await post(served.url, body=CHAT)
            await post(served.url, body={**CHAT, "temperature": 1.0, "max_completion_tokens": 3, "max_tokens": 3})
        first, second = (json.loads(heard.body) for heard in upstream.requests)
        assert (first["temperature"], first["max_tokens"], first["provider"]) == (0.25, 7, {"sort": "price"})
        assert (second["temperature"], second["max_tokens"], second["provider"]) == (1.0, 3, {"sort": "price"})
        for heard in upstream.requests:
            assert (heard.headers["x-team-token"], heard.headers["x-title"]) == ("team-secret-value", "tests")


@pytest.mark.parametrize("version", [None, "2023-06-01", "2026-10-21"])
@in_loop
async def test_version_header_is_that_of_the_body_with_defaults(version):
    """Only 2023-06-01 has a temperature. A client without a version uses the newest one."""
    async with Upstream(HELLO) as upstream:
        rows = {"claude": {"provider": "anthropic", "base_url": upstream.url, "key_env": "UPSTREAM_KEY"}}
        rows["claude"]["defaults"] = {"temperature": 0.5}
        async with serving({"upstreams": rows}, environment=ENVIRONMENT) as served:
            headers = {} if version is None else {"anthropic-version": version}
            assert (await post(served.url, MESSAGES_PATH, MESSAGES, headers))[0] == 200
        (heard,) = upstream.requests
        has_temperature = "temperature" in json.loads(heard.body)
        assert has_temperature is (version == "2023-06-01")
        assert heard.headers["anthropic-version"] == ("2023-06-01" if has_temperature else "2026-10-21")


@in_loop
async def test_request_with_every_default_and_extra_body_passes_unknown_fields():
    async with Upstream(HELLO) as upstream:
        rows = azure(upstream.url, extra_body={"user": "gateway"}, defaults={"temperature": 0.5})
        async with serving({"upstreams": rows}, environment=ENVIRONMENT) as served:
            await post(served.url, body={**CHAT, "temperature": 1.0, "user": "client", "tomorrow": [1]})
        expected = {**CHAT, "model": "gpt-4o", "temperature": 1.0, "user": "gateway", "tomorrow": [1]}
        assert json.loads(upstream.requests[0].body) == expected
        assert served.turns[0].passed_through


@in_loop
async def test_key_command_runs_again_once_after_a_401(tmp_path):
    refusal = Fault("authentication", "expired", 401)
    async with Upstream(refusal, HELLO, HELLO, refusal, refusal) as upstream:
        rows = azure(upstream.url, key_command=numbered_keys(tmp_path / "log"))
        del rows["azure"]["key_env"]
        async with serving({"upstreams": rows}) as served:
            statuses = [(await post(served.url, body={**CHAT, "model": f"azure/m{i}"}))[0] for i in range(3)]
        assert statuses == [200, 200, 502]  # the client's own key is valid
        keys = [heard.headers["authorization"].removesuffix("-0123456789") for heard in upstream.requests]
        assert keys == [f"Bearer key-number-{number}" for number in (1, 2, 2, 2, 3)]


@in_loop
async def test_failed_key_command_falls_back_to_another_target(tmp_path, caplog):
    secret = "hidden-argument"
    failing = [sys.executable, "-c", "import sys; sys.exit('no login')", secret]
    async with Upstream(HELLO) as upstream:
        rows = azure(upstream.url, key_command=failing)
        del rows["azure"]["key_env"]
        rows["other"] = {"base_url": upstream.url, "wire": "openai_chat"}
        models = {"m": {"upstream": "azure", "fallbacks": ["n"]}, "n": {"upstream": "other"}}
        async with serving({"upstreams": rows, "models": models}) as served:
            caplog.set_level(logging.INFO)
            assert (await post(served.url, body={**CHAT, "model": "m"}))[0] == 200
            status, _, body = await post(served.url, body=CHAT)
        assert status == 502
        assert b"no key for the upstream azure" in body
        assert b"no login" not in body
    assert "failed with status 1: no login" in caplog.text
    assert secret not in caplog.text


@in_loop
async def test_keys_and_headers_are_in_no_log_and_no_recording(tmp_path, caplog):
    """Not even if the upstream repeats them."""
    caplog.set_level(logging.DEBUG)
    key = "key-number-1-0123456789"
    echo = RawReply(json.dumps({"error": {"message": f"bad {key} and team-secret-value"}}).encode(), status=400)
    async with Upstream(echo, HELLO) as upstream:
        rows = azure(upstream.url, key_command=numbered_keys(tmp_path / "count"), headers={"X-Team": "${TEAM_TOKEN}"})
        del rows["azure"]["key_env"]
        document = {
            "upstreams": rows,
            "log": {"file": str(tmp_path / "log"), "bodies": True},
            "trace": {"record": str(tmp_path / "traces")},
        }
        settings = parse_settings(document)
        telemetry = open_telemetry(settings, ENVIRONMENT)
        try:
            gateway_options = {
                "sinks": telemetry.sinks,
                "transports": telemetry.transports(),
                "on_key": telemetry.redactor.add_temporary_secret,
            }
            async with serving(document, environment=ENVIRONMENT, **gateway_options) as served:
                status, _, body = await post(served.url, body=CHAT)
                await post(served.url, body=CHAT)
            logging.getLogger("toolwire.gateway").warning("a message with %s", key)
        finally:
            await telemetry.aclose()
        assert (status, upstream.requests[0].headers["authorization"]) == (400, f"Bearer {key}")
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "count"]
    assert any(path.parent.name == "traces" for path in files) or (tmp_path / "log").exists()
    written = "".join(path.read_text() for path in files) + body.decode()
    assert "a message with [removed]" in written
    for secret in (key, "team-secret-value"):
        assert secret not in written


@every_case(
    ("row", "words"),
    [
        (
            {"key_command": "gcloud auth print-access-token"},
            'key_command: must be a list.*write key_command = \\["gcloud"',
        ),
        ({"key_command": []}, r"\[upstreams.a\]: key_command must be a list of texts"),
        ({"key_command": ["no-such-program-at-all"]}, r"\[upstreams.a\]: key_command: cannot find the program"),
        ({"key_command": ["true"], "key_env": "UPSTREAM_KEY"}, r"\[upstreams.a\]: has key_env and key_command"),
        (
            {"key_command": ["true"], "key_timeout": 0},
            r"\[upstreams.a\] key_timeout: must be positive and finite, got 0",
        ),
        ({"key_command": ["true"], "key_ttl": -1}, r"\[upstreams.a\] key_ttl: must be positive"),
        ({"key_env": "UPSTREAM_KEY", "auth": "basic"}, "auth"),
        ({"key_env": "UPSTREAM_KEY", "headers": {"Host": "x"}}, r"\[upstreams.a\]: headers: 'Host' cannot be set"),
        ({"key_env": "UPSTREAM_KEY", "headers": {"x": "${NONE}"}}, "environment variable NONE of 'x' is not set"),
        (
            {"key_env": "UPSTREAM_KEY", "extra_body": {"messages": []}},
            r"\[upstreams.a\]: extra_body must not set 'messages'",
        ),
        (
            {"key_env": "UPSTREAM_KEY", "defaults": {"temp": 1}},
            r"\[upstreams.a\]: unknown parameter 'temp' in defaults",
        ),
        ({"key_env": "UPSTREAM_KEY", "project": "p"}, r"\[upstreams.a\]: openai takes no project"),
        ({"provider": "azure"}, r"\[upstreams.a\]: azure has no common address"),
        ({"provider": "vertex", "key_env": "UPSTREAM_KEY"}, r"\[upstreams.a\]: vertex needs a project"),
    ],
)
def test_invalid_settings_are_explained_at_the_start(row, words):
    with pytest.raises(ConfigError, match=words):
        Gateway(parse_settings({"upstreams": {"a": {"provider": "openai", **row}}}), environment=ENVIRONMENT)


@every_case(
    ("content", "words"),
    [
        (b"\xff\xfe", "cannot read key_file: it is not UTF-8 text"),
        (b" \n", "key_file .* is empty"),
        (None, "cannot read key_file: No such file"),
    ],
)
def test_key_file_without_a_key_is_refused(tmp_path, content, words):
    path = tmp_path / "key"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    row = {"provider": "openai", "key_file": str(path)}
    with pytest.raises(ConfigError, match=rf"\[upstreams.a\]: {words}"):
        Gateway(parse_settings({"upstreams": {"a": row}}), environment={})


def test_environment_without_an_address_or_a_project_adds_no_upstream():
    keys = {"AZURE_OPENAI_API_KEY": KEY, "CLOUDSDK_AUTH_ACCESS_TOKEN": KEY, "GROQ_API_KEY": KEY}
    assert set(upstreams_from_environment(keys)) == {"groq"}
    complete = {**keys, "AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com", "GOOGLE_CLOUD_PROJECT": "p"}
    added = {"azure", "azure-responses", "vertex", "vertex-anthropic", "groq"}
    assert set(upstreams_from_environment(complete)) == added
    Gateway(parse_settings({}), environment=complete)


LITELLM = """
model_list:
  - model_name: gpt
    litellm_params:
      model: azure/my-deployment
      api_base: https://r.openai.azure.com
      api_version: "2024-10-21"
      api_key: os.environ/AZURE_KEY
  - model_name: gemini
    litellm_params: {model: vertex_ai/gemini-2.5-flash, vertex_project: os.environ/PROJECT, vertex_location: us-east5}
  - model_name: claude
    litellm_params: {model: vertex_ai/claude-sonnet-4-5, vertex_project: p, api_key: os.environ/TOKEN}
"""


def test_litellm_entries_of_azure_and_vertex_are_converted(monkeypatch):
    settings = convert_litellm(yaml.safe_load(LITELLM), {"PROJECT": "p-1"}).settings

    def converted(name):
        (target,) = settings.models[name].targets
        return settings.upstreams[target.upstream], target.model

    gpt, deployment = converted("gpt")
    assert (gpt.provider, gpt.api_version, gpt.key_env, deployment) == (
        "azure",
        "2024-10-21",
        "AZURE_KEY",
        "my-deployment",
    )
    gemini, model = converted("gemini")
    assert (gemini.provider, gemini.project, gemini.location, model) == (
        "vertex",
        "p-1",
        "us-east5",
        "gemini-2.5-flash",
    )
    assert gemini.key_command == ("gcloud", "auth", "application-default", "print-access-token")
    claude, _ = converted("claude")
    assert (claude.provider, claude.key_env, claude.key_command) == ("vertex-anthropic", "TOKEN", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="cannot find the program 'gcloud'"):
        Gateway(settings, environment={"AZURE_KEY": KEY, "TOKEN": KEY})
