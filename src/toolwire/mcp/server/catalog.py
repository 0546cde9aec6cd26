"""The lists, capabilities and server card of a server: identical for all clients, in a fixed order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache

from ...ir.errors import SchemaError
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...wire.mcp import encode_tools
from ...wire.mcp.versions import STATELESS
from ..protocol.discovery import Page, ServerCard
from ..protocol.headers import HeaderArguments, find_header_arguments
from ..protocol.meta import IDEMPOTENCY
from ..protocol.rpc import INVALID_PARAMS, RpcError
from .offers import Prompt, Resource

_log = logging.getLogger("toolwire.mcp")
_PAGE = 500  # items; most servers fit on one page, and a page of long declarations stays below a megabyte


class Catalog:
    """The lists of a server. `ttl_ms` is the time for which a client may cache them."""

    def __init__(
        self,
        tools: Sequence[Tool],
        resources: Sequence[Resource] = (),
        prompts: Sequence[Prompt] = (),
        *,
        info: Object,
        instructions: str | None = None,
        ttl_ms: int = 60_000,  # a minute: clients without notifications see a changed list soon
        scope: str = "private",
    ) -> None:
        self.info = info
        self._instructions = instructions
        self._ttl_ms = ttl_ms
        self._scope = scope
        self._declared = lru_cache(8)(self._declare)
        self.replace_tools(tools)
        self.replace_offers(resources, prompts)
        self._lists: dict[str, tuple[str, Callable[[str], list[JSON]]]] = {
            "tools/list": ("tools", self._declared),
            "resources/list": ("resources", lambda _: self._declare_resources(templates=False)),
            "resources/templates/list": ("resourceTemplates", lambda _: self._declare_resources(templates=True)),
            "prompts/list": ("prompts", lambda _: [item.to_declaration() for item in self._prompts.values()]),
        }

    def replace_tools(self, tools: Sequence[Tool]) -> None:
        """Replace the tools. Raise SchemaError for a schema with invalid header marks; then the old tools stay."""
        header_arguments = {tool.name: _tool_header_arguments(tool) for tool in tools}
        self._tools = tuple(tools)
        self._header_arguments: dict[str, HeaderArguments] = header_arguments
        self._declared.cache_clear()

    def replace_offers(self, resources: Sequence[Resource], prompts: Sequence[Prompt]) -> None:
        """Replace the resources and prompts."""
        self._resources = tuple(resources)
        self._prompts = {item.name: item for item in prompts}

    @property
    def offers(self) -> tuple[list[Object], list[Object]]:
        """The declarations of all resources and prompts."""
        resources = [item.to_declaration() for item in self._resources]
        return resources, [item.to_declaration() for item in self._prompts.values()]

    def _declare(self, version: str) -> list[JSON]:
        declared, losses = encode_tools(self._tools, version=version)
        for loss in losses:
            _log.log(logging.DEBUG if loss.severity == "info" else logging.WARNING, "%s: %s", version, loss)
        return list(declared)

    def _declare_resources(self, *, templates: bool) -> list[JSON]:
        return [item.to_declaration() for item in self._resources if item.is_template is templates]

    def has_method(self, method: str) -> bool:
        """Return True if the server offers anything for this method."""
        area = method.partition("/")[0]
        return bool(
            self._resources if area == "resources" else self._prompts if area in ("prompts", "completion") else True
        )

    def header_arguments(self, tool: str) -> HeaderArguments:
        """Return the arguments of a tool that are also sent as headers."""
        return self._header_arguments.get(tool, {})

    def list_result(self, method: str, params: Object, version: str) -> Object:
        """Return the result of a list request."""
        key, items = self._lists[method]
        all_items = items(version)
        start = _page_start(params.get("cursor"), len(all_items))
        end = start + _PAGE
        page = Page(all_items[start:end], str(end) if end < len(all_items) else None, self._ttl_ms, self._scope)
        return page.to_json(key, version=version, server=self.info)

    def find_resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """Find a resource by URI. An exact match takes precedence over templates."""
        for item in sorted(self._resources, key=lambda item: item.is_template):
            variables = item.match(uri)
            if variables is not None:
                return item, variables
        return None

    def find_prompt(self, name: JSON) -> Prompt:
        """Return the prompt of this name. Raise RpcError if there is none."""
        found = self._prompts.get(name) if isinstance(name, str) else None
        if found is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return found

    def cache_hints(self) -> Object:
        """Return the caching fields of a result."""
        return {"ttlMs": self._ttl_ms, "cacheScope": self._scope}

    def card(self, *, handshake: bool = False) -> ServerCard:
        """Return the server's description of itself. Only the handshake era declares logging as a capability."""
        capabilities: Object = {"tools": {"listChanged": True}}
        if self._resources:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self._prompts:
            capabilities.update(prompts={"listChanged": True}, completions={})
        if handshake:
            capabilities["logging"] = {}
        capabilities["experimental"] = {IDEMPOTENCY: {}}
        return ServerCard(STATELESS, capabilities, self.info, self._instructions, self._ttl_ms, self._scope)


def _tool_header_arguments(tool: Tool) -> HeaderArguments:
    try:
        return find_header_arguments(tool.input_schema)
    except SchemaError as error:
        raise error.within("tools", tool.name) from None


def _page_start(cursor: JSON, length: int) -> int:
    """Return the position of a cursor. Raise RpcError for an invalid cursor."""
    if cursor is None:
        return 0
    if type(cursor) is str and cursor.isdecimal() and len(cursor) < 10 and int(cursor) < length:
        return int(cursor)
    raise RpcError(INVALID_PARAMS, "Invalid cursor", pointer="/params/cursor")
