"""A server that stops while the end of an answer is being written."""

import asyncio
from types import SimpleNamespace

import pytest

from toolwire.asgi.http_exchange import HttpExchange
from toolwire.gateway.answer.delivery import AnswerContext, AnswerState, StreamDelivery
from toolwire.gateway.answer.request_handler import RequestHandler
from toolwire.ir.response import Fault

SCOPE = {"method": "POST", "path": "/", "query_string": b"", "headers": []}
STOPPING = Fault("overloaded", "the gateway is shutting down", 503, "stopping", retryable=True)


class Sent:
    """The messages of an answer. The last one waits until `may_end` is set."""

    def __init__(self):
        self.messages = []
        self.may_end = asyncio.Event()

    async def __call__(self, message):
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await self.may_end.wait()
        self.messages.append(message)


class Log:
    """The fault that is logged."""

    failed = None

    def fail(self, kind, code=None):
        self.failed = kind


def make_handler(http_exchange, delivery):
    """A handler whose answer is being delivered."""
    preparation = SimpleNamespace(gateway_tools=None)
    context = AnswerContext(
        dependencies=None,
        http_exchange=http_exchange,
        client_request=None,
        log_writer=Log(),
        preparation=preparation,
        work=None,
    )
    handler = RequestHandler.__new__(RequestHandler)
    handler._context = context
    handler._state = AnswerState(delivery, delivery)
    return handler


@pytest.mark.parametrize("is_sent", [False, True], ids=["end is not sent", "end is sent"])
def test_answer_is_terminated_once_if_the_server_stops_at_its_end(is_sent):
    async def main():
        sent = Sent()
        http_exchange = HttpExchange(SCOPE, None, sent)
        delivery = StreamDelivery(http_exchange, [], b"", ping_interval=60, idle_timeout=60)
        await delivery.write(b"data: [DONE]\n\n")
        if is_sent:
            sent.may_end.set()
            await delivery.end()
        else:
            ending = asyncio.ensure_future(delivery.end())
            await asyncio.sleep(0)
            ending.cancel()
            await asyncio.wait({ending})
            sent.may_end.set()
        handler = make_handler(http_exchange, delivery)
        await handler._finish_with_fault(STOPPING)
        delivery.close()
        return sent.messages, handler._context.log_writer.failed

    messages, failed = asyncio.run(main())
    bodies = [message["body"] for message in messages if message["type"] == "http.response.body"]
    assert bodies == [b"data: [DONE]\n\n", b""]
    assert failed == (None if is_sent else "overloaded")
