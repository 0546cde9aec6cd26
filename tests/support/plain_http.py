"""Plain HTTP to a gateway: a status, headers and a body, whatever they are."""

import json

from toolwire.net import HttpTransport
from waiting import SAFETY


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.text = body.decode()

    def json(self):
        return json.loads(self.text)


class Http:
    """A pool of connections; `headers` go with every request."""

    def __init__(self, headers=None):
        self._headers = headers or {}
        self._client = HttpTransport(environment={})

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._client.aclose()

    async def get(self, url, headers=None):
        return await self._send("GET", url, b"", headers)

    async def post(self, url, document, headers=None):
        body = json.dumps(document).encode()
        return await self._send("POST", url, body, headers)

    async def _send(self, method, url, body, headers):
        async with self._client.send(method, url, {**self._headers, **(headers or {})}, {}, body, SAFETY) as reply:
            pieces = []
            while piece := await reply.read():
                pieces.append(piece)
            return Reply(reply.status, reply.headers, b"".join(pieces))
