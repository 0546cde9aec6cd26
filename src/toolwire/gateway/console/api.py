"""The console's API: its operations, the errors of each, and its OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ... import __version__
from ...audit.findings import TARGETS
from ...bridge.comparison.documents import KINDS
from ...bridge.comparison.reading import MAX_ELEMENTS
from ...ir.errors import ConfigError, MissingExtra, ProtocolError, ToolwireError
from ...ir.parts import ToolCall
from ...ir.pointer import JSON, Object
from ...ir.text import to_bytes
from ...stream.strict import parse_object
from ...text import get as get_format
from ...text import names as format_names
from ...wire import mcp
from ...wire import names as wire_names
from .messages import (
    ApiError,
    ConsoleLimits,
    ErrorAnswer,
    FormatView,
    MetaAnswer,
    OpenedFile,
    ReportsAnswer,
    SnippetAnswer,
    SnippetRequest,
    StreamAnswer,
    StreamRequest,
    TextAnswer,
    TextRequest,
    ToolsAnswer,
    ToolsRequest,
    TranslateAnswer,
    TranslateRequest,
    WireView,
)
from .samples import samples
from .snippets import snippet_view
from .streams import MAX_STEPS, stream_view
from .tool_lists import tools_view
from .translation import text_view, translate_view

MAX_BODY = 32 * 1024 * 1024
"""Bytes of a request: a document of 10 MB with every character escaped, as JSON in JSON. The gateway's default is the same."""

_TITLES = {
    "anthropic": "Anthropic Messages",
    "cohere": "Cohere Chat",
    "gemini": "Gemini",
    "gemini_interactions": "Gemini Interactions",
    "ollama": "Ollama",
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    mcp.NAME: "MCP",
}
_SAMPLE_CALL = ToolCall("call00000", "get_weather", {"city": "Paris"})


class ApiOperation(NamedTuple):
    """An operation: a pure function of its request."""

    summary: str
    request: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    run: Callable[[Any], msgspec.Struct]


OPERATIONS: dict[str, ApiOperation] = {
    "/api/translate": ApiOperation(
        "Translate a document to wires and text formats", TranslateRequest, TranslateAnswer, translate_view
    ),
    "/api/stream": ApiOperation("Step through a recorded stream", StreamRequest, StreamAnswer, stream_view),
    "/api/text": ApiOperation("Parse the output of a model", TextRequest, TextAnswer, text_view),
    "/api/tools": ApiOperation("Audit and lower tools for providers", ToolsRequest, ToolsAnswer, tools_view),
    "/api/snippet": ApiOperation("Write a request as a program", SnippetRequest, SnippetAnswer, snippet_view),
}
META = "/api/meta"
REPORTS = "/api/csp-reports"


def run_operation(operation: ApiOperation, body: bytes) -> bytes:
    """Decode the request, run the operation and encode its answer. Raise `ToolwireError` if the request is invalid."""
    try:
        request = msgspec.convert(parse_object(body), operation.request, strict=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        pointer = "/" + path.strip("`.").replace(".", "/") if path else ""
        raise ProtocolError(message[:1].lower() + message[1:], pointer=pointer, hint="see GET /openapi.json") from None
    return encode(operation.run(request))


def encode(answer: msgspec.Struct) -> bytes:
    return msgspec.json.encode(answer)


def encode_error(error: ToolwireError) -> tuple[int, bytes]:
    """Return the status and the body of an error. Everything that a client caused is its own error."""
    is_own = isinstance(error, MissingExtra)
    status = error.status if 400 <= error.status < 500 or is_own or error.status == 503 else 400
    code: str | None = getattr(error, "code", None)
    details = ApiError(type(error).__name__.lstrip("_"), code, error.message, error.pointer, error.hint)
    try:
        return status, encode(ErrorAnswer(details))
    except (UnicodeEncodeError, ValueError):  # a lone surrogate of the request
        message = error.message.encode("utf-8", "replace").decode()
        return status, encode(ErrorAnswer(ApiError(type(error).__name__, code, message, "", "")))


def describe_console(opened: OpenedFile | None) -> MetaAnswer:
    """Return everything that the page needs to begin."""
    kinds = list(KINDS)
    wires = [WireView(name, title_of(name), kinds) for name in wire_names()]
    wires.append(WireView(mcp.NAME, title_of(mcp.NAME), ["tools"]))
    formats = [
        FormatView(form.name, form.title, form.calls.write([_SAMPLE_CALL])) for form in map(get_format, format_names())
    ]
    limits = ConsoleLimits(MAX_BODY, MAX_ELEMENTS, MAX_STEPS)
    return MetaAnswer(__version__, wires, formats, kinds, list(TARGETS), samples(), opened, limits)


def title_of(name: str) -> str:
    """Return the title of a wire or a text format."""
    return _TITLES.get(name) or (get_format(name).title if name in format_names() else name)


def openapi_document() -> Object:
    """Return the OpenAPI document of the API, from the types of its requests and answers."""
    types = [kind for operation in OPERATIONS.values() for kind in (operation.request, operation.answer)]
    types += [MetaAnswer, ReportsAnswer, ErrorAnswer]
    references, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, references, strict=True))
    error = _content("The request is invalid, refused or too large", schema_of[ErrorAnswer])
    paths: Object = {
        path: {
            "post": {
                "summary": operation.summary,
                "operationId": path.rpartition("/")[2],
                "requestBody": {"required": True, **_content(None, schema_of[operation.request])},
                "responses": {"200": _content("The answer", schema_of[operation.answer]), "default": error},
            }
        }
        for path, operation in OPERATIONS.items()
    }
    for path, summary, answer in (
        (META, "List wires, formats, examples and limits", MetaAnswer),
        (REPORTS, "List violations of the page's content security policy", ReportsAnswer),
    ):
        paths[path] = {
            "get": {
                "summary": summary,
                "operationId": path.rpartition("/")[2].replace("-", "_"),
                "responses": {"200": _content("The answer", schema_of[answer]), "default": error},
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toolwire console",
            "version": __version__,
            "description": "Pure functions of the request. Positions are UTF-16 code units of the named text.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "in the printed address"}},
        },
    }


def _content(description: str | None, schema: JSON) -> Object:
    content = {"content": {"application/json": {"schema": schema}}}
    return content if description is None else {"description": description, **content}


@cache
def openapi_bytes() -> bytes:
    return to_bytes(openapi_document())


def check_file(name: str, data: bytes) -> OpenedFile:
    """Return a file for the page to open; raise ConfigError if it is too large."""
    if len(data) > MAX_BODY // 2:  # it is sent back as JSON text in JSON
        raise ConfigError(f"{name} has {len(data)} bytes; the console opens at most {MAX_BODY // 2}")
    shown = name.encode("utf-8", "replace").decode()  # a name with other bytes has lone surrogates
    return OpenedFile(shown, data.decode("utf-8", "replace"))
