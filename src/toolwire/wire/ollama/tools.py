"""Tool declarations.

    {"type": "function", "function": {"name", "description", "parameters": {"type": "object", "properties": {…}}}}

There is no tool choice: to forbid calls, a request declares no tools, and a call cannot be forced.
"""

from __future__ import annotations

from operator import attrgetter

from ...ir.errors import ProtocolError
from ...ir.losses import Losses, Severity
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.tools import Tool
from ..fields import read_extra, read_optional_string, read_string, require_object, type_error, write_extra
from .content import FORM, NAME

__all__ = ["read_tool", "write_tool", "write_tools"]

_FUNCTION = "ollama/function"
_OUTER = frozenset({"type", "function"})
_INNER = frozenset({"name", "description", "parameters"})


def read_tool(raw: JSON) -> Tool:
    """Read a declaration; one without `function` is a built-in tool and stays as it is."""
    if "function" not in require_object(raw):
        return Tool(read_string(raw, "type"), kind="builtin", extra={NAME: raw})
    function = require_object(raw["function"], "function")
    parameters = function.get("parameters")
    if parameters is not None and type(parameters) is not dict:
        raise type_error("a JSON Schema object", parameters, "function", "parameters")
    try:
        name, description = read_string(function, "name"), read_optional_string(function, "description")
    except ProtocolError as error:
        raise error.within("function") from None
    extra = read_extra(function, _INNER, _FUNCTION, read_extra(raw, _OUTER, NAME))
    form: Object = {} if raw.get("type") == "function" else {":type": raw.get("type")}
    if parameters is None:
        form[":parameters"] = "absent"  # or null, which stays in the form of the function
    if form:
        extra[FORM] = {**extra.get(FORM, {}), **form}
    return Tool(name, description, parameters, extra=extra)


_UNWRITABLE: tuple[tuple[str, Severity], ...] = (
    ("output_schema", "info"),
    ("strict", "warning"),
    ("namespace", "warning"),
    ("deferred", "warning"),
    ("examples", "warning"),
    ("grammar", "warning"),
    ("cache", "info"),
)
_unwritable = attrgetter(*(concept for concept, _ in _UNWRITABLE))


def write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider."""
    if tool.kind == "builtin":
        if NAME in tool.extra:
            return tool.extra[NAME]
        losses.add(path, "built-in tool", "dropped", f"Ollama has no built-in tool {tool.name!r}", "error")
        return None
    if any(_unwritable(tool)):
        _report_unwritable(tool, losses, path)
    form = tool.extra.get(FORM, {})
    function: Object = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.input_schema is not None:
        function["parameters"] = tool.input_schema
    elif ":parameters" not in form:
        function["parameters"] = {"type": "object", "properties": {}}  # chat templates of models read it
    kind = form.get(":type", "function")
    out: Object = {} if kind is None else {"type": kind}
    out["function"] = write_extra(function, tool.extra, _FUNCTION)
    return write_extra(out, tool.extra, NAME)


def _report_unwritable(tool: Tool, losses: Losses, path: str) -> None:
    for (concept, severity), value in zip(_UNWRITABLE, _unwritable(tool), strict=True):
        if value:
            losses.add(f"{path}/{concept}", concept, "dropped", "Ollama declarations have no field for it", severity)


def write_tools(request: Request, losses: Losses) -> list[Object]:
    """Return the declarations of a request: none if the tool choice forbids calls."""
    if request.parallel is False:
        losses.add(join("parallel"), "one call at a time", "dropped", "Ollama has no setting for parallel calls")
    mode = "auto" if request.choice is None else request.choice.mode
    if mode == "none":
        losses.add(join("choice"), "tool choice none", "rewritten", "no tools are declared", "info")
        for index in range(len(request.tools)):
            losses.add(join("tools", index), "tool", "dropped", "tool choice none forbids calls", "info")
        return []
    if mode != "auto":
        severity: Severity = "warning" if mode == "validated" else "error"
        losses.add(join("choice"), f"tool choice {mode}", "dropped", "Ollama has no tool choice", severity)
    written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(request.tools)]
    return [tool for tool in written if tool is not None]
