"""The state that a server hands to its client and gets back: signed, bound to one request and one caller, with an
expiry.

A stateless server that needs input forgets the call, and the client sends the known answers back with the next
attempt. The client is not trusted, so a state is only accepted if this server signed it for the same request.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

from ...ir.pointer import JSON, Object
from ...ir.text import to_bytes
from ...run.values.keys import canonical_json
from ...stream.strict import parse
from ..protocol.errors import INVALID_PARAMS, RpcError

__all__ = ["RequestState"]


class RequestState:
    """Seal and open states. Servers with the same `secret` accept each other's states."""

    def __init__(self, secret: bytes, now: Callable[[], float], lifetime: float = 3600.0) -> None:
        self._secret = secret
        self._now = now
        self._lifetime = lifetime

    def seal(self, answers: Object, method: str, params: Object, principal: str) -> str:
        """Return the signed state: the answers so far, a digest of the request and its caller, and the expiry."""
        payload = {
            "answers": answers,
            "for": _request_digest(method, params, principal),
            "until": self._now() + self._lifetime,
        }
        body = to_bytes(payload)
        return f"{_encode_base64(body)}.{_encode_base64(self._sign(body))}"

    def open(self, state: str, method: str, params: Object, principal: str) -> Object:
        """Return the answers so far. Raise RpcError for a state that was not sealed for this request."""
        body, signature = _decode_base64(state.partition(".")[0]), _decode_base64(state.partition(".")[2])
        if not hmac.compare_digest(signature, self._sign(body)):
            raise _refusal("its signature is invalid")
        payload: JSON = parse(body)
        if payload["for"] != _request_digest(method, params, principal):
            raise _refusal("it belongs to another request")
        if payload["until"] < self._now():
            raise _refusal("it has expired; start the call again")
        answers: Object = payload["answers"]
        return answers

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, sha256)


def _request_digest(method: str, params: Object, principal: str) -> str:
    """Identify a request by its content and its caller. The answers and `_meta` are not part of it."""
    identity = {key: params[key] for key in ("name", "uri", "arguments") if key in params}
    return sha256(canonical_json([method, principal, identity])).hexdigest()


def _encode_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decode_base64(text: str) -> bytes:
    """Decode base64. Invalid input gives empty bytes, for which the signature check fails."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


def _refusal(reason: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"requestState is refused: {reason}", pointer="/params/requestState")
