"""A server's tools and resources as entries of a toolbox.

A result of the server, including a failure of the tool, is passed on. A protocol error is not a result: the call
fails, and the unreliable part of the server is withdrawn, so that the model is informed and continues with the other
tools.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...run.context import current_call
from ...run.failures import ToolError
from ...run.results import annotate
from ...run.toolbox import Entry, Options
from ...schema.validate import validator
from ...wire.mcp import NAME
from ...wire.mcp.content import decode_content
from ...wire.mcp.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, RpcError
from .client import McpClient
from .failures import AmbiguousRetry, ServerGone, ServerRefused
from .names import legal

__all__ = ["resource_entries", "tool_entry"]

_log = logging.getLogger("toolwire.mcp")
_NOT_RUN = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})


def tool_entry(client: McpClient, name: str, tool: Tool, refused: Callable[[], str | None]) -> Entry:
    """`name` is the model's name for the tool, `tool.name` the server's; `refused` returns why the lock forbids it."""
    wanted = tool.name
    gone: list[str] = []  # why this tool is withdrawn

    async def call(**arguments: JSON) -> ToolResult:
        running = current_call()
        asked = ToolCall("" if running is None else running.call_id, wanted, arguments)
        key = None if running is None else running.idempotency_key
        try:
            result = await client.call(asked, key=key, limited=False)
        except RpcError as error:
            raise _withdrawn(client, error, gone) from error
        except AmbiguousRetry:
            raise  # the connection works
        except ServerGone as error:
            client.lost(error)
            raise
        return _judged(result, tool)

    def withdrawn() -> str | None:
        if client.trouble is not None:
            return f"the server {client.spec.name} cannot be used: {client.trouble}"
        if gone:
            return gone[0]
        return _difference(client, tool) or refused()

    options = Options(
        timeout=client.spec.timeout, withdrawn=withdrawn, untrusted=not client.spec.trusted, resource=client.spec.name
    )
    # titles and hints are for people and programs; the wires of the models have no field for them
    return Entry(replace(tool, name=name, extra={}), call, options)


def _difference(client: McpClient, tool: Tool) -> str | None:
    """Return how the tool has changed since it was offered, or None."""
    now = client.tools.get(tool.name)
    if now is None:
        return f"the server {client.spec.name} no longer offers it"
    same = now is tool or (now.input_schema == tool.input_schema and now.description == tool.description)
    return None if same else "it has changed since it was offered; build the toolbox again"


def _withdrawn(client: McpClient, error: RpcError, gone: list[str]) -> Exception:
    """Handle a protocol error. Invalid parameters withdraw one tool, any other error the whole server."""
    words = f"{client.spec.name} answered with the error {error.code}: {error.message}"
    if error.code == INVALID_PARAMS:
        gone.append(words)
        return ServerRefused(f"{words}. The tool is withdrawn.")
    others = ", ".join(client.tools)
    client.withdraw(words)
    said = f"{words}. All tools of this server are withdrawn: {others}."
    return ServerRefused(said) if error.code in _NOT_RUN else ProtocolError(said, status=502)


def _judged(result: ToolResult, tool: Tool) -> ToolResult:
    """Annotate a result that does not match its output schema and pass it on, because its text may still be right.

    Fields that only MCP has become an annotation, too.
    """
    if result.extra:
        result = annotate(replace(result, extra={}), mcp=result.extra.get(NAME, {}))
    if result.is_error:
        return annotate(result, code="failed")
    if tool.output_schema is None or result.structured is None:
        return result
    check = validator(tool.output_schema)
    if check.accepts(result.structured):
        return result
    problems = [str(problem) for problem in check.problems(result.structured)]
    _log.warning("the result of %s does not match its output schema: %s", tool.name, "; ".join(problems))
    return annotate(result, undeclared=problems)


def resource_entries(client: McpClient) -> list[Entry]:
    """Make two tools from the resources of a server: one lists them, one reads them."""
    server = client.spec.name

    async def listing() -> JSON:
        return [_shown(one) for one in await client.resources() if type(one) is dict]

    async def read(uri: str) -> ToolResult:
        contents = await client.read(uri)
        blocks = [{"type": "resource", "resource": one} for one in contents]
        return ToolResult("", None, decode_content({"content": blocks}) or (Text(""),))

    return [
        _read_entry(client, f"{server}_list_resources", f"Lists what {server} has to read, by address.", {}, listing),
        _read_entry(
            client,
            f"{server}_read_resource",
            f"Reads something of {server} by its address.",
            {"uri": {"type": "string", "description": f"as {legal(f'{server}_list_resources')} shows it"}},
            read,
        ),
    ]


def _shown(raw: Object) -> Object:
    return {key: raw[key] for key in ("uri", "uriTemplate", "name", "description", "mimeType") if key in raw}


def _read_entry(
    client: McpClient, name: str, words: str, properties: Object, function: Callable[..., Awaitable[JSON]]
) -> Entry:
    async def call(**arguments: JSON) -> JSON:
        try:
            return await function(**arguments)
        except RpcError as error:
            raise ToolError(f"{client.spec.name}: {error.message}") from error
        except ServerGone as gone:
            client.lost(gone)
            raise

    def withdrawn() -> str | None:
        return None if client.trouble is None else f"the server {client.spec.name} cannot be used: {client.trouble}"

    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    options = Options(timeout=client.spec.timeout, withdrawn=withdrawn, untrusted=not client.spec.trusted)
    return Entry(Tool(legal(name), words, schema, effect="read"), call, options)
