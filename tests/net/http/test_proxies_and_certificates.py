"""The HTTP client through real proxies, and with certificates of its own, on both event loops."""

import asyncio
import shutil
import socket
import ssl
import threading
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from connect_proxy import OPENED, running_proxy
from raw_server import OK, TLS, open_transport, post_request, respond_with, server
from toolwire.ir.errors import ConfigError
from toolwire.net import HttpTransport
from waiting import SAFETY, until

RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
on_both_loops = pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
URL = "https://upstream.test"
ROOTS = [(TLS / "tunnel-ca.pem").read_bytes(), (TLS / "ca.pem").read_bytes()]
USER, PASSWORD = "me@work", "p:a/s%s word"
CREDENTIALS = "me%40work:p%3Aa%2Fs%25s%20word"


def context_of(certificate, key=None, *, clients=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / certificate, key and TLS / key)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(TLS / "tunnel-ca.pem")
    return context


def proxy_context():
    return context_of("cert.pem", "key.pem")


@asynccontextmanager
async def upstream(*answers, clients=False):
    """A server with the certificate of upstream.test, and the hosts that the proxy knows."""
    async with server(respond_with(*answers or [OK]), ssl=context_of("upstream.pem", clients=clients)) as there:
        yield there, {"upstream.test": int(there["url"].rpartition(":")[2])}


@on_both_loops
@pytest.mark.parametrize("scheme", ["", "http://", "https://"])
@pytest.mark.parametrize("has_credentials", [False, True])
def test_requests_use_the_tunnel_of_a_proxy(scheme, has_credentials, run):
    async def check():
        options = {"credentials": f"{USER}:{PASSWORD}"} if has_credentials else {}
        options |= {"tls": proxy_context()} if scheme == "https://" else {}
        async with upstream() as (there, hosts), running_proxy(hosts, **options) as (proxy, address):
            url = f"{scheme}{CREDENTIALS}@{address}" if has_credentials else f"{scheme}{address}"
            async with open_transport(environment={"HTTPS_PROXY": url}, roots=ROOTS) as transport:
                for size in (2, 1_000_000, 2):
                    assert (await post_request(transport, URL, b"x" * size))[2] == b"hi"
            assert [len(body) for _, body in there["requests"]] == [2, 1_000_000, 2]
            assert len(proxy.requests) == there["connections"] == 1  # the tunnel is reused
            assert proxy.requests[0].startswith(b"CONNECT upstream.test:443 HTTP/1.1\r\nhost: upstream.test:443\r\n")
            assert b"proxy-authorization" not in b"".join(head for head, _ in there["requests"])
            await until(lambda: proxy.open == 0)

    run(check())


def environment_of(address, credentials=CREDENTIALS, scheme="http"):
    return {"ALL_PROXY": f"{scheme}://{credentials}@{address}"}


REFUSALS = {
    "forbidden": (b"HTTP/1.1 403 Forbidden\r\n\r\n", r"refused a tunnel to upstream\.test:443 \(status 403\)"),
    "redirect": (b"HTTP/1.1 302 Found\r\nlocation: http://x/\r\n\r\n", "status 302"),
    "interim response": (b"HTTP/1.1 100 Continue\r\n\r\n", "status 100"),
    "another protocol": (b"SSH-2.0-x\r\n\r\n", "did not respond with HTTP"),
    "data before TLS": (OPENED + b"\x16\x03\x03", "sent data before the server could"),
    "long head": (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000, "exceeds 16 KiB"),
}


@on_both_loops
@pytest.mark.parametrize(("answer", "message"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_refused_tunnel_reports_that_nothing_was_sent(answer, message, scheme, run):
    async def check():
        tls = proxy_context() if scheme == "https" else None
        async with upstream() as (there, hosts), running_proxy(hosts, tls=tls, answer=answer) as (proxy, address):
            environment = environment_of(address, scheme=scheme)
            async with open_transport(environment=environment, roots=ROOTS, connections=1) as transport:
                for _ in range(2):
                    with pytest.raises(ConnectionRefusedError, match=message) as refused:
                        await post_request(transport, URL)
                    assert f"{scheme}://{address}" in str(refused.value)
                    assert not [secret for secret in (USER, PASSWORD, "me%40", "Basic") if secret in str(refused.value)]
            assert there["connections"] == 0
            await until(lambda: proxy.open == 0)

    run(check())


@on_both_loops
@pytest.mark.parametrize(
    ("given", "message"), [("me:wrong@", "rejected the credentials"), ("", "requires credentials")]
)
def test_wrong_credentials_for_a_proxy_are_reported_without_them(given, message, run):
    async def check():
        async with upstream() as (_, hosts), running_proxy(hosts, credentials="me:right") as (_, address):
            environment = {"HTTPS_PROXY": f"http://{given}{address}"}
            async with open_transport(environment=environment, roots=ROOTS) as transport:
                with pytest.raises(ConnectionRefusedError, match=message) as refused:
                    await post_request(transport, URL)
            assert "wrong" not in str(refused.value)

    run(check())


@on_both_loops
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_silent_proxy_ends_at_the_connect_timeout(scheme, run):
    async def check():
        tls = proxy_context() if scheme == "https" else None
        async with running_proxy({}, tls=tls, answer=None) as (proxy, address):
            environment = environment_of(address, scheme=scheme)
            async with open_transport(environment=environment, roots=ROOTS, connect_timeout=0.3) as transport:
                with pytest.raises(TimeoutError) as error:
                    await post_request(transport, URL)
            route = f"(through the proxy {scheme}://{address})"  # without its credentials
            assert str(error.value) == f"no connection was established in time {route}"
            await until(lambda: proxy.open == 0)

    run(check())


@on_both_loops
def test_unreachable_proxy_and_unknown_host_are_reported(run):
    async def check():
        async with (
            running_proxy({}) as (_, address),
            open_transport(environment=environment_of(address), roots=ROOTS) as transport,
        ):
            with pytest.raises(ConnectionRefusedError, match="status 502"):
                await post_request(transport, URL)
        async with open_transport(environment=environment_of(address), roots=ROOTS) as transport:
            with pytest.raises(ConnectionRefusedError, match=rf"cannot connect to the proxy http://{address}: "):
                await post_request(transport, URL)

    run(check())


@on_both_loops
def test_certificates_of_server_and_proxy_are_checked(run):
    async def check():
        async with upstream() as (_, hosts):
            async with (
                running_proxy(hosts) as (_, address),
                open_transport(environment=environment_of(address)) as transport,
            ):
                match = rf"certificate is not trusted: .* \(through the proxy http://{address}\)$"
                with pytest.raises(ConnectionRefusedError, match=match):
                    await post_request(transport, URL)
            async with running_proxy(hosts, tls=proxy_context()) as (proxy, address):
                environment = environment_of(address, scheme="https")
                async with open_transport(environment=environment, roots=ROOTS[:1]) as transport:
                    with pytest.raises(ConnectionRefusedError, match=r"proxy https://localhost:\d+: its certificate"):
                        await post_request(transport, URL)
                assert proxy.requests == []  # no credentials were sent

    run(check())


@pytest.mark.finding("SE12")
@on_both_loops
def test_failed_handshake_is_reported_with_its_reason(run):
    async def check():
        async def answer_without_tls(reader, writer):
            await reader.read(100)
            writer.write(OK)
            writer.close()

        plain = await asyncio.start_server(answer_without_tls, "127.0.0.1", 0)
        hosts = {"upstream.test": plain.sockets[0].getsockname()[1]}
        async with (
            plain,
            running_proxy(hosts) as (_, address),
            open_transport(environment=environment_of(address), roots=ROOTS) as transport,
        ):
            with pytest.raises(ConnectionRefusedError, match="TLS handshake failed: ") as caught:
                await post_request(transport, URL)
        assert "not permitted" not in str(caught.value)

    run(check())


@on_both_loops
def test_plain_http_and_this_machine_use_no_proxy(run):
    async def check():
        async with running_proxy({}) as (proxy, address), server(respond_with(OK)) as plain:
            context = proxy_context()
            async with server(respond_with(OK), ssl=context) as local:
                environment = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), f"http://{address}")
                async with open_transport(environment=environment, roots=ROOTS) as transport:
                    for url in (plain["url"], local["url"], local["url"].replace("localhost", "127.0.0.1")):
                        assert (await post_request(transport, url))[2] == b"hi"
            assert proxy.requests == []

    run(check())


@on_both_loops
def test_cancellation_closes_a_tunnel_that_is_being_opened(run):
    async def check():
        async with (
            running_proxy({}, answer=None) as (proxy, address),
            open_transport(environment=environment_of(address), roots=ROOTS) as transport,
        ):
            task = asyncio.create_task(post_request(transport, URL))
            await until(lambda: proxy.requests)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: proxy.open == 0)

    run(check())


# certificates


@on_both_loops
@pytest.mark.parametrize("files", [("client.pem", "client-key.pem"), ("both.pem", None)])
def test_client_certificate_is_shown_to_the_server(files, run, tmp_path):
    both = (TLS / "client.pem").read_bytes() + (TLS / "client-key.pem").read_bytes()
    (tmp_path / "both.pem").write_bytes(both)
    folder = tmp_path if files[1] is None else TLS
    certificate, key = (name and str(folder / name) for name in files)

    async def check():
        async with upstream(clients=True) as (there, hosts), running_proxy(hosts) as (_, address):
            environment = environment_of(address)
            async with open_transport(
                environment=environment, roots=ROOTS, client_certificate=certificate, client_key=key
            ) as transport:
                assert (await post_request(transport, URL))[2] == b"hi"
            async with open_transport(environment=environment, roots=ROOTS) as transport:
                with pytest.raises(ConnectionError, match=r"TLS failed|closed before the end"):
                    await post_request(transport, URL)
            assert len(there["requests"]) == 1

    run(check())


@on_both_loops
def test_alert_of_a_server_that_requires_a_certificate_is_reported(run):
    listening = socket.create_server(("127.0.0.1", 0))
    context = context_of("cert.pem", "key.pem", clients=True)

    def serve():
        connection = context.wrap_socket(listening.accept()[0], server_side=True, do_handshake_on_connect=False)
        with suppress(ssl.SSLError):
            connection.do_handshake()
        with socket.socket(fileno=connection.detach()) as plain:  # read the request, so that the alert arrives
            while plain.recv(65_536):
                pass

    async def check():
        thread = threading.Thread(target=serve)
        thread.start()
        async with open_transport(roots=ROOTS) as transport:
            with pytest.raises(ConnectionError, match=r"TLS failed: .*certificate required"):
                await post_request(transport, f"https://127.0.0.1:{listening.getsockname()[1]}")
        thread.join(SAFETY)

    with listening:
        run(check())


def test_renewed_client_certificate_is_used_for_new_connections(tmp_path):
    certificate, key = tmp_path / "client.pem", tmp_path / "key.pem"
    shutil.copy(TLS / "cert.pem", certificate)  # not accepted by the server
    shutil.copy(TLS / "key.pem", key)

    async def check():
        async with (
            upstream(clients=True) as (_, hosts),
            running_proxy(hosts) as (_, address),
            open_transport(
                environment=environment_of(address),
                roots=ROOTS,
                client_certificate=str(certificate),
                client_key=str(key),
            ) as transport,
        ):
            with pytest.raises(ConnectionError):
                await post_request(transport, URL)
            shutil.copy(TLS / "client.pem", certificate)
            with pytest.raises(ConfigError, match="cannot use the client certificate"):
                transport.reload_certificate()  # the key does not belong to it yet
            shutil.copy(TLS / "client-key.pem", key)
            transport.reload_certificate()
            assert (await post_request(transport, URL))[2] == b"hi"

    asyncio.run(check())


@pytest.mark.parametrize(
    ("certificate", "key", "message"),
    [
        ("client.pem", "missing.pem", "cannot read the client certificate"),
        ("client.pem", "key.pem", "mismatch"),
        ("client.pem", "client-key-encrypted.pem", "cannot use the client certificate"),
        ("client-key.pem", None, "cannot use the client certificate"),
        (None, "client-key.pem", "needs a client certificate"),
    ],
)
def test_unusable_client_certificate_is_a_config_error_at_the_start(certificate, key, message):
    files = {"client_certificate": certificate, "client_key": key}
    with pytest.raises(ConfigError, match=message) as refused:
        HttpTransport(environment={}, **{name: file and str(TLS / file) for name, file in files.items()})
    assert refused.value.hint


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_of_the_environment_are_trusted(variable, tmp_path):
    shutil.copy(TLS / "ca.pem", tmp_path / "29f50d1a.0")  # the name that `openssl rehash` gives it
    path = TLS / "ca.pem" if variable == "SSL_CERT_FILE" else tmp_path

    async def check():
        async with server(respond_with(OK), ssl=proxy_context()) as there:
            async with open_transport(environment={variable: str(path)}) as transport:
                assert (await post_request(transport, there["url"]))[2] == b"hi"
            async with open_transport() as transport:
                with pytest.raises(ConnectionRefusedError, match="not trusted"):
                    await post_request(transport, there["url"], seconds=SAFETY)

    asyncio.run(check())


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_unusable_certificates_of_the_environment_are_a_config_error(variable, tmp_path):
    (tmp_path / "empty.pem").write_text("")
    values = {"SSL_CERT_FILE": [tmp_path, tmp_path / "none.pem", tmp_path / "empty.pem"], "SSL_CERT_DIR": ["/no/where"]}
    for value in values[variable]:
        with pytest.raises(ConfigError, match=variable):
            HttpTransport(environment={variable: str(value)})


def test_root_that_is_not_a_certificate_is_a_config_error():
    with pytest.raises(ConfigError, match="root certificate"):
        HttpTransport(environment={}, roots=[b"not PEM"])
