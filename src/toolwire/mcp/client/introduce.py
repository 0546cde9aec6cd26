"""Greet a server over a link.

A server that neither answers `server/discover` nor rejects it gets `initialize` after a while. If the answer to the
first request still arrives (the server was only slow to start), it takes precedence, because such a server refuses
the second request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...ir.errors import ToolwireError
from ...wire.mcp.rpc import Failure, Notification, Request, Result
from .greeting import Greeting, Me, discovered, greet
from .link import Link

__all__ = ["introduce"]

_PROBE = 10.0


async def introduce(link: Link, ids: Iterator[int], me: Me, protocol: str) -> Greeting:
    """Return the version and the description of the server."""
    late: asyncio.Task[Result | Failure] | None = None
    asked: list[asyncio.Task[Result | Failure]] = []
    steps = greet(ids, me, protocol)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Notification):
                await link.tell(step)
                step = steps.send(None)
                continue
            asking = asyncio.create_task(_ask(link, step))
            asked.append(asking)
            try:
                answer = await _first(asking, late, step)
            except TimeoutError as error:
                late = asking
                step = steps.throw(error)
            except ToolwireError as error:
                step = steps.throw(error)
            else:
                if isinstance(answer, Greeting):
                    return answer
                step = steps.send(answer)
    except StopIteration as done:
        greeting: Greeting = done.value
        return greeting
    finally:
        for asking in asked:
            asking.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _ask(link: Link, request: Request) -> Result | Failure:
    return await link.ask(request)


async def _first(
    asking: asyncio.Task[Result | Failure], late: asyncio.Task[Result | Failure] | None, step: Request
) -> Result | Failure | Greeting:
    """Return the answer, or the greeting in a late answer to the earlier request."""
    if late is None:
        limit = _PROBE if step.method == "server/discover" else None
        done, _ = await asyncio.wait({asking}, timeout=limit)
        if not done:
            raise TimeoutError
        return asking.result()
    await asyncio.wait({asking, late}, return_when=asyncio.FIRST_COMPLETED)
    if not late.done() and asking.exception() is None and isinstance(asking.result(), Failure):
        await asyncio.wait({late}, timeout=_PROBE)  # refused, perhaps because the first request is still being served
    if late.done() and not late.cancelled() and late.exception() is None:
        greeting = discovered(late.result())
        if greeting is not None:
            return greeting
    return await asking
