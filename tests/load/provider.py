"""A provider in a process of its own, which does what the user's words ask of it. Prints its address.

The words are `TOKEN HOW`: the token is in every answer, so that an answer to somebody else's question is seen.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from toolwire import Request, Response, Text, ToolCall
from toolwire.ir.parts import Artefact, Reasoning
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.testing import PartialReply, RawReply, Upstream

USAGE = Usage(10, 20)
GARBAGE = b"data: {\xff\x00 not json\n\n<html>502</html>\n"


def answer(request: Request) -> object:
    token, how = _user_text(request).split(" ")[:2]
    if how == "signed":
        return _signed_answer(request, token)
    words = Response(parts=(Text(f"{token} says that it rains. " * 20),), stop=Stop("stop"), usage=USAGE)
    if how == "call":
        call = ToolCall(f"call-{token}", "get_weather", {"city": token})
        return Response(parts=(call,), stop=Stop("tool_calls"), usage=USAGE)
    if how in ("stall", "cut", "reset"):
        return PartialReply(words, 700, how)
    if how == "silent":
        return PartialReply(words, None, "stall")
    if how == "garbage":
        return RawReply(
            GARBAGE, headers={"content-type": "text/event-stream" if request.stream else "application/json"}
        )
    if how == "limited":
        return Fault("rate_limit", f"{token} is too much", 429, retry_after=1.0)
    if how == "failing":
        return Fault("server", f"{token} went wrong", 500)
    if how == "brief":
        return Response(parts=(Text(f"{token} " * 5),), stop=Stop("stop"))
    return words


def _signed_answer(request: Request, token: str) -> Response:
    """A signed turn with a call; after its result, whether the turn came back with its signature."""
    signature = f"c2lnbmVk{token.removeprefix('token-')}"
    if len(request.messages) == 1:
        thought = Reasoning(f"{token}?", artefacts=(Artefact("anthropic", "signature", signature),))
        call = ToolCall(f"call-{token}", "get_weather", {"city": token})
        return Response(parts=(thought, call), stop=Stop("tool_calls"), usage=USAGE)
    parts = [part for message in request.messages for part in message.parts if isinstance(part, Reasoning)]
    is_kept = any(item.data == signature for part in parts for item in part.artefacts)
    return Response(parts=(Text(f"{token} {'kept' if is_kept else 'lost'}"),), stop=Stop("stop"), usage=USAGE)


def _user_text(request: Request) -> str:
    return next(part.text for message in request.messages for part in message.parts if isinstance(part, Text))


class Endless(list):
    """A script that is never over."""

    def __bool__(self) -> bool:
        return True

    def pop(self, _: int = 0) -> object:
        return answer


class Provider(Upstream):
    async def _answer(self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        del self.requests[:-10]
        if b" late" in body:
            await asyncio.sleep(0.8)
        return await super()._answer(path, headers, body, writer)


async def main(pace: float) -> None:
    provider = Provider(piece=256, delta=64, pace=pace)
    provider.script = Endless()
    async with provider:
        print(provider.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1])))
