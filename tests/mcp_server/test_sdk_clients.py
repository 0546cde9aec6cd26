"""The official client and FastMCP's against our server, as real processes, over stdio and HTTP, in both eras."""

import asyncio
import sys
import warnings

import pytest

from mcp_server.server_process import CONJUGATE, TIMEOUT, WORKSHOP, command, effects_in, environment, http_server

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, not ours
MODES = {"stateless": "2026-07-28", "handshake": "legacy", "auto": "auto"}


@pytest.fixture(scope="module", autouse=True)
def clients():
    """Import the clients where their tests run: it takes seconds, which every worker would spend on collecting them."""
    global Client, FastClient, FastToolError, MCPError, StdioServerParameters, StdioTransport, StreamableHttpTransport
    global mcp_types, stdio_client
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mcp_types
        from fastmcp import Client as FastClient
        from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
        from fastmcp.exceptions import ToolError as FastToolError
        from mcp.client.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.shared.exceptions import MCPError


@pytest.fixture(scope="module")
def port():
    with http_server(CONJUGATE) as (port, _):
        yield port


def stdio(tools=CONJUGATE, effects=None):
    program, *rest = command(tools, "--store", "memory:")
    parameters = StdioServerParameters(command=program, args=rest, env=environment(effects))
    # Its default is the `sys.stderr` of its import, which has no descriptor if a test captures it.
    return stdio_client(parameters, errlog=sys.__stderr__)


def run_with_timeout(work):
    return asyncio.run(asyncio.wait_for(work, TIMEOUT))


async def check_conjugate_tool(client):
    """What every client must see of the one tool, whatever the way to it."""
    (tool,) = (await client.list_tools()).tools
    assert tool.name == "conjugate"
    assert tool.input_schema["properties"]["person"]["enum"][2] == "3sg"
    assert tool.annotations.read_only_hint is True
    done = await client.call_tool("conjugate", {"verb": "eat", "tense": "past_simple", "person": "3sg"})
    assert (done.content[0].text, done.is_error) == ("ate", False)
    unknown = await client.call_tool("conjugate", {"verb": "run", "tense": "past_simple", "person": "3sg"})
    assert unknown.is_error
    assert unknown.content[0].text == "verb 'run' is out of scope; known are eat, go, see, write"
    missing = await client.call_tool("conjugate", {"verb": "eat", "tense": "past_simple"})
    assert missing.is_error
    assert "person" in missing.content[0].text
    wrong = await client.call_tool("conjugate", {"verb": "eat", "tense": "past", "person": "3sg"})
    assert wrong.is_error
    assert "past_simple" in wrong.content[0].text
    with pytest.raises(MCPError) as caught:
        await client.call_tool("conjugat", {})
    assert caught.value.error.code == -32602


@pytest.mark.parametrize("era", MODES)
def test_official_client_works_over_stdio(era):
    async def talk():
        async with Client(stdio(), mode=MODES[era]) as client:
            await check_conjugate_tool(client)
            return client.protocol_version

    assert run_with_timeout(talk()) == ("2025-11-25" if era == "handshake" else "2026-07-28")


@pytest.mark.parametrize("era", MODES)
def test_official_client_works_over_http(era, port):
    async def talk():
        async with Client(f"http://127.0.0.1:{port}/mcp", mode=MODES[era]) as client:
            await check_conjugate_tool(client)
            return client.protocol_version

    assert run_with_timeout(talk()) == ("2025-11-25" if era == "handshake" else "2026-07-28")


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_fastmcp_client_works(way, port):
    program, *rest = command(CONJUGATE, "--store", "memory:")
    local = StdioTransport(program, rest, env=environment())
    transport = local if way == "stdio" else StreamableHttpTransport(f"http://127.0.0.1:{port}/mcp")

    async def talk():
        async with FastClient(transport) as client:
            assert [tool.name for tool in await client.list_tools()] == ["conjugate"]
            done = await client.call_tool("conjugate", {"verb": "go", "tense": "present_perfect", "person": "3sg"})
            assert done.content[0].text == "has gone"
            with pytest.raises(FastToolError, match="out of scope"):
                await client.call_tool("conjugate", {"verb": "run", "tense": "past_simple", "person": "3sg"})
            with pytest.raises(MCPError) as caught:
                await client.call_tool("conjugat", {})
            assert caught.value.error.code == -32602

    run_with_timeout(talk())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_structured_output_progress_resources_and_prompts_work(way, era):
    async def talk(server):
        heard = []

        async def progressed(done, total, message):
            heard.append((done, total, message))

        async with Client(server, mode=MODES[era]) as client:
            found = await client.call_tool("total", {"a": 1, "b": 2})
            assert found.structured_content == {"total": 3}
            broken = await client.call_tool("broken_promise", {})
            assert broken.is_error
            assert "does not match its output schema" in broken.content[0].text
            rested = await client.call_tool("nap", {"seconds": 0.05}, progress_callback=progressed)
            assert rested.content[0].text == "rested"
            walked = await client.call_tool("walk", {"steps": 2}, progress_callback=progressed)
            assert walked.content[0].text == "arrived"
            note = await client.read_resource("notes://monday")
            assert note.contents[0].text == "notes of monday"
            reviewed = await client.get_prompt("review", {"code": "x = 1"})
            assert reviewed.messages[0].content.text == "Review this: x = 1"
            assert [one.name for one in (await client.list_prompts()).prompts] == ["review"]
        return heard

    if way == "stdio":
        heard = run_with_timeout(talk(stdio(WORKSHOP)))
    else:
        with http_server(WORKSHOP) as (port, _):
            heard = run_with_timeout(talk(f"http://127.0.0.1:{port}/mcp"))
    steps = [(1e-6, None, "setting out"), (0.5, 1, "step 1"), (1, 1, "step 2")]
    assert heard == [(1, 2, "half asleep"), *steps]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_elicitation_is_answered_before_the_write(way, era, tmp_path):
    effects = tmp_path / "effects"

    async def answered(context, params):
        return mcp_types.ElicitResult(action="accept", content={"colour": "red"})

    async def talk(server):
        async with Client(server, mode=MODES[era], elicitation_callback=answered) as client:
            return (await client.call_tool("order", {"item": "bicycle"})).content[0].text

    if way == "stdio":
        said = run_with_timeout(talk(stdio(WORKSHOP, effects)))
    else:
        with http_server(WORKSHOP, effects=effects) as (port, _):
            said = run_with_timeout(talk(f"http://127.0.0.1:{port}/mcp"))
    assert said == "ordered a red bicycle"
    assert effects_in(effects) == ["order bicycle red"]
