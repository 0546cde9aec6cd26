"""OpenAI Responses over WebSockets: the same conversations on our server and on others, judged by wsproto and the SDK."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tracemalloc
from contextlib import contextmanager, suppress
from pathlib import Path

import openai
import pytest

from hostile import CALL_ANSWER, TEXT_ANSWER
from serving import WIRES, upstream_rows
from toolwire.asgi.admission import Admission
from toolwire.asgi.http_exchange import ClientGone
from toolwire.asgi.offload import ClientOffload, Offload
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.gateway.memory import MemoryBound, MemoryReservation
from toolwire.gateway.websocket.connection import ResponsesSocket
from toolwire.gateway.websocket.messages import Continued, parse_message, read_create
from toolwire.ir.response import Fault
from toolwire.testing import Upstream
from toolwire.testing.servers import start_upstream, stop_upstream
from wsproto_client import Refused, SocketClosed, WebSocketClient

sys.path.insert(0, str(Path(__file__).parents[2] / "asgi"))
from asgi_servers import WEBSOCKET_SERVERS, running

TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
KEYS = {"keys": {"me": {"hash": hash_key("sk-me"), "models": ["*"]}}}
MINE = {"authorization": "Bearer sk-me"}


class World:
    """A gateway on a server, its upstream, and the records of its requests."""

    def __init__(self, address, gateway, upstream, logs, loops):
        self.address = address
        self._loops = loops
        self.gateway = gateway
        self.upstream = upstream
        self.logs = logs

    def connect(self, **options):
        return WebSocketClient(self.address, **options)

    def apply(self, document):
        """Apply settings in the loop of the server."""
        settings = parse_settings({"upstreams": upstream_rows(self.upstream.url), **document})
        self._loops[0].call_soon_threadsafe(self.gateway.apply, settings)

    def last_document(self):
        return json.loads(self.upstream.requests[-1].body)


@contextmanager
def world(*script, server="own", document=None, upstream=None, **options):
    provider = Upstream(*script, **(upstream or {}))
    start_upstream(provider)
    try:
        logs = []
        settings = {"upstreams": upstream_rows(provider.url), **(document or {})}
        settings["limits"] = {"cooldown": 0.0, **settings.get("limits", {})}
        gateway = Gateway(parse_settings(settings), environment={}, sinks=[logs.append], **options)
        loops = []

        async def app(scope, receive, send):
            loops.append(asyncio.get_running_loop())
            await gateway(scope, receive, send)

        with running(server, app, WEBSOCKET_SERVERS) as address:
            yield World(address, gateway, provider, logs, loops)
    finally:
        stop_upstream(provider)


def create(text="hi", model="openai_chat/m", **fields):
    return {"type": "response.create", "model": model, "input": text, "store": False, **fields}


def types(events):
    return [event["type"] for event in events]


def text_of(event):
    return "".join(
        part["text"] for item in event["response"]["output"] if item["type"] == "message" for part in item["content"]
    )


@pytest.fixture(params=WEBSOCKET_SERVERS)
def server(request):
    return request.param


def test_conversation_continues_what_is_stored_nowhere(server):
    """As Codex does: a response without output, then only new items."""
    with world(CALL_ANSWER, TEXT_ANSWER, server=server) as world_, world_.connect() as client:
        client.send(create("first", generate=False, tools=[TOOL]))
        events = client.receive_response()
        assert types(events) == ["response.created", "response.in_progress", "response.completed"]
        assert world_.upstream.requests == []
        prepared = events[-1]["response"]
        client.send(create("second", previous_response_id=prepared["id"], tools=[TOOL]))
        answer = client.receive_response()[-1]["response"]
        [call] = answer["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        client.send(create([output], previous_response_id=answer["id"], tools=[TOOL]))
        events = client.receive_response()
        assert text_of(events[-1]) == "It will rain in Paris."
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        roles = [message["role"] for message in world_.last_document()["messages"]]
        assert roles == ["user", "user", "assistant", "tool"] or roles == ["user", "assistant", "tool"]
        assert client.close() == 1000


@pytest.mark.parametrize("wire", WIRES)
def test_answer_has_the_events_of_the_stream_over_http(wire):
    with world(TEXT_ANSWER, TEXT_ANSWER) as world_:
        with world_.connect() as client:
            client.send(create(model=f"{wire}/m"))
            events = client.receive_response()
        sdk = openai.OpenAI(api_key="x", base_url="http://{}:{}/v1".format(*world_.address), max_retries=0)
        streamed = [
            event.to_dict() for event in sdk.responses.create(model=f"{wire}/m", input="hi", store=False, stream=True)
        ]
        assert types(events) == types(streamed)
        assert text_of(events[-1]) == "It will rain in Paris."
        first, second = world_.upstream.requests
        assert (first.path, json.loads(first.body)) == (second.path, json.loads(second.body))


def test_lanes_run_at_once_and_each_in_order(server):
    script = [TEXT_ANSWER] * 6
    with world(*script, server=server, upstream={"pace": 0.02, "piece": 40}) as world_, world_.connect() as client:
        for text in ("1", "2", "3"):
            for lane in ("a", "b.c-d_e"):
                client.send(create(text, stream_id=lane))
        events = []
        while sum(event["type"] == "response.completed" for event in events) < 6:
            events.append(client.receive())
        lanes = [event["stream_id"] for event in events]
        assert sum(lane != following for lane, following in itertools.pairwise(lanes)) > 5
        for lane in ("a", "b.c-d_e"):
            own = [event["type"] for event in events if event["stream_id"] == lane]
            assert own.count("response.created") == 3
            assert [kind for kind in own if kind in ("response.created", "response.completed")] == [
                "response.created",
                "response.completed",
            ] * 3
        assert client.close() == 1000


INVALID = {
    "no JSON": ("{nope", 400, None),
    "no object": ("[]", 400, None),
    "no type": ("{}", 400, None),
    "type of another kind": ('{"type":1}', 400, None),
    "unknown type": ('{"type":"session.update"}', 400, None),
    "stream_id": (create(stream_id="ä b"), 400, "invalid_stream_id"),
    "long stream_id": (create(stream_id="a" * 257), 400, "invalid_stream_id"),
    "stream_id of another kind": (create(stream_id=1), 400, None),
    "no model": ({"type": "response.create", "input": "hi"}, 400, None),
    "unknown model": (create(model="nothing"), 404, "model_not_found"),
    "input of another kind": (create(7), 400, None),
    "background": (create(background=True), 400, None),
    "unknown previous response": (create(previous_response_id="resp_x"), 400, "previous_response_not_found"),
    "unknown previous response without output": (create(previous_response_id=7), 400, None),
    "prepared unknown model": (create(model="nothing", generate=False), 404, "model_not_found"),
    "prepared invalid input": (create(7, generate=False), 400, None),
    "surrogate": ('{"type":"\\ud800"}', 400, None),
}


@pytest.mark.parametrize("name", INVALID)
def test_mistake_is_answered_with_an_error_and_the_connection_goes_on(name):
    message, status, code = INVALID[name]
    with world(TEXT_ANSWER) as world_, world_.connect() as client:
        client.send(message)
        event = client.receive()
        assert (event["type"], event["status"]) == ("error", status), event
        assert event["error"]["message"] and event["error"].get("code") == (code or event["error"].get("code"))
        client.send(create())
        assert client.receive_response()[-1]["type"] == "response.completed"


def test_refusals_are_errors_in_the_connection_on_other_servers(server):
    fault = Fault("rate_limit", "slow down", 429, retry_after=7.0)
    with world(fault, server=server) as world_, world_.connect() as client:
        client.send(create(stream_id="a"))
        event = client.receive()
        assert (event["type"], event["status"], event["stream_id"]) == ("error", 429, "a")
        assert event["headers"]["retry-after"] == "7"
        client.send("{nope")
        assert client.receive()["status"] == 400
        assert client.close() == 1000


def test_steering_is_refused_with_its_input():
    with world() as world_, world_.connect() as client:
        client.send({"type": "response.steer", "previous_response_id": "resp_1", "input": "stop"})
        event = client.receive()
        assert event["type"] == "response.steer.failed" and event["error"]["code"] == "steering_not_supported"
        assert event["steer"] == {"previous_response_id": "resp_1", "input": "stop"}


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"headers": {**MINE, "origin": "https://evil.example"}}, 403),
        ({"headers": {}}, 401),
        ({"headers": {"authorization": "Bearer wrong"}}, 401),
        ({"headers": MINE, "path": "/v1/live"}, 426),
    ],
)
def test_handshake_is_checked_before_it_is_accepted(server, options, status):
    with world(server=server, document=KEYS) as world_:
        with pytest.raises(Refused) as refused:
            world_.connect(**options)
        assert refused.value.status == status
        assert json.loads(refused.value.body)["error"]["message"]
    assert [(log.status, log.error is None) for log in world_.logs] == [(status, False)]


def test_removed_key_closes_its_connections(server):
    with world(server=server, document=KEYS) as world_, world_.connect(headers=MINE) as client:
        client.send("{}")
        client.receive()
        world_.apply({"keys": {"other": {"hash": hash_key("sk-other")}}})
        with pytest.raises(SocketClosed) as closed:
            client.receive()
        assert closed.value.code == 1008


def test_limits_and_usage_are_those_of_each_response():
    document = {"keys": {"me": {**KEYS["keys"]["me"], "requests_per_minute": 2}}}
    with world(TEXT_ANSWER, TEXT_ANSWER, document=document) as world_, world_.connect(headers=MINE) as client:
        for _ in range(2):
            client.send(create())
            assert client.receive_response()[-1]["type"] == "response.completed"
        client.send(create())
        event = client.receive()
        assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
        client.close()
    logs = [(log.action, log.status, log.caller, log.usage and log.usage.total) for log in world_.logs]
    assert logs == [
        ("connect", 101, "me", None),
        ("generate", 200, "me", 17),
        ("generate", 200, "me", 17),
        ("generate", 429, "me", None),
    ]
    assert len({log.id for log in world_.logs}) == 4


class MemoryClient:
    """A client that sends messages when it is asked for them, and disconnects after the last one."""

    def __init__(self, *messages):
        self.messages = [json.dumps(message) if isinstance(message, dict) else message for message in messages]
        self.memory = MemoryBound(100_000_000)
        self.used = []  # bytes of memory at each response
        self.is_answering = asyncio.Event()

    async def receive(self):
        if self.messages:
            return {"type": "websocket.receive", "text": self.messages.pop(0)}
        await self.is_answering.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message):
        pass

    async def answer(self, exchange, scope, route):
        """Complete a response only after the client is gone."""
        self.used.append(self.memory.used)
        self.is_answering.set()
        while not exchange.disconnected:
            with suppress(ClientGone):
                await exchange.read_piece(10)
        await exchange.start(200, [])
        final = {"type": "response.completed", "response": {"id": "resp_1", "output": [], "store": False}}
        await exchange.write(b"data: %b\n\n" % json.dumps(final).encode())
        await exchange.end()

    async def serve(self):
        socket = ResponsesSocket(
            {"type": "websocket", "headers": [], "path": "/v1/responses", "query_string": b""},
            self.receive,
            self.send,
            self.answer,
            Admission(100, 1.0),
            MemoryReservation(self.memory, "me"),
            ClientOffload(Offload(), "me"),
            1_000_000,
        )
        await socket.serve()


def test_memory_of_unfinished_responses_is_freed_once():
    client = MemoryClient(create("x" * 1000), create("x" * 1000, stream_id="a"))
    asyncio.run(client.serve())
    assert client.used[0] > 2000
    assert (client.memory.used, client.memory.used_by) == (0, {})


class ContinuingClient(MemoryClient):
    """A client that sends its next message after the end of a response, and disconnects after the last one.

    After its first response, other requests take `others` bytes of the memory.
    """

    def __init__(self, *messages, limit=100_000_000, others=0):
        super().__init__(*messages)
        self.others = others
        self.memory = MemoryBound(limit)
        self.events = []
        self.ended = asyncio.Event()
        self.ended.set()

    async def receive(self):
        await self.ended.wait()
        self.ended.clear()
        if self.messages:
            return {"type": "websocket.receive", "text": self.messages.pop(0)}
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message):
        self.events.append(json.loads(message["text"]))
        if len(self.events) == 1 and self.others:
            MemoryReservation(self.memory).add(self.others)
        self.ended.set()

    async def answer(self, exchange, scope, route):
        self.used.append(self.memory.used)
        body = await exchange.read_body(10_000_000, 60.0)
        await exchange.start(200, [])
        final = {"id": f"resp_{len(self.used)}", "output": [{"items": len(json.loads(body)["input"])}], "store": False}
        event = {"type": "response.completed", "response": final}
        await exchange.write(b"data: %b\n\n" % json.dumps(event).encode())
        await exchange.end()


LONG = create([{"role": "user", "content": "x" * 300_000}])


def test_continued_conversation_counts_as_memory_of_its_request():
    client = ContinuingClient(
        LONG, create([], previous_response_id="resp_1"), create([], previous_response_id="resp_2")
    )
    asyncio.run(client.serve())
    assert [event["response"]["output"][0]["items"] for event in client.events] == [1, 2, 3]
    assert client.used[0] < 310_000 and 900_000 < client.used[1] < client.used[2] < 910_000  # kept, and two copies
    assert (client.memory.used, client.memory.used_by) == (0, {})


def test_lanes_that_continue_a_long_conversation_are_refused_without_memory():
    again = create([], previous_response_id="resp_1")
    client = ContinuingClient(LONG, again, create(), limit=3_000_000, others=2_300_000)
    asyncio.run(client.serve())
    assert len(client.used) == 2
    refused = client.events[1]
    assert (refused["type"], refused["status"]) == ("error", 503) and "memory" in refused["error"]["message"]
    assert client.events[2]["type"] == "response.completed"
    assert client.memory.used == 2_300_000  # of the others


def test_request_longer_than_the_limit_with_its_conversation_is_refused():
    more = create([{"role": "user", "content": "y" * 800_000}], previous_response_id="resp_1")
    client = ContinuingClient(LONG, more, create(previous_response_id="resp_1"))
    asyncio.run(client.serve())
    assert len(client.used) == 2
    assert (client.events[1]["type"], client.events[1]["status"]) == ("error", 413)
    assert "the limit is 1000000" in client.events[1]["error"]["message"]
    assert client.events[2]["type"] == "response.completed"


def test_body_of_a_continued_conversation_is_made_with_two_copies_of_it():
    continued = Continued(1, None, (b'{"content":"%b"}' % (b"x" * 3_000_000),) * 2)
    _, fields = parse_message(json.dumps(create([{"role": "user", "content": "hi"}])))
    message = read_create(fields)
    tracemalloc.start()
    body = message.encode(continued)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(json.loads(body)["input"]) == 3
    assert peak < 2 * continued.size + 10_000


def test_queued_message_takes_no_more_memory_than_is_reserved():
    for text in (
        '{"type":"response.create",' + " " * 3_000_000 + '"input":"x"}',
        json.dumps(create(**{"x" * 3_000_000: 1})),
        json.dumps(create("x" * 3_000_000)),
    ):
        tracemalloc.start()
        _, fields = parse_message(text)
        message = read_create(fields)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held < 2 * message.size + 10_000


def test_too_many_responses_are_refused():
    slow = {"delay": 30.0}
    with world(*[TEXT_ANSWER] * 40, upstream=slow) as world_, world_.connect() as client:
        for number in range(33):
            client.send(create(stream_id=str(number)))
        event = client.receive()
        assert (event["status"], event["error"]["code"]) == (429, "websocket_stream_limit_reached")
        assert event["stream_id"] == "32"


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")  # of the SDK
def test_sdk_of_openai_drives_two_lanes():
    with world(*[TEXT_ANSWER] * 3) as world_:
        sdk = openai.OpenAI(api_key="x", base_url="http://{}:{}/v1".format(*world_.address))
        with sdk.responses.connect() as connection:
            for lane in ("a", "b"):
                connection.send({**create(), "stream_id": lane})
            done = set()
            while len(done) < 2:
                event = connection.recv()
                if event.type == "response.completed":
                    done.add(event.stream_id)
                    assert event.response.output_text == "It will rain in Paris."
            assert done == {"a", "b"}
