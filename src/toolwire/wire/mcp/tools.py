"""Read and write tool declarations, and read replies to `tools/list`.

    {"name", "description", "inputSchema", "outputSchema", "annotations": {"readOnlyHint", "idempotentHint", …}, "title", "_meta"}

Annotations are hints of the server: the effect is derived from them, and the caller decides whether to trust it.
Versions differ: annotations came with 2025-03-26, output schemas with 2025-06-18, and these were objects before
2026-07-28.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.errors import ProtocolError
from ...ir.losses import Losses, Severity
from ...ir.pointer import JSON, Object
from ...ir.tools import Effect, Tool
from ..documents import declared_tools, scorer
from ..fields import decode_list, read_extra, read_optional_string, read_string, require_object, write_extra
from ..protocol import Kind
from .versions import LATEST, since

NAME = "mcp"
_TOOL = frozenset({"name", "description", "inputSchema", "outputSchema"})
DETECTION: Mapping[Kind, Callable[[JSON], int]] = {
    "tools": scorer((6, lambda body: any("inputSchema" in tool for tool in declared_tools(_reply(body))))),
}


def _reply(body: JSON) -> JSON:
    """Return the result of a JSON-RPC reply; a bare result or list is returned unchanged."""
    return body["result"] if type(body) is dict and type(body.get("result")) is dict else body


def list_tools(body: JSON) -> tuple[Tool, ...]:
    """Read the tools of a `tools/list` reply."""
    return decode_tools(declarations(body))


def declarations(body: JSON) -> list[JSON]:
    """Return the raw declarations of a `tools/list` reply. Raise ProtocolError for another document."""
    reply = _reply(body)
    tools = reply.get("tools") if type(reply) is dict else reply
    if type(tools) is not list:
        raise ProtocolError(
            "expected a tools/list reply", pointer="/tools", hint='pass {"tools": […]} or the JSON-RPC message'
        )
    return tools


def decode_tools(declared: list[JSON]) -> tuple[Tool, ...]:
    return tuple(decode_list({"tools": declared}, "tools", _read_tool))


def _read_tool(raw: JSON) -> Tool:
    """Read a declaration, with its effect from the annotations; raise ProtocolError if it is invalid."""
    schema, output = require_object(raw).get("inputSchema"), raw.get("outputSchema")
    return Tool(
        read_string(raw, "name"),
        read_optional_string(raw, "description"),
        None if schema is None else require_object(schema, "inputSchema"),
        None if output is None else require_object(output, "outputSchema"),
        effect=_effect(raw.get("annotations")),
        extra=read_extra(raw, _TOOL, NAME),
    )


def _effect(annotations: JSON) -> Effect:
    """Derive the effect of a tool from its annotations; without a usable hint it is `write`, the most cautious one."""
    if type(annotations) is dict:
        if annotations.get("readOnlyHint") is True:
            return "read"
        if annotations.get("idempotentHint") is True:
            return "idempotent"
    return "write"


_UNWRITABLE: tuple[tuple[str, Severity], ...] = (
    ("strict", "info"),
    ("namespace", "warning"),
    ("deferred", "info"),
    ("examples", "warning"),
    ("grammar", "warning"),
    ("cache", "info"),
)


def encode_tools(tools: tuple[Tool, ...], *, version: str = LATEST) -> tuple[list[Object], Losses]:
    """Write the declarations for `version`; built-in tools and fields that MCP lacks are losses."""
    losses = Losses()
    out: list[Object] = []
    for index, tool in enumerate(tools):
        path = f"/tools/{index}"
        if tool.kind == "builtin":
            losses.add(path, "built-in tool", "dropped", "it runs at its provider, not on a server", "error")
            continue
        for concept, severity in _UNWRITABLE:
            if getattr(tool, concept):
                losses.add(f"{path}/{concept}", concept, "dropped", "MCP declarations have no field for it", severity)
        out.append(_write_tool(tool, version, losses, path))
    return out, losses


def _write_tool(tool: Tool, version: str, losses: Losses, path: str) -> Object:
    """Write one declaration; an output schema that `version` does not support is a loss, annotations are left out."""
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    out["inputSchema"] = {"type": "object", "properties": {}} if tool.input_schema is None else tool.input_schema
    if tool.output_schema is not None:
        if _has_place(tool.output_schema, version):
            out["outputSchema"] = tool.output_schema
        else:
            losses.add(f"{path}/output_schema", "output schema", "dropped", f"{version} has no field for it", "info")
    own_fields = tool.extra.get(NAME, {})
    if tool.effect != "write" and "annotations" not in own_fields and since(version, "2025-03-26"):
        out["annotations"] = {"readOnlyHint": tool.effect in ("pure", "read"), "idempotentHint": True}
    return write_extra(out, tool.extra, NAME)


def _has_place(schema: Object, version: str) -> bool:
    """Return True if the version supports the schema. Before 2026-07-28 a result with a schema had to be an object."""
    return since(version, LATEST) or (since(version, "2025-06-18") and schema.get("type") == "object")
