"""Tool declarations, tool choice, cache marks, and the provider's tool search with its references, on Messages.

    {"name", "description", "input_schema", "strict", "cache_control", "defer_loading", "input_examples", …}

A tool with a `type` other than `custom` is a provider tool and is passed through unchanged. The switch for parallel
calls is a field of the tool choice, so a request for one call at a time creates a choice if there is none.

Anthropic's tool search, which the provider runs.

    {"type": "tool_search_tool_regex_20251119" | "tool_search_tool_bm25_20251119", "name": "tool_search_tool_…"}
    {"type": "server_tool_use", "id": "srvtoolu_…", "name": "tool_search_tool_…", "input": {"query": …} | {"pattern": …}}
    {"type": "tool_search_tool_result", "tool_use_id", "content": {"tool_references": […]} | {"error_code": …}}

Source: anthropic 2.8.0, ToolSearchToolBm25_20251119Param, ServerToolUseBlock, ToolSearchToolResultBlock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Opaque, Part
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.text import dumps
from ...ir.tools import ChoiceMode, HostedSearchCall, HostedSearchResult, Tool, ToolChoice
from ..codec import HostedSearchPart, SearchCodec, unknown_fields
from ..fields import (
    decode_list,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    report_tool_fields,
    require_object,
    type_error,
    write_builtin,
    write_extra,
)
from ..typed_tools import TypedCodec
from .typed_tools import fit_item, other_fields, read_member, read_typed_tool

NAME = "anthropic"

_FORM = "anthropic~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_CACHE = "anthropic/cache_control"


_TOOL = frozenset({"name", "description", "input_schema", "strict", "cache_control", "defer_loading", "input_examples"})


def read_tool(raw: JSON) -> Tool:
    """Read a declaration; a tool whose type is not `custom` is built in and stays as it is.

    Raise ProtocolError if the schema is missing or not an object.
    """
    kind = require_object(raw).get("type")
    if kind is not None and kind != "custom":
        return read_typed_tool(raw) or Tool(str(raw.get("name", kind)), kind="builtin", extra={NAME: raw})
    schema = raw.get("input_schema")
    if type(schema) is not dict:
        if "input_schema" not in raw:
            raise ProtocolError("'input_schema' is missing")
        raise type_error("a JSON Schema object", schema, "input_schema")
    name, description = read_string(raw, "name"), read_optional_string(raw, "description")
    if len(raw) == 2 + (description is not None):  # no other fields
        return Tool(name, description, schema)
    extra = read_extra(raw, _TOOL, NAME)
    return Tool(
        name,
        description,
        schema,
        strict=read_boolean(raw, "strict"),
        examples=tuple(decode_list(raw, "input_examples", require_object)),
        deferred=read_boolean(raw, "defer_loading"),
        cache=read_cache(raw, extra),
        extra=extra,
    )


def decode_tools(body: Object) -> tuple[Tool, ...]:
    """Decode the tools of a request."""
    return tuple(decode_list(body, "tools", read_tool))


def read_discovered_tools(body: JSON) -> tuple[Tool, ...]:
    """Return the tools that a tool search found. `body` is a response, its content or one block.

    Anthropic returns only their names. Raise ProtocolError if there is no result of a search.
    """
    blocks = body.get("content", [body]) if type(body) is dict and body.get("type") == "message" else body
    tools: list[Tool] = []
    for block in blocks if type(blocks) is list else [blocks]:
        if type(block) is dict and block.get("type") == "tool_search_tool_result":
            result = require_object(block.get("content"), "content")
            tools += decode_list(
                result, "tool_references", lambda raw: Tool(read_string(require_object(raw), "tool_name"))
            )
    if not tools:
        raise ProtocolError("found no tool_search_tool_result block", pointer="/content")
    return tuple(tools)


def _as_function(tool: Tool) -> Tool:
    """Return the function for a typed tool, with the fields that any tool may have."""
    others = other_fields(tool)
    declaration: Object = {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
    try:
        return read_tool({**others, **declaration})
    except ProtocolError:  # Anthropic would refuse the value of a field; the function does not need it
        return Tool(tool.name, tool.description, tool.input_schema, extra={NAME: others})


TYPED = TypedCodec(as_function=_as_function, read_call=read_member, fit_item=fit_item)


def _no_arguments(tool: Tool) -> Object:
    """Return the schema of a tool without parameters, closed if the tool is strict."""
    closed: Object = {"additionalProperties": False} if tool.strict else {}
    return {"type": "object", "properties": {}, **closed}


def write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider.

    Fields that Anthropic lacks and the kind of a search are losses.
    """
    if tool.kind == "builtin" or (tool.kind == "typed" and NAME in tool.extra):
        return write_builtin(tool, NAME, "Anthropic", losses, path)
    if tool.kind == "search":
        losses.add(f"{path}/kind", "search tool", "rewritten", "sent as a function", "info")
    if tool.output_schema is not None or tool.namespace is not None or tool.grammar is not None:
        unwritable = [name for name in ("output_schema", "namespace", "grammar") if getattr(tool, name) is not None]
        report_tool_fields(unwritable, "Anthropic", losses, path)
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    out["input_schema"] = _no_arguments(tool) if tool.input_schema is None else tool.input_schema
    if tool.strict is not None:
        out["strict"] = tool.strict
    if tool.deferred is not None:
        out["defer_loading"] = tool.deferred
    if tool.examples:
        out["input_examples"] = list(tool.examples)
    if not tool.extra and tool.cache is None:
        return out
    write_cache(tool.cache, tool.extra, out)
    return write_extra(out, tool.extra, NAME)


_MODES: dict[str, ChoiceMode] = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_TYPES: dict[ChoiceMode, str] = {"auto": "auto", "required": "any", "none": "none", "tool": "tool"}
_CHOICE = frozenset({"type", "name", "disable_parallel_tool_use"})


def read_choice(raw: JSON) -> tuple[ToolChoice | None, bool | None]:
    """Read the tool choice, and whether parallel calls are allowed; raise ProtocolError for an unknown choice."""
    if raw is None:
        return None, None
    kind = require_object(raw, "tool_choice").get("type")
    mode = _MODES.get(str(kind))
    if mode is None:
        raise ProtocolError(
            f"unknown tool choice {kind!r}", pointer="/tool_choice/type", hint="use auto, any, tool or none"
        )
    try:
        names = (read_string(raw, "name"),) if mode == "tool" else ()
        disabled = read_boolean(raw, "disable_parallel_tool_use")
    except ProtocolError as error:
        raise error.within("tool_choice") from None
    return ToolChoice(mode, names, extra=read_extra(raw, _CHOICE, NAME)), None if disabled is None else not disabled


def write_choice(request: Request, losses: Losses) -> Object | None:
    """Return `tool_choice`; a setting for parallel calls needs one, so `auto` is used if there is no choice.

    A mode that Anthropic lacks is sent as the nearest one and reported. None if the request has neither.
    """
    choice = request.choice
    if choice is None:
        if request.parallel is None or not request.tools:
            return None
        choice = ToolChoice("auto")
    kind = _TYPES.get(choice.mode)
    if kind is None:
        kind = "any" if choice.required else "auto"
        losses.add(
            join("choice"), f"tool choice {choice.mode}", "weakened", f"Anthropic has no equivalent; sent as {kind!r}"
        )
    out: Object = {"type": kind}
    if kind == "tool":
        out["name"] = choice.names[0]
    if request.parallel is not None and kind != "none":
        out["disable_parallel_tool_use"] = not request.parallel
    return write_extra(out, choice.extra, NAME)


_METHOD = re.compile(r"tool_search_tool_(regex|bm25)(?:_\d{8})?").fullmatch
_DEFAULT_METHOD = "bm25"  # queries in natural language, as other providers' searches have them
_DATE = "20251119"
_ID_PREFIX = "srvtoolu_"  # "String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
_ERRORS = frozenset({"invalid_tool_input", "unavailable", "too_many_requests", "execution_time_exceeded"})


def _method_of(declaration: Object) -> str | None:
    match = _METHOD(str(declaration.get("type")))
    return None if match is None else match[1]


def _declare(method: str) -> Tool:
    name = f"tool_search_tool_{method or _DEFAULT_METHOD}"
    return Tool(name, kind="builtin", extra={NAME: {"type": f"{name}_{_DATE}", "name": name}})


def _read(part: Opaque) -> HostedSearchPart | None:
    """Read a part of a tool search: its call or its result, or None for any other part."""
    block = part.value
    if part.type == "server_tool_use" and (match := _METHOD(str(block.get("name")))) is not None:
        arguments = block.get("input")
        return HostedSearchCall(str(block.get("id", "")), arguments if type(arguments) is dict else {}, match[1])
    if part.type == "tool_search_tool_result":
        content = block.get("content")
        found, error = _read_content(content if type(content) is dict else {})
        return HostedSearchResult(str(block.get("tool_use_id", "")), found, error)
    return None


def _read_content(content: Object) -> tuple[tuple[str, ...], str | None]:
    """Return the names of the found tools, or the code of an error."""
    references: JSON = content.get("tool_references")
    names = [reference.get("tool_name") for reference in references or () if type(reference) is dict]
    error = content.get("error_code")
    return tuple(name for name in names if type(name) is str), None if error is None else str(error)


def _unread(part: Opaque) -> Iterator[str]:
    """Yield the pointers of fields that `_read` does not return."""
    block, content = part.value, part.value.get("content")
    if part.type == "server_tool_use":
        yield from unknown_fields(block, ("type", "id", "name", "input"))
        return
    yield from unknown_fields(block, ("type", "tool_use_id", "content"))
    yield from unknown_fields(content, ("type", "tool_references", "error_code"), "/content")
    references = content.get("tool_references") if type(content) is dict else None
    for index, reference in enumerate(references or ()):
        yield from unknown_fields(reference, ("type", "tool_name"), f"/content/tool_references/{index}")


def _write_call(call: HostedSearchCall, *, is_output: bool) -> Opaque:
    del is_output
    name = f"tool_search_tool_{call.method or _DEFAULT_METHOD}"
    block = {"type": "server_tool_use", "id": _legal_id(call.id), "name": name, "input": _query(call.arguments)}
    return Opaque(NAME, "server_tool_use", block)


def _query(arguments: Object) -> Object:
    """Return the input of a search: a query, in place of the paths that other providers' searches have."""
    if type(arguments.get("query")) is str:
        return arguments
    if type(arguments.get("pattern")) is str:  # of a search by regular expressions
        return {"query": arguments["pattern"]}
    paths = arguments.get("paths")
    names = [path for path in paths if type(path) is str] if type(paths) is list else []
    return {"query": " ".join(names) or dumps(arguments)}


def _write_result(result: HostedSearchResult, tools: Sequence[Tool], *, is_output: bool) -> Opaque:
    """Write a result; an error code that Anthropic does not have becomes `unavailable`."""
    del is_output
    if result.error is None:
        references = [{"type": "tool_reference", "tool_name": tool.name} for tool in tools]
        content: Object = {"type": "tool_search_tool_search_result", "tool_references": references}
    else:
        code = result.error if result.error in _ERRORS else "unavailable"
        content = {"type": "tool_search_tool_result_error", "error_code": code}
    block = {"type": "tool_search_tool_result", "tool_use_id": _legal_id(result.call_id), "content": content}
    return Opaque(NAME, "tool_search_tool_result", block)


def _legal_id(call_id: str) -> str:
    if call_id.startswith(_ID_PREFIX):
        return call_id
    return _ID_PREFIX + re.sub(r"[^a-zA-Z0-9_]", "_", call_id)


SEARCH = SearchCodec(
    method_of=_method_of,
    fields=("type", "name"),
    declare=_declare,
    read=_read,
    unread=_unread,
    write_call=_write_call,
    write_result=_write_result,
)


def read_cache(raw: Object, extra: Extra) -> str | None:
    """Return the time to live of a cache mark, or None; its other fields and another type go into `extra`."""
    mark = raw.get("cache_control")
    if mark is None:
        return None
    is_ephemeral = require_object(mark, "cache_control").get("type") == "ephemeral"
    read_extra(mark, ("type", "ttl") if is_ephemeral else ("ttl",), _CACHE, extra)
    if not is_ephemeral:
        extra[_FORM] = {**extra.get(_FORM, {}), ":cache": "other"}
    return read_optional_string(mark, "ttl") or "default"


def write_cache(ttl: str | None, extra: Extra, out: Object) -> None:
    if ttl is not None:
        mark: Object = {} if ":cache" in extra.get(_FORM, {}) else {"type": "ephemeral"}
        if ttl != "default":
            mark["ttl"] = ttl
        out["cache_control"] = write_extra(mark, extra, _CACHE)


def is_reference(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type == "tool_reference" and type(part.value.get("tool_name")) is str


def read_references(parts: Sequence[Part], extra: Extra) -> tuple[str, ...]:
    """Return the names of referenced tools; unusual positions and fields of the references are kept as form."""
    references = [(index, part.value) for index, part in enumerate(parts) if is_reference(part)]  # type: ignore[union-attr]
    first = len(parts) - len(references)
    if any(index < first for index, _ in references) or any(len(value) != 2 for _, value in references):
        extra[_FORM] = {**extra.get(_FORM, {}), ":references": references}
        for _, value in references:
            read_extra(value, ("type", "tool_name"), f"{NAME}/reference", extra)
    return tuple([value["tool_name"] for _, value in references])


def add_references(content: JSON, names: Sequence[str], form: Object) -> list[Object]:
    """Return the content of a result with references to the tools that it loads, after the text or where they were."""
    blocks = [{"type": "text", "text": content}] if type(content) is str and content else list(content or ())
    places = form.get(":references") or ()
    if len(places) != len(names):
        return [*blocks, *({"type": "tool_reference", "tool_name": name} for name in names)]
    for name, (index, reference) in zip(names, places, strict=True):
        blocks.insert(index, {**reference, "tool_name": name})
    return blocks
