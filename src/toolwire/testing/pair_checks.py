"""Checks between two wires: after a round trip, every change is covered by a loss."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..bridge.conversation.provider_state import drop_stored
from ..bridge.translation.exchange import Exchange
from ..bridge.translation.preparation import prepare
from ..ir.errors import ToolwireError
from ..ir.folding import fold
from ..ir.losses import Loss
from ..ir.parts import Part, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.response import Response
from ..ir.text import dumps
from ..ir.tools import Tool
from ..wire.protocol import Wire
from .assertions import plain
from .stream_checks import decode_stream
from .vectors import Vector

# Find changes of a translation that its losses do not report.
#
# A request is split into statements, each at a path: a parameter, a field of a tool, a part of a message. The
# grouping of parts into messages is not a statement, and an id only matters as a link, so calls are numbered. A
# statement that is missing on the other side must have a loss at its path, above it or below it; an added statement
# needs a loss that reports a replacement.


Statement: TypeAlias = tuple[str, str]
"""(path, content at this path)"""

_REPLACING_ACTIONS = ("rewritten", "moved", "weakened")


def unexplained_in_request(before: Request, after: Request, losses: Iterable[Loss]) -> list[str]:
    """Return paths of `before` that `after` lacks and that no loss covers."""
    losses = list(losses)
    unexplained = _compare(_request_fields(before), _request_fields(after), losses)
    unexplained += _compare_tools(before.tools, after.tools, losses)
    return unexplained + _compare_statements(_request_statements(before), _request_statements(after), losses)


def unexplained_in_response(before: Response, after: Response, losses: Iterable[Loss]) -> list[str]:
    losses = list(losses)
    unexplained = _compare(_response_fields(before), _response_fields(after), losses)
    return unexplained + _compare_statements(_response_statements(before), _response_statements(after), losses)


def _request_fields(request: Request) -> dict[str, Any]:
    """Return the settings of a request by path, without values that mean the same as absent."""
    fields: dict[str, Any] = {}
    for name, value in plain(request.params).items():
        if name != "include_usage":  # concerns the stream; other wires always report usage
            fields[f"/params/{name}"] = value
    if request.choice is not None and request.choice.mode != "auto":
        mode, names = request.choice.mode, list(request.choice.names)
        if mode == "allowed" and request.choice.required and len(names) == 1:
            mode = "tool"
        fields["/choice"] = [mode, names, request.choice.required and mode != "tool"]
    if request.parallel is False:
        fields["/parallel"] = False
    if request.reasoning is not None:
        for name, value in plain(request.reasoning).items():
            # Only some wires have a switch for visible reasoning; on the others it is never visible.
            if (name not in ("extra", "mode") and (name, value) != ("visible", False)) or value == "off":
                fields[f"/reasoning/{name}"] = value
    if request.output is not None and request.output.kind != "text":
        for name, value in plain(request.output).items():
            if name != "extra":
                fields[f"/output/{name}"] = value
    return fields


def _response_fields(response: Response) -> dict[str, Any]:
    """Return the fields of a response by path, without its parts."""
    fields: dict[str, Any] = {"/id": response.id, "/model": response.model}
    if response.created is not None:
        fields["/created"] = response.created
    if response.stop is not None:
        fields["/stop"] = response.stop.reason
        if response.stop.sequence is not None:
            fields["/stop/sequence"] = response.stop.sequence
    if response.usage is not None:
        for name in ("input", "output", "cached", "cache_write", "reasoning"):
            if getattr(response.usage, name):
                fields[f"/usage/{name}"] = getattr(response.usage, name)
    return fields


def _compare(before: dict[str, Any], after: dict[str, Any], losses: list[Loss]) -> list[str]:
    return [
        path
        for path, value in before.items()
        if (path not in after or dumps(after[path]) != dumps(value)) and not _is_covered(losses, path)
    ]


def _compare_tools(before: tuple[Tool, ...], after: tuple[Tool, ...], losses: list[Loss]) -> list[str]:
    """Return the paths of tool fields that changed without a loss; tools are matched by name."""
    by_name = {(tool.namespace, tool.name): _tool_fields(tool) for tool in after}
    unexplained: list[str] = []
    for index, tool in enumerate(before):
        found = by_name.get((tool.namespace, tool.name), {})
        for field, value in _tool_fields(tool).items():
            path = f"/tools/{index}/{field}"
            if (field not in found or found[field] != value) and not _is_covered(losses, path):
                unexplained.append(path)
    return unexplained


def _tool_fields(tool: Tool) -> dict[str, Any]:
    """Return the fields of a tool that a translation must preserve."""
    fields = {name: value for name, value in plain(tool).items() if name not in ("extra", "effect", "function")}
    for name in ("strict", "deferred"):
        if not fields.get(name):
            fields.pop(name, None)  # unset and false are the same on a wire that has no such setting
    if tool.input_schema is None and tool.kind == "function":
        fields["input_schema"] = {"type": "object", "properties": {}}
    return fields


def _is_covered(losses: list[Loss], path: str) -> bool:
    """Return whether a loss covers `path`; one at the root or for all parts together is too general."""
    near = [loss for loss in losses if loss.path not in ("", "/parts", "/messages", "/tools")]
    return any(_is_ancestor(loss.path, path) or _is_ancestor(path, loss.path) for loss in near)


def _is_ancestor(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")


class _CallLinks:
    """Calls in order of appearance. Without ids, the nth result of a name belongs to the nth call of that name.

    A model may repeat an id in a later turn; a result belongs to the first call of its id without a result.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._unanswered: dict[str, deque[int]] = {}
        self._calls: Counter[str] = Counter()
        self._results: Counter[str] = Counter()

    def call(self, call: ToolCall) -> int:
        """Assign the next number to a call, and keep it for the result of the call."""
        self._calls[call.name] += 1
        number = sum(self._calls.values()) - 1
        self._numbers[f"{call.name} {self._calls[call.name]}"] = number
        if call.id:
            self._unanswered.setdefault(call.id, deque()).append(number)
        return number

    def result(self, result: ToolResult) -> int:
        """Return the number of the call that a result belongs to; -1 if there is none."""
        name = result.name or ""
        self._results[name] += 1
        if not result.call_id:
            return self._numbers.get(f"{name} {self._results[name]}", -1)
        if waiting := self._unanswered.get(result.call_id):
            self._numbers[result.call_id] = waiting.popleft()
        return self._numbers.get(result.call_id, -1)


def _request_statements(request: Request) -> list[Statement]:
    """Return a statement for each part of the messages; `developer` counts as `system`."""
    links = _CallLinks()
    statements: list[Statement] = []
    for index, message in enumerate(request.messages):
        role = "system" if message.role == "developer" else message.role
        for number, part in enumerate(message.parts):
            statements.append((f"/messages/{index}/parts/{number}", f"{role} {_statement_text(part, links)}"))
    return statements


def _response_statements(response: Response) -> list[Statement]:
    """Return a statement for each part of the response and of its alternatives."""
    links = _CallLinks()
    statements = [(f"/parts/{number}", _statement_text(part, links)) for number, part in enumerate(response.parts)]
    for choice, other in enumerate(response.alternatives):
        for number, part in enumerate(other.parts):
            statements.append((f"/alternatives/{choice}/parts/{number}", f"{choice} {_statement_text(part, links)}"))
    return statements


def _statement_text(part: Part, links: _CallLinks) -> str:
    """Render a part as JSON, without `extra`, and with the number of the call in place of its id."""
    statements = {key: value for key, value in plain(part).items() if key != "extra"}
    if isinstance(part, ToolCall):
        # Arguments may be text or an object for the same call.
        statements = {"call": links.call(part), "name": part.name, "namespace": part.namespace}
        statements |= {"arguments": part.raw if part.arguments is None else part.arguments, "kind": part.kind}
        statements["artefacts"] = plain(part.artefacts)
    elif isinstance(part, ToolResult):
        statements["call_id"] = links.result(part)
        for name in ("name", "kind", "namespace"):  # fields of the call, which some wires do not repeat
            statements.pop(name, None)
        statements["parts"] = [_strip_extra(item) for item in plain(part.parts)]
    return dumps(statements)


def _strip_extra(part: Any) -> Any:
    return {key: value for key, value in part.items() if key != "extra"}


def _compare_statements(before: list[Statement], after: list[Statement], losses: list[Loss]) -> list[str]:
    """Return the paths of lost statements, and added statements if no loss reports a replacement."""
    # all of these must be preserved
    statements = [statement for statement in before if not _is_covered(losses, statement[0])]
    unexplained = [path for start, end, _ in _changed_ranges(statements, after) for path, _ in statements[start:end]]
    if not any(loss.action in _REPLACING_ACTIONS for loss in losses):
        for start, end, instead in _changed_ranges(before, after):
            unexplained += [f"added: {words}" for _, words in instead if len(instead) > end - start]
    return unexplained


def _changed_ranges(before: list[Statement], after: list[Statement]) -> list[tuple[int, int, list[Statement]]]:
    """Return the changed ranges of `before`, each with its replacement in `after`."""
    matcher = SequenceMatcher(None, [words for _, words in before], [words for _, words in after], autojunk=False)
    opcodes = [opcode for opcode in matcher.get_opcodes() if opcode[0] != "equal"]
    return [(start, end, after[other_start:other_end]) for _, start, end, other_start, other_end in opcodes]


def request_pair(wire: Wire, body: Object, other_wire: Wire) -> None:
    """Send a request to `other_wire` and back, and assert that every change is in the losses.

    A request that is refused before sending passes.
    """
    request = drop_stored(wire.decode_request(body), other_wire.name)
    try:
        prepared = prepare(request, other_wire)
    except ToolwireError:
        return  # refused with a reason before sending
    written, losses = other_wire.encode_request(prepared.request)
    returned = other_wire.decode_request(written)
    differing = unexplained_in_request(prepared.request, returned, list(losses))
    assert not differing, f"{other_wire.name} decodes a different value at {differing}, without a loss"
    original = _restore_names(returned, prepared.exchange)
    explained = [*prepared.losses, *(replace(loss, path=prepared.origin(loss.path)) for loss in losses)]
    differing = unexplained_in_request(request, original, explained)
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in explained]}"


def _request_pair(wire: Wire, vector: Vector, other_wire: Wire) -> None:
    request_pair(wire, vector.body, other_wire)


def _response_pair(wire: Wire, vector: Vector, other_wire: Wire) -> None:
    """Encode a response for another wire and decode it again; every change must be in the losses."""
    response = Exchange().restore(wire.decode_response(vector.body))
    if response.fault is not None:
        return
    written, losses = other_wire.encode_response(response)
    returned = other_wire.decode_response(written)
    differing = unexplained_in_response(response, returned, list(losses))
    assert not differing, f"changed without a loss: {differing}\nlosses: {[str(loss) for loss in losses]}\n{written}"


def _stream_pair(wire: Wire, vector: Vector, other_wire: Wire) -> None:
    """Translate a stream to another wire event by event, and assert that every change is in the losses.

    Of a failed stream, only the error must arrive.
    """
    response = Exchange().restore(fold(decode_stream(wire, [vector.data])))
    restorer = Exchange().make_restorer()
    encoder = other_wire.stream_encoder()
    written = b"".join(
        [encoder.feed(restored) for event in decode_stream(wire, [vector.data]) for restored in restorer.feed(event)]
    )
    returned = fold(decode_stream(other_wire, [written]))
    if response.fault is not None:
        assert returned.fault is not None, "the error did not arrive"
        return
    differing = unexplained_in_response(response, returned, list(encoder.losses))
    assert not differing, (
        f"changed without a loss: {differing}\nlosses: {[str(x) for x in encoder.losses]}\n{written!r}"
    )


def _restore_names(fitted: Request, exchange: Exchange) -> Request:
    """Restore the original names in a fitted request."""
    returned = exchange.original_name

    def restore_part(part: Part) -> Part:
        if isinstance(part, (ToolCall, ToolResult)) and part.name is not None:
            namespace, name = returned(part.namespace, part.name)
            return replace(part, name=name, namespace=namespace)
        return part

    messages = tuple(replace(m, parts=tuple(restore_part(part) for part in m.parts)) for m in fitted.messages)
    tools = tuple(
        tool if tool.kind == "builtin" else _rename_tool(tool, returned(tool.namespace, tool.name))
        for tool in fitted.tools
    )
    choice = fitted.choice
    if choice is not None:
        choice = replace(choice, names=tuple(returned(None, name)[1] for name in choice.names))
    return replace(fitted, messages=messages, tools=tools, choice=choice)


def _rename_tool(tool: Tool, original: tuple[str | None, str]) -> Tool:
    return replace(tool, namespace=original[0], name=original[1])


PAIR_CHECKS = {"request": _request_pair, "response": _response_pair, "stream": _stream_pair}
