"""Servers that refuse tool turns without their reasoning, through a gateway that signs it for Anthropic and Responses clients."""

import asyncio
import json
import stat
from threading import current_thread, main_thread

import anthropic
import openai
import pytest
from msgspec.structs import replace

from gateway_client import post
from serving import serving, upstream_rows
from toolwire import Reasoning, Response, Text, ToolCall
from toolwire.bridge.conversation.reasoning_envelope import PREFIX, may_contain_envelope
from toolwire.bridge.conversation.turns import InMemoryTurns
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.request import client_request
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.testing.upstream import RawReply, Upstream
from worker_gateway import worker_gateway

pytestmark = pytest.mark.finding("CA1")
TURNS = 3
SECRET = "0123456789abcdef0123456789abcdef"
OTHER_SECRET = "fedcba9876543210fedcba9876543210"


class StrictModel:
    """DeepSeek, Kimi or a thinking model of Ollama: every turn reasons and calls a tool, and must come back whole."""

    def __init__(self, form):
        self.form = form  # the fields by which the wire knows its own reasoning
        self.refused = 0

    def thoughts(self, number):
        return f"Step {number}: “look” at file {number}.\n\tThen {number} more, with an emoji 🙂 and \\backslash."

    def __call__(self, request):
        done = 0
        for message in request.messages:
            calls = [part for part in message.parts if isinstance(part, ToolCall)]
            if message.role == "assistant" and calls:
                done += 1
                texts = [part.text for part in message.parts if isinstance(part, Reasoning)]
                if "".join(texts) != self.thoughts(done):
                    self.refused += 1
                    message = "reasoning_content of a tool turn must be passed back"
                    return Fault("invalid_request", message, 400, "invalid_request_error", retryable=False)
        if done == TURNS:
            return Response(id="r", model="m", parts=(Text("done"),), stop=Stop("stop"), usage=Usage(3, 4))
        done += 1
        parts = (Reasoning(self.thoughts(done), extra=self.form), ToolCall(f"call_{done}", "look", {"number": done}))
        return Response(id=f"r{done}", model="m", parts=parts, stop=Stop("tool_calls"), usage=Usage(3, 4))


CHAT = {"openai_chat~": {":field": "reasoning_content"}}
VLLM = {"openai_chat~": {":field": "reasoning"}}
OLLAMA = {"ollama~": {":field": "thinking"}}
MODELS = [("openai_chat", CHAT), ("openai_chat", VLLM), ("ollama", OLLAMA)]


def document(url, secret=SECRET, wire="openai_chat", **server):
    return {
        "server": {"secret": secret, **server},
        "upstreams": upstream_rows(url),
        "models": {"*": {"upstream": wire, "model": "thinker"}, "other": {"upstream": wire, "model": "another"}},
    }


class AnthropicSession:
    """A conversation of the Anthropic SDK, whole or streamed. `change` edits the history before each request."""

    wire = "anthropic"
    tool = {"name": "look", "description": "Look", "input_schema": {"type": "object", "properties": {}}}

    def __init__(self, *, stream=False, change=lambda messages: messages):
        self.stream, self.change = stream, change
        self.history = [{"role": "user", "content": "begin"}]
        self.losses = []

    async def turn(self, url, model="deepseek"):
        """Send the history and add the answer; return its calls."""
        async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
            request = {"model": model, "max_tokens": 5000, "tools": [self.tool]}
            messages = self.change(json.loads(json.dumps(self.history)))
            if self.stream:
                async with client.messages.stream(**request, messages=messages) as stream:
                    message = await stream.get_final_message()
                    self.losses.append(stream.response.headers.get("x-toolwire-losses"))
            else:
                reply = await client.messages.with_raw_response.create(**request, messages=messages)
                self.losses.append(reply.headers.get("x-toolwire-losses"))
                message = await reply.parse()
        content = [block.model_dump(exclude_none=True) for block in message.content]
        self.history.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "ok"} for call in calls]
        if results:
            self.history.append({"role": "user", "content": results})
        return calls

    def signatures(self):
        return [block["signature"] for block in self.reasoning()]

    def reasoning(self):
        messages = [message["content"] for message in self.history if message["role"] == "assistant"]
        return [block for content in messages for block in content if block["type"] == "thinking"]


class ResponsesSession:
    """The same for the OpenAI SDK's Responses, which stores nothing here."""

    wire = "openai_responses"
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}

    def __init__(self, *, stream=False, change=lambda messages: messages):
        self.stream, self.change = stream, change
        self.history = [{"role": "user", "content": "begin"}]
        self.losses = []

    async def turn(self, url, model="deepseek"):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            request = {"model": model, "tools": [self.tool], "store": False, "include": ["reasoning.encrypted_content"]}
            items = self.change(json.loads(json.dumps(self.history)))
            if self.stream:
                async with client.responses.stream(**request, input=items) as stream:
                    response = await stream.get_final_response()
                    self.losses.append(stream._response.headers.get("x-toolwire-losses"))
            else:
                reply = await client.responses.with_raw_response.create(**request, input=items)
                self.losses.append(reply.headers.get("x-toolwire-losses"))
                response = reply.parse()
        output = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        self.history += output
        calls = [item for item in output if item["type"] == "function_call"]
        self.history += [{"type": "function_call_output", "call_id": call["call_id"], "output": "ok"} for call in calls]
        return calls

    def signatures(self):
        return [item["encrypted_content"] for item in self.reasoning()]

    def reasoning(self):
        return [item for item in self.history if item.get("type") == "reasoning"]


SESSIONS = [AnthropicSession, ResponsesSession]


def strip_anthropic(messages):
    for message in messages:
        for block in message["content"] if message["role"] == "assistant" else ():
            if block["type"] == "thinking":
                block["thinking"] = ""
    return messages


def strip_responses(items):
    for item in items:
        if item.get("type") == "reasoning":
            item.pop("content", None)
            item.pop("id", None)
            item["summary"] = []
    return items


STRIP = {"anthropic": strip_anthropic, "openai_responses": strip_responses}


async def converse(session, document, restarts=False):
    """Run the conversation to its end; with `restarts`, each request at a gateway that remembers nothing."""
    if restarts:
        for _ in range(TURNS + 1):
            async with serving(document) as gateway:
                calls = await session.turn(gateway.url)
    else:
        async with serving(document) as gateway:
            for _ in range(TURNS + 1):
                calls = await session.turn(gateway.url)
    assert calls == []


@pytest.mark.parametrize("restarts", [False, True], ids=["one_gateway", "restarts"])
@pytest.mark.parametrize("stripped", [False, True], ids=["verbatim", "stripped"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize(("wire", "form"), MODELS, ids=["reasoning_content", "reasoning", "thinking"])
def test_reasoning_of_tool_turns_comes_back(wire, form, kind, stream, stripped, restarts):
    session = kind(stream=stream)
    if stripped:
        session.change = STRIP[kind.wire]
    model = StrictModel(form)

    async def main():
        async with Upstream(*[model] * (TURNS + 1)) as upstream:
            await converse(session, document(upstream.url, wire=wire), restarts)
            assert model.refused == 0
            assert {received.wire for received in upstream.requests} == {wire}
            assert not any(PREFIX.encode() in received.body for received in upstream.requests)

    asyncio.run(main())
    assert len(session.signatures()) == TURNS
    assert all(signature.startswith(PREFIX) for signature in session.signatures())


@pytest.mark.parametrize("kind", SESSIONS)
def test_long_conversation_is_restored_from_its_translated_beginning(kind):
    """The gateway keeps the translation of the first messages; an edited envelope among them is still noticed."""

    class LongThoughts(StrictModel):
        def thoughts(self, number):
            return super().thoughts(number) + "".join(f" {number * step:x}" for step in range(2_000))

    session, model = kind(stream=True), LongThoughts(CHAT)

    async def main():
        async with (
            Upstream(*[model] * 9, piece=4096, delta=1000) as upstream,
            serving(document(upstream.url), **NO_TURNS) as gateway,
        ):
            for _ in range(TURNS):
                await session.turn(gateway.url)
            again = kind(stream=True)
            again.history = json.loads(json.dumps(session.history))
            assert await session.turn(gateway.url) == []
            edit(again, changed_signature)
            with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)):
                await again.turn(gateway.url)

    asyncio.run(main())
    assert model.refused == 1


NO_TURNS = {"turn_store": InMemoryTurns(1, 1, 1.0, lambda: 0.0)}


def edit(session, change_block):
    """Change the reasoning of the second turn in every later request."""
    block = session.reasoning()[1]
    block.update(change_block(block))


def changed_signature(block):
    field = "signature" if "signature" in block else "encrypted_content"
    text = block[field]
    return {field: text[:-5] + ("A" if text[-5] != "A" else "B") + text[-4:]}


def changed_text(block):
    if "thinking" in block:
        return {"thinking": block["thinking"].replace("look", "delete")}
    return {"content": [{"type": "reasoning_text", "text": "Delete everything."}]}


@pytest.mark.parametrize("change_block", [changed_signature, changed_text])
@pytest.mark.parametrize("kind", SESSIONS)
def test_edited_envelope_is_dropped_with_a_loss(kind, change_block):
    session, model = kind(), StrictModel(CHAT)

    async def main():
        async with Upstream(*[model] * 9) as upstream:
            for _ in range(3):
                async with serving(document(upstream.url)) as gateway:
                    await session.turn(gateway.url)
                    assert "reasoning" not in [loss.concept for loss in gateway.turns[-1].losses]
            edit(session, change_block)
            async with serving(document(upstream.url)) as gateway:
                with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)):
                    await session.turn(gateway.url)
                assert "reasoning" in [loss.concept for loss in gateway.turns[-1].losses]
            sent = upstream.requests[-1].request
        texts = [part.text for message in sent.messages for part in message.parts if isinstance(part, Reasoning)]
        assert texts == [model.thoughts(1), model.thoughts(3)]

    asyncio.run(main())


@pytest.mark.parametrize("kind", SESSIONS)
def test_known_turn_replaces_an_edited_envelope(kind):
    """The store has the reasoning as the model made it."""
    session, model = kind(), StrictModel(CHAT)

    async def main():
        async with Upstream(*[model] * 9) as upstream, serving(document(upstream.url)) as gateway:
            for _ in range(3):
                await session.turn(gateway.url)
            edit(session, changed_text)
            await session.turn(gateway.url)

    asyncio.run(main())
    assert model.refused == 0


@pytest.mark.parametrize("kind", SESSIONS)
def test_reasoning_goes_to_no_other_model_or_server(kind):
    async def main():
        session = kind()
        model = StrictModel(CHAT)
        async with Upstream(*[model] * 9) as upstream, Upstream(*[model] * 9) as elsewhere:
            async with serving(document(upstream.url)) as gateway:
                await session.turn(gateway.url)
            for url, name in ((upstream.url, "other"), (elsewhere.url, "deepseek")):
                async with serving(document(url)) as gateway:
                    with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)):
                        await session.turn(gateway.url, name)
                    assert "reasoning" in [loss.concept for loss in gateway.turns[-1].losses]
            last = (upstream.requests[-1], elsewhere.requests[-1])
            assert not any(b"Step 1" in received.body for received in last)

    asyncio.run(main())


@pytest.mark.parametrize("kind", SESSIONS)
def test_two_secrets_verify_during_a_rotation(kind):
    session, model = kind(), StrictModel(CHAT)
    before, after = {"secret": SECRET}, {"secret": OTHER_SECRET, "previous_secret": SECRET}

    async def main():
        async with Upstream(*[model] * 9) as upstream:
            for rows in (before, after, after):
                async with serving(document(upstream.url, **rows)) as gateway:
                    await session.turn(gateway.url)
            assert model.refused == 0
            async with serving(document(upstream.url, secret="x" * 32)) as gateway:
                with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)):
                    await session.turn(gateway.url)
            async with serving(document(upstream.url, secret=OTHER_SECRET)) as gateway:
                with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)):
                    await session.turn(gateway.url)  # the first turn has the old secret

    asyncio.run(main())


def test_reload_replaces_the_secrets():
    session, model = AnthropicSession(), StrictModel(CHAT)

    async def main():
        async with (
            Upstream(*[model] * 9) as upstream,
            serving(document(upstream.url), **NO_TURNS) as gateway,
        ):
            await session.turn(gateway.url)
            gateway.gateway.apply(parse_settings(document(upstream.url, OTHER_SECRET, previous_secret=SECRET)))
            await session.turn(gateway.url)
            gateway.gateway.apply(parse_settings(document(upstream.url, OTHER_SECRET)))
            with pytest.raises(anthropic.BadRequestError):
                await session.turn(gateway.url)

    asyncio.run(main())


def test_settings_without_a_secret_use_the_given_one_after_a_reload():
    session, model = AnthropicSession(), StrictModel(CHAT)

    async def main():
        async with Upstream(*[model] * 9) as upstream, serving(document(upstream.url), **NO_TURNS) as gateway:
            await session.turn(gateway.url)
            without_secret = {**document(upstream.url), "server": {}}
            gateway.gateway.apply(parse_settings(without_secret), secret=SECRET)
            await session.turn(gateway.url)

    asyncio.run(main())
    assert model.refused == 0


def test_large_body_is_searched_once_and_not_on_the_event_loop(monkeypatch):
    threads = []

    def search(body):
        threads.append(current_thread())
        return may_contain_envelope(body)

    monkeypatch.setattr(client_request, "may_contain_envelope", search)
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "é" * 500_000}]})

    async def main():
        async with Upstream(ANSWER) as upstream, serving(document(upstream.url)) as gateway:
            status, _, _ = await post(gateway.url, "/v1/messages", body.encode())
            assert status == 200

    asyncio.run(main())
    (thread,) = threads
    assert thread is not main_thread()


def test_either_of_two_workers_restores_the_reasoning(tmp_path):
    """Their secret is in a file beside the settings, and the turns that they share expire at once."""
    session, model = AnthropicSession(stream=True), StrictModel(CHAT)

    async def main():
        async with Upstream(*[model] * 99) as upstream:
            rows = f'[upstreams.a]\nbase_url = "{upstream.url}"\nwire = "openai_chat"\n[models."*"]\nupstream = "a"\n'
            state = '[state]\nurl = "state.db"\nturn_seconds = 0.001\n'
            async with worker_gateway(tmp_path, rows + state, 2) as gateway:
                url = f"http://127.0.0.1:{gateway.port}"
                calls = await session.turn(url)
                while calls or len(processes(tmp_path)) < 2:  # the kernel chooses the worker of each connection
                    await asyncio.sleep(0.01)
                    if not calls:
                        session.history = session.history[:3]
                    calls = await session.turn(url)

    asyncio.run(main())
    assert model.refused == 0
    assert stat.S_IMODE((tmp_path / "toolwire.toml.secret").stat().st_mode) == 0o600


def processes(folder):
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines() if line.startswith("{")]
    return {line["request_id"][:16] for line in lines if "request_id" in line}


@pytest.mark.parametrize("escaped", [False, True], ids=["plain", "escaped"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", SESSIONS)
def test_envelope_is_never_sent_to_a_provider_of_its_wire(kind, stream, escaped):
    """Anthropic and OpenAI would refuse a signature that they have not made."""
    session, model = kind(stream=stream), StrictModel(CHAT)

    async def main():
        async with Upstream(model, *[Response(parts=(Text("hello"),), stop=Stop("stop"))] * 9) as upstream:
            rows = document(upstream.url)
            rows["models"] = {"deepseek": rows["models"]["*"], "native": {"upstream": kind.wire, "model": "native"}}
            async with serving(rows) as gateway:
                await session.turn(gateway.url)
                assert session.signatures()[0].startswith(PREFIX)
                if not escaped:
                    await session.turn(gateway.url, "native")
                    assert session.losses[-1] == "1"
                else:
                    body = json.dumps({"model": "native", "max_tokens": 9, field(kind): session.history})
                    body = body.replace(PREFIX, "\\u0054OOLWIRE~")
                    path = "/v1/messages" if kind is AnthropicSession else "/v1/responses"
                    status, _, _ = await post(gateway.url, path, body.encode())
                    assert status == 200
                    assert "reasoning" in [loss.concept for loss in gateway.turns[-1].losses]
            received = upstream.requests[-1]
            assert received.wire == kind.wire
            assert b"OOLWIRE~" not in received.body
            assert b"Step 1" not in received.body
            assert b"call_1" in received.body

    asyncio.run(main())


CLAUDE = "claude-sonnet-4-5"  # with a budget, it requires its thinking before the last calls
ANSWER = Response(id="r", model="m", parts=(Text("hello"),), stop=Stop("stop"), usage=Usage(1, 1))
LONG = "x" * 1_500_000  # above limits.stream_body


async def send_to_claude(make_body, path="/v1/messages"):
    """Let another model make a turn, and send it to Claude. Return the body sent, and the log of the request."""
    session = AnthropicSession()
    async with Upstream(StrictModel(CHAT), *[ANSWER] * 9) as upstream:
        rows = document(upstream.url)
        rows["models"] = {"deepseek": rows["models"]["*"], "claude": {"upstream": "anthropic", "model": CLAUDE}}
        async with serving(rows, **NO_TURNS) as gateway:
            await session.turn(gateway.url)
            status, _, answer = await post(gateway.url, path, make_body(session.history))
            assert status == 200, answer
            (log,) = gateway.turns[1:]
        received = upstream.requests[-1]
        assert received.wire == "anthropic"
        assert b"OOLWIRE~A" not in received.body
        return json.loads(received.body), log


def claude_body(history, text="begin", **fields):
    messages = [{"role": "user", "content": text}, *history[1:]]
    request = {"model": "claude", "max_tokens": 5000, "messages": messages, "tools": [AnthropicSession.tool]}
    return json.dumps({**request, **fields}).encode()


@pytest.mark.parametrize("spelling", [PREFIX, "\\u0054OOLWIRE~", "TOOLWIR\\u0045\\u007E"])
def test_envelope_is_removed_from_a_large_body_that_was_partly_sent(spelling):
    """The pieces are kept until all are sent: the request is read whole, and sent again without the envelope."""

    def make_body(history):
        return claude_body(history, LONG).replace(PREFIX.encode(), spelling.encode())

    sent, log = asyncio.run(send_to_claude(make_body))
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use"]
    assert sent["messages"][0]["content"] == LONG
    assert log.attempts == 2
    assert "reasoning" in [loss.concept for loss in log.losses]


def test_large_body_that_quotes_the_prefix_is_sent_as_it_is():
    def make_body(_):
        messages = [{"role": "user", "content": LONG}, {"role": "user", "content": f'see "{PREFIX}x"'}]
        return json.dumps({"model": "claude", "max_tokens": 9, "new_field": 1, "messages": messages}).encode()

    sent, log = asyncio.run(send_to_claude(make_body))
    assert sent == {**json.loads(make_body(())), "model": CLAUDE}
    assert log.passed_through
    assert log.losses == ()


def test_thinking_is_left_off_if_the_thinking_of_the_last_calls_was_removed():
    thinking = {"type": "enabled", "budget_tokens": 2000}
    sent, log = asyncio.run(send_to_claude(lambda history: claude_body(history, thinking=thinking)))
    assert "thinking" not in sent
    assert {"reasoning", "thinking"} <= {loss.concept for loss in log.losses}


def test_turn_of_reasoning_alone_leaves_no_empty_message():
    def make_body(history):
        thinking = [block for block in history[1]["content"] if block["type"] == "thinking"]
        return claude_body([None, {"role": "assistant", "content": thinking}, {"role": "user", "content": "go on"}])

    sent, _ = asyncio.run(send_to_claude(make_body))
    assert all(message["content"] for message in sent["messages"])


@pytest.mark.parametrize("change", [" {}", "\0{}", "{}\0", PREFIX + "{}", "{}"])
@pytest.mark.parametrize("form", ["thinking", "redacted_thinking"])
def test_edited_envelope_reaches_no_provider_of_its_wire(change, form):
    def make_body(history):
        block = history[1]["content"][0]
        text = change.format(block["signature"])
        history[1]["content"][0] = {**block, "signature": text} if form == "thinking" else {"type": form, "data": text}
        return claude_body(history)

    _, log = asyncio.run(send_to_claude(make_body))
    assert "reasoning" in [loss.concept for loss in log.losses]


def field(kind):
    return "messages" if kind is AnthropicSession else "input"


def test_signature_of_a_provider_passes_unchanged():
    signature = "EqQBCkYIBxgCKkA" + "z" * 40
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": signature}]},
        {"role": "user", "content": "go on"},
    ]
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": history}).encode()

    async def main():
        answer = Response(parts=(Text("hello"),), stop=Stop("stop"))
        async with Upstream(answer) as upstream:
            rows = document(upstream.url)
            rows["models"] = {"m": {"upstream": "anthropic", "model": "m"}}
            async with serving(rows) as gateway:
                await post(gateway.url, "/v1/messages", body)
            assert upstream.requests[-1].body == body

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_chat_client_gets_known_reasoning_back(stream):
    """Chat has no slot for an envelope: reasoning that the client returns is matched with the known turn."""
    model = StrictModel(OLLAMA)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}

    async def main():
        history = [{"role": "user", "content": "begin"}]
        async with (
            Upstream(*[model] * 9) as upstream,
            serving(document(upstream.url, wire="ollama")) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0) as client,
        ):
            for _ in range(TURNS + 1):
                request = {"model": "m", "messages": history, "tools": [tool]}
                if stream:
                    async with client.chat.completions.stream(**request) as events:
                        message = (await events.get_final_completion()).choices[0].message
                else:
                    message = (await client.chat.completions.create(**request)).choices[0].message
                returned = message.model_dump(exclude_none=True, exclude={"parsed"})
                for call in returned.get("tool_calls", ()):
                    call.pop("index", None)
                    call["function"].pop("parsed_arguments", None)
                history.append(returned)
                results = [
                    {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
                    for call in returned.get("tool_calls", ())
                ]
                history += results
        assert "reasoning_content" in history[1]

    asyncio.run(main())
    assert model.refused == 0


DETAILS = [
    {"type": "reasoning.text", "text": "Let me look.", "signature": "c2lnbmVk", "format": "anthropic-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "ZW5jcnlwdGVk", "id": "rs_1", "format": "x", "index": 1},
]


def openrouter_answer(stream):
    """An answer of OpenRouter; the encrypted detail comes with the call."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    if not stream:
        message = {"role": "assistant", "content": None, "reasoning": "Let me look.", "tool_calls": [call]}
        message["reasoning_details"] = DETAILS
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return RawReply(
            json.dumps({"id": "g", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
        )
    text, encrypted = DETAILS
    deltas = [
        {
            "role": "assistant",
            "content": "",
            "reasoning": "Let me ",
            "reasoning_details": [{**text, "text": "Let me "}],
        },
        {"content": "", "reasoning": "look.", "reasoning_details": [{**text, "text": "look."}]},
        {"content": None, "reasoning_details": [encrypted], "tool_calls": [{"index": 0, **call}]},
    ]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    chunks = [{"id": "g", "object": "chat.completion.chunk", "model": "m", "choices": [choice]} for choice in choices]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return RawReply("".join([*lines, "data: [DONE]\n\n"]).encode(), streamed=True)


@pytest.mark.parametrize("stripped", [False, True], ids=["verbatim", "stripped"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", SESSIONS)
def test_reasoning_details_go_back_in_their_form(kind, stream, stripped):
    session = kind(stream=stream)
    if stripped:
        session.change = STRIP[kind.wire]

    async def main():
        answer = Response(id="r", model="m", parts=(Text("done"),), stop=Stop("stop"), usage=Usage(1, 1))
        async with Upstream(openrouter_answer(stream), answer) as upstream:
            for _ in range(2):
                async with serving(document(upstream.url)) as gateway:
                    await session.turn(gateway.url)
            sent = json.loads(upstream.requests[-1].body)["messages"][1]
        assert sent["reasoning"] == "Let me look."
        assert sent["reasoning_details"] == DETAILS

    asyncio.run(main())


def test_reasoning_of_two_rounds_of_one_answer_is_not_lost():
    """A Chat stream may reason, answer, and reason again: the server wants all of it."""
    pieces = (
        Reasoning("first. ", extra=CHAT),
        Text("Looking."),
        Reasoning("second.", extra=CHAT),
        ToolCall("call_1", "look", {}),
    )
    answer = Response(id="r", model="m", parts=pieces, stop=Stop("tool_calls"), usage=Usage(1, 1))
    session = AnthropicSession(stream=True)

    async def main():
        async with Upstream(answer, replace(answer, parts=(Text("done"),))) as upstream:
            for _ in range(2):
                async with serving(document(upstream.url)) as gateway:
                    await session.turn(gateway.url)
            sent = json.loads(upstream.requests[-1].body)["messages"][1]
        assert sent["reasoning_content"] == "first. second."

    asyncio.run(main())
