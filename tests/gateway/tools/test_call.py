"""One exchange with a client: what has begun, and what has not."""

import asyncio

import pytest

from toolwire.asgi.http_exchange import BodyTimeout, HttpExchange
from virtual_time import run_virtual

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
        await call.respond(503, [], b"{}")
        return sent, call

    sent, call = asyncio.run(run())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == call.status == 503
    assert call.started and call.ended


@pytest.mark.parametrize(("pauses", "is_in_time"), [([0.4, 0.5], True), ([0.6, 0.6], False)])
def test_all_pieces_of_a_body_share_its_time(pauses, is_in_time):
    async def receive():
        await asyncio.sleep(pauses.pop(0))
        return {"type": "http.request", "body": b"x", "more_body": bool(pauses)}

    reading = HttpExchange(SCOPE, receive, None).read_body(limit=10, seconds=1.0)
    if is_in_time:
        assert run_virtual(reading) == b"xx"
    else:
        with pytest.raises(BodyTimeout):
            run_virtual(reading)
