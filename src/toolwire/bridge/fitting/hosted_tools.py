"""Fit hosted tools to the target: declarations of web search, web fetch and code execution, and their runs in a history.

A declaration is sent as the target's own tool of the same kind. Where the target has none, it is a loss; a gateway can
run the tool itself and declares it as a function before it prepares the request (`gateway.hosted`).

Runs in a history of another wire become text. They cannot be sent as runs: Anthropic checks the encrypted content of
search results, Responses looks up items by their ids, and Gemini has no part for a search. For the same reason, a run
that was written here for a client of the target's wire (`wire.hosted.is_issued_here`) becomes text.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.hosted import HostedTool, render_run
from ...ir.losses import Losses
from ...ir.parts import Extra, Opaque, Text
from ...ir.pointer import join
from ...ir.request import Request
from ...ir.tools import Tool, ToolChoice
from ...wire import get
from ...wire.codec import WireCodec
from ...wire.hosted import HostedCodec, pointer_label, unknown_pointers
from ...wire.protocol import Capabilities, Wire

_FIELDS = ("max_uses", "allowed_domains", "blocked_domains", "location", "context_size")


def hosted_codec(wire: str) -> HostedCodec | None:
    """Return the codec of hosted tools of a wire; None for a wire without them, and for any other name."""
    try:
        codec = get(wire)
    except ConfigError:
        return None  # a key of `extra` that is no wire
    return codec.hosted if isinstance(codec, WireCodec) else None


def read_hosted_tool(tool: Tool) -> tuple[HostedTool, list[str]] | None:
    """Return the hosted tool that a declaration is, and the pointers of its fields that no other wire has.

    Return None for any other tool.
    """
    if tool.kind != "builtin":
        return None
    for wire, declaration in tool.extra.items():
        codec = hosted_codec(wire)
        found = None if codec is None else codec.read_tool(declaration)
        if codec is not None and found is not None:
            nested = join(tool.name) if tool.name in declaration else ""  # the path of the tool includes its own field
            pointers = unknown_pointers(declaration, codec.tool_shape)
            return found, [pointer.removeprefix(nested) for pointer in pointers]
    return None


class HostedToolFitter:
    """Replace the hosted tools of other providers by the target's own."""

    __slots__ = ("_functions", "_losses", "_sent", "_wire")

    def __init__(self, request: Request, wire: Wire, losses: Losses) -> None:
        self._wire = wire
        self._losses = losses
        self._functions = frozenset([tool.name for tool in request.tools if tool.kind != "builtin"])
        self._sent: set[str] = set()

    def fit(self, tool: Tool, index: int) -> Tool | None:
        """Return a hosted tool as the target's own, any other tool unchanged, and None for a tool that is left out."""
        found = read_hosted_tool(tool)
        if found is None or not isinstance(self._wire, WireCodec):
            return tool
        hosted, specific = found
        path, codec = join("tools", index), self._wire.hosted
        write = None if codec is None else codec.write_tool
        obstacle = self._find_obstacle(hosted)
        if write is None or obstacle is not None:
            self._losses.add(path, "hosted tool", "dropped", obstacle or "the target has no hosted tools", "error")
            return None
        written, held = write(hosted)
        for pointer in specific:
            detail = "specific to the provider of the tool"
            self._losses.add(path + pointer, pointer_label(pointer), "dropped", detail)
        for field in _FIELDS:
            if getattr(hosted, field) not in (None, ()) and field not in held:
                detail = f"{written.name} of the target has no such field"
                self._losses.add(path, f"{field} of {hosted.kind}", "dropped", detail)
        detail = f"sent as {written.name}, which the target's provider runs"
        self._losses.add(path, "hosted tool", "rewritten", detail, "info")
        if written.name in self._sent:
            return None  # Responses fetches pages by its web search
        self._sent.add(written.name)
        return written

    def _find_obstacle(self, tool: HostedTool) -> str | None:
        """Return the reason why the target cannot run a hosted tool, or None."""
        can = self._wire.capabilities
        if tool.kind not in can.hosted:
            return f"the target does not run {tool.kind}"
        if tool.kind in self._functions:
            return f"the request has a function with the name {tool.kind}"
        if self._functions and not can.hosted_with_functions:
            return f"the target's model does not accept {tool.kind} beside functions"
        return None


def allow_hosted(extra: Extra, wire: Wire, tools: tuple[Tool, ...]) -> Extra:
    """Return the fields of a request with the flag that the provider requires for its own tools beside functions."""
    codec: HostedCodec | None = getattr(wire, "hosted", None)
    flag = None if codec is None else codec.beside_functions
    if flag is None or flag in wire.capabilities.rejected_fields or len({tool.kind for tool in tools}) < 2:
        return extra
    scope, field = flag
    return {**extra, scope: {**extra.get(scope, {}), field: True}}


def fit_hosted_choice(
    choice: ToolChoice, tools: list[tuple[Tool, int]], can: Capabilities, losses: Losses
) -> ToolChoice | None:
    """Return the choice without names of hosted tools, for a target whose choice concerns only functions."""
    hosted = frozenset([tool.name for tool, _ in tools if tool.kind == "builtin"])
    if can.forces_hosted or not hosted:
        return choice
    names = tuple([name for name in choice.names if name not in hosted])
    has_functions = len(hosted) < len(tools)
    if has_functions and names == choice.names:
        return choice
    if choice.mode != "auto":
        detail = "the target's choice cannot name its own tools; the model decides"
        losses.add(join("choice"), "tool choice", "weakened", detail)
    return (replace(choice, names=names) if names else ToolChoice("auto")) if has_functions else None


def fit_run(part: Opaque, path: str, losses: Losses) -> Text | None:
    """Return a run of a history, or a phase of it, as text; None for any other part. Its unknown fields are losses."""
    codec = hosted_codec(part.wire)
    run = None if codec is None or part.type not in codec.parts else codec.read_run(part)
    if codec is None or run is None:
        return None
    for pointer in unknown_pointers(part.value, codec.parts[part.type]):
        losses.add(path + pointer, pointer_label(pointer), "dropped", f"specific to {part.wire}")
    losses.add(path, f"{run.kind} in the history", "rewritten", "sent as text", "info")
    return Text(render_run(run))
