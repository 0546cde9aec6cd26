"""Plain HTTP to a gateway: a status, headers and a body, whatever they are."""

import json
from datetime import timedelta

from pyreqwest.client import ClientBuilder


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
        self._client = ClientBuilder().no_proxy().timeout(timedelta(seconds=20)).build()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._client.close()

    async def get(self, url, headers=None):
        return await self._send(self._client.get(url), headers)

    async def post(self, url, document, headers=None):
        body = json.dumps(document).encode()
        return await self._send(self._client.post(url).body_bytes(body), headers)

    async def _send(self, builder, headers):
        for name, value in {**self._headers, **(headers or {})}.items():
            builder = builder.header(name, value)
        response = await builder.build().send()
        given = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status, given, bytes(await response.bytes()))
