"""Greet a server over a link.

A server that neither answers `server/discover` nor rejects it gets `initialize` after a while. If the answer to the
first request still arrives (the server was only slow to start), it takes precedence, because such a server refuses
the second request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...ir.errors import ToolwireError
from ...wire.mcp.rpc import Failure, Notification, Result, RpcRequest
from .greeting import ClientIdentity, NegotiatedProtocol, negotiate, read_late_discovery
from .link import Link

__all__ = ["negotiate_over_link"]

_PROBE = 10.0


async def negotiate_over_link(link: Link, ids: Iterator[int], me: ClientIdentity, protocol: str) -> NegotiatedProtocol:
    """Return the version and the description of the server."""
    late: asyncio.Task[Result | Failure] | None = None
    asked: list[asyncio.Task[Result | Failure]] = []
    steps = negotiate(ids, me, protocol)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Notification):
                await link.send(step)
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
                if isinstance(answer, NegotiatedProtocol):
                    return answer
                step = steps.send(answer)
    except StopIteration as done:
        greeting: NegotiatedProtocol = done.value
        return greeting
    finally:
        for asking in asked:
            asking.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _ask(link: Link, request: RpcRequest) -> Result | Failure:
    return await link.send_request(request)


async def _first(
    asking: asyncio.Task[Result | Failure], late: asyncio.Task[Result | Failure] | None, step: RpcRequest
) -> Result | Failure | NegotiatedProtocol:
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
        greeting = read_late_discovery(late.result())
        if greeting is not None:
            return greeting
    return await asking
