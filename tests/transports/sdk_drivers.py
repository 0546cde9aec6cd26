"""The official SDKs over toolwire's transports, synchronous and asynchronous, with one interface.

A driver keeps the SDK's own values of an answer and returns them in the next request, as a program does.
"""

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import anthropic
import openai
from google import genai
from google.genai import types

from toolwire.adapters import async_transport, transport
from toolwire.testing import Upstream

MODELS = {
    "openai_chat": "openai/gpt-5.1",
    "openai_responses": "openai/gpt-5.1",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-3-pro",
    "ollama": "ollama/qwen3",
}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


class RunningUpstream:
    """An `Upstream` on the event loop of its own thread, so that synchronous SDKs can use it."""

    def __init__(self, *script: Any, **options: Any) -> None:
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.upstream = self.run(self._open(script, options))

    async def _open(self, script: Any, options: Any) -> Upstream:
        return await Upstream(*script, **options).__aenter__()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(300)

    def close(self) -> None:
        self.run(self.upstream.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def running(*script: Any, **options: Any) -> Iterator[RunningUpstream]:
    server = RunningUpstream(*script, **options)
    try:
        yield server
    finally:
        server.close()


class SdkCallView(NamedTuple):
    id: str | None
    name: str
    arguments: dict[str, Any]


class SdkTurn(NamedTuple):
    """`history`: the turn as the SDK's user sends it back."""

    text: str
    calls: list[SdkCallView]
    history: list[Any]


class Driver:
    """One SDK. `mode` is "sync" or "async"; `options` are those of the transport."""

    leaves_connections = False  # of asynchronous streams, to the garbage collector

    def __init__(self, mode: str, model: str | None, *, retries: int = 0, timeout: float | None = None, **options: Any):
        self.is_async = mode == "async"
        self.model = "any" if model is not None else options.pop("request_model")
        self._runner = asyncio.Runner() if self.is_async else None
        self._timeout = timeout
        self.http = self.run_call(lambda: (async_transport if self.is_async else transport)(model, **options))
        self.client = self._open(retries)

    def _open(self, retries: int) -> Any:
        raise NotImplementedError

    def run_call(self, call: Callable[[], Any]) -> Any:
        """Call a method of the SDK; in the asynchronous mode on the event loop."""
        if self._runner is None:
            return call()

        async def work() -> Any:
            value = call()
            return await value if asyncio.iscoroutine(value) else value

        return self._runner.run(work())

    def collect(self, call: Callable[[], Any]) -> list[Any]:
        """Return all items of a stream."""
        return list(self.iterate(call))

    def iterate(self, call: Callable[[], Any]) -> Iterator[Any]:
        """Iterate over a stream; leaving the iteration closes it."""
        stream = self.run_call(call)
        if self._runner is None:
            try:
                yield from stream
            finally:
                stream.close()
            return
        has_ended = False
        try:
            while True:
                try:
                    item = self._runner.run(_next(stream))
                except StopAsyncIteration:
                    has_ended = True
                    return
                yield item
        finally:
            self._runner.run(_close(stream))
            del stream
            for _ in range(3 if self.leaves_connections and not has_ended else 0):
                self._runner.run(asyncio.sleep(0.01))
                gc.collect()
            self._runner.run(asyncio.sleep(0))

    def close(self) -> None:
        if self._runner is None:
            self.http.close()
        else:
            self._runner.run(self.http.aclose())
            self._runner.close()

    def list_models(self) -> list[str]:
        if not self.is_async:
            return [self.name_of(one) for one in self.client.models.list()]

        async def work() -> list[str]:
            listed = self.client.models.list()
            return [self.name_of(one) async for one in (await listed if asyncio.iscoroutine(listed) else listed)]

        return self.run_call(work)

    def name_of(self, model: Any) -> str:
        return model.id

    def ask(self, history: list[Any], tools: tuple[str, ...] = (), *, stream: bool = False) -> SdkTurn:
        raise NotImplementedError

    def user(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]


async def _next(stream: Any) -> Any:
    iterator = stream.__aiter__()
    try:
        return await iterator.__anext__()
    except StopAsyncIteration:
        raise _End from None


async def _close(stream: Any) -> None:
    await (stream.close() if hasattr(stream, "close") else stream.aclose())


class _End(StopAsyncIteration):
    pass


class OpenAIDriver(Driver):
    error: Any = openai.APIError

    def _open(self, retries: int) -> Any:
        kind = openai.AsyncOpenAI if self.is_async else openai.OpenAI
        timeout = openai.NOT_GIVEN if self._timeout is None else self._timeout
        return kind(http_client=self.http, api_key="unused", max_retries=retries, timeout=timeout)

    def unsupported(self) -> Any:
        return self.run_call(lambda: self.client.embeddings.create(model="m", input="x"))


class ChatDriver(OpenAIDriver):
    wire = "openai_chat"

    def request(self, history: list[Any], tools: tuple[str, ...] = (), **more: Any) -> Any:
        asked: dict[str, Any] = {"model": self.model, "messages": history, **more}
        if tools:
            function = [{"name": name, "description": "d", "parameters": SCHEMA} for name in tools]
            asked["tools"] = [{"type": "function", "function": one} for one in function]
        return self.client.chat.completions.create(**asked)

    def open_stream(self, history: list[Any]) -> Any:
        return self.request(history, stream=True)

    def text_of(self, chunk: Any) -> str:
        return (chunk.choices[0].delta.content or "") if chunk.choices else ""

    def ask(self, history: list[Any], tools: tuple[str, ...] = (), *, stream: bool = False) -> SdkTurn:
        if not stream:
            message = self.run_call(lambda: self.request(history, tools)).choices[0].message
            calls = [(one.id, one.function.name, one.function.arguments) for one in message.tool_calls or ()]
            text = message.content or ""
        else:
            text, pieces = "", {}
            for chunk in self.collect(lambda: self.request(history, tools, stream=True)):
                text += self.text_of(chunk)
                for one in (chunk.choices[0].delta.tool_calls or ()) if chunk.choices else ():
                    found = pieces.setdefault(one.index, ["", "", ""])
                    found[0] += one.id or ""
                    found[1] += one.function.name or ""
                    found[2] += one.function.arguments or ""
            calls = [tuple(one) for _, one in sorted(pieces.items())]
        said: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            said["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": raw}}
                for id_, name, raw in calls
            ]
        return SdkTurn(text, [SdkCallView(id_, name, json.loads(raw)) for id_, name, raw in calls], [said])

    def results(self, calls: list[SdkCallView], texts: list[str]) -> list[Any]:
        return [
            {"role": "tool", "tool_call_id": call.id, "content": text} for call, text in zip(calls, texts, strict=True)
        ]


class ResponsesDriver(OpenAIDriver):
    wire = "openai_responses"

    def request(self, history: Any, tools: tuple[str, ...] = (), **more: Any) -> Any:
        asked: dict[str, Any] = {"model": self.model, "input": history, **more}
        if tools:
            function = {"type": "function", "strict": False, "description": "d", "parameters": SCHEMA}
            asked["tools"] = [{**function, "name": name} for name in tools]
        return self.client.responses.create(**asked)

    def open_stream(self, history: list[Any]) -> Any:
        return self.request(history, stream=True)

    def text_of(self, event: Any) -> str:
        return event.delta if event.type == "response.output_text.delta" else ""

    def ask(self, history: list[Any], tools: tuple[str, ...] = (), *, stream: bool = False) -> SdkTurn:
        if stream:
            events = self.collect(lambda: self.request(history, tools, stream=True, store=False))
            response = events[-1].response
            assert "".join(self.text_of(event) for event in events) == response.output_text
        else:
            response = self.run_call(lambda: self.request(history, tools, store=False))
        calls = [item for item in response.output if item.type == "function_call"]
        views = [SdkCallView(item.call_id, item.name, json.loads(item.arguments)) for item in calls]
        return SdkTurn(response.output_text, views, [item.to_dict() for item in response.output])

    def results(self, calls: list[SdkCallView], texts: list[str]) -> list[Any]:
        return [
            {"type": "function_call_output", "call_id": call.id, "output": text}
            for call, text in zip(calls, texts, strict=True)
        ]


class MessagesDriver(Driver):
    wire = "anthropic"
    error: Any = anthropic.APIError

    def _open(self, retries: int) -> Any:
        kind = anthropic.AsyncAnthropic if self.is_async else anthropic.Anthropic
        timeout = anthropic.NOT_GIVEN if self._timeout is None else self._timeout
        return kind(http_client=self.http, api_key="unused", max_retries=retries, timeout=timeout)

    def request(self, history: list[Any], tools: tuple[str, ...] = (), **more: Any) -> Any:
        asked: dict[str, Any] = {"model": self.model, "max_tokens": 100, "messages": history, **more}
        if tools:
            asked["tools"] = [{"name": name, "description": "d", "input_schema": SCHEMA} for name in tools]
        return self.client.messages.create(**asked)

    def open_stream(self, history: list[Any]) -> Any:
        return self.request(history, stream=True)

    def text_of(self, event: Any) -> str:
        return event.delta.text if event.type == "content_block_delta" and event.delta.type == "text_delta" else ""

    def ask(self, history: list[Any], tools: tuple[str, ...] = (), *, stream: bool = False) -> SdkTurn:
        message = self._stream(history, tools) if stream else self.run_call(lambda: self.request(history, tools))
        calls = [
            SdkCallView(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"
        ]
        text = "".join(block.text for block in message.content if block.type == "text")
        return SdkTurn(text, calls, [{"role": "assistant", "content": message.content}])

    def _stream(self, history: list[Any], tools: tuple[str, ...]) -> Any:
        asked: dict[str, Any] = {"model": self.model, "max_tokens": 100, "messages": history}
        asked["tools"] = [{"name": name, "description": "d", "input_schema": SCHEMA} for name in tools]
        if not self.is_async:
            with self.client.messages.stream(**asked) as stream:
                return stream.get_final_message()

        async def work() -> Any:
            async with self.client.messages.stream(**asked) as stream:
                return await stream.get_final_message()

        return self.run_call(work)

    def results(self, calls: list[SdkCallView], texts: list[str]) -> list[Any]:
        content = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text}
            for call, text in zip(calls, texts, strict=True)
        ]
        return [{"role": "user", "content": content}]

    def unsupported(self) -> Any:
        return self.run_call(lambda: self.client.messages.count_tokens(model="m", messages=self.user("x")))


class GeminiDriver(Driver):
    wire = "gemini"
    leaves_connections = True
    error: Any = genai.errors.APIError

    def _open(self, retries: int) -> Any:
        # with both clients set, the SDK opens none of its own, which would read certificates
        other = (transport if self.is_async else async_transport)("ollama/unused")
        sync_http, async_http = (other, self.http) if self.is_async else (self.http, other)
        options: dict[str, Any] = {"httpx_client": sync_http, "httpx_async_client": async_http}
        if self._timeout is not None:
            options["timeout"] = int(self._timeout * 1000)
        if retries:
            options["retry_options"] = types.HttpRetryOptions(attempts=retries + 1, initial_delay=0.01)
        client = genai.Client(api_key="unused", http_options=types.HttpOptions(**options))
        return client.aio if self.is_async else client

    def user(self, text: str) -> list[Any]:
        return [types.Content(role="user", parts=[types.Part(text=text)])]

    def _arguments(self, history: list[Any], tools: tuple[str, ...]) -> dict[str, Any]:
        declared = [{"name": name, "description": "d", "parameters_json_schema": SCHEMA} for name in tools]
        config = types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=declared)] if tools else None,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        return {"model": self.model, "contents": history, "config": config}

    def request(self, history: list[Any], tools: tuple[str, ...] = ()) -> Any:
        return self.client.models.generate_content(**self._arguments(history, tools))

    def open_stream(self, history: list[Any], tools: tuple[str, ...] = ()) -> Any:
        return self.client.models.generate_content_stream(**self._arguments(history, tools))

    def text_of(self, chunk: Any) -> str:
        return "".join(part.text or "" for part in _parts(chunk) if not part.thought)

    def ask(self, history: list[Any], tools: tuple[str, ...] = (), *, stream: bool = False) -> SdkTurn:
        if stream:
            answers = self.collect(lambda: self.open_stream(history, tools))
        else:
            answers = [self.run_call(lambda: self.request(history, tools))]
        parts = [part for answer in answers for part in _parts(answer)]
        calls = [part.function_call for part in parts if part.function_call is not None]
        views = [SdkCallView(call.id, call.name, dict(call.args or {})) for call in calls]
        text = "".join(self.text_of(answer) for answer in answers)
        return SdkTurn(text, views, [types.Content(role="model", parts=parts)])

    def results(self, calls: list[SdkCallView], texts: list[str]) -> list[Any]:
        parts = [
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"result": text}))
            for call, text in zip(calls, texts, strict=True)
        ]
        return [types.Content(role="user", parts=parts)]

    def name_of(self, model: Any) -> str:
        return model.name.removeprefix("models/")

    def unsupported(self) -> Any:
        return self.run_call(lambda: self.client.models.count_tokens(model="m", contents="x"))


def _parts(answer: Any) -> list[Any]:
    content = answer.candidates[0].content if answer.candidates else None
    return list(content.parts or ()) if content is not None else []


DRIVERS: dict[str, Any] = {one.wire: one for one in (ChatDriver, ResponsesDriver, MessagesDriver, GeminiDriver)}


@contextmanager
def opened(sdk: str, mode: str, wire: str, server: RunningUpstream, **options: Any) -> Iterator[Any]:
    """Open an SDK with a transport to the scripted upstream on `wire`."""
    options = {"base_url": server.upstream.url, "key": "the-key", "wire": wire, **options}
    driver = DRIVERS[sdk](mode, MODELS[wire], **options)
    try:
        yield driver
    finally:
        driver.close()
