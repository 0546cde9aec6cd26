"""A server's tools and resources as entries of a toolbox, and their names for the model."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256

from msgspec.structs import replace

from ...bridge.conversation.names import short_hash
from ...ir.errors import ProtocolError
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...run.calls.context import ToolError, current_call
from ...run.tools.function_tool import Options
from ...run.tools.toolbox import Entry
from ...run.values.results import annotate
from ...schema.validation.validator import validator
from ...wire.mcp import NAME
from ..protocol.content import decode_content
from ..protocol.rpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, RpcError
from .client import McpClient
from .failures import AmbiguousRetry, ServerGone, ServerRefused

# Names of the tools of several servers for the model: accepted by every provider, and unique.
#
# A name is kept if possible. If two servers use the same name, both tools get their server's name as a prefix, so
# that the result does not depend on the order of the servers. Characters that a provider may reject are replaced, and
# a hash of the original name is appended.


is_legal = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}").fullmatch
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")


def make_legal(name: str) -> str:
    """Return the name if every provider accepts it, otherwise a cleaned form with a hash.

    >>> make_legal("get_weather"), make_legal("files.read")
    ('get_weather', 'files_read_pbmm')
    """
    if is_legal(name):
        return name
    clean = _ILLEGAL.sub("_", name)
    clean = clean if re.match(r"[A-Za-z_]", clean) else f"_{clean}"
    return f"{clean[:59]}_{short_hash(name, 4)}"


def assign_names(tools: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
    """Map (server, tool name of the server) to the name for the model.

    A name that several servers have gets the server's name as a prefix, and a hash as well if it is still not unique.
    """
    pairs = [(server, name) for server, names in tools.items() for name in names]
    shared = Counter(make_legal(name) for _, name in pairs)
    candidates = {
        (server, name): make_legal(name) if shared[make_legal(name)] == 1 else make_legal(f"{server}_{name}")
        for server, name in pairs
    }
    clashes = Counter(candidates.values())
    assigned: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for (server, name), candidate in candidates.items():
        while candidate in taken or clashes[candidate] > 1:  # a prefixed name, and another server's tool of that name
            candidate = make_legal(f"{candidate[:50]}.{short_hash(f'{server}/{name}/{candidate}', 6)}")
        taken.add(candidate)
        assigned[server, name] = candidate
    return assigned


# A server's tools and resources as entries of a toolbox.
#
# A result of the server, including a failure of the tool, is passed on. A protocol error is not a result: the call
# fails, and the unreliable part of the server is withdrawn, so that the model is informed and continues with the
# other tools.


_log = logging.getLogger("toolwire.mcp")
_NOT_RUN = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})


def tool_entry(client: McpClient, name: str, tool: Tool, lock_refusal: Callable[[], str | None]) -> Entry:
    """Make the toolbox entry of a tool. `name` is the model's name for it, `tool.name` the server's.

    `lock_refusal` returns the reason why the lock forbids the tool, or None.
    """
    server_name = tool.name
    withdrawal_reasons: list[str] = []  # why this tool is withdrawn

    async def call(**arguments: JSON) -> ToolResult:
        """Call the tool on the server, and withdraw the tool or the server if the protocol or the connection fails."""
        running = current_call()
        asked = ToolCall(running.call_id, server_name, arguments)
        try:
            result = await client.call(asked, key=running.idempotency_key, limited=False)
        except RpcError as error:
            raise _withdraw(client, error, withdrawal_reasons) from error
        except AmbiguousRetry:
            raise  # the connection works
        except ServerGone as error:
            client.lost(error)
            raise
        return _validate_output(result, tool)

    def withdrawn() -> str | None:
        if client.unavailable_reason is not None:
            return f"the server {client.spec.name} cannot be used: {client.unavailable_reason}"
        if withdrawal_reasons:
            return withdrawal_reasons[0]
        return _describe_change(client, tool) or lock_refusal()

    options = Options(
        timeout=client.spec.timeout, withdrawn=withdrawn, untrusted=not client.spec.trusted, resource=client.spec.name
    )
    return Entry(offered_tool(tool, name), call, options, _origin(client, server_name))


def _origin(client: McpClient, name: str) -> str:
    """Identify a tool of a server. The address is hashed, because it may contain secrets."""
    spec = client.spec
    address = (spec.url or "").partition("?")[0] or "\x00".join((spec.command or "", *spec.args))
    return f"mcp:{spec.name}:{sha256(address.encode()).hexdigest()[:16]}:{name}"


def offered_tool(tool: Tool, name: str) -> Tool:
    """Return the declaration for models: their wires have no field for titles and hints, which are for people."""
    return replace(tool, name=name, extra={})


def _describe_change(client: McpClient, tool: Tool) -> str | None:
    """Return how the tool has changed since it was offered, or None."""
    current = client.tools.get(tool.name)
    if current is None:
        return f"the server {client.spec.name} no longer offers it"
    is_same = current is tool or (current.input_schema == tool.input_schema and current.description == tool.description)
    return None if is_same else "it has changed since it was offered; it is offered again in the next turn"


def _withdraw(client: McpClient, error: RpcError, withdrawal_reasons: list[str]) -> Exception:
    """Withdraw one tool for invalid parameters, or the whole server for any other protocol error; return an exception.

    It is a ServerRefused if the call certainly did not run, else a ProtocolError.
    """
    message = f"{client.spec.name} answered with the error {error.code}: {error.message}"
    if error.code == INVALID_PARAMS:
        withdrawal_reasons.append(message)
        return ServerRefused(f"{message}. The tool is withdrawn.")
    other_tools = ", ".join(client.tools)
    client.withdraw(message)
    text = f"{message}. All tools of this server are withdrawn: {other_tools}."
    return ServerRefused(text) if error.code in _NOT_RUN else ProtocolError(text, status=502)


def _validate_output(result: ToolResult, tool: Tool) -> ToolResult:
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
        return [_listing_fields(resource) for resource in await client.resources() if type(resource) is dict]

    async def read(uri: str) -> ToolResult:
        contents = await client.read(uri)
        blocks = [{"type": "resource", "resource": content} for content in contents]
        return ToolResult("", None, decode_content({"content": blocks}) or (Text(""),))

    return [
        _read_entry(client, f"{server}_list_resources", f"Lists what {server} has to read, by address.", {}, listing),
        _read_entry(
            client,
            f"{server}_read_resource",
            f"Reads something of {server} by its address.",
            {"uri": {"type": "string", "description": f"as {make_legal(f'{server}_list_resources')} shows it"}},
            read,
        ),
    ]


def _listing_fields(raw: Object) -> Object:
    return {key: raw[key] for key in ("uri", "uriTemplate", "name", "description", "mimeType") if key in raw}


def _read_entry(
    client: McpClient, name: str, message: str, properties: Object, function: Callable[..., Awaitable[JSON]]
) -> Entry:
    """Make a read-only tool from `function`. A JSON-RPC error is reported to the model and withdraws nothing."""

    async def call(**arguments: JSON) -> JSON:
        try:
            return await function(**arguments)
        except RpcError as error:
            raise ToolError(f"{client.spec.name}: {error.message}") from error
        except ServerGone as gone:
            client.lost(gone)
            raise

    def withdrawn() -> str | None:
        return (
            None
            if client.unavailable_reason is None
            else f"the server {client.spec.name} cannot be used: {client.unavailable_reason}"
        )

    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    options = Options(timeout=client.spec.timeout, withdrawn=withdrawn, untrusted=not client.spec.trusted)
    return Entry(Tool(make_legal(name), message, schema, effect="read"), call, options, _origin(client, name))
