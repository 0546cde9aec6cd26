"""The gateway's own OpenAPI document, derived from its routes and from the code that answers them.

Paths and methods come from the route table. Each body is written once by the codec or the function that writes it in
operation, and is the example of its media type; the schema has the types of its fields. So neither drifts. A client
may send all other fields of its provider's API, and an answer may have more fields: an example is no complete list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ... import __version__
from ...ir.parts import Text
from ...ir.pointer import JSON, Object
from ...ir.request import Message, Params, Request
from ...ir.response import Fault, Response, Stop, Usage
from ...ir.text import to_bytes
from ...ir.tools import Tool
from ...wire.models.lists import ListedModel, model_entry, model_list, ollama_description
from ..responses.records import ConversationEntry, conversation_document, input_documents
from .routes import INGRESSES, ROUTE_TABLE, ROUTED, VERSION, Ingress, RouteAction

_PAGE = ("limit", "order", "after")


class _ActionFacts(NamedTuple):
    """The facts about an action that its route does not have. `body`: the fields of its request body, if it has one."""

    summary: str
    query: tuple[str, ...] = ()
    body: tuple[str, ...] | None = None


_OPERATIONS: dict[RouteAction, _ActionFacts] = {
    "generate": _ActionFacts("Answer a conversation, whole or as a stream", body=("tools", "stream")),
    "count": _ActionFacts("Estimate the tokens of a request", body=("tools",)),
    "models": _ActionFacts("List the models that the key allows"),
    "model": _ActionFacts("Describe a model"),
    "processes": _ActionFacts("List the loaded models: always none, because clients need not load any"),
    "version": _ActionFacts("Return the version of Ollama's protocol"),
    "get_response": _ActionFacts("Return a stored response"),
    "delete_response": _ActionFacts("Delete a stored response"),
    "cancel_response": _ActionFacts("Cancel a background response"),
    "compact": _ActionFacts("Return the messages of the user and a summary", body=()),
    "list_input": _ActionFacts("List the items that a response was made from", _PAGE),
    "create_conversation": _ActionFacts("Create a conversation", body=("items", "metadata")),
    "get_conversation": _ActionFacts("Return a conversation"),
    "update_conversation": _ActionFacts("Replace the metadata of a conversation", body=("metadata",)),
    "delete_conversation": _ActionFacts("Delete a conversation and its items"),
    "list_items": _ActionFacts("List the items of a conversation", _PAGE),
    "create_items": _ActionFacts("Append items to a conversation", body=("items",)),
    "get_item": _ActionFacts("Return an item of a conversation"),
    "delete_item": _ActionFacts("Delete an item of a conversation"),
    "stored_interaction": _ActionFacts("Fail with 404: the gateway stores no interactions"),
    "alive": _ActionFacts("Return 200 while the process serves requests; needs no key"),
    "ready": _ActionFacts("Return 200 until the gateway drains, then 503; needs no key"),
    "metrics": _ActionFacts("Return the metrics for Prometheus; has a key of its own"),
    "openapi": _ActionFacts("Return this document"),
}
_OPEN = ("alive", "ready")  # without a key
_LIST_QUERIES = {
    "openai_chat": ("client_version",),  # of Codex, which gets its own catalogue as well
    "anthropic": ("limit", "after_id", "before_id"),
    "gemini": ("pageSize", "pageToken"),
}
_HEADER_WIRES = ("openai_chat", "anthropic", "gemini")  # at the same path; headers of the client decide
_FIELDS: dict[str, Object] = {
    "tools": {"type": "array", "items": {"type": "object"}},
    "stream": {"type": "boolean"},
    "items": {"type": "array", "items": {"type": "object"}},
    "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
}
_SCHEMES: dict[str, Object] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    **{name: {"type": "apiKey", "in": "header", "name": name} for name in ("x-api-key", "x-goog-api-key", "api-key")},
    "key": {"type": "apiKey", "in": "query", "name": "key"},
}
_MODEL = ListedModel("MODEL", 0)
_REQUEST = Request(
    "MODEL",
    (Message("user", (Text("Hello."),)),),
    (Tool("get_weather", "Find the weather.", {"type": "object", "properties": {"city": {"type": "string"}}}),),
    params=Params(max_tokens=1000),
)
_ANSWER = Response("id", "MODEL", (Text("Hello."),), Stop("stop"), Usage(9, 2), 0)


@lru_cache(16)  # one per set of settings and mount path
def openapi_document(*, requires_key: bool, has_mcp: bool, root_path: str = "") -> bytes:
    """Return the document. `root_path` is the path at which another application mounts the gateway."""
    paths: dict[str, Object] = {}
    for method, pattern, action, wire in ROUTE_TABLE:
        for path in path_templates(pattern):
            paths.setdefault(path, {})[method.lower()] = _describe_route(method, path, action, ROUTED[wire])
    if has_mcp:
        paths["/mcp"] = _describe_mcp()
    document: Object = {
        "openapi": "3.1.0",
        "info": {"title": "toolwire gateway", "version": __version__},
        "servers": [{"url": root_path or "/"}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "responses": {f"error_{name}": _describe_error(ingress) for name, ingress in INGRESSES.items()},
            "securitySchemes": _SCHEMES,
        },
    }
    if requires_key:
        document["security"] = [{name: []} for name in _SCHEMES]
    return to_bytes(document)


def path_templates(pattern: str) -> list[str]:
    """Return the paths of a route's regular expression: the first alternative of a group, but every verb.

    >>> path_templates(r"(?:/v1)?/responses/(?P<id>(?!compact$)[^/]+)/cancel")
    ['/v1/responses/{id}/cancel']
    >>> path_templates(r"/models/(?P<model>.+):(?P<verb>a|b)")
    ['/models/{model}:a', '/models/{model}:b']
    """
    pattern = pattern.replace("\\", "")
    pattern = re.sub(r"\(\?P<(id|item|model)>(?:\(\?![^()]*\))?[^()]*\)", r"{\1}", pattern)
    pattern = re.sub(r"\(\?:([^|()]*+)[^()]*+\)\??", r"\1", pattern)
    start, verbs, end = (*re.split(r"\(\?P<verb>([^()]*)\)", pattern), "", "")[:3]
    return [f"{start}{verb}{end}" for verb in verbs.split("|")]


def _describe_route(method: str, path: str, action: RouteAction, ingress: Ingress) -> Object:
    """Return the operation of a route; raise KeyError for an action without a row."""
    row, name = _OPERATIONS[action], ingress.wire
    operation: Object = {
        "operationId": f"{method.lower()}_{re.sub('[^A-Za-z0-9]+', '_', path).strip('_')}".strip("_"),
        "summary": row.summary,
        "tags": ["operation" if action in (*_OPEN, "metrics", "openapi") else name],
        "responses": {"default": {"$ref": f"#/components/responses/error_{ingress.envelope}"}},
    }
    parameters: list[Object] = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
        for part in re.findall(r"\{(\w+)\}", path)
    ]
    queries = row.query
    if action == "models":
        wires = _HEADER_WIRES if name == "openai_chat" else (name,)
        queries = tuple(query for wire in wires for query in _LIST_QUERIES.get(wire, ()))
    elif _is_array(path):
        queries = ("alt",)
    parameters += [{"name": query, "in": "query", "schema": {"type": "string"}} for query in queries]
    if ingress.has_versions:
        parameters.append({"name": "anthropic-version", "in": "header", "schema": {"type": "string"}})
    if parameters:
        operation["parameters"] = [*parameters]
    if row.body is not None or (action, name) == ("model", "ollama"):
        operation["requestBody"] = _describe_body(path, action, ingress, row.body or ())
    if action in _OPEN:
        operation["security"] = []
    content = dict(_answer_content(path, action, ingress))
    if content:
        operation["responses"] = {"200": {"description": "The answer", "content": content}, **operation["responses"]}
    return operation


def _is_array(path: str) -> bool:
    """Return whether a path of Gemini streams a JSON array, unless its query asks for events."""
    return ":stream" in path


def _describe_body(path: str, action: RouteAction, ingress: Ingress, fields: tuple[str, ...]) -> Object:
    """Return the request body: the model unless it is in the path, the conversation, and other fields of the action."""
    properties: Object = {name: _FIELDS[name] for name in fields if name != "stream" or "{model}" not in path}
    required: list[JSON] = []
    content: Object = {}
    if action in ("generate", "count", "compact", "model"):
        if "{model}" not in path:
            properties["model"] = {"type": "string"}
            required.append("model")
        if action != "model":
            conversation = ingress.codec.conversation
            properties[conversation] = {"type": ["array", "string"] if conversation == "input" else "array"}
            required.append(conversation)
            content["example"] = _example_request(ingress)
    content["schema"] = {"type": "object", "properties": properties, "required": required}
    return {"required": bool(required), "content": {"application/json": content}}


def _example_request(ingress: Ingress) -> Object:
    """Return a request; InvokeModel has its version in the body, and the model in the path."""
    body = ingress.codec.encode_request(_REQUEST)[0]
    if not ingress.is_invoke:
        return body
    fields = {name: value for name, value in body.items() if name != "model"}
    return {"anthropic_version": "bedrock-2023-05-31", **fields}


def _answer_content(path: str, action: RouteAction, ingress: Ingress) -> Iterator[tuple[str, JSON]]:
    """Yield the media types of an answer: a whole one, a stream, or the page of metrics; nothing if it always fails."""
    if action == "stored_interaction":
        return
    if action == "metrics":
        yield "text/plain", {"schema": {"type": "string"}}
    elif action == "openapi":
        yield "application/json", {"schema": {"type": "object"}}
    elif action in ("models", "model") and ingress.wire == "openai_chat":
        examples = {wire: _example_answer(action, INGRESSES[wire]) for wire in _HEADER_WIRES}
        schemas: list[JSON] = [_schema_of(example) for example in examples.values()]
        named: Object = {wire: {"value": example} for wire, example in examples.items()}
        yield "application/json", {"schema": {"anyOf": schemas}, "examples": named}
    else:
        example = _example_answer(action, ingress)
        schema = _schema_of(example)
        if ingress.stores_responses and "usage" in schema["properties"]:
            schema["properties"]["usage"] = {"type": ["object", "null"]}  # null while a background response is made
        whole: JSON = {"schema": schema, "example": example}
        if _is_array(path):
            whole = {"schema": {"type": "array", "items": _schema_of(example)}}
        if not path.endswith("-stream"):
            yield "application/json", whole
        if action == "generate" and ("{model}" not in path or "stream" in path):
            yield ingress.framing.media_type, {"schema": {"type": "string"}}


def _example_answer(action: RouteAction, ingress: Ingress) -> Object:
    """Return an answer of an action, written by the code that writes it in operation where there is such code."""
    wire = ingress.wire
    conversation = conversation_document(ConversationEntry("conv_1", 0))
    page: Object = {"object": "list", "data": [], "first_id": "", "last_id": "", "has_more": False}
    fixed: dict[RouteAction, Object] = {
        "count": {**dict(ingress.count_fields), ingress.count_field: 9},
        "processes": {"models": []},
        "version": {"version": VERSION},
        "delete_response": {"id": "resp_1", "object": "response", "deleted": True},
        "compact": {"id": "resp_1", "object": "response.compaction", "created_at": 0, "output": [], "usage": {}},
        "list_input": page,
        "create_conversation": conversation,
        "get_conversation": conversation,
        "update_conversation": conversation,
        "delete_conversation": {"id": "conv_1", "object": "conversation.deleted", "deleted": True},
        "list_items": page,
        "create_items": page,
        "get_item": input_documents([{"role": "user", "content": "Hello."}], "0")[0],
        "delete_item": conversation,
        "alive": {"status": "ok"},
        "ready": {"status": "ready"},
    }
    if action in fixed:
        return fixed[action]
    if action == "models":
        return model_list(wire, [_MODEL], {})
    if action == "model":
        return ollama_description(_MODEL) if wire == "ollama" else model_entry(wire, _MODEL)
    return ingress.codec.encode_response(_ANSWER)[0]


def _describe_error(ingress: Ingress) -> Object:
    """Return the error envelope of a protocol, as its codec writes it."""
    example = ingress.codec.encode_error(Fault("invalid_request", "MESSAGE", 400))[1]
    media: Object = {"schema": _schema_of(example, 2), "example": example}
    headers: Object = {name: {"schema": {"type": "string"}} for name in ("x-request-id", "retry-after")}
    return {"description": "An error", "headers": headers, "content": {"application/json": media}}


def _schema_of(example: JSON, depth: int = 1) -> Object:
    """Return the types of an object's fields. The type of a field that is null in the example is unknown."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    schema: Object = {} if example is None else {"type": kinds[type(example)]}
    if depth and isinstance(example, dict):
        schema["properties"] = {name: _schema_of(value, depth - 1) for name, value in example.items()}
    return schema


def _describe_mcp() -> Object:
    """Return the operations of the MCP endpoint; its messages are the protocol's."""
    message: Object = {"application/json": {"schema": {"type": "object"}}}
    stream: Object = {"text/event-stream": {"schema": {"type": "string"}}}
    failed: Object = {"default": {"description": "An error", "content": message}}
    path: Object = {}
    for method, summary, content in (
        ("post", "Send a message of MCP", {**message, **stream}),
        ("get", "Receive messages of the server as a stream", stream),
        ("delete", "End a session", {}),
    ):
        done: Object = {"description": "The answer", **({"content": content} if content else {})}
        path[method] = {
            "operationId": f"{method}_mcp",
            "summary": summary,
            "tags": ["mcp"],
            "responses": {"200": done, **failed},
        }
    path["post"]["requestBody"] = {"required": True, "content": message}
    return path
