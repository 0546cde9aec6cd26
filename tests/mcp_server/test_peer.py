"""The protocol as a machine: a message in, what is to be done out. No loop, no socket."""

import pytest

from toolwire import Tool, tool
from toolwire.ir.errors import SchemaError
from toolwire.mcp.protocol.discovery import initialize_request
from toolwire.mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION, SUBSCRIPTION_ID
from toolwire.mcp.protocol.rpc import Failure, Notification, Result, RpcRequest
from toolwire.mcp.server.catalog import Catalog
from toolwire.mcp.server.offers import prompt, resource
from toolwire.mcp.server.protocol import (
    CancelRequest,
    OpenSubscription,
    ResolveReply,
    SendMessage,
    ServeRequest,
    ServerProtocol,
)
from toolwire.wire.mcp.versions import HANDSHAKE, LATEST

META = {PROTOCOL_VERSION: LATEST, CLIENT_CAPABILITIES: {}}
INFO = {"name": "s", "version": "1"}


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@resource("notes://today")
def today() -> str:
    """Notes."""
    return ""


@prompt
def review(code: str) -> str:
    """Review."""
    return code


def catalog(**more):
    return Catalog([add], [today], [review], info=INFO, **more)


def initialized_peer(version="2025-11-25", **capabilities):
    peer = ServerProtocol(catalog())
    peer.receive(initialize_request(0, {"name": "c"}, capabilities, version))
    return peer


def stateless(method, **params):
    return RpcRequest(1, method, {**params, "_meta": META})


def answer(peer, request):
    act = peer.receive(request)
    assert isinstance(act, SendMessage)
    return act.message


@pytest.mark.parametrize("version", HANDSHAKE)
def test_initialize_returns_the_requested_version(version):
    peer = ServerProtocol(catalog(instructions="be kind"))
    said = answer(peer, initialize_request(1, {"name": "c"}, {}, version)).result
    assert (said["protocolVersion"], said["instructions"], peer.version) == (version, "be kind", version)
    assert said["capabilities"].keys() == {"tools", "resources", "prompts", "completions", "logging", "experimental"}


def test_capabilities_list_only_available_features():
    bare = ServerProtocol(Catalog([add], info=INFO))
    assert bare.receive(stateless("server/discover")).message.result["capabilities"].keys() == {"tools", "experimental"}
    for method in ("resources/list", "prompts/list", "prompts/get", "completion/complete", "resources/read"):
        failed = bare.receive(stateless(method, name="x", uri="x"))
        assert (failed.message.code, failed.status) == (-32601, 404)


def test_stateless_request_needs_no_handshake_and_keeps_no_state():
    peer = ServerProtocol(catalog())
    assert isinstance(peer.receive(stateless("tools/call", name="add")), ServeRequest)
    assert peer.initialize_params is None
    assert answer(peer, RpcRequest(2, "tools/list")).code == -32600


def test_methods_removed_in_2026_are_served_only_to_older_versions():
    peer = initialized_peer()
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        assert answer(peer, stateless(method, uri="x", level="info")).code == -32601
    assert answer(peer, RpcRequest(1, "ping")) == Result(1, {})
    assert answer(peer, RpcRequest(1, "server/discover")).code == -32601


def test_list_fields_follow_the_protocol_version():
    new = answer(ServerProtocol(catalog()), stateless("tools/list")).result
    old = answer(initialized_peer("2024-11-05"), RpcRequest(1, "tools/list")).result
    assert (new["resultType"], new["cacheScope"]) == ("complete", "private")
    assert new["tools"][0]["annotations"]["readOnlyHint"] is True
    assert old.keys() == {"tools"}
    assert "annotations" not in old["tools"][0]


def test_long_lists_are_paginated():
    every = [Tool(f"t{number}") for number in range(1201)]
    peer = ServerProtocol(Catalog(every, info=INFO))
    names, cursor = [], None
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        page = answer(peer, stateless("tools/list", **params)).result
        names += [one["name"] for one in page["tools"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert names == [one.name for one in every]
    for cursor in ("x", "-1", "9999", 5):
        assert answer(peer, stateless("tools/list", cursor=cursor)).code == -32602


def test_log_level_and_subscriptions_are_kept_per_conversation():
    peer = initialized_peer()
    assert answer(peer, RpcRequest(1, "logging/setLevel", {"level": "error"})).result == {}
    assert peer.log_level == "error"
    assert answer(peer, RpcRequest(1, "logging/setLevel", {"level": "loud"})).code == -32602
    assert answer(peer, RpcRequest(1, "resources/subscribe", {"uri": "notes://today"})).result == {}
    assert peer.subscribed_uris == {"notes://today"}
    assert answer(peer, RpcRequest(1, "resources/unsubscribe", {"uri": "notes://today"})).result == {}
    assert peer.subscribed_uris == set()
    assert answer(peer, RpcRequest(1, "resources/subscribe", {})).code == -32602


def test_subscription_is_limited_to_requested_and_available_notifications():
    asked = {
        "toolsListChanged": True,
        "promptsListChanged": False,
        "resourceSubscriptions": ["notes://today", 7],
        "x": True,
    }
    listen = ServerProtocol(catalog()).receive(stateless("subscriptions/listen", notifications=asked))
    assert isinstance(listen, OpenSubscription)
    assert listen.notifications == {"toolsListChanged": True, "resourceSubscriptions": ["notes://today"]}
    assert listen.acknowledgement.params["_meta"] == {SUBSCRIPTION_ID: 1}
    assert listen.tag(Notification("x", {"uri": "u"})).params == {"uri": "u", "_meta": {SUBSCRIPTION_ID: 1}}
    assert listen.end_result(INFO).result["_meta"][SUBSCRIPTION_ID] == 1
    bare = ServerProtocol(Catalog([add], info=INFO)).receive(stateless("subscriptions/listen", notifications=asked))
    assert bare.notifications == {"toolsListChanged": True}
    assert answer(ServerProtocol(catalog()), stateless("subscriptions/listen")).code == -32602


def test_cancellations_and_answers_are_handled_and_other_messages_ignored():
    peer = initialized_peer()
    assert peer.receive(Notification("notifications/cancelled", {"requestId": "a"})) == CancelRequest("a")
    for ignored in (
        Notification("notifications/cancelled"),
        Notification("notifications/initialized"),
        Notification("x"),
    ):
        assert peer.receive(ignored) is None
    for message in (Result(1, {}), Failure(1, -1, "no")):
        assert peer.receive(message) == ResolveReply(message)


def test_invalid_header_mark_is_rejected_when_the_catalog_is_built():
    bad = Tool("t", input_schema={"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}})
    with pytest.raises(SchemaError, match="x-mcp-header"):
        Catalog([bad], info=INFO)
