"""Requests to AWS that a client or a gateway signs: botocore computes the same signature from the bytes that arrive."""

import asyncio
import json
import logging
from datetime import UTC, datetime

import pytest
import yaml
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from gateway_client import post
from serving import listening, serving
from tables import every_case
from toolwire import Message, ModelClient, Request, Response, Text
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.litellm.conversion import convert_litellm
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.ir import Stop
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Fault
from toolwire.net.model.endpoint import resolve
from toolwire.testing import RawReply, Upstream

HELLO = Response(parts=(Text("Hello"),), stop=Stop("stop"))
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "very-secret-0123456789",
    "AWS_SESSION_TOKEN": "session-secret-0123456789",
    "AWS_REGION": "us-east-1",
}
ENVIRONMENT = {**KEYS, "HOME": "/nonexistent"}
REQUEST = Request(messages=(Message("user", (Text("hi"),)),))
CHAT = {"model": "aws/openai.gpt-oss-120b-1:0", "messages": [{"role": "user", "content": "hi"}]}


def is_signed(received, url, region="us-east-1", service="bedrock-mantle", secret=KEYS["AWS_SECRET_ACCESS_KEY"]):
    """Sign the received request again with botocore, at the time that it states."""
    names = received.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: received.headers[name] for name in names if name not in ("x-amz-date", "x-amz-security-token")}
    again = AWSRequest("POST", url + received.path, headers, received.body)
    again.context["timestamp"] = received.headers["x-amz-date"]
    token = received.headers.get("x-amz-security-token")
    signer = SigV4Auth(Credentials("AKIAEXAMPLE", secret, token), service, region)
    again.headers["X-Amz-Date"] = received.headers["x-amz-date"]
    if token is not None:
        again.headers["X-Amz-Security-Token"] = token
    canonical = signer.canonical_request(again)
    signature = signer.signature(signer.string_to_sign(again, canonical), again)
    assert {"host", "x-amz-date", "content-type"} <= set(names)
    age = datetime.now(UTC) - datetime.strptime(received.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs(age.total_seconds()) < 60
    return received.headers["authorization"].endswith(f"Signature={signature}")


@pytest.mark.parametrize(
    ("model", "options", "service"),
    [
        ("bedrock-mantle/openai.gpt-oss-120b-1:0", {}, "bedrock-mantle"),
        ("bedrock-mantle-responses/openai.gpt-5.4", {}, "bedrock-mantle"),
        ("bedrock-mantle-anthropic/anthropic.claude-opus-4-7", {}, "bedrock-mantle"),
        ("bedrock-openai/openai.gpt-oss-120b-1:0", {}, "bedrock"),
        ("anthropic-aws/claude-opus-4-7", {"workspace": "wrkspc_1"}, "aws-external-anthropic"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_model_client_signs_requests(monkeypatch, model, options, service, stream):
    async def run():
        async with Upstream(HELLO) as upstream:
            client = ModelClient(model, base_url=upstream.url, auth="sigv4", **options)
            async with client:
                if stream:
                    assert [event async for event in client.stream(REQUEST)]
                else:
                    await client.ask(REQUEST)
            return upstream.url, upstream.requests[0]

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    url, received = asyncio.run(run())
    assert is_signed(received, url, service=service)
    assert received.headers["x-amz-security-token"] == KEYS["AWS_SESSION_TOKEN"]
    assert received.headers.get("anthropic-workspace-id") == options.get("workspace")
    assert not is_signed(received, url, service=service, secret="another")


def gateway_row(url, **more):
    return {"aws": {"provider": "bedrock-mantle", "base_url": url, "auth": "sigv4", "retries": 0, **more}}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_gateway_signs_what_it_sends(path):
    """Passed-through and translated requests, whole and streamed; also bodies that are usually sent on unread."""

    async def run():
        async with Upstream(*[HELLO] * 4) as upstream:
            rows = gateway_row(upstream.url)
            async with serving(
                {"upstreams": rows, "limits": {"stream_body": 10_000}}, environment=ENVIRONMENT
            ) as served:
                for stream in (False, True):
                    for text in ("hi", "x" * 50_000):
                        body = {"model": CHAT["model"], "stream": stream}
                        message = {"role": "user", "content": text}
                        body["messages" if "chat" in path else "input"] = [message]
                        status, _, answer = await post(served.url, path, body)
                        assert status == 200, answer
            return upstream.url, upstream.requests

    url, requests = asyncio.run(run())
    assert len(requests) == 4
    for received in requests:
        assert is_signed(received, url)
        assert "very-secret" not in repr(received.headers)


def test_refused_credentials_are_read_again_once(tmp_path, monkeypatch):
    """AWS answers 403 to expired credentials; a request without a permission is not repeated at once."""
    file = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = {}\n"
    file.write_text(text.format("old"))
    refusal = Fault("permission", "The security token included in the request is expired", 403)

    async def run():
        async with Upstream(refusal, HELLO, refusal, refusal) as upstream:
            environment = {"HOME": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_REGION": "us-east-1"}
            async with serving({"upstreams": gateway_row(upstream.url)}, environment=environment) as served:
                cache = served.gateway._dependencies.router.find_upstream("aws").endpoint("any").signing.credentials
                await cache.credentials()
                cache._loaded_at -= 100
                file.write_text(text.format("new"))
                statuses = [(await post(served.url, body=CHAT))[0] for _ in range(2)]
            return upstream.url, statuses, upstream.requests

    url, statuses, requests = asyncio.run(run())
    assert statuses[0] == 200
    assert statuses[1] != 200
    assert [is_signed(received, url, secret="old") for received in requests] == [True, False, False]
    assert [is_signed(received, url, secret="new") for received in requests] == [False, True, True]


def test_missing_credentials_are_an_error_of_the_gateway_with_the_cause_in_its_log(caplog):
    async def run():
        environment = {"HOME": "/nonexistent", "AWS_REGION": "us-east-1"}
        environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:9"
        async with (
            Upstream(HELLO) as upstream,
            serving({"upstreams": gateway_row(upstream.url)}, environment=environment) as served,
        ):
            return await post(served.url, body=CHAT), upstream.requests

    (status, _, body), requests = asyncio.run(run())
    assert (status, requests) == (502, [])
    assert b"no key for the upstream aws" in body
    assert "cannot reach http://127.0.0.1:9 for credentials of AWS" in caplog.text


@every_case(
    ("row", "environment", "words"),
    [
        ({}, {}, r"bedrock-mantle needs a location.*AWS_REGION or AWS_DEFAULT_REGION"),
        ({"location": "us-east-1", "profile": "none"}, {}, "have no profile 'none'"),
        ({"location": "us-east-1"}, {"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY is not"),
        ({"provider": "openai", "auth": "sigv4"}, {}, "openai takes no credentials of AWS"),
        ({"provider": "openai", "profile": "x"}, {}, "openai takes no credentials of AWS"),
        ({"location": "us-east-1", "auth": "sigv4", "key_env": "KEY"}, {}, "a key and credentials of AWS are set"),
        ({"provider": "anthropic-aws", "location": "us-east-1"}, {}, "anthropic-aws needs a workspace"),
        ({"provider": "anthropic-foundry", "key_env": "KEY"}, {}, "needs a resource .set base_url"),
        (
            {"provider": "bedrock-mantle-responses", "location": "us-east-1", "auth": "sigv4", "websocket": True},
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
            "a WebSocket cannot be signed",
        ),
    ],
)
def test_wrong_settings_are_explained_at_the_start(row, environment, words):
    settings = parse_settings({"upstreams": {"a": {"provider": "bedrock-mantle", **row}}})
    with pytest.raises(ConfigError, match=rf"\[upstreams.a\]: .*{words}"):
        Gateway(settings, environment={"HOME": "/nonexistent", "KEY": "k", **environment})


def test_key_is_used_before_credentials_unless_a_profile_is_named(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[profile work]\nregion = eu-west-3\n")
    environment = {**KEYS, "HOME": str(tmp_path), "AWS_BEARER_TOKEN_BEDROCK": "a-key"}
    assert resolve("bedrock-mantle/m", environment).secrets == {"authorization": "Bearer a-key"}
    assert resolve("bedrock-mantle/m", environment, auth="sigv4").signing is not None
    del environment["AWS_REGION"]
    endpoint = resolve("bedrock-mantle/m", environment, profile="work")
    assert endpoint.signing.scope == ("eu-west-3", "bedrock-mantle")
    assert endpoint.url(stream=False).startswith("https://bedrock-mantle.eu-west-3.api.aws/")
    assert "AKIA" not in repr(endpoint.signing)


@pytest.mark.parametrize(
    ("base_url", "is_sent"),
    [
        ("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/openai/v1", True),
        ("https://vpce-1-a.bedrock-runtime.us-east-1.vpce.amazonaws.com/openai/v1", True),
        ("https://bedrock-runtime.cn-north-1.amazonaws.com.cn/openai/v1", True),
        ("http://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", False),
        ("https://bedrock-runtime.us-east-1.elb.amazonaws.com/openai/v1", False),
        ("https://ec2-1-2-3-4.compute-1.amazonaws.com/openai/v1", False),
        ("https://bedrock-runtime.us-east-1.amazonaws.com.example.com/openai/v1", False),
    ],
)
def test_key_and_credentials_of_the_environment_are_sent_to_bedrock_only(base_url, is_sent):
    for environment in (KEYS, {"AWS_BEARER_TOKEN_BEDROCK": "a-key", "AWS_REGION": "us-east-1"}):
        environment = {**environment, "HOME": "/nonexistent"}
        endpoint = resolve("bedrock-openai/m", environment, base_url=base_url, insecure=True)
        assert bool(endpoint.secrets or endpoint.signing) is is_sent


def test_other_providers_never_get_credentials_of_aws():
    for provider in ("openai", "anthropic", "groq"):
        environment = {**ENVIRONMENT, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k"}
        assert resolve(f"{provider}/m", environment).signing is None


def test_command_prints_credentials(tmp_path):
    """The output of `aws configure export-credentials`."""
    document = {"Version": 1, "AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": "s-1", "SessionToken": "t"}
    (tmp_path / "out").write_text(json.dumps(document))

    async def run():
        async with Upstream(HELLO) as upstream:
            rows = gateway_row(upstream.url, key_command=["cat", str(tmp_path / "out")], location="us-east-1")
            async with serving({"upstreams": rows}, environment={"PATH": "/usr/bin:/bin"}) as served:
                assert (await post(served.url, body=CHAT))[0] == 200
            return upstream.url, upstream.requests[0]

    url, received = asyncio.run(run())
    assert is_signed(received, url, secret="s-1")
    assert received.headers["x-amz-security-token"] == "t"


LITELLM = """
model_list:
  - model_name: gpt
    litellm_params: {model: bedrock_mantle/openai.gpt-oss-120b, aws_region_name: eu-west-1, aws_profile_name: work}
  - model_name: claude
    litellm_params: {model: bedrock_mantle/anthropic.claude-opus-4-7, aws_region_name: os.environ/REGION}
"""


def test_litellm_entries_of_mantle_are_converted():
    settings = convert_litellm(yaml.safe_load(LITELLM), {"REGION": "us-west-2"}).settings

    def converted(name):
        (target,) = settings.models[name].targets
        row = settings.upstreams[target.upstream]
        return row.provider, row.location, row.profile, target.model

    assert converted("gpt") == ("bedrock-mantle", "eu-west-1", "work", "openai.gpt-oss-120b")
    assert converted("claude") == ("bedrock-mantle-anthropic", "us-west-2", None, "anthropic.claude-opus-4-7")


def test_secrets_are_in_no_log_and_no_recording(tmp_path, caplog):
    """Not even if the upstream repeats them."""
    secrets = (KEYS["AWS_SECRET_ACCESS_KEY"], KEYS["AWS_SESSION_TOKEN"])
    echo = RawReply(json.dumps({"error": {"message": f"bad {' and '.join(secrets)}"}}).encode(), status=400)
    document = {"log": {"file": str(tmp_path / "log"), "bodies": True}, "trace": {"record": str(tmp_path / "traces")}}

    async def run():
        async with Upstream(echo, HELLO) as upstream:
            settings = {**document, "upstreams": gateway_row(upstream.url)}
            telemetry = open_telemetry(parse_settings(settings), ENVIRONMENT)
            on_key = telemetry.redactor.add_temporary_secret
            gateway = Gateway(
                parse_settings(settings),
                environment=ENVIRONMENT,
                sinks=telemetry.sinks,
                transports=telemetry.transports(),
                on_key=on_key,
            )
            try:
                async with listening(telemetry.wrap(gateway)) as url:
                    _, _, body = await post(url, body=CHAT)
                    assert (await post(url, body=CHAT))[0] == 200
                logging.getLogger("toolwire.gateway").warning("a message with %s", secrets)
            finally:
                await telemetry.aclose()
            return body, [received.headers["authorization"] for received in upstream.requests]

    caplog.set_level(logging.DEBUG)
    body, signatures = asyncio.run(run())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("traces" in path.parts for path in files), files
    written = "".join(path.read_text() for path in files) + body.decode()
    assert "a message with" in written
    for secret in (*secrets, *(signature.rpartition("Signature=")[2] for signature in signatures)):
        assert secret not in written
