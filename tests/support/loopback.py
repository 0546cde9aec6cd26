"""A server on the loopback interface that answers what it is told to."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answer: bytes = b""
    content_type = "application/json"
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def will_answer(self, body: dict, status: int = 200) -> None:
        self.answer, self.content_type, self.status = json.dumps(body).encode(), "application/json", status

    def will_stream(self, data: bytes) -> None:
        self.answer, self.content_type, self.status = data, "text/event-stream", 200


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self.server.requests.append((self.path, json.loads(self.rfile.read(length) or b"{}")))
        self.send_response(self.server.status)
        self.send_header("content-type", self.server.content_type)
        self.send_header("content-length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def loopback():
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
