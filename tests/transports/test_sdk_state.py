"""Transports keep the state of a conversation, forward what needs no change, and report losses."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import anthropic
import openai
import pytest
from google.genai import types
from sdk_drivers import DRIVERS, MODELS, opened, running

from tables import every_case
from toolwire import ModelClient
from toolwire.adapters import async_transport, transport
from toolwire.ir.errors import ConfigError, MissingExtra, ProtocolError
from toolwire.ir.parts import Artefact, Reasoning, Text, ToolCall
from toolwire.ir.response import Response, Stop
from toolwire.testing import RawReply
from toolwire.wire import get

SIGNED = {
    "anthropic": Reasoning("Hmm.", artefacts=(Artefact("anthropic", "signature", "c2lnbmF0dXJl"),)),
    "openai_responses": Reasoning("Hmm.", artefacts=(Artefact("openai", "encrypted_content", "ZW5jcnlwdGVk"),)),
}
FINAL = Response(parts=(Text("Done."),), stop=Stop("stop"))


def signed_turn(wire):
    if wire == "gemini":
        call = ToolCall("c1", "weather", {"city": "Rome"}, artefacts=(Artefact("google", "thought_signature", "c2ln"),))
        return Response(parts=(Reasoning("Hmm."), call), stop=Stop("tool_calls"))
    return Response(parts=(SIGNED[wire], ToolCall("c1", "weather", {"city": "Rome"})), stop=Stop("tool_calls"))


def artefacts_of(request):
    parts = [part for message in request.messages for part in message.parts]
    return [item.data for part in parts for item in getattr(part, "artefacts", ())]


@every_case("stream", [False, True], ids=["whole", "stream"])
@every_case("wire", ["anthropic", "openai_responses", "gemini"])
@every_case("sdk", DRIVERS)
def test_signatures_return_to_the_model_that_made_them(sdk, wire, stream):
    turn = signed_turn(wire)
    expected = [item.data for part in turn.parts for item in getattr(part, "artefacts", ())]
    with running(turn, FINAL) as server, opened(sdk, "sync", wire, server) as driver:
        history = driver.user("weather?")
        answer = driver.ask(history, ("weather",), stream=stream)
        history += [*answer.history, *driver.results(answer.calls, ["sun"])]
        assert driver.ask(history, ("weather",), stream=stream).text == "Done."
    assert artefacts_of(server.upstream.requests[1].request) == expected


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "anthropic", "gemini"])
def test_same_wire_forwards_the_bytes_of_request_and_answer(wire):
    with running() as server, opened(wire, "sync", wire, server) as driver:
        server.upstream.script.append(FINAL)
        driver.ask(driver.user("hi"))
        body = server.upstream.requests[0].body
        sent = driver.http.build_request(
            "POST", f"https://any.example/v1{server.upstream.requests[0].path}", content=body
        )
        sent.headers["anthropic-beta"] = "a-beta-feature"
        raw = b'{ "unknown" : [1.50, "\\u00e9"],  ' + answer_of(wire)[1:]
        server.upstream.script.append(RawReply(raw, headers={"content-type": "application/json", "x-request-id": "r1"}))
        answer = driver.http.send(sent)
    assert answer.content == raw
    assert answer.headers["x-request-id"] == "r1"
    assert server.upstream.requests[1].body == body
    assert server.upstream.requests[1].headers["anthropic-beta"] == "a-beta-feature"


def answer_of(wire):
    return json.dumps(get(wire).encode_response(FINAL).body).encode()


class EchoServer(BaseHTTPRequestHandler):
    """Answers every request with the same chat completion, without reading it."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self):
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        body = answer_of("openai_chat")
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("wire", ["openai_chat", "gemini"])
def test_request_that_cannot_be_decoded_is_forwarded_to_its_own_wire_only(wire):
    odd = [{"role": "a-new-role", "content": "hi"}]
    with pytest.raises(ProtocolError):
        get("openai_chat").decode_request({"model": "m", "messages": odd})
    server = HTTPServer(("127.0.0.1", 0), EchoServer)
    EchoServer.bodies.clear()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        http = transport(MODELS[wire], base_url=url, key="k", wire=wire)
        with openai.OpenAI(http_client=http, api_key="unused", max_retries=0) as client:
            if wire == "openai_chat":
                assert client.chat.completions.create(model="m", messages=odd).choices[0].message.content == "Done."
                assert b"a-new-role" in EchoServer.bodies[0]
            else:
                with pytest.raises(openai.BadRequestError, match="role"):
                    client.chat.completions.create(model="m", messages=odd)
                assert not EchoServer.bodies
    finally:
        server.shutdown()
        server.server_close()


def test_keys_of_the_sdk_are_not_sent():
    with running(FINAL, FINAL) as server:
        for wire in ("openai_chat", "anthropic"):
            with opened("openai_chat", "sync", wire, server) as driver:
                driver.ask(driver.user("hi"))
    for received in server.upstream.requests:
        assert "unused" not in str(received.headers)
        assert "the-key" in str(received.headers)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_previous_response_id_continues_the_conversation_of_any_model(stream):
    calls = Response(parts=(ToolCall("c1", "weather", {"city": "Rome"}),), stop=Stop("tool_calls"))
    with running(calls, FINAL, FINAL) as server, opened("openai_responses", "sync", "anthropic", server) as driver:
        first = last_response(driver, stream, "weather?", tools=("weather",))
        output = [{"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sun"}]
        second = last_response(driver, stream, output, tools=("weather",), previous_response_id=first.id)
        third = last_response(driver, stream, "thanks", previous_response_id=second.id)
        assert len({first.id, second.id, third.id}) == 3
        sent = server.upstream.requests[2].request
        assert [message.role for message in sent.messages] == ["user", "assistant", "user", "assistant", "user"]
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            driver.request("more", previous_response_id="resp_unknown")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_threads_of_the_anthropic_sdk_continue_the_conversation_of_any_model(stream):
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Get the weather."""
        return f"sun in {city}"

    calls = Response(parts=(ToolCall("c1", "weather", {"city": "Rome"}),), stop=Stop("tool_calls"))
    with running(calls, FINAL) as server, opened("anthropic", "sync", "openai_chat", server) as driver:
        runner = driver.client.beta.messages.tool_runner(
            model="m", max_tokens=100, tools=[weather], messages=driver.user("weather?"), stream=stream
        )
        final = [turn.get_final_message() if stream else turn for turn in runner][-1]
        assert final.content[0].text == "Done."
    sent = server.upstream.requests[1].request
    assert [message.role for message in sent.messages] == ["user", "assistant", "user"]
    assert "sun in Rome" in str(sent.messages[2])


def last_response(driver, stream, history, **more):
    answer = driver.request(history, stream=stream, **more)
    return list(answer)[-1].response if stream else answer


def test_losses_are_reported_and_strict_refuses_them():
    losses = []
    with running(FINAL) as server:
        with opened("openai_chat", "sync", "anthropic", server, on_loss=losses.append) as driver:
            answer = driver.client.chat.completions.with_raw_response.create(
                model="any", messages=driver.user("hi"), seed=7, logprobs=True
            )
            assert int(answer.headers["x-toolwire-losses"]) >= 2
        assert {"seed", "logprobs"} <= {loss.concept for loss in losses}
        with (
            opened("openai_chat", "sync", "anthropic", server, strict=True) as driver,
            pytest.raises(openai.BadRequestError, match="seed would be dropped"),
        ):
            driver.request(driver.user("hi"), seed=7)
    assert len(server.upstream.requests) == 1


@pytest.mark.finding("LE1")
def test_too_many_tools_are_reduced_on_the_same_wire():
    losses = []
    tools = [f"operation_{number}" for number in range(200)]
    with (
        running(FINAL) as server,
        opened("openai_chat", "sync", "openai_chat", server, on_loss=losses.append) as driver,
    ):
        driver.request(driver.user("hi"), tools=tools)
    assert len(server.upstream.requests[0].request.tools) == 128
    assert [loss.concept for loss in losses].count("tool") == 72


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_answer_is_kept_if_on_loss_fails(caplog, stream):
    def fail(loss):
        raise ValueError(f"no room for {loss.concept}")

    with running(FINAL) as server, opened("openai_chat", "sync", "anthropic", server, on_loss=fail) as driver:
        answer = driver.request(driver.user("hi"), stream=stream, seed=7)
        pieces = [chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices] if stream else None
        assert ("".join(pieces) if stream else answer.choices[0].message.content) == "Done."
    assert "no room for seed" in caplog.text


def test_losses_are_logged_by_default(caplog):
    caplog.set_level("INFO", "toolwire.adapters")
    with running(FINAL) as server, opened("openai_chat", "sync", "anthropic", server) as driver:
        driver.request(driver.user("hi"), seed=7)
    assert any("seed dropped" in record.getMessage() for record in caplog.records)


def test_structured_output_and_parsing_of_the_sdk():
    from pydantic import BaseModel

    class Place(BaseModel):
        city: str

    answer = Response(parts=(Text('{"city": "Rome"}'),), stop=Stop("stop"))
    with running(answer, answer, answer) as server:
        for wire in ("anthropic", "gemini", "ollama"):
            with opened("openai_chat", "sync", wire, server) as driver:
                parsed = driver.client.chat.completions.parse(
                    model="any", messages=driver.user("where?"), response_format=Place
                )
                assert parsed.choices[0].message.parsed == Place(city="Rome")
    assert all(one.request.output is not None or "city" in str(one.body) for one in server.upstream.requests)


def test_model_of_the_request_selects_the_provider_without_a_fixed_model(monkeypatch):
    with running(FINAL, FINAL) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.upstream.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "the-key")
        client = openai.OpenAI(http_client=transport(), api_key="unused", max_retries=0)
        for name in ("one", "two"):
            answer = client.chat.completions.create(
                model=f"anthropic/{name}", messages=[{"role": "user", "content": "hi"}]
            )
            assert answer.choices[0].message.content == "Done."
        with pytest.raises(openai.BadRequestError, match="has no provider"):
            client.chat.completions.create(model="gpt", messages=[])
        client.close()
    assert [(one.wire, one.request.model) for one in server.upstream.requests] == [
        ("anthropic", "one"),
        ("anthropic", "two"),
    ]


def test_client_of_the_caller_is_used_and_left_open():
    with running(FINAL, FINAL) as server, ModelClient("any", base_url=server.upstream.url, key="k") as model:
        for _ in range(2):
            with anthropic.Anthropic(http_client=transport(client=model), api_key="unused") as client:
                message = client.messages.create(max_tokens=9, model="m", messages=[{"role": "user", "content": "hi"}])
                assert message.content[0].text == "Done."
    assert {one.wire for one in server.upstream.requests} == {"openai_chat"}


def test_emulated_calls_of_a_model_without_native_ones():
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    answer = Response(parts=(Text(text),), stop=Stop("stop"))
    with running(answer) as server, opened("anthropic", "sync", "ollama", server, text="hermes") as driver:
        turn = driver.ask(driver.user("weather?"), ("weather",))
    assert [(call.name, call.arguments) for call in turn.calls] == [("weather", {"city": "Rome"})]


@pytest.mark.parametrize("open_client", [transport, async_transport])
def test_missing_http_library_is_named(monkeypatch, open_client):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtra, match="httpx2") as caught:
        open_client("openai/gpt")
    assert caught.value.hint == "pip install httpx2"


def test_options_that_exclude_each_other_are_refused():
    with pytest.raises(ConfigError, match="its own model"):
        transport("openai/gpt", client=ModelClient("m", base_url="http://127.0.0.1:9"))
    with pytest.raises(ConfigError, match="base_url"):
        transport(base_url="http://127.0.0.1:9")


def test_automatic_function_calling_of_google_genai():
    def weather(city: str) -> str:
        """Get the weather."""
        return f"sun in {city}"

    calls = Response(parts=(ToolCall("c1", "weather", {"city": "Rome"}),), stop=Stop("tool_calls"))
    with running(calls, FINAL) as server, opened("gemini", "sync", "anthropic", server) as driver:
        config = types.GenerateContentConfig(tools=[weather])
        assert driver.client.models.generate_content(model="m", contents="hi", config=config).text == "Done."
    assert b"sun in Rome" in server.upstream.requests[1].body
