"""Greet a server over a link.

A server that neither answers `server/discover` nor rejects it gets `initialize` after a while. If the answer to the
first request still arrives (the server was only slow to start), it takes precedence, because such a server refuses
the second request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...ir.errors import ToolwireError
from ..protocol.rpc import Failure, Notification, Result, RpcRequest
from .link import Link
from .negotiation import ClientIdentity, NegotiatedProtocol, negotiate, read_late_discovery

__all__ = ["negotiate_over_link"]

_PROBE_TIMEOUT = 10.0


async def negotiate_over_link(
    link: Link, ids: Iterator[int], identity: ClientIdentity, protocol: str
) -> NegotiatedProtocol:
    """Return the version and the description of the server."""
    late_task: asyncio.Task[Result | Failure] | None = None
    tasks: list[asyncio.Task[Result | Failure]] = []
    steps = negotiate(ids, identity, protocol)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Notification):
                await link.send(step)
                step = steps.send(None)
                continue
            task = asyncio.create_task(_send_request(link, step))
            tasks.append(task)
            try:
                answer = await _first_answer(task, late_task, step)
            except TimeoutError as error:
                late_task = task
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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_request(link: Link, request: RpcRequest) -> Result | Failure:
    return await link.send_request(request)


async def _first_answer(
    task: asyncio.Task[Result | Failure], late_task: asyncio.Task[Result | Failure] | None, step: RpcRequest
) -> Result | Failure | NegotiatedProtocol:
    """Return the answer, or the greeting in a late answer to the earlier request."""
    if late_task is None:
        limit = _PROBE_TIMEOUT if step.method == "server/discover" else None
        done, _ = await asyncio.wait({task}, timeout=limit)
        if not done:
            raise TimeoutError
        return task.result()
    await asyncio.wait({task, late_task}, return_when=asyncio.FIRST_COMPLETED)
    if not late_task.done() and task.exception() is None and isinstance(task.result(), Failure):
        await asyncio.wait(
            {late_task}, timeout=_PROBE_TIMEOUT
        )  # refused, perhaps because the first request is still being served
    if late_task.done() and not late_task.cancelled() and late_task.exception() is None:
        greeting = read_late_discovery(late_task.result())
        if greeting is not None:
            return greeting
    return await task
