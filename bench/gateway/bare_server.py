"""Serve a fixed response, or forward requests to an upstream through our HTTP client, with bare uvicorn.

python bare_server.py PORT              the fixed response: the cost of the HTTP server
python bare_server.py PORT UPSTREAM     forwards the bytes: the cost of any gateway with this server and this client
"""

import sys

import uvicorn
from provider import WHOLE

from toolwire.net.http.client import HttpTransport

FIXED = WHOLE[b"chat"]
HEADERS = {"content-type": "application/json", "accept": "application/json"}
SECRETS = {"authorization": "Bearer none"}
TIMEOUT = 600.0  # seconds


async def read_body(receive):
    message = await receive()
    body = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    return body


async def start_response(send, status, content_type, length=None):
    headers = [(b"content-type", content_type)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def answer_fixed(_scope, receive, send):
    await read_body(receive)
    await start_response(send, 200, b"application/json", len(FIXED))
    await send({"type": "http.response.body", "body": FIXED})


def forward_to(base):
    client = HttpTransport(environment={})

    async def forward(scope, receive, send):
        body = await read_body(receive)
        async with client.post(base + scope["path"], HEADERS, SECRETS, body, TIMEOUT) as reply:
            content_type = reply.headers["content-type"].encode()
            if "content-length" in reply.headers:
                whole = b""
                while chunk := await reply.read():
                    whole += chunk
                await start_response(send, reply.status, content_type, len(whole))
                await send({"type": "http.response.body", "body": whole})
                return
            await start_response(send, reply.status, content_type)
            while chunk := await reply.read():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    return forward


def main():
    port, *upstream = map(int, sys.argv[1:])
    app = forward_to(f"http://127.0.0.1:{upstream[0]}") if upstream else answer_fixed
    options = {"http": "httptools", "loop": "uvloop", "ws": "none", "lifespan": "off", "interface": "asgi3"}
    quiet = {"access_log": False, "log_config": None, "server_header": False, "proxy_headers": False}
    uvicorn.run(app, host="127.0.0.1", port=port, timeout_keep_alive=75, **options, **quiet)


if __name__ == "__main__":
    main()
