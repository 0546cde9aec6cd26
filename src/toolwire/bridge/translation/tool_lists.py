"""Translate lists of tool declarations; a declaration that cannot be read or fitted removes only its own tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Loss, Losses
from ...ir.pointer import JSON, Object, join, split
from ...ir.request import Request
from ...ir.tools import Tool
from ...stream.strict import parse, type_label
from ...wire import get, mcp
from ..conversation.names import NameMap
from ..fitting.tools import ToolChooser, fit_tools
from .outcome import SourceDocument, TargetDocument, Translation, accept, locate, pass_through, typed_errors

# Decode a list of tool declarations; an unreadable declaration removes only its own tool.


def decode_readable_tools(
    declarations: Sequence[JSON], wire: str, losses: Losses
) -> tuple[tuple[Tool, ...], list[int]]:
    """Return the tools and their positions in the list; report unreadable ones, raise ProtocolError if all are."""
    decode = mcp.decode_tools if wire == mcp.NAME else get(wire).decode_tools
    tools: list[Tool] = []
    indices: list[int] = []
    errors: list[ProtocolError] = []
    for declaration in declarations:
        index = len(tools) + len(errors)
        try:
            decoded = decode([declaration])
        except ProtocolError as error:
            errors.append(error)
            losses.add(join("tools", index), "tool", "dropped", f"it cannot be read: {error.message}", "error")
            continue
        tools += decoded
        indices += range(index, index + len(decoded))
    if errors and not tools:
        raise errors[0]
    return tuple(tools), indices


def translate_tools(
    body: JSON | bytes | str, *, source: str, target: str, strict: bool = False, choose: ToolChooser | None = None
) -> Translation[list[Object] | Object]:
    """Translate tool declarations: an array, a single declaration, an MCP result, or an object with the key `tools`.

    The result is an object with the key `tools` if the source is one, else an array. `strict` raises LossError if a
    loss is more severe than `info`. More tools than a request of the target accepts raise EncodeError, or `choose`
    selects among them.
    """
    if source == target:
        if not isinstance(body, (bytes, str, dict, list)):
            raise ProtocolError(f"expected an array of tools, got {type_label(body)}")
        return pass_through(body, source, is_object=False)
    with typed_errors(body):
        translation = _translate(parse(body) if isinstance(body, (bytes, str)) else body, source, target, choose)
    return accept(translation, strict=strict)


def _translate(
    document: JSON, source: str, target: str, choose: ToolChooser | None
) -> Translation[list[Object] | Object]:
    """Translate the readable declarations; the losses have pointers into both documents."""
    declared, place = find_declarations(document, source)
    unreadable, losses = Losses(), Losses()
    tools, indices = decode_readable_tools(declared, source, unreadable)
    fitted, encoded, encode_losses = _fit_and_encode(tools, target, losses, choose)
    is_wrapped = type(document) is dict and "tools" in document
    origin = SourceDocument(document, source_locator(tools, indices, source, place))
    written: JSON = {"tools": encoded} if is_wrapped else encoded
    destination = TargetDocument(written, _target_locator(fitted, encoded, target, "/tools" if is_wrapped else ""))
    located_losses = [replace(loss, path=place(int(split(loss.path)[1]))) for loss in unreadable]
    located_losses += locate(losses, origin, destination)
    located_losses += locate(_with_original_indices(encode_losses, fitted), origin, destination)
    return Translation(written, tuple(Losses(located_losses)))


def encode_tools(tools: Sequence[Tool], target: str) -> Translation[list[Object]]:
    """Write canonical tools for a wire, fitted to it. The paths of losses point into the canonical list."""
    losses = Losses()
    fitted, encoded, encode_losses = _fit_and_encode(tuple(tools), target, losses)
    return Translation(encoded, tuple(Losses([*losses, *_with_original_indices(encode_losses, fitted)])))


def _fit_and_encode(
    tools: tuple[Tool, ...], target: str, losses: Losses, choose: ToolChooser | None = None
) -> tuple[list[tuple[int, Tool]], list[Object], Losses]:
    """Return the fitted tools with their original indices, their declarations, and the losses of the encoder."""
    if target == mcp.NAME:
        encoded, encode_losses = mcp.encode_tools(tools)
        return list(enumerate(tools)), encoded, encode_losses
    writer = get(target)
    names = NameMap(writer.limits, writer.capabilities.namespaces)
    pairs, _ = fit_tools(Request(tools=tools), writer, names, losses, choose=choose)
    encoded, encode_losses = writer.encode_tools(tuple(tool for tool, _ in pairs))
    return [(index, tool) for tool, index in pairs], encoded, encode_losses


def find_declarations(document: JSON, source: str) -> tuple[list[JSON], Callable[[int], str]]:
    """Return the declarations of a document, and a function from their indices to their pointers.

    Raise ProtocolError if they are not an array.
    """
    if source == mcp.NAME and type(document) is dict and "result" in document:
        return mcp.declarations(document), lambda index: join("result", "tools", index)
    if type(document) is dict and "tools" not in document:
        return [document], lambda _: ""
    declared = document["tools"] if type(document) is dict else document
    if type(declared) is not list:
        raise ProtocolError(f"expected an array of tools, got {type_label(declared)}", pointer="/tools")
    return declared, lambda index: join("tools", index) if type(document) is dict else join(index)


def _with_original_indices(losses: Losses, fitted: list[tuple[int, Tool]]) -> list[Loss]:
    """Return losses of the encoder with the indices that the tools had before they were fitted."""
    changed_losses = []
    for loss in losses:
        match split(loss.path):
            case ["tools", index, *rest] if int(index) < len(fitted):
                changed_losses.append(replace(loss, path=join("tools", fitted[int(index)][0], *rest)))
            case _:
                changed_losses.append(loss)
    return changed_losses


def source_locator(
    tools: tuple[Tool, ...], indices: list[int], source: str, place: Callable[[int], str]
) -> Callable[[str], str]:
    """Return a function from paths of canonical tools to pointers into the source document."""

    first: dict[int, int] = {}  # by declaration, the index of its first tool; its tools are adjacent
    for index, declaration in enumerate(indices):
        first.setdefault(declaration, index)

    def locate_tool(path: str) -> str:
        match split(path):
            case ["tools", index, *rest] if int(index) < len(tools):
                declaration = indices[int(index)]
                start = end = first[declaration]
                while end < len(tools) and indices[end] == declaration:
                    end += 1
                siblings, number = tools[start:end], int(index) - start
                return place(declaration) + _tool_pointer(siblings, number, rest, source)
        return ""

    return locate_tool


def _tool_pointer(tools: tuple[Tool, ...], number: int, rest: list[str], wire: str) -> str:
    """Return the pointer of a field of a tool, inside the only declaration of `tools`."""
    if wire == mcp.NAME:
        return join(*(_MCP_FIELDS.get(name, name) for name in rest[:1]), *rest[1:])
    pointer = get(wire).locator(Request(tools=tools))(join("tools", number, *rest))
    return join(*split(pointer)[2:])


def _target_locator(
    fitted: list[tuple[int, Tool]], encoded: list[Object], target: str, prefix: str
) -> Callable[[str], str | None]:
    """Return a function from paths of canonical tools to pointers into the target document."""
    sent_names = {original: tool.name for original, tool in fitted}
    written = mcp.decode_tools(encoded) if target == mcp.NAME else get(target).decode_tools(encoded)
    by_name = {tool.name: number for number, tool in enumerate(written)}

    def locate_tool(path: str) -> str | None:
        match split(path):
            case ["tools", index, *rest] if (position := by_name.get(sent_names.get(int(index), ""))) is not None:
                if target == mcp.NAME:
                    return prefix + join(position) + _tool_pointer((), 0, rest, target)
                pointer = get(target).locator(Request(tools=tuple(written)))(join("tools", position, *rest))
                return prefix + pointer.removeprefix("/tools")
        return None

    return locate_tool


_MCP_FIELDS = {"input_schema": "inputSchema", "output_schema": "outputSchema"}
