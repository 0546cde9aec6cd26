"""What users' type checkers see: checked by mypy, never run."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, assert_type

import toolwire
from toolwire import (
    Agent,
    Loss,
    Message,
    ModelClient,
    Policy,
    Request,
    Response,
    Runner,
    Text,
    Tool,
    Toolbox,
    ToolCall,
    ToolError,
    ToolResult,
    open_store,
)
from toolwire.adapters import (
    CallPiece,
    TurnDelta,
    TurnReader,
    format_of_model,
    prompt_opens_reasoning,
    register_detectors,
    without_calls,
)
from toolwire.bridge import (
    ComparedDocument,
    Comparison,
    Detected,
    Placed,
    PlacedLoss,
    Prepared,
    StreamTranslation,
    Translation,
    compare,
    encode_best_version,
)
from toolwire.gateway import Gateway, Settings, load_settings, parse_settings
from toolwire.ir import ArgumentEnd, Fault, Stop
from toolwire.mcp import (
    Browser,
    Conversation,
    Guard,
    HttpApp,
    Login,
    McpClient,
    McpServers,
    Server,
    ServerSpec,
    current_exchange,
    prompt,
    resource,
)
from toolwire.net import Answer, KeyCommand, KeyCommandError, OtelObserver, disk_jail
from toolwire.openapi import ApiToolbox, read_operations
from toolwire.openapi import toolbox as openapi_toolbox
from toolwire.run import (
    DAY,
    GATES,
    Approve,
    Approved,
    Budget,
    CallContext,
    CallPlan,
    Claim,
    Denied,
    Entry,
    Options,
    Pending,
    Record,
    Session,
    Store,
    Transient,
    at_most,
    current_call,
    deny,
    hosts,
    path_jail,
    plan_of,
)
from toolwire.schema import DIALECTS, Lowered, Problem, lower, repair_arguments, validator
from toolwire.stream import ArgumentWatch, repair_json
from toolwire.testing import ScriptedModel, Upstream, load_trace, same, says, script_of
from toolwire.text import Format
from toolwire.wire import (
    CapabilityMatch,
    CapabilityRow,
    ModelCapabilities,
    Wire,
    capabilities_for,
    explain_capabilities,
    parse_capability_rows,
)


@toolwire.tool
def weather(city: str, days: int = 1) -> str:
    """The forecast for a city."""
    return city * days


@toolwire.tool(name="renamed", effect="read", timeout=5, retries=1, transient=(OSError,), approve="costs money")
async def later(city: str) -> list[str]:
    return [city]


@toolwire.tool(effect="read")
async def price(item: str, context: CallContext[dict[str, float]]) -> float:
    assert_type(context.deps, dict[str, float])
    await context.progress("looking", 0.5)
    return 0.0 if context.cancelled else context.deps[item]


@toolwire.tool(effect="read")
def bare_context(context: CallContext) -> str:
    context.report_progress("started")
    return context.run_id


def declared() -> None:
    assert_type(weather("Paris", days=2), str)
    waiting: Coroutine[Any, Any, list[str]] = later("Paris")
    waiting.close()
    as_tool: Tool = weather
    assert_type(as_tool.name, str)
    weather(1)  # type: ignore[arg-type]
    weather.input_schema = {}  # type: ignore[misc]


def translated() -> None:
    assert_type(toolwire.wire.names(), list[str])
    assert_type(toolwire.wire.get("anthropic"), Wire)
    there = toolwire.translate({}, source="anthropic", target="openai_chat", kind="request")
    assert_type(there, Translation[Any])
    assert_type(there.losses, tuple[Loss, ...])
    wires = ("anthropic", "openai_chat")
    asked = toolwire.translate_request({}, source=wires[0], target=wires[1], model="m", strict=True)
    assert_type(asked, Translation[dict[str, Any]])
    assert_type(toolwire.translate_response(b"{}", source=wires[1], target=wires[0], request={}).status, int)
    assert_type(toolwire.translate_error("", source=wires[1], target=wires[0]).body, dict[str, Any])
    tools = toolwire.translate_tools([], source=wires[1], target="mcp")
    assert_type(tools.body, list[dict[str, Any]] | dict[str, Any])
    toolwire.translate_request({}, source="anthropic", target="openai_chat", request={})  # type: ignore[call-arg]
    toolwire.translate({}, source="anthropic", target="openai_chat", kind="stream")  # type: ignore[arg-type]
    stream = toolwire.translate_stream(source="anthropic", target="openai_chat", request=b"{}")
    assert_type(stream, StreamTranslation)
    assert_type(stream.feed(b""), bytes)
    assert_type(stream.close(), bytes)


def taken_apart(body: bytes) -> None:
    found = toolwire.calls(body)
    assert_type(found, tuple[ToolCall, ...])
    assert_type(toolwire.detect(body), Detected)
    assert_type(toolwire.list_tools(body, "mcp"), tuple[Tool, ...])
    comparison = compare(body.decode())
    assert_type(comparison, Comparison)
    assert_type(comparison.source, ComparedDocument)
    assert_type(comparison.source.losses, tuple[PlacedLoss, ...])
    assert_type(comparison.source.places, tuple[Placed, ...])
    toolwire.results([call.result("done") for call in found], "gemini")
    request = toolwire.wire.get("openai_chat").decode_request({})
    known = capabilities_for("gemini", "gemini-2.5-pro")
    assert_type(known, ModelCapabilities)
    assert_type(explain_capabilities("gemini", "gemini-2.5-pro"), CapabilityMatch)
    assert_type(parse_capability_rows([]), tuple[CapabilityRow, ...])
    prepared = toolwire.prepare(request, toolwire.wire.get("gemini"), capabilities=known)
    assert_type(prepared, Prepared)
    assert_type(encode_best_version(prepared.request, toolwire.wire.get("gemini"))[0], Wire)


def raised(error: toolwire.ProtocolError) -> toolwire.ToolwireError:
    assert_type(error.pointer, str)
    assert_type(error.status, int)
    return error


@toolwire.tool(effect="write")
async def pay(amount: float) -> str:
    """Pay, and pass the idempotency key on to the bank."""
    key = assert_type(current_call().idempotency_key, str | None)
    assert_type(current_call().headers, dict[str, str])
    if amount > 100:
        raise ToolError("too much")
    if key is None:
        raise Transient("the bank is busy", retry_after=1.0)
    return key


def text_formats(model: str) -> None:
    form = toolwire.text.get(toolwire.text.detect(model) or toolwire.text.detect_template("{{ messages }}"))
    assert_type(form, Format)
    parsed = form.parse("<tool_call>", [weather])
    assert_type(parsed.calls, tuple[ToolCall, ...])
    parser = form.parser(tools=[weather])
    parser.feed("text")
    parser.close()
    toolwire.text.get("hermes").render_call(ToolCall("1", "weather", {"city": "Paris"}), [weather])


def running() -> None:
    box = Toolbox(weather, pay).with_options(timeout=5, cache=60)
    entry = Entry(weather, weather.function, Options(resource="outbox", timeout=10, rate=2))

    def office_hours(pending: Pending) -> Pending | ToolResult:
        return pending.call.result("closed", is_error=True) if pending.call.name == "pay" else pending

    def approve(step: Approve) -> bool | Approved | Denied:
        if step.effect == "write":
            return Approved({"to": "ann"})
        return True if step.arguments["to"] == "ann" else Denied("only to Ann")

    policy = Policy(
        checks=(deny("drop_*"), path_jail("path", "/files"), hosts("url", "*.example.com"), at_most("amount", 100)),
        approve=("write",),
        taint="enforce",
    )
    runner = Runner(
        box, entry, policy=policy, gates=(*GATES, office_hours), approve=approve, store=open_store("memory:")
    )
    for result in runner.run_sync([ToolCall("1", "weather", {"city": "Paris"})]):
        assert_type(result, ToolResult)
        assert_type(plan_of(result), CallPlan | None)
    Runner(box, dry_run=True)
    disk_jail("path", "/files")


async def agents() -> None:
    model = ScriptedModel([says(ToolCall("1", "weather", {"city": "Paris"})), says("Sun in Paris.")])
    answer = await Agent(model, [weather], budget=Budget(iterations=3)).run("Weather?")
    assert_type(answer, Answer)
    assert_type(answer.text, str)
    assert_type(Agent("anthropic/claude-sonnet-5", [weather], observers=[OtelObserver()]).run_sync("Weather?"), Answer)


async def clients() -> None:
    request = Request(messages=(Message("user", (Text("Weather?"),)),), tools=(weather,))
    async with (
        Upstream(Response(parts=(Text("Sun"),), stop=Stop("stop")), Fault("rate_limit", "slow", 429)) as upstream,
        ModelClient("openai/gpt-5.6", base_url=upstream.url, key="a-key") as client,
    ):
        assert_type(await client.ask(request), Response)
        assert_type(await client.ask("Weather?"), Response)
        async for _ in client.stream(request):
            break
    command = KeyCommand(["gcloud", "auth", "print-access-token"], timeout=5, ttl=600)
    vertex = ModelClient("vertex/gemini-3-pro", project="p", location="eu", key_command=command, headers={"x": "y"})
    try:
        await vertex.ask(request)
    except KeyCommandError as error:
        assert_type(error.hint, str)


def stores() -> None:
    store = open_store("runs.db")
    assert_type(store, Store)
    assert_type(store.claim(Claim(key="order 7", tool="pay", fingerprint="5", token="a")), Record)
    assert_type(DAY, float)


def sessions(session: Session) -> Session:
    return session


def schemas(schema: dict[str, Any], document: dict[str, Any]) -> None:
    assert_type(lower(schema, "openai_strict"), Lowered)
    assert_type(validator(schema).problems({}), tuple[Problem, ...])
    assert_type(repair_arguments("{}", schema).problems, tuple[Problem, ...])
    sorted(DIALECTS)
    for one in read_operations(document).tools:
        assert_type(one.name, str)
        one.request({"id": 1})
    with_api = openapi_toolbox(document, base_url="https://api.example.com", auth={"key": "${API_KEY}"})
    assert_type(with_api, ApiToolbox)
    assert_type(toolwire.Toolbox(with_api), toolwire.Toolbox)


def streams(data: bytes) -> None:
    decoder, watch = toolwire.wire.get("openai_chat").stream_decoder(), ArgumentWatch()
    for event in decoder.feed(data):
        for found in watch.feed(event):
            if isinstance(found, ArgumentEnd):
                assert_type(found.name, str)
    repair_json("{a: 1,}")


@resource("notes://{day}", media_type="text/plain")
def notes(day: str) -> str:
    return day


@prompt
def review(code: str) -> str:
    return code


async def mcp_servers(config: dict[str, Any], token: str) -> None:
    server = Server(weather, resources=[notes], prompts=[review], name="desk")
    HttpApp(server, guard=Guard(hosts=["tools.example.com"], tokens={token: "alice"}))
    talk = Conversation(server, print)
    assert_type(await talk.handle(b"{}"), bytes | None)
    await current_exchange().elicit("Which night?", {"type": "object"})
    async with McpServers.from_config(config) as servers:
        Agent("openai/gpt-5.6", servers.toolbox())
    async with McpClient(ServerSpec("notes", url="https://example.com/mcp"), login=Login(Browser())) as client:
        assert_type(await client.call(ToolCall("1", "past", {})), ToolResult)


def gateways(path: Path) -> None:
    assert_type(load_settings(path), Settings)
    assert_type(load_settings("toolwire.toml"), Settings)
    Gateway(parse_settings({}))


def recordings(path: Path) -> None:
    trace = load_trace(path)
    script_of(trace)
    same(1, 1)


def serving(text: str) -> None:
    fmt = format_of_model("", "Qwen/Qwen3-8B")
    opened = prompt_opens_reasoning(fmt, text)
    assert_type(opened, bool | None)
    delta = TurnReader(without_calls(fmt), new_id=str, opened=bool(opened)).feed(text)
    assert_type(delta, TurnDelta)
    assert_type(delta.calls, tuple[CallPiece, ...])
    assert_type(register_detectors(), list[str])
