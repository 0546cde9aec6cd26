"""Convert the operations of an OpenAPI document to tools, and the arguments of a call to an HTTP request.

    for tool in tools_from_openapi(document):
        tool.request({"petId": 7, "body": {"name": "Rex"}})  # OperationRequest("PUT", "/pets/7", query, headers, body)

Versions 3.0 and 3.1. If two parameters share a name, the second is prefixed with its location. The effect of an
operation follows from its method, as HTTP defines it: GET reads, PUT and DELETE are idempotent, the others write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from ..ir.errors import EncodeError, SchemaError
from ..ir.pointer import JSON, Object, join, resolve
from ..ir.text import dumps
from ..ir.tools import Effect, Tool

__all__ = ["ApiTool", "OperationRequest", "ParameterLocation", "tools_from_openapi"]

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_EFFECTS: dict[str, Effect] = {
    "get": "read",
    "head": "read",
    "options": "read",
    "query": "read",
    "put": "idempotent",
    "delete": "idempotent",
}
_EXCLUDED_HEADERS = frozenset({"authorization", "content-type", "accept"})  # set by the sender of the request
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class ParameterLocation(NamedTuple):
    """The location of an argument in a request."""

    location: str  # path, query, header, cookie or body
    name: str


class OperationRequest(NamedTuple):
    """An HTTP request, without its host."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: JSON


class ApiTool(Tool, frozen=True):
    """A Tool for one operation. `locations` has the location of each argument."""

    method: str = "get"
    path: str = "/"
    locations: dict[str, ParameterLocation] = {}

    def request(self, arguments: Mapping[str, JSON]) -> OperationRequest:
        """Build the request for these arguments; EncodeError for an unknown argument or a missing path parameter."""
        path, query, headers, body = self.path, [], {}, None
        for name, value in arguments.items():
            location = self.locations.get(name)
            if location is None:
                raise EncodeError(f"{self.name} has no parameter {name!r}", pointer=join(name))
            if location.location == "path":
                path = path.replace(f"{{{location.name}}}", _percent_encode(_to_text(value)))
            elif location.location == "query":
                query += [(location.name, _to_text(element)) for element in (value if type(value) is list else [value])]
            elif location.location == "body":
                body = value
            else:
                headers.update(_make_header(location, value))
        if missing := re.search(r"\{([^{}]*+)\}", path):
            raise EncodeError(
                f"the path parameter {missing[1]!r} is missing", pointer=join(missing[1]), hint="pass a value for it"
            )
        return OperationRequest(self.method.upper(), path, query, headers, body)


def _to_text(value: JSON) -> str:
    return value if type(value) is str else dumps(value)


def _percent_encode(text: str) -> str:
    """Percent-encode the text, including slashes, so that an argument never becomes two path segments."""
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in text.encode())


def _make_header(location: ParameterLocation, value: JSON) -> dict[str, str]:
    """Return the header of an argument; EncodeError for control characters, which could inject another header."""
    text = _to_text(value)
    if not text.isprintable():
        raise EncodeError(f"the value of {location.name!r} is not valid in a header", pointer=join(location.name))
    return (
        {"cookie": f"{location.name}={_percent_encode(text)}"}
        if location.location == "cookie"
        else {location.name: text}
    )


def tools_from_openapi(document: Object) -> tuple[ApiTool, ...]:
    """Return one tool per operation; SchemaError if this is not an OpenAPI document."""
    paths = document.get("paths") if type(document) is dict else None
    if type(paths) is not dict or not str(document.get("openapi", "")).startswith("3."):
        raise SchemaError("not an OpenAPI 3 document", hint='the document needs "openapi": "3.…" and "paths"')
    reader = _DocumentReader(document)
    tools: list[ApiTool] = []
    taken: set[str] = set()
    for path, item in paths.items():
        item = reader.resolve_ref(item)
        for method in _METHODS:
            if type(item.get(method)) is dict:
                tool = reader.make_tool(path, method, item, item[method])
                name = tool.name
                while name in taken:
                    name += "_"
                taken.add(name)
                tools.append(tool if name == tool.name else replace(tool, name=name))
    return tuple(tools)


class _DocumentReader:
    """Reads the operations of one document, and resolves its references."""

    def __init__(self, document: Object) -> None:
        self._document = document

    def resolve_ref(self, value: JSON) -> Object:
        """Follow references."""
        for _ in range(16):
            if type(value) is not dict:
                return {}
            ref = value.get("$ref")
            if type(ref) is not str or not ref.startswith("#/"):
                return value
            try:
                value = resolve(self._document, ref[1:])
            except (KeyError, IndexError, TypeError, ValueError):
                raise SchemaError(f"the reference {ref!r} cannot be resolved", pointer=ref[1:]) from None
        raise SchemaError("the references form a cycle")

    def make_tool(self, path: str, method: str, item: Object, operation: Object) -> ApiTool:
        """Convert one operation to a tool. `item` is its path item, whose parameters apply to every method."""
        argument_locations: dict[str, ParameterLocation] = {}
        properties: Object = {}
        required: list[str] = []
        for location, schema, is_required in self._arguments(item, operation):
            name = location.name if location.location != "body" else "body"
            if name in argument_locations:
                name = f"{location.location}_{name}"
            argument_locations[name] = location
            properties[name] = schema
            if is_required:
                required.append(name)
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        name = operation.get("operationId") or f"{method}{path}"
        return ApiTool(
            name=re.sub(r"[^a-zA-Z0-9_-]+", "_", str(name)).strip("_") or method,
            description=_description(operation),
            input_schema=self._with_defs(schema),
            output_schema=self._output_schema(operation),
            effect=_EFFECTS.get(method, "write"),
            method=method,
            path=path,
            locations=argument_locations,
        )

    def _arguments(self, item: Object, operation: Object) -> Iterator[tuple[ParameterLocation, Object, bool]]:
        """Yield the location, the schema and the required flag of each argument.

        A parameter of the operation overrides the same parameter of the path item.
        """
        listed: dict[ParameterLocation, Object] = {}
        for raw in (*(item.get("parameters") or ()), *(operation.get("parameters") or ())):
            parameter = self.resolve_ref(raw)
            location = ParameterLocation(str(parameter.get("in")), str(parameter.get("name")))
            if (
                location.location in ("path", "query", "header", "cookie")
                and location.name.lower() not in _EXCLUDED_HEADERS
            ):
                listed[location] = parameter
        for location, parameter in listed.items():
            schema = parameter.get("schema") or _first_schema(parameter.get("content"))
            described = {"description": parameter["description"]} if parameter.get("description") else {}
            yield (
                location,
                {**upgrade_schema(schema), **described},
                bool(parameter.get("required")) or location.location == "path",
            )
        body = self.resolve_ref(operation.get("requestBody"))
        schema = _first_schema(body.get("content"))
        if body:
            yield ParameterLocation("body", "body"), upgrade_schema(schema), bool(body.get("required"))

    def _output_schema(self, operation: Object) -> Object | None:
        """Return the schema of the first successful response that is an object; None if there is none."""
        responses = operation.get("responses")
        for status, raw in responses.items() if type(responses) is dict else ():
            if str(status).startswith("2"):
                schema = _first_schema(self.resolve_ref(raw).get("content"))
                if schema and self.resolve_ref(schema).get("type") == "object":
                    return self._with_defs(upgrade_schema(self.resolve_ref(schema)))
        return None

    def _with_defs(self, schema: Object) -> Object:
        """Copy the definitions that a schema refers to into its `$defs`, and rewrite the references."""
        defs: Object = {}
        pending = [schema]
        while pending:
            for target in _ref_targets(pending.pop()):
                name = target.rpartition("/")[2]
                if name not in defs and target.startswith("#/components/schemas/"):
                    defs[name] = upgrade_schema(self.resolve_ref({"$ref": target}))
                    pending.append(defs[name])
        rebased = _rebase_refs(schema)
        return (
            {**rebased, "$defs": {name: _rebase_refs(element) for name, element in defs.items()}} if defs else rebased
        )


def _description(operation: Object) -> str | None:
    texts = [operation.get("summary"), operation.get("description")]
    nonempty = [element.strip() for element in texts if type(element) is str and element.strip()]
    return "\n\n".join(dict.fromkeys(nonempty)) or None


def _first_schema(content: JSON) -> Object:
    """Return the schema of a body, of its JSON variant if there is one."""
    if type(content) is not dict or not content:
        return {}
    media = next((element for kind, element in content.items() if "json" in kind), next(iter(content.values())))
    schema = media.get("schema") if type(media) is dict else None
    return schema if type(schema) is dict else {}


def _ref_targets(value: JSON) -> Iterator[str]:
    """Yield every `$ref` in a schema."""
    if type(value) is dict:
        if type(value.get("$ref")) is str:
            yield value["$ref"]
        for element in value.values():
            yield from _ref_targets(element)
    elif type(value) is list:
        for element in value:
            yield from _ref_targets(element)


def _rebase_refs(value: JSON) -> JSON:
    """Return a copy whose references to component schemas point to `$defs`."""
    if type(value) is list:
        return [_rebase_refs(element) for element in value]
    if type(value) is not dict:
        return value
    return {
        key: element.replace("#/components/schemas/", "#/$defs/")
        if key == "$ref" and type(element) is str
        else _rebase_refs(element)
        for key, element in value.items()
    }


def upgrade_schema(schema: JSON) -> JSON:
    """Convert the keywords that are specific to 3.0 to JSON Schema: `nullable`, `example`, boolean bounds."""
    if type(schema) is list:
        return [upgrade_schema(element) for element in schema]
    if type(schema) is not dict:
        return schema
    out = {key: upgrade_schema(value) if key not in ("enum", "default") else value for key, value in schema.items()}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if type(out.get(exclusive)) is bool:
            if out.pop(exclusive) and bound in out:
                out[exclusive] = out.pop(bound)
    if "example" in out and "properties" not in out:
        out.setdefault("examples", [out.pop("example")])
    if type(out.get("nullable")) is bool and out.pop("nullable"):
        if type(out.get("type")) is str and "enum" not in out:
            return {**out, "type": [out["type"], "null"]}
        return {"anyOf": [out, {"type": "null"}]}
    return out
