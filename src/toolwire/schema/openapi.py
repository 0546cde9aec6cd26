"""Convert the operations of an OpenAPI document to tools, and the arguments of a call to an HTTP request.

    for tool in tools_from_openapi(document):
        tool.request({"petId": 7, "body": {"name": "Rex"}})     # Call("PUT", "/pets/7", query, headers, body)

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
_UNSENT = frozenset({"authorization", "content-type", "accept"})  # set by the sender of the request
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class ParameterLocation(NamedTuple):
    """The location of an argument in a request."""

    where: str  # path, query, header, cookie or body
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
            place = self.locations.get(name)
            if place is None:
                raise EncodeError(f"{self.name} has no parameter {name!r}", pointer=join(name))
            if place.where == "path":
                path = path.replace(f"{{{place.name}}}", _quoted(_text(value)))
            elif place.where == "query":
                query += [(place.name, _text(one)) for one in (value if type(value) is list else [value])]
            elif place.where == "body":
                body = value
            else:
                headers.update(_header(place, value))
        if missing := re.search(r"\{([^{}]*+)\}", path):
            raise EncodeError(
                f"the path parameter {missing[1]!r} is missing", pointer=join(missing[1]), hint="pass a value for it"
            )
        return OperationRequest(self.method.upper(), path, query, headers, body)


def _text(value: JSON) -> str:
    return value if type(value) is str else dumps(value)


def _quoted(text: str) -> str:
    """Percent-encode the text, including slashes, so that an argument never becomes two path segments."""
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in text.encode())


def _header(place: ParameterLocation, value: JSON) -> dict[str, str]:
    text = _text(value)
    if not text.isprintable():
        raise EncodeError(f"the value of {place.name!r} is not valid in a header", pointer=join(place.name))
    return {"cookie": f"{place.name}={_quoted(text)}"} if place.where == "cookie" else {place.name: text}


def tools_from_openapi(document: Object) -> tuple[ApiTool, ...]:
    """Return one tool per operation; SchemaError if this is not an OpenAPI document."""
    paths = document.get("paths") if type(document) is dict else None
    if type(paths) is not dict or not str(document.get("openapi", "")).startswith("3."):
        raise SchemaError("not an OpenAPI 3 document", hint='the document needs "openapi": "3.…" and "paths"')
    reader = _DocumentReader(document)
    tools: list[ApiTool] = []
    taken: set[str] = set()
    for path, item in paths.items():
        item = reader.resolved(item)
        for method in _METHODS:
            if type(item.get(method)) is dict:
                tool = reader.tool(path, method, item, item[method])
                name = tool.name
                while name in taken:
                    name += "_"
                taken.add(name)
                tools.append(tool if name == tool.name else replace(tool, name=name))
    return tuple(tools)


class _DocumentReader:
    def __init__(self, document: Object) -> None:
        self._document = document

    def resolved(self, value: JSON) -> Object:
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

    def tool(self, path: str, method: str, item: Object, operation: Object) -> ApiTool:
        places: dict[str, ParameterLocation] = {}
        properties: Object = {}
        required: list[str] = []
        for place, schema, needed in self._arguments(item, operation):
            name = place.name if place.where != "body" else "body"
            if name in places:
                name = f"{place.where}_{name}"
            places[name] = place
            properties[name] = schema
            if needed:
                required.append(name)
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        name = operation.get("operationId") or f"{method}{path}"
        return ApiTool(
            name=re.sub(r"[^a-zA-Z0-9_-]+", "_", str(name)).strip("_") or method,
            description=_words(operation),
            input_schema=self._with_defs(schema),
            output_schema=self._output_schema(operation),
            effect=_EFFECTS.get(method, "write"),
            method=method,
            path=path,
            locations=places,
        )

    def _arguments(self, item: Object, operation: Object) -> Iterator[tuple[ParameterLocation, Object, bool]]:
        listed: dict[ParameterLocation, Object] = {}
        for raw in (*(item.get("parameters") or ()), *(operation.get("parameters") or ())):
            parameter = self.resolved(raw)
            place = ParameterLocation(str(parameter.get("in")), str(parameter.get("name")))
            if place.where in ("path", "query", "header", "cookie") and place.name.lower() not in _UNSENT:
                listed[place] = parameter
        for place, parameter in listed.items():
            schema = parameter.get("schema") or _first_schema(parameter.get("content"))
            described = {"description": parameter["description"]} if parameter.get("description") else {}
            yield (
                place,
                {**upgrade_schema(schema), **described},
                bool(parameter.get("required")) or place.where == "path",
            )
        body = self.resolved(operation.get("requestBody"))
        schema = _first_schema(body.get("content"))
        if body:
            yield ParameterLocation("body", "body"), upgrade_schema(schema), bool(body.get("required"))

    def _output_schema(self, operation: Object) -> Object | None:
        responses = operation.get("responses")
        for status, raw in responses.items() if type(responses) is dict else ():
            if str(status).startswith("2"):
                schema = _first_schema(self.resolved(raw).get("content"))
                if schema and self.resolved(schema).get("type") == "object":
                    return self._with_defs(upgrade_schema(self.resolved(schema)))
        return None

    def _with_defs(self, schema: Object) -> Object:
        """Copy the definitions that a schema refers to into its `$defs`, and rewrite the references."""
        defs: Object = {}
        waiting = [schema]
        while waiting:
            for target in _targets(waiting.pop()):
                name = target.rpartition("/")[2]
                if name not in defs and target.startswith("#/components/schemas/"):
                    defs[name] = upgrade_schema(self.resolved({"$ref": target}))
                    waiting.append(defs[name])
        moved = _rebase_refs(schema)
        return {**moved, "$defs": {name: _rebase_refs(one) for name, one in defs.items()}} if defs else moved


def _words(operation: Object) -> str | None:
    said = [operation.get("summary"), operation.get("description")]
    kept = [one.strip() for one in said if type(one) is str and one.strip()]
    return "\n\n".join(dict.fromkeys(kept)) or None


def _first_schema(content: JSON) -> Object:
    """Return the schema of a body, of its JSON variant if there is one."""
    if type(content) is not dict or not content:
        return {}
    media = next((one for kind, one in content.items() if "json" in kind), next(iter(content.values())))
    schema = media.get("schema") if type(media) is dict else None
    return schema if type(schema) is dict else {}


def _targets(value: JSON) -> Iterator[str]:
    if type(value) is dict:
        if type(value.get("$ref")) is str:
            yield value["$ref"]
        for one in value.values():
            yield from _targets(one)
    elif type(value) is list:
        for one in value:
            yield from _targets(one)


def _rebase_refs(value: JSON) -> JSON:
    if type(value) is list:
        return [_rebase_refs(one) for one in value]
    if type(value) is not dict:
        return value
    return {
        key: one.replace("#/components/schemas/", "#/$defs/")
        if key == "$ref" and type(one) is str
        else _rebase_refs(one)
        for key, one in value.items()
    }


def upgrade_schema(schema: JSON) -> JSON:
    """Convert the keywords that are specific to 3.0 to JSON Schema: `nullable`, `example`, boolean bounds."""
    if type(schema) is list:
        return [upgrade_schema(one) for one in schema]
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
