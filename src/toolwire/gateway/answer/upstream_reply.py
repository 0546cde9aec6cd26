"""Send a request to an upstream with its key.

Separate because the key and its renewal do not depend on how the answer is relayed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from ...net.http import Reply
from .outbound import OutboundRequest
from .routing import Target

__all__ = ["open_reply"]

_UNAUTHORISED = 401


@asynccontextmanager
async def open_reply(
    target: Target, out: OutboundRequest, headers: Mapping[str, str], *, stream: bool, remaining: Callable[[], float]
) -> AsyncIterator[Reply]:
    """Open the reply to a request, within the `remaining` seconds.

    A key from a command may have been revoked before its expiry, so after a 401 the command runs again, once.
    """
    endpoint, upstream = out.endpoint, target.upstream
    url = endpoint.url(stream=stream)
    for may_renew_key in (True, False):
        secrets = await endpoint.authorise()
        seconds = min(remaining(), upstream.row.timeout)
        async with upstream.transport.post(url, headers, secrets, out.body, seconds) as reply:
            if not (may_renew_key and reply.status == _UNAUTHORISED and endpoint.drop_key(secrets)):
                yield reply
                return
