"""Requests that two servers could frame differently, sent directly and through nginx. No body is read as a request.

Another request follows each attack in the same data. Sent directly, an attack is either refused, which closes the
connection and drops the next request, or both requests are answered. Through nginx, our server must receive exactly the
requests that nginx sent, and the next client of nginx must get its own answer over the same upstream connection.
"""

import shutil
import signal
import socket
import subprocess
from contextlib import closing, contextmanager

import pytest
from asgi_servers import running

from raw_client import Reader, read_answer, says_close
from tables import every_case
from toolwire.asgi.http_exchange import HttpExchange
from waiting import SAFETY, wait_until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin")
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
AFTER = b"GET /after HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = AFTER.replace(b"host", b"connection: close\r\nhost")
CHUNKED_BODY = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)


def post(*fields, body=b"", version=b"1.1", target=b"/attack", method=b"POST"):
    lines = [b"%b %b HTTP/%b" % (method, target, version), b"host: x", *fields, b"", b""]
    return b"\r\n".join(lines) + body


def length(body):
    return b"content-length: %d" % len(body)


CHUNKED = b"transfer-encoding: chunked"
# By name: the attack, and the body that the application gets; None if it is refused.
ATTACKS = {
    "CL.TE": (post(b"content-length: 6", CHUNKED, body=b"0\r\n\r\n" + SMUGGLED), None),
    "TE.CL": (post(CHUNKED, b"content-length: 4", body=CHUNKED_BODY), None),
    "TE.TE": (post(CHUNKED, b"transfer-encoding: identity", body=CHUNKED_BODY), None),
    "TE.TE, unknown": (post(b"transfer-encoding: x", CHUNKED, body=CHUNKED_BODY), None),
    "TE, chunked twice": (post(b"transfer-encoding: chunked, chunked", body=CHUNKED_BODY), None),
    "TE, chunked in two lines": (post(CHUNKED, CHUNKED, body=CHUNKED_BODY), None),
    "TE, xchunked": (post(b"transfer-encoding: xchunked", body=CHUNKED_BODY), None),
    "TE, chunked first": (post(b"transfer-encoding: chunked, gzip", body=CHUNKED_BODY), None),
    "TE, vertical tab": (post(b"transfer-encoding: \x0bchunked", body=CHUNKED_BODY), None),
    "TE, white space before the colon": (post(b"transfer-encoding : chunked", body=CHUNKED_BODY), None),
    "TE, folded": (post(b"transfer-encoding:\r\n chunked", body=CHUNKED_BODY), None),
    "TE, quoted": (post(b'transfer-encoding: "chunked"', body=CHUNKED_BODY), None),
    "TE, empty": (post(b"transfer-encoding:", length(SMUGGLED), body=SMUGGLED), None),
    "TE in HTTP/1.0": (post(CHUNKED, body=CHUNKED_BODY, version=b"1.0"), None),
    "TE in HTTP/1.0, keep-alive": (
        post(b"connection: keep-alive", CHUNKED, body=CHUNKED_BODY, version=b"1.0"),
        None,
    ),
    "two lengths": (post(b"content-length: 0", length(SMUGGLED), body=SMUGGLED), None),
    "one length twice": (post(length(SMUGGLED), length(SMUGGLED), body=SMUGGLED), None),
    "list of lengths": (post(b"content-length: 0, %d" % len(SMUGGLED), body=SMUGGLED), None),
    "signed length": (post(b"content-length: +%d" % len(SMUGGLED), body=SMUGGLED), None),
    "negative length": (post(b"content-length: -1", body=SMUGGLED), None),
    "hexadecimal length": (post(b"content-length: 0x23", body=SMUGGLED), None),
    "length with a space": (post(b"content-length: 3 5", body=SMUGGLED), None),
    "length above 64 bits": (post(b"content-length: 18446744073709551652", body=SMUGGLED), None),
    "empty length": (post(b"content-length:", body=SMUGGLED), None),
    "length, white space before the colon": (post(b"content-length : 35", body=SMUGGLED), None),
    "length, underscore": (post(b"content_length: 35", b"content-length: 0"), b""),
    "length after a folded line": (post(b"x: y\r\n ", length(SMUGGLED), body=SMUGGLED), None),
    "length in a bare line": (post(b"x: y\ncontent-length: 35", body=SMUGGLED), None),
    "length after a bare CR": (post(b"x: y\rcontent-length: 35", body=SMUGGLED), None),
    "bare LF": (post(length(SMUGGLED), body=SMUGGLED).replace(b"\r\n", b"\n", 2), None),
    "line before the head": (b"\r\n" + post(length(SMUGGLED), body=SMUGGLED), SMUGGLED),
    "NUL in a value": (post(b"x: a\0b"), None),
    "NUL in a name": (post(b"x\0: a"), None),
    "control character in a value": (post(b"x: a\x01b"), None),
    "control character in a name": (post(b"x\x01: a"), None),
    "no colon": (post(b"content-length"), None),
    "empty name": (post(b": a"), None),
    "connection: content-length": (
        post(b"connection: content-length", length(SMUGGLED), body=SMUGGLED),
        SMUGGLED,
    ),
    "chunk extension": (post(CHUNKED, body=CHUNKED_BODY.replace(b"\r\n", b";a=b\r\n", 1)), SMUGGLED),
    "chunk extension with a bare LF": (post(CHUNKED, body=CHUNKED_BODY.replace(b"\r\n", b";a\nb\r\n", 1)), None),
    "chunk size with a bare LF": (post(CHUNKED, body=CHUNKED_BODY.replace(b"\r\n", b"\n", 1)), None),
    "chunk size with a space": (post(CHUNKED, body=b" " + CHUNKED_BODY), None),
    "chunk size with 0x": (post(CHUNKED, body=b"0x" + CHUNKED_BODY), None),
    "negative chunk size": (post(CHUNKED, body=b"-1\r\n" + SMUGGLED), None),
    "chunk size above 64 bits": (post(CHUNKED, body=b"10000000000000023\r\n" + SMUGGLED), None),
    "chunk longer than its size": (post(CHUNKED, body=CHUNKED_BODY.replace(b"\r\n", b"x\r\n", 2)), None),
    "length in a trailer": (post(CHUNKED, body=b"0\r\ncontent-length: 35\r\n\r\n"), None),
    "coding in a trailer": (post(CHUNKED, body=b"0\r\ntransfer-encoding: x\r\n\r\n"), None),
    "other trailer": (post(CHUNKED, body=b"0\r\nx: y\r\n\r\n"), b""),
    "GET with a body": (post(length(SMUGGLED), body=SMUGGLED, method=b"GET"), SMUGGLED),
    "HEAD with a body": (post(length(SMUGGLED), body=SMUGGLED, method=b"HEAD"), SMUGGLED),
    "absolute form": (post(length(SMUGGLED), body=SMUGGLED, target=b"http://evil/attack"), SMUGGLED),
    "authority form": (post(target=b"evil:443"), None),
    "CONNECT": (post(target=b"evil:443", method=b"CONNECT"), None),
    "space in the target": (post(target=b"/attack HTTP/1.1 /x"), None),
    "control character in the target": (post(target=b"/attack\x01"), None),
    "HTTP/0.9": (b"GET /attack\r\n", None),
    "HTTP/0.9 with its version": (post(version=b"0.9"), None),
    "HTTP/2.0": (post(version=b"2.0"), None),
    "HTTP/1.10": (post(version=b"1.10"), None),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None),
    "upgrade to h2c": (
        post(b"connection: upgrade", b"upgrade: h2c", length(SMUGGLED), body=SMUGGLED),
        SMUGGLED,
    ),
    "upgrade to WebSocket": (
        post(b"connection: upgrade", b"upgrade: websocket", length(SMUGGLED), body=SMUGGLED, method=b"GET"),
        SMUGGLED,
    ),
    "upgrade to h2c in proxy-connection": (
        post(b"proxy-connection: upgrade", b"upgrade: h2c", length(SMUGGLED), body=SMUGGLED),
        SMUGGLED,
    ),
    "expect": (post(b"expect: 100-continue", length(SMUGGLED), body=SMUGGLED), SMUGGLED),
    "large head": (post(b"x: " + b"x" * 100_000), None),
}


class App:
    """Answers with the target of each request, and records requests and bodies."""

    def __init__(self):
        self.seen = []

    async def __call__(self, scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        body = await http_exchange.read_body(10_000, SAFETY)
        self.seen.append((scope["path"], body))
        await http_exchange.respond(200, [], scope["raw_path"])


@pytest.fixture(scope="module")
def served():
    app = App()
    with running("own", app, keep_alive=SAFETY) as address:
        yield app, address


def answers_to(client, data):
    """Return the final answers to all requests in the data, and whether the connection was closed after them."""
    reader, answers = Reader(client), []
    client.sendall(data)
    method = data.lstrip().split(b" ", 1)[0]
    while (answer := read_answer(reader, method if not answers else b"GET")) is not None:
        answers.append(answer)
        if answer.body == b"/after" or says_close(answer):
            break
    return answers, not answers or (says_close(answers[-1]) and reader.rest() == b"")


@every_case("size", [None, 11])
@every_case("name", ATTACKS)
def test_ambiguous_request_is_refused_or_framed_as_sent(served, name, size):
    app, address = served
    attack, body = ATTACKS[name]
    app.seen.clear()
    with closing(socket.create_connection(address, SAFETY)) as client:
        answers, is_closed = answers_to(client, attack + AFTER)
    if body is None:
        assert app.seen == []
        assert [answer.status // 100 for answer in answers] in ([4], [5]), answers
        assert is_closed
    else:
        assert app.seen == [("/attack", body), ("/after", b"")]
        assert [answer.status for answer in answers] == [200, 200] and not is_closed


CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  log_format upstream escape=none "$upstream_status $uri";
  access_log {folder}/access.log upstream;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  large_client_header_buffers 4 256k;
  client_header_timeout 1s; client_body_timeout 1s;  # some attacks are incomplete requests for nginx
  ignore_invalid_headers {ignores}; underscores_in_headers on;
  upstream server {{ server 127.0.0.1:{port}; keepalive 1; }}
  server {{
    listen unix:{folder}/front.sock;
    location / {{
      proxy_pass http://server; proxy_http_version {version}; proxy_set_header Connection "";
      proxy_request_buffering {buffering};
    }}
  }}
}}
"""


@contextmanager
def nginx(folder, port, **options):
    """Run nginx in front of a server, on a Unix socket."""
    file = folder / "nginx.conf"
    file.write_text(CONFIG.format(folder=folder, port=port, **options))
    process = subprocess.Popen([NGINX, "-c", file, "-e", folder / "error.log"])
    try:
        wait_until(lambda: (folder / "front.sock").exists() or process.poll() is not None)
        assert process.poll() is None, (folder / "error.log").read_text()
        yield folder / "front.sock"
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(SAFETY)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_nothing_is_smuggled_through_nginx(served, tmp_path, version, buffering):
    app, address = served
    wrong = {}
    options = {"version": version, "buffering": buffering, "ignores": "off"}
    with nginx(tmp_path, address[1], **options) as front:
        for number, (name, (attack, _)) in enumerate(ATTACKS.items()):
            app.seen.clear()
            log = tmp_path / "access.log"
            start = log.stat().st_size
            replies = []
            for data in (attack + LAST, b"GET /victim-%d HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % number):
                with closing(socket.socket(socket.AF_UNIX)) as client:
                    client.settimeout(SAFETY)
                    client.connect(str(front))
                    client.sendall(data)
                    replies.append(Reader(client).rest())
            victim = f"/victim-{number}"
            wait_until(lambda: f" {victim}\n" in log.read_text()[start:])
            sent = [line.split(" ", 1) for line in log.read_text()[start:].splitlines()]
            forwarded = [uri for status, uri in sent if status not in ("", "-")]
            refused = [uri for status, uri in sent if status in ("400", "431", "501", "505")]
            if not (
                replies[1].endswith(victim.encode())
                and forwarded.count(victim) == 1
                and [path for path, _ in app.seen] == [uri for uri in forwarded if uri not in refused]
                and "/smuggled" not in forwarded
            ):
                wrong[name] = (sent, app.seen[:], [reply[:200] for reply in replies])
    assert wrong == {}
