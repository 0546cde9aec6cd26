"""A turn that the client's wire cannot express goes back to its model exactly as the model wrote it."""

import asyncio
import json

import pytest

from plain_http import Http
from serving import serving, upstream_rows
from tables import every_case
from toolwire import tool
from toolwire.ir.parts import Artefact, Reasoning, Text, ToolCall
from toolwire.ir.response import Response, Stop, Usage
from toolwire.net.tools.runner import Runner
from toolwire.testing.upstream import Upstream

TOOLS = {
    "openai_chat": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}],
    "openai_responses": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}, "strict": False}],
    "gemini": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}]}],
    "anthropic": [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
    "ollama": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}],
}  # fmt: skip


def thought(text, signature):
    return Reasoning(text, artefacts=(Artefact("anthropic", "signature", signature),))


REDACTED = Reasoning(artefacts=(Artefact("anthropic", "redacted", "b3BhcXVl"),))
PARIS = ToolCall("call_1", "weather", {"city": "Paris"})
ROME = ToolCall("call_2", "weather", {"city": "Rome"})
TURNS = {
    "thinking, text, call": (thought("Which city?", "c2lnMQ=="), Text("Let me look."), PARIS),
    "redacted thinking, text, call": (REDACTED, Text("Let me look."), PARIS),
    "two rounds of thinking": (thought("First Paris.", "c2lnMQ=="), PARIS, thought("Then Rome.", "c2lnMg=="), ROME),
    "text between the calls": (thought("Both.", "c2lnMQ=="), Text("Paris: "), PARIS, Text("Rome: "), ROME),
    "text after the call, unsigned": (Text("Before."), PARIS, Text("After.")),
}
DONE = Response(parts=(Text("21 °C"),), stop=Stop("stop"), usage=Usage(1, 1))


class Client:
    """A client that returns what its wire has a place for, and no more."""

    def __init__(self, wire, url, *, stream):
        self.wire, self.url, self.stream = wire, url, stream
        self.headers = {}

    async def ask(self, history, model="anthropic/m"):
        if self.wire == "gemini":
            verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
            path, body = f"/v1beta/models/{model}:{verb}", {"contents": history}
        elif self.wire == "openai_responses":
            path, body = "/v1/responses", {"model": model, "input": history, "stream": self.stream, "store": False}
        elif self.wire == "ollama":
            path, body = "/api/chat", {"model": model, "messages": history, "stream": self.stream}
        else:
            path = "/v1/chat/completions" if self.wire == "openai_chat" else "/v1/messages"
            body = {"model": model, "messages": history, "stream": self.stream, "max_tokens": 99}
        body["tools"] = TOOLS[self.wire]
        async with Http(self.headers) as http:
            reply = await http.post(self.url + path, body)
        assert reply.status == 200, reply.text
        return self._fold(reply.text)

    def _fold(self, text):
        from toolwire import wire
        from toolwire.ir.folding import fold

        codec = wire.get(self.wire)
        if not self.stream:
            return codec.decode_response(json.loads(text))
        decoder = codec.stream_decoder()
        return fold([*decoder.feed(text.encode()), *decoder.close()])

    def history(self, answer, *, with_ids=True):
        """The question, the answer as a plain client returns it, and the results of its calls."""
        text, calls = answer.text, answer.calls
        if self.wire == "openai_chat":
            written = [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}} for call in calls]  # fmt: skip
            results = [{"role": "tool", "tool_call_id": call.id, "content": "21"} for call in calls]
            return [{"role": "user", "content": "How warm?"}, {"role": "assistant", "content": text or None, "tool_calls": written}, *results]  # fmt: skip
        if self.wire == "ollama":
            written = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]
            results = [{"role": "tool", "tool_name": call.name, "content": "21"} for call in calls]
            return [{"role": "user", "content": "How warm?"}, {"role": "assistant", "content": text, "tool_calls": written}, *results]  # fmt: skip
        if self.wire == "openai_responses":
            items = [{"type": "reasoning", "id": "rs_1", "summary": []}]
            items += [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}] if text else []  # fmt: skip
            items += [{"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)} for call in calls]  # fmt: skip
            results = [{"type": "function_call_output", "call_id": call.id, "output": "21"} for call in calls]
            return [{"role": "user", "content": "How warm?"}, *items, *results]
        if self.wire == "gemini":
            ids = [{"id": call.id} if with_ids else {} for call in calls]
            parts = [{"text": text}] if text else []
            parts += [{"functionCall": {"name": call.name, "args": call.arguments, **one}} for call, one in zip(calls, ids, strict=True)]  # fmt: skip
            results = [{"functionResponse": {"name": call.name, "response": {"output": "21"}, **one}} for call, one in zip(calls, ids, strict=True)]  # fmt: skip
            return [{"role": "user", "parts": [{"text": "How warm?"}]}, {"role": "model", "parts": parts}, {"role": "user", "parts": results}]  # fmt: skip
        blocks = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "21"} for call in calls]
        return [{"role": "user", "content": "How warm?"}, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]  # fmt: skip


def question(wire):
    return [{"role": "user", "parts": [{"text": "How warm?"}]}] if wire == "gemini" else [{"role": "user", "content": "How warm?"}]  # fmt: skip


async def second_request(wire, turn, *, stream=False, change=lambda history: history, **options):
    """The request that the upstream gets after the client has returned the turn."""
    answer = Response(parts=turn, stop=Stop("tool_calls"), usage=Usage(1, 1))
    async with Upstream(answer, DONE) as upstream:
        document = {"upstreams": upstream_rows(upstream.url), **options.pop("settings", {})}
        async with serving(document, **options) as gateway:
            client = Client(wire, gateway.url, stream=stream)
            answer = await client.ask(question(wire))
            await client.ask(change(client.history(answer)))
        return upstream.requests[1]


def assistant_parts(heard):
    return [part for message in heard.request.messages if message.role == "assistant" for part in message.parts]


def outline(parts):
    written = []
    for part in parts:
        if isinstance(part, ToolCall):
            written.append((part.name, part.arguments))
        elif isinstance(part, Reasoning):
            written.append(("reasoning", part.text, [item.data for item in part.artefacts]))
        else:
            written.append(("text", part.text))
    return written


@pytest.mark.one_in(3)
@pytest.mark.finding("G2")
@every_case("stream", [False, True], ids=["whole", "stream"])
@every_case("turn", TURNS.values(), ids=TURNS)
@every_case("wire", ["openai_chat", "openai_responses", "gemini", "ollama"])
def test_turn_returns_to_its_model_in_its_original_order(wire, turn, stream):
    heard = asyncio.run(second_request(wire, turn, stream=stream))
    assert outline(assistant_parts(heard)) == outline(turn)


@pytest.mark.finding("G2")
def test_signed_turn_without_calls_is_restored():
    turn = (thought("Greet.", "c2lnMQ=="), Text("Hello."))

    def change(history):
        return [*history, {"role": "user", "content": "And now?"}]

    heard = asyncio.run(second_request("openai_chat", turn, change=change))
    assert outline(assistant_parts(heard)) == outline(turn)


@pytest.mark.finding("G2")
def test_gemini_client_that_returns_no_ids_gets_its_turn_restored():
    async def ask():
        turn = TURNS["thinking, text, call"]
        async with Upstream(Response(parts=turn, stop=Stop("tool_calls")), DONE) as upstream:
            async with serving({"upstreams": upstream_rows(upstream.url)}) as gateway:
                client = Client("gemini", gateway.url, stream=False)
                answer = await client.ask(question("gemini"))
                await client.ask(client.history(answer, with_ids=False))
            return upstream.requests[1]

    assert outline(assistant_parts(asyncio.run(ask()))) == outline(TURNS["thinking, text, call"])


def test_text_changed_by_the_client_stays_changed_and_in_place():
    def change(history):
        history[1]["content"] = "I will look."
        return history

    heard = asyncio.run(second_request("openai_chat", TURNS["thinking, text, call"], change=change))
    assert [kind for kind, *_ in outline(assistant_parts(heard))] == ["reasoning", "text", "weather"]
    assert outline(assistant_parts(heard))[1] == ("text", "I will look.")


def test_call_removed_by_the_client_stays_removed():
    def change(history):
        del history[1]["tool_calls"][1], history[3]
        return history

    heard = asyncio.run(second_request("openai_chat", TURNS["text between the calls"], change=change))
    assert [part.arguments for part in assistant_parts(heard) if isinstance(part, ToolCall)] == [{"city": "Paris"}]
    assert outline(assistant_parts(heard))[0][0] == "reasoning"


def test_turn_split_over_two_assistant_messages_is_restored():
    def change(history):
        user, assistant, *results = history
        text = {"role": "assistant", "content": assistant.pop("content")}
        return [user, text, {**assistant, "content": None}, *results]

    heard = asyncio.run(second_request("openai_chat", TURNS["thinking, text, call"], change=change))
    assert outline(assistant_parts(heard)) == outline(TURNS["thinking, text, call"])


@tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    return f"{name} is 42"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_rounds_of_gateway_tools_are_restored(stream):
    first = (thought("Look up x.", "c2lnMQ=="), Text("Wait. "), ToolCall("ours_1", "look_up", {"name": "x"}))
    second = (thought("Now both.", "c2lnMg=="), Text("So:"), ToolCall("ours_2", "look_up", {"name": "y"}), PARIS)

    async def ask():
        script = [Response(parts=parts, stop=Stop("tool_calls")) for parts in (first, second)]
        async with Upstream(*script, DONE) as upstream:
            runners = {"*": Runner(look_up)}
            async with serving({"upstreams": upstream_rows(upstream.url)}, runners=runners) as gateway:
                client = Client("openai_chat", gateway.url, stream=stream)
                answer = await client.ask(question("openai_chat"))
                assert [call.name for call in answer.calls] == ["weather"]
                await client.ask(client.history(answer))
            return upstream.requests[2]

    heard = asyncio.run(ask())
    assistant = [message.parts for message in heard.request.messages if message.role == "assistant"]
    assert [outline(parts) for parts in assistant] == [outline(first), outline(second)]
    assert heard.body.count(b"is 42") == 2


UNKNOWN = {"x-unknown": {"kept": [1, 2.50]}}


@pytest.mark.finding("G6")
@pytest.mark.parametrize("repair", [None, "safe"], ids=["restored", "restored and repaired"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_same_wire_request_keeps_version_headers_and_unknown_fields(stream, repair):
    turn = TURNS["thinking, text, call"]

    async def ask():
        settings = {
            "models": {
                "m": {"targets": [{"upstream": "anthropic", "model": "m"}], **({"repair": repair} if repair else {})}
            }
        }
        async with Upstream(Response(parts=turn, stop=Stop("tool_calls")), DONE) as upstream:
            async with serving({"upstreams": upstream_rows(upstream.url), **settings}) as gateway:
                client = Client("anthropic", gateway.url, stream=stream)
                history = client.history(await client.ask(question("anthropic"), "m"))
                body = {"model": "m", "max_tokens": 99, "temperature": 0.5, "messages": history, "stream": stream, **UNKNOWN}  # fmt: skip
                headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "some-beta-2026-01-01"}
                async with Http(headers) as http:
                    assert (await http.post(f"{gateway.url}/v1/messages", body)).status == 200
            return upstream.requests[1]

    heard = asyncio.run(ask())
    assert heard.headers["anthropic-version"] == "2023-06-01"
    assert heard.headers["anthropic-beta"] == "some-beta-2026-01-01"
    sent = json.loads(heard.body)
    assert sent["temperature"] == 0.5
    assert sent["x-unknown"] == UNKNOWN["x-unknown"]
    assert outline(assistant_parts(heard)) == outline(turn)


@pytest.mark.finding("G6")
def test_same_wire_request_with_gateway_tools_keeps_the_version():
    async def ask():
        async with Upstream(DONE) as upstream:
            runners = {"*": Runner(look_up)}
            async with serving({"upstreams": upstream_rows(upstream.url)}, runners=runners) as gateway:
                body = {"model": "anthropic/m", "max_tokens": 99, "temperature": 0.5, "messages": question("anthropic"), **UNKNOWN}  # fmt: skip
                async with Http({"anthropic-version": "2023-06-01", "anthropic-beta": "some-beta"}) as http:
                    assert (await http.post(f"{gateway.url}/v1/messages", body)).status == 200
            return upstream.requests[0]

    heard = asyncio.run(ask())
    assert (heard.headers["anthropic-version"], heard.headers["anthropic-beta"]) == ("2023-06-01", "some-beta")
    sent = json.loads(heard.body)
    assert (sent["temperature"], sent["x-unknown"]) == (0.5, UNKNOWN["x-unknown"])
