"""The client that the official conformance suite judges: ours, doing what each scenario wants to see done.

    conformance client --command "python tests/mcp/conformance_client.py" --requirements 2026-07-28

The suite puts the address of its server behind the command, and the name of the scenario into the environment.
"""

import asyncio
import json
import os
import sys
from urllib.parse import urljoin

from toolwire.ir.errors import ToolwireError
from toolwire.ir.parts import ToolCall
from toolwire.mcp.client import Handlers, Login, McpClient, ServerSpec, accept_defaults
from toolwire.net.http.client import HttpTransport
from toolwire.testing.instances import instances

CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]


def login(transport):
    """A user who agrees to everything: wherever they are sent, they come back from at once."""

    async def visit(url):
        async with transport.send("GET", url, {}, {}, b"", 10.0) as reply:
            return urljoin(url, reply.headers["location"])

    known = {} if "client_id" not in CONTEXT else {"client_id": CONTEXT["client_id"], "issuer": CONTEXT.get("issuer")}
    return Login(
        visit,
        redirect="http://localhost:8765/callback",
        secret=CONTEXT.get("client_secret"),
        metadata_url="https://conformance-test.local/client-metadata.json",
        **known,
    )


async def main(url):
    transport = HttpTransport()
    handlers = Handlers(elicit=accept_defaults, sample=lambda _: {}, roots=list)
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "auto")
    spec = ServerSpec("conformance", url=url, timeout=15.0, protocol=version if "PIN" in os.environ else "auto")
    async with McpClient(spec, handlers=handlers, login=login(transport), sender=transport) as client:
        for problem in client.problems:
            print("skipped:", problem)
        if SCENARIO == "http-standard-headers":
            for resource in await client.resources():
                await client.read(resource["uri"])
            for prompt in await client.prompts():
                await client.get_prompt(prompt["name"])
        for call in calls(client):
            print(call.name, (await client.call(call)).text)
    await transport.aclose()


def calls(client):
    if "toolCalls" in CONTEXT:
        return [ToolCall(str(n), one["name"], one["arguments"]) for n, one in enumerate(CONTEXT["toolCalls"])]
    if SCENARIO == "json-schema-2020-12-preservation":
        schema = client.tools["json_schema_2020_12_tool"].input_schema
        return [ToolCall("1", "json_schema_echo", {"schema": schema})]
    return [ToolCall("1", tool.name, arguments(tool.input_schema)) for tool in client.tools.values()]


def arguments(schema):
    """Something that fits."""
    return next(iter(instances(schema or {"type": "object"}, seed="conformance", count=1)))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except ToolwireError as error:
        sys.exit(f"{type(error).__name__}: {error}")
