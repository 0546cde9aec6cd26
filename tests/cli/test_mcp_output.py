"""Output of `toolwire mcp inspect`, `call` and `--traffic`: bounded, neutralised, without secrets."""

import sys
from base64 import b64encode

import pytest

from toolwire.cli.mcp.call import PartPrinter, print_result
from toolwire.cli.mcp.traffic import TrafficLog
from toolwire.cli.sources.listing import Listing
from toolwire.ir.parts import Media, Text, ToolResult
from toolwire.ir.tools import Tool
from toolwire.mcp import ServerSpec
from toolwire.mcp.client.link import TrafficEvent
from toolwire.mcp.protocol.rpc import Failure, Notification, Result, RpcRequest

HOSTILE = "\x1b[2J\u202egnp"
WIDE = {"type": "object", "properties": {f"p{number}": {"description": "d" * 5000} for number in range(500)}}
TOOLS = [Tool(f"t{number}{HOSTILE}", "x" * 100_000, WIDE) for number in range(200)]


def test_listing_of_a_huge_server_is_cut_unless_all_is_given(capsys):
    listing = Listing(show_all=False)
    listing.print_tools(TOOLS)
    listing.print_resources([{"uri": f"u://{number}" + "y" * 10_000} for number in range(5000)])
    listing.print_prompts([{"name": "p", "arguments": [{"name": str(number)} for number in range(5000)]}])
    out = capsys.readouterr().out
    assert len(out) < 200_000
    assert len(out.splitlines()) < 1000
    assert out.startswith("the first 50 of 200 tools; --all shows them\n")
    assert " more tools; --all shows them" in out
    assert "the first 50 of 5,000 resources; --all shows them" in out
    assert "the first 30 of 5,000 arguments; --all shows them" in out
    assert "(100,000 characters; --all shows them)" in out
    assert "… more than 30 parameters; --all shows them" in out
    assert "\x1b" not in out and "\u202e" not in out
    Listing(show_all=True).print_tools(TOOLS[:1])
    assert "x" * 100_000 in capsys.readouterr().out


@pytest.mark.finding("SE12")
def test_characters_without_width_in_names_are_shown(capsys):
    hidden = "\u200b\u2060\u200d\ufe0f"
    listing = Listing(show_all=False)
    listing.print_tools([Tool(f"pay{hidden}", "Pay.", {"type": "object", "properties": {f"amount{hidden}": {}}})])
    listing.print_resources([{"uri": f"u://x{hidden}", "name": f"x{hidden}"}])
    listing.print_prompts([{"name": f"ask{hidden}", "arguments": [{"name": f"topic{hidden}"}]}])
    out = capsys.readouterr().out
    assert not set(hidden) & set(out)
    for name in ("pay", "amount", "x", "ask", "topic"):
        assert rf"{name}\u200b\u2060\u200d\ufe0f" in out


def test_hints_and_titles_of_the_server_are_shown(capsys):
    annotations = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": True}
    tool = Tool("look", "Look.", {"type": "object"}, extra={"mcp": {"title": "Look it up", "annotations": annotations}})
    Listing(show_all=False).print_tools([tool])
    assert capsys.readouterr().out == "look  “Look it up”, read-only, not destructive, open world\n    Look.\n"


def traffic(spec, **options):
    log = TrafficLog(show=True, **options)
    log.add_servers([spec])
    return log


def test_traffic_shows_direction_method_and_latency_without_secrets(capsys, monkeypatch):
    monkeypatch.setenv("WIKI_API_KEY", "environment-secret")
    log = traffic(ServerSpec("s", url="https://h.example/", headers={"Authorization": "Bearer topsecretvalue"}))
    params = {"name": "add", "arguments": {"a": 1, "password": "hunter2hunter2", "b": "environment-secret"}}
    log("s", TrafficEvent("sent", RpcRequest(7, "tools/call", params), {"authorization": "[removed]"}))
    log("s", TrafficEvent("received", Notification("notifications/progress", {"progressToken": 7, "progress": 1})))
    log("s", TrafficEvent("received", Result(7, {"text": f"topsecretvalue {HOSTILE}"})))
    log("s", TrafficEvent("received", Failure(8, -32601, "no"), status=404))
    err = capsys.readouterr().err
    sent, headers, progress, answer, failure = err.splitlines()
    assert " s → #7 tools/call add {" in sent
    assert headers.strip() == "authorization: [removed]"
    assert " s ← notifications/progress " in progress and '"progressToken":7' in progress
    assert " s ← #7 tools/call add, " in answer and " ms {" in answer
    assert " s ← #8 HTTP 404 {" in failure
    for secret in ("hunter2", "environment-secret", "topsecretvalue", "\x1b", "\u202e"):
        assert secret not in err
    assert [(one.method, one.name) for one in log.latencies] == [("tools/call", "add")]


def test_long_and_many_messages_are_cut(capsys):
    log = traffic(ServerSpec("s", command="c"))
    for _ in range(1500):
        log("s", TrafficEvent("received", Notification("notifications/message", {"data": "z z" * 5000})))
    err = capsys.readouterr().err
    assert "--all shows them)" in err.splitlines()[0]
    assert err.splitlines()[-1] == "… more than 1000 messages; --all shows them"
    assert len(err.splitlines()) == 1001


def test_latency_has_connect_lists_and_calls():
    log = TrafficLog()
    for number, method in enumerate(("server/discover", "initialize", "tools/list", "tools/list")):
        log("s", TrafficEvent("sent", RpcRequest(number, method)))
        log("s", TrafficEvent("received", Result(number, {})))
    assert log.summary("s").startswith("connect ")
    assert "tools/list" in log.summary("s") and "(2 requests)" in log.summary("s")
    found = log.as_json("s")
    assert found["connect_ms"] >= 0
    assert [one["method"] for one in found["requests"]] == ["server/discover", "initialize", "tools/list", "tools/list"]


def test_media_are_saved_or_summarised(tmp_path, capsys):
    image = Media("image", "image/png", b64encode(b"png").decode())
    link = Media("file", "text/plain", url="file:///a")
    result = ToolResult("1", "draw", (Text("done"), image, image, link, Media("image", "image/png", "%")))
    print_result(result, PartPrinter(str(tmp_path / "cat.png"), show_all=False))
    assert capsys.readouterr().out.splitlines() == [
        "done",
        f"[image/png, 3 bytes, saved as {tmp_path}/cat.png]",
        f"[image/png, 3 bytes, saved as {tmp_path}/cat-2.png]",
        "[text/plain: file:///a]",
        "[image/png: not valid base64]",
    ]
    assert (tmp_path / "cat-2.png").read_bytes() == b"png"
    print_result(ToolResult("1", "draw", (image,)), PartPrinter(None, show_all=False))
    assert capsys.readouterr().out == "[image/png, 3 bytes; --output FILE saves it]\n"


@pytest.mark.parametrize(
    ("text", "structured", "expected"),
    [
        ('{"a": 1}', {"a": 1}, '{"a": 1}\n'),
        ("3", {"result": 3}, "3\n"),
        ("sunny", {"result": "sunny"}, "sunny\n"),
        ("two cities", {"count": 2}, 'two cities\n{\n  "count": 2\n}\n'),
    ],
)
def test_structured_content_is_printed_unless_the_text_repeats_it(capsys, text, structured, expected):
    result = ToolResult("1", "t", (Text(text),), structured=structured)
    print_result(result, PartPrinter(None, show_all=False))
    assert capsys.readouterr().out == expected


def test_long_text_is_cut_on_a_terminal_only(monkeypatch, capsys):
    PartPrinter(None, show_all=False).print_text("x" * 200_000)
    assert capsys.readouterr().out == "x" * 200_000 + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    PartPrinter(None, show_all=False).print_text("x" * 200_000)
    assert capsys.readouterr().out == "x" * 100_000 + "\n… 100,000 more characters; --all shows them\n"
    PartPrinter(None, show_all=True).print_text("x" * 200_000)
    assert len(capsys.readouterr().out) == 200_001
