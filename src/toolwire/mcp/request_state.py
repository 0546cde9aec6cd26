"""The state that a server gives away and gets back: signed, for one request, one caller, and a while.

A stateless server that needs input forgets the call and lets the client bring back what was known so far. The client may be
anybody, so nothing in it is believed that was not signed here, for this very request.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

from ..ir.pointer import JSON, Object
from ..ir.text import to_bytes
from ..run.keys import canonical
from ..stream.strict import parse
from ..wire.mcp.errors import INVALID_PARAMS, RpcError

__all__ = ["RequestState"]


class RequestState:
    """Seals and opens states. Servers that share their `secret` understand each other's."""

    def __init__(self, secret: bytes, now: Callable[[], float], lifetime: float = 3600.0) -> None:
        self._secret = secret
        self._now = now
        self._lifetime = lifetime

    def seal(self, answers: Object, method: str, params: Object, principal: str) -> str:
        payload = {"answers": answers, "for": _digest(method, params, principal), "until": self._now() + self._lifetime}
        body = to_bytes(payload)
        return f"{_text(body)}.{_text(self._sign(body))}"

    def open(self, state: str, method: str, params: Object, principal: str) -> Object:
        """The answers so far; RpcError for anything that was not sealed for this request."""
        body, sign = _bytes(state.partition(".")[0]), _bytes(state.partition(".")[2])
        if not hmac.compare_digest(sign, self._sign(body)):
            raise _refused("it was not made here, or was changed on the way")
        payload: JSON = parse(body)
        if payload["for"] != _digest(method, params, principal):
            raise _refused("it belongs to another request")
        if payload["until"] < self._now():
            raise _refused("its time is over; make the call again from the beginning")
        answers: Object = payload["answers"]
        return answers

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, sha256)


def _digest(method: str, params: Object, principal: str) -> str:
    """What makes it the same request: what is asked, and by whom; neither the answers nor `_meta`."""
    asked = {key: params[key] for key in ("name", "uri", "arguments") if key in params}
    return sha256(canonical([method, principal, asked])).hexdigest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Nothing, where it is no base64: the signature does not fit then."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


def _refused(why: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"requestState is refused: {why}", pointer="/params/requestState")
