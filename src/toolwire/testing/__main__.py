"""`python -m toolwire.testing`: a model provider for the shell, whose answers are given on the command line."""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import sys
from collections.abc import Sequence
from itertools import cycle

from ..ir.parts import Text
from ..ir.request import Request
from ..ir.response import Fault, FaultKind, Response, Stop
from ..ir.terminal import neutralise_line
from .upstream import PartialReply, ScriptedReply, Upstream

_HELP = """\
Serve every wire on the loopback interface, with the same answers for everyone: no model, no key.

REPLY: a text; a status such as 429, or 429:20 with `retry-after: 20`; cut (the connection closes after 20 bytes) or
stall (no byte). Each request gets the next reply; after the last one they start again. A line is printed per request.

examples:
  python -m toolwire.testing --port 4201 429 503 Hello
  python -m toolwire.testing --port 4202 --delay 5 "A slow answer."
"""
_STATUS = re.compile(r"([45][0-9]{2})(?::([0-9]{1,5}))?").fullmatch
_KINDS: dict[int, FaultKind] = {
    400: "invalid_request",
    401: "authentication",
    403: "permission",
    404: "not_found",
    429: "rate_limit",
    529: "overloaded",
}
_CUT = 20  # bytes: in the middle of the first event, and of a short body


def read_reply(text: str) -> ScriptedReply:
    """Return the reply that an argument describes.

    >>> read_reply("429:20").retry_after, read_reply("Hello").parts[0].text
    (20.0, 'Hello')
    """
    match = _STATUS(text)
    if match is not None:
        status = int(match[1])
        kind = _KINDS.get(status, "invalid_request" if status < 500 else "server")
        return Fault(kind, f"scripted {status}", status, retry_after=None if match[2] is None else float(match[2]))
    if text in ("cut", "stall"):
        answer = Response(parts=(Text("This answer is incomplete."),), stop=Stop("stop"))
        return PartialReply(answer, _CUT) if text == "cut" else PartialReply(answer, None, "stall")
    return Response(parts=(Text(text),), stop=Stop("stop"))


async def serve(texts: Sequence[str], *, port: int, delay: float) -> None:
    """Answer requests until cancelled."""
    replies = cycle([(text, read_reply(text)) for text in texts])

    def answer(request: Request) -> ScriptedReply:
        text, reply = next(replies)
        upstream.script.append(answer)
        print(neutralise_line(f"{request.model}: {text}"), flush=True)
        return reply

    upstream = Upstream(answer, port=port, delay=delay, answers_probes=True)
    async with upstream:
        print(f"listening on {upstream.url}", flush=True)
        while True:  # nothing reads the recorded requests, and a server for a shell may run for days
            await upstream.wait_for_requests(within=math.inf)
            upstream.requests.clear()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server. Return 130 after Ctrl-C, and 2 if the port cannot be used."""
    parser = argparse.ArgumentParser(
        "python -m toolwire.testing", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "replies", metavar="REPLY", nargs="*", default=["Hello."], help="the answers, in order (Hello.)"
    )
    parser.add_argument("--port", type=int, default=0, help="a free one by default")
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="before each answer (0)")
    given = parser.parse_args(arguments)
    if not 0 <= given.port <= 65535:
        parser.error(f"--port must be 0 to 65535, got {given.port}")
    if not 0 <= given.delay < math.inf:
        parser.error(f"--delay must be a number of seconds, not negative, got {given.delay}")
    try:
        asyncio.run(serve(given.replies, port=given.port, delay=given.delay))
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"cannot listen on port {given.port}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
