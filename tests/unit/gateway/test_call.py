"""One exchange with a client: what has begun, and what has not."""

import asyncio

from toolwire.asgi.http_exchange import HttpExchange

SCOPE = {"method": "POST", "path": "/", "query_string": b"", "headers": []}


def test_response_blocked_on_the_client_can_still_be_replaced():
    async def run():
        room, sent = asyncio.Event(), []

        async def send(message):
            await room.wait()
            sent.append(message)

        call = HttpExchange(SCOPE, None, send)
        starting = asyncio.ensure_future(call.start(200, {}))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        assert not call.started
        room.set()
        await call.respond(503, {}, b"{}")
        return sent, call

    sent, call = asyncio.run(run())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == call.status == 503
    assert call.started and call.ended
