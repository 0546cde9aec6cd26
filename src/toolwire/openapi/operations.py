"""Convert the operations of an OpenAPI document, version 3.0 or later, to tools.

    for tool in read_operations(document).tools:
        tool.request({"petId": 7, "body": {"name": "Rex"}})  # OperationRequest("PUT", "/pets/7", …)

The effect of an operation follows from its method, as HTTP defines it: GET reads, PUT and DELETE are idempotent, the
others write. A broken operation removes only itself and is reported in `problems`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote

from ..ir.errors import ConfigError, SchemaError
from ..ir.pointer import JSON, Object
from ..ir.tools import Effect
from .api_tools import ApiTool, OperationProblem
from .document import References, check_document
from .encoding import has_dot_segment
from .parameters import ArgumentReader
from .schemas import DocumentLimit, SchemaReader
from .security import SecurityScheme, read_requirements, read_schemes

_EFFECTS: dict[str, Effect] = {"get": "read", "query": "read", "put": "idempotent", "delete": "idempotent"}
_METHODS = ("get", "put", "post", "delete", "patch", "query")  # a response to HEAD, OPTIONS or TRACE has no content
_MAX_OPERATIONS = 5_000  # GitHub's document has more than 1,000
_MAX_NAME = 64  # characters; the smallest limit of the providers for the name of a tool
_MAX_DESCRIPTION = 4_000  # characters, about 1,000 tokens of every request; some documents contain whole manuals
_MAX_TAGS = 50  # an operation has one or two
_MAX_URL = 2_000  # characters; browsers and proxies accept about as many
_MAX_VARIABLES = 20  # of a server's URL: host, region, version
_MAX_SERVERS = 20  # documents list a handful: production, staging, regions
_SHOWN = 120  # characters of a path in a message


class OperationList(NamedTuple):
    """The tools of a document, the operations that cannot be offered, and the security schemes by name."""

    tools: tuple[ApiTool, ...]
    problems: tuple[OperationProblem, ...]
    schemes: dict[str, SecurityScheme]


class _Operation(NamedTuple):
    name: str
    method: str
    path: str
    item: Object
    fields: Object

    @property
    def label(self) -> str:
        return f"{self.method.upper()} {self.path[:_SHOWN]}"


def read_operations(
    document: Object,
    *,
    tags: Sequence[str] = (),
    operations: Sequence[str] | Callable[[ApiTool], bool] = (),
    headers: Collection[str] = (),
    outputs: bool = True,
) -> OperationList:
    """Return one tool per selected operation, and the operations that cannot be read, with their problems.

    SchemaError if this is not an OpenAPI document or exceeds a limit. `tags` selects the operations with one of these
    tags. `operations` are names of tools or `METHOD /path`, with `*` as a wildcard, or a function of a tool. A name
    that selects nothing is a ConfigError. `headers` are names of headers that the caller sets; they are not arguments.
    `outputs`: declare output schemas.
    """
    reader = _DocumentReader(check_document(document), headers)
    if isinstance(tags, str) or isinstance(operations, str):
        raise ConfigError("tags and operations must be lists", hint='such as tags=["pets"]')
    selected = [operation for operation in reader.list_operations() if _has_tag(operation, tags)]
    if not callable(operations) and operations:
        selected = _select(selected, operations)
    if len(selected) > _MAX_OPERATIONS:
        hint = "select some with tags= or operations="
        raise SchemaError(f"the document has more than {_MAX_OPERATIONS:,} operations", hint=hint)
    _check_selection(reader, tags, selected)
    tools: list[ApiTool] = []
    for operation in selected:
        try:
            tools.append(reader.make_tool(operation, outputs=outputs))
        except DocumentLimit:  # a limit of the whole document is no problem of this operation
            raise
        except SchemaError as error:
            reader.problems.append(OperationProblem(operation.label, str(error)))
    if callable(operations):
        tools = [tool for tool in tools if operations(tool)]
    return OperationList(tuple(tools), tuple(reader.problems), reader.schemes)


def _has_tag(operation: _Operation, tags: Sequence[str]) -> bool:
    return not tags or not set(tags).isdisjoint(_tags(operation.fields))


def _tags(fields: Object) -> tuple[str, ...]:
    tags = fields.get("tags")
    return tuple(tag for tag in tags[:_MAX_TAGS] if type(tag) is str) if type(tags) is list else ()


def _select(listed: list[_Operation], patterns: Sequence[str]) -> list[_Operation]:
    """Return the operations that a pattern matches; ConfigError for a pattern that matches none."""
    chosen: set[int] = set()
    for pattern in patterns:
        found = {
            index
            for index, operation in enumerate(listed)
            if fnmatchcase(operation.name, pattern) or fnmatchcase(operation.label, pattern)
        }
        if not found:
            close = get_close_matches(pattern, [operation.name for operation in listed[:1000]], 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else "give names of tools, or METHOD /path"
            raise ConfigError(f"no operation matches {pattern!r}", hint=hint)
        chosen |= found
    return [listed[index] for index in sorted(chosen)]


def _check_selection(reader: _DocumentReader, tags: Sequence[str], selected: list[_Operation]) -> None:
    """Refuse a tag that no operation has."""
    present = {tag for operation in selected for tag in _tags(operation.fields)}
    missing = [tag for tag in tags if tag not in present]
    if missing:
        known = sorted({tag for operation in reader.list_operations() for tag in _tags(operation.fields)})
        raise ConfigError(
            f"no operation has the tag {missing[0]!r}", hint=f"known tags: {', '.join(known)[:300] or 'none'}"
        )


class _DocumentReader:
    """Reads the operations of one document."""

    def __init__(self, document: Object, preset_headers: Collection[str]) -> None:
        self._document = document
        self._references = References(document)
        self.problems: list[OperationProblem] = []
        self._schemas = SchemaReader(document, self._references)
        self.schemes, scheme_problems = read_schemes(document, self._references)
        self.problems += [OperationProblem(f"security scheme {name[:_SHOWN]}", text) for name, text in scheme_problems]
        self._reserved = frozenset((scheme.kind, scheme.parameter.lower()) for scheme in self.schemes.values())
        self._arguments = ArgumentReader(self._references, self._schemas, self.schemes, preset_headers)
        self._operations: list[_Operation] | None = None

    def list_operations(self) -> list[_Operation]:
        """List all operations with their names. Names do not depend on the selection or on the order of paths."""
        if self._operations is None:
            unnamed = list(self._iterate_operations())
            counts = Counter(operation.name for operation in unnamed)
            self._operations = [
                operation._replace(name=_unique_name(operation)) if counts[operation.name] > 1 else operation
                for operation in unnamed
            ]
        return self._operations

    def _iterate_operations(self) -> Iterator[_Operation]:
        """Yield the operations of all paths; a path item that cannot be read becomes a problem."""
        for path, raw in self._document["paths"].items():
            if path.startswith("x-"):
                continue
            try:
                item = self._references.follow(raw)
            except SchemaError as error:
                self.problems.append(OperationProblem(path[:_SHOWN], str(error)))
                continue
            for method in _METHODS:
                fields = item.get(method)
                if type(fields) is dict:
                    yield _Operation(_base_name(method, path, fields), method, path, item, fields)

    def make_tool(self, operation: _Operation, *, outputs: bool) -> ApiTool:
        """Convert one operation to a tool, with an output schema if `outputs`; SchemaError if it cannot be offered."""
        fields, method = operation.fields, operation.method
        check_path(operation.path)
        arguments = self._arguments.read(method, operation.path, operation.item, fields)
        return ApiTool(
            name=operation.name,
            description=_description(fields),
            input_schema=arguments.schema,
            output_schema=self._output_schema(fields) if outputs else None,
            effect=_EFFECTS.get(method, "write"),
            method=method.upper(),
            path=operation.path,
            parameters=arguments.parameters,
            body=arguments.body,
            security=read_requirements(fields, self._document, self.schemes),
            tags=_tags(fields),
            server=_own_server(operation),
            reserved=self._reserved,
        )

    def _output_schema(self, fields: Object) -> Object | None:
        """Return the schema of the only successful response if it is a JSON object; else None."""
        responses: JSON = fields.get("responses")
        statuses = list(responses)[:100] if type(responses) is dict else []
        successful = [responses[status] for status in statuses if status.startswith("2")]
        if len(successful) != 1:
            return None
        content = self._references.follow(successful[0]).get("content")
        media = content.get("application/json") if type(content) is dict else None
        schema = media.get("schema") if type(media) is dict else None
        resolved = self._references.follow(schema)
        if resolved.get("type") != "object":
            return None
        root = self._schemas.inline(resolved, "response")
        return self._schemas.with_defs(root, [resolved], "response")


def _base_name(method: str, path: str, fields: Object) -> str:
    """Return the name of an operation: its id, else method and path, with the characters that all providers accept."""
    raw = fields.get("operationId")
    text = raw if type(raw) is str and raw else f"{method}{path}"
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", text[:1000]).strip("_") or method
    return name if len(name) <= _MAX_NAME else _with_hash(name, method, path)


def _unique_name(operation: _Operation) -> str:
    return _with_hash(operation.name, operation.method, operation.path)


def _with_hash(name: str, method: str, path: str) -> str:
    digest = sha256(f"{method} {path}".encode(errors="replace")).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}_{digest}"


def check_path(path: str) -> None:
    """Raise SchemaError for a path that would leave the base URL, or that has a parameter in its query.

    It may have a fixed query; a fragment is not sent. `//host` is harmless: the path is appended to the base URL as
    text, not resolved against it.
    """
    if not path.startswith("/") or "\\" in path or not path.isprintable():
        raise SchemaError("the path must begin with a slash and have no backslashes or control characters")
    template, _, fixed = path.partition("#")[0].partition("?")
    if "{" in fixed:
        raise SchemaError("the path must not contain parameters in its query")
    # Some servers decode a path twice. Decoding leaves plain dots and slashes as they are, so the result shows them too.
    if has_dot_segment(unquote(unquote(template))):
        raise SchemaError("the path must not contain the segments '.' or '..'")


def _own_server(operation: _Operation) -> str | None:
    """Return the server URL that the operation or its path declares, or None; SchemaError if it is not valid."""
    for fields in (operation.fields, operation.item):
        servers = fields.get("servers")
        if type(servers) is list and servers:
            url = _server_url(servers[0])
            if url is None:
                raise SchemaError("the server of the operation has no valid URL")
            return url
    return None


def _server_url(row: JSON) -> str | None:
    """Return the URL of a server object with the defaults of its variables; None if it is not complete."""
    url = row.get("url") if type(row) is dict else None
    if type(url) is not str or len(url) > _MAX_URL:
        return None
    variables = row.get("variables")
    for name, fields in list(variables.items())[:_MAX_VARIABLES] if type(variables) is dict else ():
        default = fields.get("default") if type(fields) is dict else None
        if type(default) is str and len(default) <= _MAX_URL:
            url = url.replace(f"{{{name}}}", default)
    return url if "{" not in url and len(url) <= _MAX_URL else None


def document_servers(document: Object) -> list[str]:
    """Return the complete server URLs of a document."""
    rows = document.get("servers")
    urls = [_server_url(row) for row in rows[:_MAX_SERVERS]] if type(rows) is list else []
    return [url for url in urls if url]


def _description(fields: Object) -> str | None:
    """Return summary and description, cut after 4,000 characters.

    Lock files compare the text, so that the cut must not change with `ir.text.shorten`, which is for display.
    """
    texts: list[JSON] = [fields.get("summary"), fields.get("description")]
    nonempty = [text.strip() for text in texts if type(text) is str and text.strip()]
    if fields.get("deprecated") is True:
        nonempty.append("This operation is deprecated.")
    whole = "\n\n".join(dict.fromkeys(nonempty))
    return (whole if len(whole) <= _MAX_DESCRIPTION else f"{whole[:_MAX_DESCRIPTION]}…") or None
