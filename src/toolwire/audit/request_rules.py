"""TW014 and TW050 to TW067: what in a recorded request another provider refuses or reads otherwise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from ..ir.parts import Media, Reasoning, Text, ToolCall, ToolResult
from ..ir.request import Request
from ..wire import get, names
from ..wire.protocol import Wire
from .findings import Finding, Hit, Place, chosen, found_at, registering

__all__ = ["REQUEST_CHECKS", "audit_request"]

RequestCheck: TypeAlias = Callable[[Request], Iterator[Hit]]
REQUEST_CHECKS: dict[str, RequestCheck] = {}


_rule = registering(REQUEST_CHECKS)


def audit_request(
    request: Request,
    wire: Wire,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
    place: Place = Place(),  # noqa: B008  a value
) -> tuple[Finding, ...]:
    """What the rules find in a request that was read from `wire`, with pointers into its document."""
    locate = wire.locator(request)
    found: list[Finding] = []
    for rule_id, check in REQUEST_CHECKS.items():
        if chosen(rule_id, select, ignore, targets):
            found += [found_at(place, rule_id, "", place.at + locate(hit.path), hit.message) for hit in check(request)]
    return tuple(dict.fromkeys(found))


def _parts(request: Request) -> Iterator[tuple[str, str, object]]:
    """(path, role, part)"""
    for index, message in enumerate(request.messages):
        for number, part in enumerate(message.parts):
            yield f"/messages/{index}/parts/{number}", message.role, part


@_rule("TW014", "error", "bedrock", "calls in the history and no tools", "declare the tools that were called")
def undeclared_history(request: Request) -> Iterator[Hit]:
    if request.tools:
        return
    for path, _, part in _parts(request):
        if isinstance(part, (ToolCall, ToolResult)):
            yield Hit(path, "the list of tools must not be empty where a call or a result stands in a message")
            return


@_rule(
    "TW050", "error", "anthropic gemini", "a tool choice that not every provider has", "say it in a way they all have"
)
def choice(request: Request) -> Iterator[Hit]:
    if request.choice is not None and request.choice.mode != "auto":
        lacking = [name for name in names() if request.choice.mode not in get(name).capabilities.choices]
        if lacking:
            yield Hit("/choice", f"{request.choice.mode!r} is not known to {', '.join(lacking)}")


@_rule(
    "TW051",
    "error",
    "anthropic",
    "a forced call together with a thinking budget",
    "adaptive thinking, or let it choose",
)
def forced_thinking(request: Request) -> Iterator[Hit]:
    forced = request.choice is not None and (request.choice.mode in ("required", "tool") or request.choice.required)
    if forced and request.reasoning is not None and request.reasoning.mode == "budget":
        yield Hit("/choice", "they exclude each other")


@_rule("TW052", "warning", "gemini", "one call at a time, which not every provider can be told", "take the first call")
def one_call(request: Request) -> Iterator[Hit]:
    if request.parallel is False:
        lacking = [name for name in names() if not get(name).capabilities.parallel]
        yield Hit("/parallel", f"{', '.join(lacking)} has no switch for it")


@_rule("TW053", "error", "all", "a choice of a tool that is not declared", "declare it")
def undeclared_choice(request: Request) -> Iterator[Hit]:
    declared = {tool.name for tool in request.tools}
    for name in request.choice.names if request.choice is not None else ():
        if name not in declared:
            yield Hit("/choice", f"{name!r} is not among the tools")


@_rule("TW054", "warning", "openai_responses openai_chat", "strictness is left to the provider", "say true or false")
def unset_strict(request: Request) -> Iterator[Hit]:
    for index, tool in enumerate(request.tools):
        if tool.kind == "function" and ":strict" in tool.extra.get("openai_responses", {}):
            yield Hit(f"/tools/{index}", "left out means: strict if possible here, never on Chat")


@_rule("TW060", "error", "openai_chat openai_responses", "a call id that other providers refuse", "map ids")
def call_ids(request: Request) -> Iterator[Hit]:
    for path, _, part in _parts(request):
        if isinstance(part, ToolCall):
            short = [name for name in names() if len(part.id) > get(name).limits.id_length]
            if short or not part.id:
                words = f"{len(part.id)} characters are too many for {', '.join(short)}" if part.id else "there is none"
                yield Hit(path, words)


@_rule("TW061", "error", "all", "calls and results that do not belong together", "answer every call, right behind it")
def pairing(request: Request) -> Iterator[Hit]:
    waiting: dict[str, str] = {}
    for path, role, part in _parts(request):
        if isinstance(part, ToolCall):
            waiting[part.id] = path
        elif isinstance(part, ToolResult):
            if part.call_id and waiting.pop(part.call_id, None) is None:
                yield Hit(path, f"no call is called {part.call_id!r}")
        elif waiting and role == "user":
            for call_id, where in waiting.items():
                if call_id:
                    yield Hit(where, "it is not answered before the user speaks")
            waiting.clear()


@_rule("TW062", "error", "all", "one id for several calls", "give each call its own")
def repeated_ids(request: Request) -> Iterator[Hit]:
    counts = Counter(part.id for _, _, part in _parts(request) if isinstance(part, ToolCall) and part.id)
    for path, _, part in _parts(request):
        if isinstance(part, ToolCall) and counts[part.id] > 1:
            yield Hit(path, f"{part.id!r} is used {counts[part.id]} times")


@_rule(
    "TW063", "error", "anthropic gemini openai_responses", "reasoning without its signature", "send it back as it came"
)
def unsigned(request: Request) -> Iterator[Hit]:
    for path, _, part in _parts(request):
        if isinstance(part, Reasoning) and not part.artefacts:
            yield Hit(path, "the provider that made it will not take it back")


@_rule(
    "TW064", "warning", "anthropic gemini", "arguments that are no JSON object", "mend them before they are sent again"
)
def arguments(request: Request) -> Iterator[Hit]:
    for path, _, part in _parts(request):
        if isinstance(part, ToolCall) and part.kind == "function" and part.arguments is None:
            yield Hit(path, f"they are {part.state}")


@_rule("TW065", "error", "anthropic", "a message that says nothing", "leave it out")
def empty(request: Request) -> Iterator[Hit]:
    for index, message in enumerate(request.messages):
        if not message.parts:
            yield Hit(f"/messages/{index}", "it is empty")
    for path, _, part in _parts(request):
        if isinstance(part, Text) and not part.text.strip() and not part.artefacts:
            yield Hit(path, "the text is empty")


@_rule("TW066", "error", "openai_chat", "a picture or a file in a result", "a message of its own behind the results")
def media_results(request: Request) -> Iterator[Hit]:
    for path, _, part in _parts(request):
        if isinstance(part, ToolResult) and any(isinstance(inner, Media) for inner in part.parts):
            yield Hit(path, "results on Chat are text")


_LOOKS_FAILED = re.compile(r"\s*(?:error\b|exception\b|traceback \(most recent|fatal\b|failed\b)", re.IGNORECASE).match


@_rule(
    "TW067",
    "warning",
    "anthropic gemini",
    "a failure that is not called one",
    "set the error flag, leave out the traceback",
)
def unflagged(request: Request) -> Iterator[Hit]:
    for path, _, part in _parts(request):
        if isinstance(part, ToolResult) and not part.is_error and _LOOKS_FAILED(part.text):
            yield Hit(path, part.text.strip()[:60])
