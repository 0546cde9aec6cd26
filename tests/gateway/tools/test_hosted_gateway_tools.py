"""Hosted tools that the gateway runs by an MCP server, because the upstream has none."""

import asyncio
import json
import shlex
import urllib.request
from contextlib import asynccontextmanager
from itertools import product
from urllib.error import HTTPError

import pytest
from msgspec.structs import replace

from hosted_answers import PAGE, WIRES, request
from mcp_server.server_process import command
from sdk_validation import validate_chunks, validate_response
from serving import serving, upstream_rows
from tables import every_case
from toolwire import Message, Response, Text, Tool, ToolCall, ToolResult
from toolwire.cli.serve.tools import ToolLoader
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.hosted_tools import HostedRuns, HostedService, find_services, make_run
from toolwire.gateway.observe.log import AccessLog
from toolwire.gateway.observe.metrics import Metrics
from toolwire.ir import ConfigError, fold
from toolwire.ir.folding import unfold_end
from toolwire.ir.hosted import WebPage
from toolwire.ir.parts import Opaque
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.net.tools.runner import Runner
from toolwire.run import Toolbox
from toolwire.testing import Upstream
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get
from waiting import until

PAGES = '''
import toolwire

FOUND = [{"url": "https://example.org/fjords", "title": "Fjords", "snippet": "A fjord is a long inlet."}]

@toolwire.tool(effect="read")
def search(query: str) -> dict:
    """Search the web."""
    return {"results": FOUND}
'''
SEARCH = Response(
    parts=(Text("Let me search. "), ToolCall("s1", "web_search", {"query": "longest fjord"})),
    stop=Stop("tool_calls"),
    usage=Usage(10, 5),
)
FINAL = Response(parts=(Text(f"Sognefjord, see {PAGE.url} for more."),), stop=Stop("stop"), usage=Usage(20, 4))


def post(url, data):
    sent = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(sent, timeout=60) as answer:
        return answer.read()


def paths(front, model, *, stream):
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return {
        "anthropic": "/v1/messages",
        "openai_responses": "/v1/responses",
        "openai_chat": "/v1/chat/completions",
        "gemini": f"/v1beta/models/{model}:{verb}",
    }[front]


@asynccontextmanager
async def loaded(rows):
    loader = ToolLoader(())
    try:
        opened = await loader.prepare(parse_settings({"hosted": rows}))
        loader.activate(opened)
        yield opened.bindings.hosted
    finally:
        await loader.aclose()


@pytest.fixture
def pages(tmp_path):
    file = tmp_path / "pages.py"
    file.write_text(PAGES, encoding="utf-8")
    return shlex.join(command(file, "--store", "memory:"))


async def ask(gateway, front, wire, *, stream):
    body = (
        request(front, ("web_search",), stream=True)
        if stream and front != "gemini"
        else request(front, ("web_search",))
    )
    body["model"] = f"{wire}/m"
    if front == "gemini":
        del body["model"]
    return await asyncio.to_thread(
        post, gateway.url + paths(front, f"{wire}/m", stream=stream), json.dumps(body).encode()
    )


def read(front, data, *, stream):
    if stream:
        validate_chunks(front, data)
        return fold(decode_stream(get(front), [data]))
    body = json.loads(data)
    validate_response(front, body)
    return get(front).decode_response(body)


def runs_in(front, response):
    codec = get(front).hosted
    runs = [codec.read_run(part) for part in response.parts if isinstance(part, Opaque)]
    if codec.read_end is not None:
        runs += codec.read_end(unfold_end(response), "")[0]
    return [run for run in runs if run.sources]


def cited_in(front, response):
    codec = get(front).hosted
    if codec.read_text is None:
        return {citation.url for citation in codec.read_end(unfold_end(response), "")[1][0]}
    texts = [part.extra for part in response.parts if isinstance(part, Text)]
    return {citation.url for extra in texts for citation in codec.read_text(extra)[0]}


@every_case(("front", "wire"), list(product(WIRES, ("openai_chat", "anthropic"))))
@every_case("stream", [False, True])
def test_search_of_an_mcp_server_becomes_the_clients_own_items(pages, stream, front, wire):
    async def check():
        rows = {"web_search": {"command": pages, "tool": "search"}}
        async with loaded(rows) as hosted, Upstream(SEARCH, FINAL) as upstream:
            async with serving({"upstreams": upstream_rows(upstream.url)}, hosted=hosted) as gateway:
                data = await ask(gateway, front, wire, stream=stream)
            first, second = upstream.requests
        response = read(front, data, stream=stream)
        assert [tool.name for tool in first.request.tools] == ["web_search"]
        (result,) = [part for one in second.request.messages for part in one.parts if isinstance(part, ToolResult)]
        assert "A fjord is a long inlet." in result.text
        assert "".join(part.text for part in response.parts if isinstance(part, Text)).endswith("for more.")
        assert not response.calls
        if front != "openai_chat":
            (run,) = runs_in(front, response)
            assert run.kind == "web_search"
            assert [page.url for page in run.sources] == [PAGE.url]
        assert cited_in(front, response) == {PAGE.url}
        if front == "anthropic":
            assert response.usage.extra["anthropic"]["server_tool_use"]["web_search_requests"] == 1

    asyncio.run(check())


def service(function, **limits):
    box = Toolbox(function)
    return HostedService("web_search", Runner(box, keeps_outputs=False), box.tools[0], **limits)


def search(query: str) -> dict:
    """Search the web."""
    return {"results": [{"url": PAGE.url, "title": PAGE.title, "snippet": PAGE.text}]}


LOOK = Tool("look", "Look at a picture", {"type": "object", "properties": {"path": {"type": "string"}}})
CALLS = {
    "search": ToolCall("call_0", "web_search", {"query": "longest fjord"}),
    "look": ToolCall("call_1", "look", {"path": "a"}),
}
SHOWN = {"anthropic": ["server_tool_use", "web_search_tool_result"], "openai_responses": ["web_search_call"]}


async def tell(gateway, front, wire, asked, *, stream):
    """Send a request to the gateway, and return the answer."""
    document = get(front).encode_request(replace(asked, model=f"{wire}/m")).body
    if front == "gemini":
        document.pop("model", None)
    elif stream:
        document["stream"] = True
    path = paths(front, f"{wire}/m", stream=stream)
    data = await asyncio.to_thread(post, gateway.url + path, json.dumps(document).encode())
    return read(front, data, stream=stream)


def outline(response):
    """The kinds of the parts of an answer without texts. An opaque part has the name of the client's protocol."""
    parts = [part for part in response.parts if not isinstance(part, Text)]
    return [part.type if isinstance(part, Opaque) else type(part).__name__ for part in parts]


@every_case(("front", "wire"), list(product(WIRES, ("openai_chat", "anthropic"))))
@every_case("order", [("search", "look"), ("look", "search")])
@every_case("restarted", [False, True])
@every_case("stream", [False, True])
def test_search_beside_a_call_of_the_client_is_shown_and_stays_in_the_history(stream, restarted, order, front, wire):
    asked = get(front).decode_request(request(front, ("web_search",)))
    asked = replace(asked, tools=(*asked.tools, LOOK))
    mixed = Response(
        parts=(Text("Let me see."), *[CALLS[name] for name in order]), stop=Stop("tool_calls"), usage=Usage(10, 5)
    )

    earlier = [] if restarted else [SEARCH]  # a turn that only searches, in the same answer

    async def check():
        document, hosted = {}, {"web_search": service(search)}
        async with Upstream(*earlier, mixed, FINAL) as upstream:
            document["upstreams"] = upstream_rows(upstream.url)
            async with serving(document, hosted=hosted) as gateway, serving(document, hosted=hosted) as other:
                first = await tell(gateway, front, wire, asked, stream=stream)
                result = first.calls[0].result("a violet square")
                history = (*asked.messages, Message("assistant", first.parts), Message("user", (result,)))
                later = other if restarted else gateway
                final = await tell(later, front, wire, replace(asked, messages=history), stream=stream)
        assert gateway.turns[0].hosted_runs == {"web_search": 1 + len(earlier)}
        return first, final, upstream.requests[-1].request

    first, final, sent = asyncio.run(check())
    assert [call.name for call in first.calls] == ["look"]
    assert first.stop.reason == "tool_calls"
    run, call = SHOWN.get(front, []), ["ToolCall"]
    assert outline(first) == run * len(earlier) + (run + call if order[0] == "search" else call + run)
    assert "".join(part.text for part in first.parts if isinstance(part, Text)).endswith("Let me see.")
    assert bool(runs_in(front, first)) == (front != "openai_chat")
    assert not final.calls
    parts = [part for one in sent.messages for part in one.parts]
    names = {part.id: part.name for part in parts if isinstance(part, ToolCall)}
    results = {names[part.call_id]: part.text for part in parts if isinstance(part, ToolResult)}
    assert results.pop("look") == "a violet square"
    if not restarted:
        assert PAGE.text in results["web_search"]
        assert sum(isinstance(part, ToolResult) for part in parts) == 3
        return
    assert not results
    texts = "".join(part.text for part in parts if isinstance(part, Text))
    assert (PAGE.url in texts) == (front in SHOWN)


@every_case("wire", ["anthropic", "openai_responses"])
def test_run_of_the_gateway_is_text_for_the_provider_of_the_clients_own_wire(wire):
    """The provider checks the ids and the encrypted contents of runs, and has issued neither."""
    own = {"anthropic": OWN_BLOCKS, "openai_responses": OWN_ITEMS}[wire]

    async def check():
        async with Upstream(SEARCH, FINAL, FINAL, FINAL) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            asked = get(wire).decode_request(request(wire, ("web_search",)))
            async with serving(document, hosted={"web_search": service(search)}) as gateway:
                answer = await tell(gateway, wire, "openai_chat", asked, stream=False)
            follow = (Message("assistant", answer.parts), Message("user", (Text("And then?"),)))
            async with serving(document) as gateway:  # without the store of turns, and without tools
                await tell(gateway, wire, wire, replace(asked, messages=(*asked.messages, *follow)), stream=False)
                kept = get(wire).encode_request(replace(asked, model=f"{wire}/m")).body
                field = get(wire).conversation
                kept[field] = [*kept[field], *own] if type(kept[field]) is list else own
                await asyncio.to_thread(post, gateway.url + paths(wire, "m", stream=False), json.dumps(kept).encode())
            return upstream.requests[-2:], gateway.turns

    (converted, unchanged), (log, plain) = asyncio.run(check())
    assert b"TOOLWIRE~" not in converted.body
    assert not [part for one in converted.request.messages for part in one.parts if isinstance(part, Opaque)]
    text = "".join(part.text for one in converted.request.messages for part in one.parts if isinstance(part, Text))
    assert PAGE.url in text and "[web_search: longest fjord]" in text
    assert FINAL.parts[0].text in text
    concepts = {loss.concept for loss in log.losses}
    assert "web_search in the history" in concepts
    assert ("citations" in concepts) == (wire == "anthropic")
    assert plain.passed_through
    assert json.loads(unchanged.body)[get(wire).conversation][-len(own) :] == own


@every_case("stream", [False, True])
def test_stored_response_with_a_run_and_a_call_is_continued(stream):
    mixed = Response(parts=(CALLS["search"], CALLS["look"]), stop=Stop("tool_calls"), usage=Usage(10, 5))

    async def check():
        async with Upstream(mixed, FINAL) as upstream:
            document = {"upstreams": upstream_rows(upstream.url), "responses": {"store": "memory:"}}
            tools = [{"type": "web_search"}, {"type": "function", "name": "look", "parameters": LOOK.input_schema}]
            body = {"model": "openai_chat/m", "tools": tools, "stream": stream}
            async with serving(document, hosted={"web_search": service(search)}) as gateway:
                url = f"{gateway.url}/v1/responses"
                first = await asyncio.to_thread(post, url, json.dumps({**body, "input": "hi"}).encode())
                answer = read("openai_responses", first, stream=stream)
                result = {"type": "function_call_output", "call_id": answer.calls[0].id, "output": "a violet square"}
                later = {**body, "input": [result], "previous_response_id": answer.id}
                final = await asyncio.to_thread(post, url, json.dumps(later).encode())
            return read("openai_responses", final, stream=stream), upstream.requests[1].request

    final, sent = asyncio.run(check())
    assert not final.calls
    results = [part.text for one in sent.messages for part in one.parts if isinstance(part, ToolResult)]
    assert len(results) == 2 and "a violet square" in results and any(PAGE.text in text for text in results)


OWN_RUN = "srvtoolu_01WYG3ziw53XMcoyKL4XcZmE"
OWN_FOUND = {
    "type": "web_search_result",
    "url": PAGE.url,
    "title": "F",
    "encrypted_content": "EqgfCio",
    "page_age": None,
}
OWN_BLOCKS = [
    {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": OWN_RUN, "name": "web_search", "input": {"query": "TOOLWIRE~"}},
            {"type": "web_search_tool_result", "tool_use_id": OWN_RUN, "content": [OWN_FOUND]},
            {"type": "text", "text": "Sognefjord."},
        ],
    },
    {"role": "user", "content": "And then?"},
]
OWN_ITEMS = [
    {
        "type": "web_search_call",
        "id": "ws_67ccf18ef5fc8190",
        "status": "completed",
        "action": {"type": "search", "query": "a"},
    },
    {"role": "user", "content": "And then?"},
]


@every_case("stream", [False, True])
def test_runs_are_counted_in_the_log_in_metrics_and_in_the_clients_usage(stream):
    """The fields are those of the providers; Chat and Gemini have none."""

    async def check(front):
        metrics = Metrics()
        async with Upstream(SEARCH, SEARCH, SEARCH, FINAL) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            services = {"web_search": service(search, max_calls=2)}
            async with serving(document, hosted=services, sinks=[metrics]) as gateway:
                data = await ask(gateway, front, "openai_chat", stream=stream)
        (log,) = gateway.turns
        return AccessLog(str).build_line(log), metrics.page().decode(), read(front, data, stream=stream)

    line, page, answer = asyncio.run(check("anthropic"))
    assert line.hosted == {"web_search": 2}  # the third one was refused
    assert 'toolwire_hosted_runs_total{kind="web_search",model="openai_chat/m",upstream="openai_chat"} 2.0' in page
    assert answer.usage.extra["anthropic"]["server_tool_use"] == {"web_search_requests": 2, "web_fetch_requests": 0}
    results = [part for part in answer.parts if isinstance(part, Opaque)]
    errors = [run.error for run in map(get("anthropic").hosted.read_run, results) if run.error]
    assert errors == ["max_uses_exceeded"]
    ids = [run.id for run in runs_in("anthropic", answer)]
    assert len(set(ids)) == 2  # although the model has given its calls one id
    _, _, answer = asyncio.run(check("openai_responses"))
    assert answer.extra["openai_responses"]["tool_usage"]["web_search"] == {"num_requests": 2}


def test_calls_are_bounded_in_number_time_and_size():
    import toolwire

    @toolwire.tool(effect="read")
    async def search(query: str) -> str:
        """Search."""
        await asyncio.sleep(30 if query == "slow" else 0)
        return "x" * 1000

    async def results_of(query, **limits):
        call = Response(parts=(ToolCall("s1", "web_search", {"query": query}),), stop=Stop("tool_calls"))
        async with Upstream(call, call, FINAL) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            async with serving(document, hosted={"web_search": service(search, **limits)}) as gateway:
                await ask(gateway, "anthropic", "openai_chat", stream=False)
            last = upstream.requests[-1].request
        return [part.text for one in last.messages for part in one.parts if isinstance(part, ToolResult)]

    long, refused = asyncio.run(results_of("a", max_calls=1, max_bytes=100))
    assert long == "x" * 100 + "\n[shortened]"
    assert "No more calls" in refused
    (late, _) = asyncio.run(results_of("slow", timeout=0.05))
    assert "did not answer within 0.05 seconds" in late


def test_upstream_with_the_tool_runs_it_itself():
    async def check():
        async with Upstream(FINAL) as upstream:
            document = {
                "upstreams": upstream_rows(upstream.url),
                "models": {"m": {"upstream": "anthropic", "capabilities": {"hosted": ["web_search"]}}},
            }

            def search(query: str) -> str:
                """Search."""
                raise AssertionError("the gateway must not run it")

            body = request("openai_responses", ("web_search",)) | {"model": "m"}
            async with serving(document, hosted={"web_search": service(search)}) as gateway:
                await asyncio.to_thread(post, f"{gateway.url}/v1/responses", json.dumps(body).encode())
            (sent,) = upstream.requests
        assert json.loads(sent.body)["tools"][0]["type"] == "web_search_20250305"

    asyncio.run(check())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"mcp": "http://127.0.0.1:9/mcp"}, r"\[hosted.web_search\] mcp: "),
        ({"tool": "find"}, r"\[hosted.web_search\] tool: the server has no tool 'find'"),
    ],
)
def test_bad_settings_are_errors_that_name_the_setting(pages, row, message):
    async def check():
        given = {"command": pages, **row} if "tool" in row else row
        async with loaded({"web_search": given}):
            pass

    with pytest.raises(ConfigError, match=message):
        asyncio.run(check())


def test_unknown_kind_is_an_error():
    with pytest.raises(ConfigError, match="hosted"):
        parse_settings({"hosted": {"web_serch": {"mcp": "http://127.0.0.1:9/mcp"}}})


def test_pages_are_read_from_json_and_from_text():
    call = ToolCall("c", "web_search", {"query": "q"})
    text = ToolResult("c", "web_search", (Text("1. Fjords https://e.org/a.\n2. https://e.org/b"),))
    assert make_run("web_search", call, text).sources == (WebPage("https://e.org/a"), WebPage("https://e.org/b"))
    listed = ToolResult("c", "web_search", (Text('[{"link": "https://e.org", "title": "E", "snippet": "s"}]'),))
    assert make_run("web_search", call, listed).sources == (WebPage("https://e.org", "E", "s"),)


def test_nothing_is_retried_after_a_run():
    """A program, or a search that is billed, would run a second time."""
    queries = []

    def search(query: str) -> str:
        """Search."""
        queries.append(query)
        return "nothing"

    async def check():
        broken = Fault("server", "broken", 500)
        async with Upstream(SEARCH, broken, SEARCH, FINAL) as upstream:
            document = {"upstreams": upstream_rows(upstream.url, retries=2)}
            async with serving(document, hosted={"web_search": service(search)}) as gateway:
                with pytest.raises(HTTPError):
                    await ask(gateway, "anthropic", "openai_chat", stream=False)
            assert len(upstream.requests) == 2

    asyncio.run(check())
    assert queries == ["longest fjord"]


def test_structured_output_is_bounded_like_the_text():
    pages = [{"url": PAGE.url, "title": PAGE.title, "snippet": "x" * 1000}]

    class Fixed:
        async def run(self, calls, *, run_id):
            return [ToolResult(calls[0].id, calls[0].name, (Text("one page"),), pages)]

    async def sources_of(most):
        fixed = HostedService("web_search", Fixed(), Tool("search"), max_bytes=most)
        runs = HostedRuns({"web_search": fixed}, "anthropic")
        await runs.run(ToolCall("c", "web_search", {"query": "q"}), "run")
        return runs.runs[0].sources

    assert asyncio.run(sources_of(1000)) == ()
    assert [page.url for page in asyncio.run(sources_of(2000))] == [PAGE.url]


class CodeRunner:
    """Runs programs that all fail with one text; the program `wait` never ends."""

    def __init__(self, text="failed"):
        self.text, self.programs = text, []

    async def run(self, calls, *, run_id):
        self.programs.append(calls[0].arguments["code"])
        if calls[0].arguments["code"] == "wait":
            await asyncio.Event().wait()
        return [ToolResult(calls[0].id, calls[0].name, (Text(self.text),), is_error=True)]

    def runs(self, **limits):
        return HostedRuns({"code_execution": HostedService("code_execution", self, Tool("run"), **limits)}, "anthropic")


def test_program_that_fails_with_the_text_of_a_refusal_counts():
    runner = CodeRunner("max_uses_exceeded")
    runs = runner.runs(max_calls=2)

    async def check():
        return [await runs.run(ToolCall("c", "code_execution", {"code": str(n)}), "run") for n in range(3)]

    *_, refused = asyncio.run(check())
    assert runner.programs == ["0", "1"] and runs.started == {"code_execution": 2}
    assert "No more calls" in refused.text


def test_cancelled_run_counts():
    runner = CodeRunner()
    runs = runner.runs()

    async def check():
        running = asyncio.create_task(runs.run(ToolCall("c", "code_execution", {"code": "wait"}), "run"))
        await until(lambda: runner.programs)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    asyncio.run(check())
    assert runs.started == {"code_execution": 1}


def test_hosted_tool_beside_a_function_of_its_name_is_not_run():
    body = request("anthropic", ("web_search",))
    function = {"name": "web_search", "description": "mine", "input_schema": {"type": "object"}}
    declared = get("anthropic").decode_request({**body, "tools": [*body["tools"], function]})
    services = {"web_search": HostedService("web_search", None, Tool("search"))}
    assert find_services(get("anthropic").decode_request(body), services, frozenset()) == services
    assert find_services(declared, services, frozenset()) == {}


@pytest.mark.parametrize("size", [100, 300_000])
def test_large_requests_use_the_tools_of_the_gateway_too(size):
    """A body above `limits.stream_body` is sent on unread if the target gets it unchanged."""

    def search(query: str) -> str:
        """Search."""
        return "nothing"

    async def check():
        async with Upstream(FINAL) as upstream:
            document = {
                "upstreams": upstream_rows(upstream.url),
                "models": {"m": {"upstream": "anthropic", "capabilities": {"hosted": []}}},
                "limits": {"stream_body": 200_000},
            }
            body = request("anthropic", ("web_search",)) | {"model": "m"}
            body["messages"] = [{"role": "user", "content": "x" * size}]
            async with serving(document, hosted={"web_search": service(search)}) as gateway:
                await asyncio.to_thread(post, f"{gateway.url}/v1/messages", json.dumps(body).encode())
            (sent,) = upstream.requests
        assert [(tool.kind, tool.name) for tool in sent.request.tools] == [("function", "web_search")]

    asyncio.run(check())


LIMITED = {
    "anthropic": {
        "max_uses": 1,
        "allowed_domains": ["example.org"],
        "user_location": {"type": "approximate", "city": "Oslo"},
    },
    "openai_responses": {"filters": {"allowed_domains": ["example.org"]}, "search_context_size": "high"},
}


@pytest.mark.parametrize(
    ("front", "runs", "lost"),
    [("anthropic", 1, {"allowed_domains", "location"}), ("openai_responses", 2, {"allowed_domains", "context_size"})],
)
def test_limits_of_the_client_are_applied_or_reported(front, runs, lost):
    async def check():
        async with Upstream(SEARCH, SEARCH, SEARCH, FINAL) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            services = {"web_search": service(search, max_calls=2)}
            async with serving(document, hosted=services) as gateway:
                body = {**request(front, ("web_search",)), "model": "openai_chat/m"}
                [tool] = body["tools"]
                tool.update(LIMITED[front])
                path = paths(front, "openai_chat/m", stream=False)
                await asyncio.to_thread(post, gateway.url + path, json.dumps(body).encode())
        (log,) = gateway.turns
        return log

    log = asyncio.run(check())
    assert log.hosted_runs == {"web_search": runs}
    assert {(loss.path, loss.concept) for loss in log.losses} >= {
        ("/tools/0", f"{name} of web_search") for name in lost
    }


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("see https://example.org/fjords.", [(4, 30)]),
        ("see https://example.org/fjords/deep and [it](https://example.org/fjords)", [(45, 71)]),
        ("see https://example.org/fjords2 or https://example.org/fjords?page=2", []),
    ],
)
def test_longer_url_is_not_a_citation_of_the_page(text, places):
    hosted = HostedRuns({"web_search": service(search)}, "openai_responses")
    asyncio.run(hosted.run(ToolCall("1", "web_search", {"query": "fjords"}), "run"))
    annotations = hosted.cite(text).get("openai_responses", {}).get("annotations", ())
    found = [(one["start_index"], one["end_index"]) for one in annotations]
    assert found == places
    assert all(text[start:end] == "https://example.org/fjords" for start, end in places)
