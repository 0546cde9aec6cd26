"""`_meta`: the metadata of a request.

In the stateless era every request must state its version and the capabilities of its client. In both eras it may ask
for progress, carry a trace (W3C), and carry the key under which a call runs at most once. The protocol has no such
key: a broken stream loses its call, and the client must send it again. With the key the server recognises the second
request as a repetition of the first.
"""

from __future__ import annotations

from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...stream.strict import type_label
from .rpc import INVALID_PARAMS, RpcError

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
PROGRESS_TOKEN = "progressToken"  # noqa: S105  # no password
IDEMPOTENCY_KEY = "dev.toolwire/idempotencyKey"
IDEMPOTENCY = "dev.toolwire/idempotency"
"""An experimental capability: the server runs a call with such a key at most once, so it may be sent again."""
_TRACE = ("traceparent", "tracestate", "baggage")
_KNOWN = frozenset(
    {PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL, PROGRESS_TOKEN, IDEMPOTENCY_KEY, *_TRACE}
)


class TraceContext(Value, frozen=True):
    """The trace context of a request, in W3C format."""

    parent: str
    state: str | None = None
    baggage: str | None = None


class Meta(Value, frozen=True):
    """`version` is None in requests of the handshake era. `rest` holds unknown keys, which are passed through."""

    version: str | None = None
    client: Object | None = None
    capabilities: Object | None = None
    log_level: str | None = None
    progress_token: str | int | None = None
    trace: TraceContext | None = None
    idempotency_key: str | None = None
    rest: Object = {}


_EMPTY = Meta()


def read_meta(params: Object) -> Meta:
    """Read the `_meta` of a request's params. Raise RpcError if a required field is missing or malformed."""
    raw = params.get("_meta")
    if raw is None:
        return _EMPTY
    if type(raw) is not dict:
        raise _meta_error("_meta", "an object", raw)
    version, capabilities = raw.get(PROTOCOL_VERSION), raw.get(CLIENT_CAPABILITIES)
    if version is not None:
        if type(version) is not str:
            raise _meta_error(PROTOCOL_VERSION, "a string", version)
        if type(capabilities) is not dict:
            raise _meta_error(CLIENT_CAPABILITIES, "an object", capabilities)
    token = raw.get(PROGRESS_TOKEN)
    if token is not None and type(token) is not str and type(token) is not int:
        raise _meta_error(PROGRESS_TOKEN, "a string or an integer", token)
    client = raw.get(CLIENT_INFO)
    return Meta(
        version,
        client if type(client) is dict else None,
        capabilities if type(capabilities) is dict else None,
        _read_string(raw, LOG_LEVEL) if LOG_LEVEL in raw else None,
        token,
        _read_trace(raw) if "traceparent" in raw else None,
        _read_string(raw, IDEMPOTENCY_KEY) if IDEMPOTENCY_KEY in raw else None,
        {} if _KNOWN.issuperset(raw) else {key: value for key, value in raw.items() if key not in _KNOWN},
    )


def _read_string(raw: Object, key: str) -> str | None:
    value = raw.get(key)
    if value is None or type(value) is str:
        return value
    raise _meta_error(key, "a string", value)


def _read_trace(raw: Object) -> TraceContext | None:
    parent = _read_string(raw, "traceparent")
    return (
        None if parent is None else TraceContext(parent, _read_string(raw, "tracestate"), _read_string(raw, "baggage"))
    )


def _meta_error(key: str, expected: str, value: JSON) -> RpcError:
    problem = f"{key} is missing" if value is None else f"{key} must be {expected}, got {type_label(value)}"
    return RpcError(INVALID_PARAMS, f"_meta: {problem}", status=400)


def with_meta(params: Object, meta: Meta) -> Object:
    """Return the params with their `_meta`, or unchanged if it is empty."""
    out: Object = dict(meta.rest)
    fields = (
        (PROTOCOL_VERSION, meta.version),
        (CLIENT_INFO, meta.client),
        (CLIENT_CAPABILITIES, meta.capabilities),
        (LOG_LEVEL, meta.log_level),
        (PROGRESS_TOKEN, meta.progress_token),
        (IDEMPOTENCY_KEY, meta.idempotency_key),
    )
    out.update((key, value) for key, value in fields if value is not None)
    if meta.trace is not None:
        values = zip(_TRACE, (meta.trace.parent, meta.trace.state, meta.trace.baggage), strict=True)
        out.update((key, value) for key, value in values if value is not None)
    return {**params, "_meta": out} if out else params
