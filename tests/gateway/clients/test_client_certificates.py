"""Upstreams that require a certificate of the gateway."""

import asyncio
import shutil
import ssl

import pytest

from gateway_client import CHAT_REQUEST, HELLO, post
from places import TESTS
from serving import listening
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings, parse_valid_part
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.gateway.settings_file import configure_upstreams
from toolwire.ir.errors import ConfigError
from toolwire.testing import Upstream, load_trace

TLS = TESTS / "fixtures" / "tls"
FILES = {"client_certificate": str(TLS / "client.pem"), "client_key": str(TLS / "client-key.pem")}
ENVIRONMENT = {"SSL_CERT_FILE": str(TLS / "ca.pem")}


def server_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(TLS / "tunnel-ca.pem")
    return context


def rows_of(upstream, **files):
    row = {"base_url": upstream.url, "wire": "openai_chat", "retries": 0}
    return {"upstreams": {"with": {**row, **files}, "without": row}}


async def ask(url, upstream):
    return (await post(url, body={**CHAT_REQUEST, "model": f"{upstream}/m"}))[0]


@pytest.mark.parametrize("is_recording", [False, True])
def test_certificate_is_shown_to_its_upstream_only(is_recording, tmp_path):
    async def scene():
        async with Upstream(HELLO, HELLO, tls=server_context()) as upstream:
            record = {"trace": {"record": str(tmp_path)}} if is_recording else {}
            settings = parse_settings({**rows_of(upstream, **FILES), **record})
            telemetry = open_telemetry(settings, ENVIRONMENT, lines=False)
            gateway = Gateway(
                settings, environment=ENVIRONMENT, sinks=telemetry.sinks, transports=telemetry.transports()
            )
            async with listening(telemetry.wrap(gateway)) as url:
                statuses = await ask(url, "with"), await ask(url, "without")
            await telemetry.aclose()
            return statuses, len(upstream.requests)

    assert asyncio.run(scene()) == ((200, 502), 1)
    assert len([load_trace(file) for file in tmp_path.iterdir()]) == (2 if is_recording else 0)


def test_renewed_certificate_is_used_after_a_reload(tmp_path):
    certificate, key = tmp_path / "client.pem", tmp_path / "key.pem"
    files = {"client_certificate": str(certificate), "client_key": str(key)}

    def install(*names):
        for name, file in zip(names, (certificate, key), strict=True):
            shutil.copy(TLS / name, file)

    async def scene():
        install("cert.pem", "key.pem")
        async with Upstream(HELLO, tls=server_context()) as upstream:
            settings = parse_settings(rows_of(upstream, **files))
            gateway = Gateway(settings, environment=ENVIRONMENT)
            async with listening(gateway) as url:
                assert await ask(url, "with") == 502
                install("client.pem", "key.pem")
                with pytest.raises(ConfigError, match=r"\[upstreams.with\]: cannot use the client certificate"):
                    gateway.apply(settings)
                install("client.pem", "client-key.pem")
                gateway.apply(settings)
                assert await ask(url, "with") == 200

    asyncio.run(scene())


def test_unusable_certificate_is_found_by_the_check():
    row = {"base_url": "https://model.example.com", "wire": "openai_chat", "client_certificate": "/nowhere.pem"}
    _, problems = configure_upstreams(parse_settings({"upstreams": {"far": row}}), {})
    assert [(problem.path, "cannot read" in problem.message) for problem in problems] == [(("upstreams", "far"), True)]


def test_key_without_a_certificate_is_a_problem():
    parsed = parse_valid_part({"upstreams": {"far": {"provider": "openai", "client_key": "key.pem"}}})
    assert [str(problem) for problem in parsed.problems] == ["[upstreams.far] client_key: needs a client_certificate"]
