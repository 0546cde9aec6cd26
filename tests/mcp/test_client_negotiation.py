"""Finding out what a server speaks, without a server."""

import itertools

import pytest

from toolwire.ir.errors import ProtocolError
from toolwire.mcp.client.failures import NotAuthorized, ServerRefused
from toolwire.mcp.client.negotiation import ClientIdentity, negotiate, read_late_discovery
from toolwire.mcp.protocol.rpc import Failure, Notification, Result, RpcError, RpcRequest

ME = ClientIdentity({"name": "test"})
MODERN = {"supportedVersions": ["2026-07-28", "2999-01-01"], "capabilities": {"tools": {}}}
OLD = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old"}}


def run_negotiation(*answers, protocol="auto"):
    """(the greeting, what was said) where these are the answers, by method; an exception is thrown."""
    steps, said, left = negotiate(itertools.count(1), ME, protocol), [], list(answers)
    try:
        step = next(steps)
        while True:
            said.append(step)
            if isinstance(step, Notification):
                step = steps.send(None)
                continue
            answer = left.pop(0)
            if isinstance(answer, Exception):
                step = steps.throw(answer)
            else:
                step = steps.send(Result(step.id, answer) if isinstance(answer, dict) else Failure(step.id, *answer))
    except StopIteration as done:
        return done.value, [one.method for one in said], said


def test_stateless_discovery_is_tried_first():
    greeting, methods, (request,) = run_negotiation(MODERN)
    assert (greeting.version, methods) == ("2026-07-28", ["server/discover"])
    assert isinstance(request, RpcRequest)
    assert request.params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


@pytest.mark.parametrize(
    "first",
    [
        (-32601, "Method not found"),
        (-32600, "say initialize first"),
        (-32602, "Invalid request parameters"),
        TimeoutError(),
        ServerRefused("HTTP 400", http=400),
        ProtocolError("not JSON"),
    ],
)
def test_older_server_gets_the_initialize_handshake(first):
    greeting, methods, _ = run_negotiation(first, OLD)
    assert greeting.version == "2025-06-18"
    assert methods == ["server/discover", "initialize", "notifications/initialized"]


def test_unsupported_version_reply_selects_a_supported_version():
    refused = (-32022, "Unsupported", {"supported": ["2025-11-25"]})
    greeting, methods, said = run_negotiation(refused, OLD)
    assert methods == ["server/discover", "initialize", "notifications/initialized"]
    assert said[1].params["protocolVersion"] == "2025-11-25"
    assert greeting.card.info == {"name": "old"}
    greeting, methods, _ = run_negotiation((-32022, "Unsupported", {"supported": ["2026-07-28"]}), MODERN)
    assert methods == ["server/discover", "server/discover"]


@pytest.mark.parametrize(
    "first", [(-32022, "No", {"supported": ["2999-01-01"]}), (-32021, "No"), (-32020, "No"), NotAuthorized("No")]
)
def test_error_of_a_modern_server_is_final(first):
    with pytest.raises((RpcError, NotAuthorized), match="No"):
        run_negotiation(first)


def test_server_that_discovers_only_older_versions_is_initialized():
    greeting, methods, _ = run_negotiation(
        {"supportedVersions": ["2025-03-26"], "capabilities": {}}, {**OLD, "protocolVersion": "2025-03-26"}
    )
    assert (greeting.version, methods[1]) == ("2025-03-26", "initialize")


def test_unknown_protocol_version_is_rejected():
    with pytest.raises(ProtocolError, match="unsupported MCP version '1999-01-01'"):
        run_negotiation((-32601, "x"), {**OLD, "protocolVersion": "1999-01-01"})


def test_pinned_version_skips_discovery():
    assert run_negotiation(OLD, protocol="2025-06-18")[1] == ["initialize", "notifications/initialized"]
    with pytest.raises(RpcError):
        run_negotiation((-32601, "x"), protocol="2026-07-28")


def test_late_discovery_reply_is_read():
    assert read_late_discovery(Result(1, MODERN)).version == "2026-07-28"
    assert read_late_discovery(Failure(1, -32601, "x")) is None
