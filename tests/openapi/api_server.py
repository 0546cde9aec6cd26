"""A real HTTP server that records every request and returns configured responses; by default it describes the request."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit


class Recorded(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def segments(self) -> list[str]:
        """The decoded segments of the path."""
        return [unquote(segment) for segment in urlsplit(self.target).path.split("/")[1:]]

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)


class ApiServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.connections = 0
        self.requests: list[Recorded] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []

    def process_request(self, request, client_address) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def last(self) -> Recorded:
        return self.requests[-1]

    def will_answer(self, status: int = 200, body: object = b"", **headers: str) -> None:
        """Queue an answer for the next request; other requests are echoed."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if not isinstance(body, bytes):
            fields.setdefault("content-type", "application/json")
        self.answers.append((status, fields, data))


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        recorded = Recorded(self.command, self.path, headers, body)
        self.server.requests.append(recorded)
        if self.server.answers:
            status, fields, data = self.server.answers.pop(0)
        else:
            echo = {"method": recorded.method, "path": recorded.segments, "query": recorded.query, "headers": headers}
            status, fields, data = 200, {"content-type": "application/json"}, json.dumps(echo).encode()
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_QUERY = _answer

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def api_server():
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
