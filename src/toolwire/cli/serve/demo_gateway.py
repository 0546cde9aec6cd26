"""`toolwire demo --serve`: ask a real model through the gateway in four protocols; the tool runs in this process."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ...ir.pointer import JSON
from ...ir.request import Message, Params, Request
from ...ir.response import Response, UpstreamError
from ..terminal.output import paint, table

if TYPE_CHECKING:
    from ...gateway.config.settings import Settings
    from ...net.http.client import HttpTransport
    from ...net.tools.runner import Runner


_INGRESSES = ("openai_chat", "openai_responses", "anthropic", "gemini")
_PROMPT = "What is the weather in Paris?"
_MODEL = "smollm2"
_TIMEOUT = 300.0  # seconds; long, because a busy machine is slow


class DemoAnswer(NamedTuple):
    """One conversation: the model's call, its result and the final answer."""

    ingress: str
    path: str
    call: str
    result: str
    text: str
    seconds: float


def demo_settings() -> Settings:
    """Return settings that map every model name to the model in this process."""
    from ...gateway.config.settings import ModelRow, Settings, UpstreamRow

    row = ModelRow("local", _MODEL)
    return Settings(upstreams={"local": UpstreamRow("local")}, models={_MODEL: row, f"local/{_MODEL}": row, "*": row})


async def serve_and_ask() -> int:
    """Run the demonstration; then keep the gateway running, unless DEMO_ONCE is set. Return 130 after an interrupt."""
    from ...gateway.app import Gateway
    from ...gateway.processes.server import bind, serve
    from ...local import open_model
    from .client_models import client_commands, list_models

    class DemoGateway(Gateway):
        def drain(self) -> None:
            """Abandon the request in flight, whose answer may take many seconds and would not be printed."""
            super().drain()
            asking.cancel()

    open_model()
    settings = demo_settings()
    gateway = DemoGateway(settings)
    listener = bind(settings)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    is_up = asyncio.Event()
    serving = asyncio.ensure_future(serve(gateway, settings, listener, ready=is_up.set))
    asking = asyncio.ensure_future(_ask_when_up(url, is_up))
    if not await _finish_asking(asking, serving):
        print()
        return 130
    if os.environ.get("DEMO_ONCE"):
        _stop_gateway()
        await serving
        return 0
    print("\nThe gateway keeps running (Ctrl-C stops it). These clients can use it:\n")
    print("\n".join(client_commands(url, list_models(settings))), flush=True)
    await serving
    return 0


async def _finish_asking(asking: asyncio.Task[None], serving: asyncio.Future[None]) -> bool:
    """Wait for the answers, and return True.

    If an interrupt ends them, wait for the gateway and return False; another error stops the gateway and is raised.
    """
    await asyncio.wait({asking, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        asking.cancel()
    try:
        await asking
    except (asyncio.CancelledError, ConnectionError):  # the gateway in this process is stopping
        await serving
        return False
    except BaseException:
        _stop_gateway()
        await serving
        raise
    return True


async def _ask_when_up(url: str, is_up: asyncio.Event) -> None:
    """Ask as soon as the gateway accepts connections."""
    await is_up.wait()
    print(f"{paint('SmolLM2-135M', 'bold')} in this process, gateway at {paint(url, 'green')}: no key, no network\n")
    await _ask_all(url)


def _stop_gateway() -> None:
    signal.raise_signal(signal.SIGTERM)  # the gateway has a handler for it


async def _ask_all(url: str) -> None:
    """Run the same conversation through each protocol of the gateway, and print progress and a table of the answers."""
    from ...net.http.client import HttpTransport
    from ...net.tools.runner import Runner
    from ...run.tools.function_tool import tool

    @tool(effect="read")
    def get_weather(city: str) -> str:
        """Get the current weather of a city."""
        return f"{city}: sunny, 21 degrees"

    runner, transport = Runner(get_weather), HttpTransport(environment={})
    talks = []
    async with aclosing(transport):
        for ingress in _INGRESSES:
            began = perf_counter()
            print(f"  asking through {ingress} …", end="", flush=True)
            path, call, result, text = await _run_conversation(url, ingress, runner, transport)
            talks.append(DemoAnswer(ingress, path, call, result, text, perf_counter() - began))
            print(f" {talks[-1].seconds:.1f} s", flush=True)
    runner.close()
    print()
    headers = ("protocol", "endpoint", "call", "result", "seconds", "answer")
    rows = [(row.ingress, row.path, row.call, row.result, f"{row.seconds:.1f}", row.text) for row in talks]
    print("\n".join(table(rows, headers)))


async def _run_conversation(
    url: str, ingress: str, runner: Runner, transport: HttpTransport
) -> tuple[str, str, str, str]:
    """Ask for a call, run the tool here, and send its result back. Return path, calls, results and the final text."""
    from ...ir.parts import Text

    request = Request(_MODEL, (Message("user", (Text(_PROMPT),)),), runner.box.tools, params=Params(max_tokens=40))
    path, response = await _ask(url, ingress, request, transport)
    results = await runner.run(response.calls, run_id=ingress)
    said = (Message("assistant", response.parts), Message("user", tuple(results)))
    _, answer = await _ask(url, ingress, replace(request, messages=(*request.messages, *said)), transport)
    called = ", ".join(f"{call.name}({call.text})" for call in response.calls) or "nothing"
    return path, called, ", ".join(result.text for result in results), " ".join(answer.text.split())


async def _ask(url: str, ingress: str, request: Request, transport: HttpTransport) -> tuple[str, Response]:
    """Send the request as a client of this protocol would; return the path and the answer.

    Raises `UpstreamError` unless the status is 200.
    """
    from ...ir.text import to_bytes
    from ...stream.strict import parse_object
    from ...wire import get

    wire = get(ingress)
    path = wire.path(request.model, stream=False)
    path = path if path.startswith("/v1") else f"/v1{path}"
    body = to_bytes(wire.encode_request(request).body)
    headers = {"content-type": "application/json", **wire.headers}
    async with transport.post(url + path, headers, {}, body, _TIMEOUT) as reply:
        data = b""
        while piece := await reply.read():
            data += piece
    document: JSON = parse_object(data)
    if reply.status != 200:
        raise UpstreamError(wire.decode_error(reply.status, document))
    return path, wire.decode_response(document)
