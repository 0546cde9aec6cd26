"""TW014 and TW050 to TW067: parts of recorded requests that other providers reject or interpret differently."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from ..ir.parts import Media, Reasoning, Text, ToolCall, ToolResult
from ..ir.request import Request
from ..wire import get, names
from ..wire.protocol import Wire
from .findings import Finding, Hit, SourceLocation, is_selected, make_finding, rule_decorator

__all__ = ["REQUEST_CHECKS", "audit_request"]

RequestCheck: TypeAlias = Callable[[Request], Iterator[Hit]]
REQUEST_CHECKS: dict[str, RequestCheck] = {}


_rule = rule_decorator(REQUEST_CHECKS)


def audit_request(
    request: Request,
    wire: Wire,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
    location: SourceLocation = SourceLocation(),  # noqa: B008  a value
) -> tuple[Finding, ...]:
    """Run the request rules; the findings point into the document that was decoded from `wire`."""
    locate = wire.locator(request)
    found: list[Finding] = []
    for rule_id, check in REQUEST_CHECKS.items():
        if is_selected(rule_id, select, ignore, targets):
            found += [
                make_finding(location, rule_id, "", location.at + locate(hit.path), hit.message)
                for hit in check(request)
            ]
    return tuple(dict.fromkeys(found))


def _message_parts(request: Request) -> Iterator[tuple[str, str, object]]:
    """Yield (path, role, part) for each part of the messages."""
    for index, message in enumerate(request.messages):
        for number, part in enumerate(message.parts):
            yield f"/messages/{index}/parts/{number}", message.role, part


@_rule("TW014", "error", "bedrock", "calls in the history without declared tools", "declare the tools that were called")
def check_undeclared_history(request: Request) -> Iterator[Hit]:
    """Report the first call or result in a request without tools."""
    if request.tools:
        return
    for path, _, part in _message_parts(request):
        if isinstance(part, (ToolCall, ToolResult)):
            yield Hit(path, "the list of tools must not be empty if a message contains a call or a result")
            return


@_rule(
    "TW050",
    "error",
    "anthropic gemini",
    "tool choice not supported by every provider",
    "use a mode that all of them support",
)
def check_choice(request: Request) -> Iterator[Hit]:
    if request.choice is not None and request.choice.mode != "auto":
        lacking = [name for name in names() if request.choice.mode not in get(name).capabilities.choices]
        if lacking:
            yield Hit("/choice", f"{request.choice.mode!r} is not supported by {', '.join(lacking)}")


@_rule(
    "TW051",
    "error",
    "anthropic",
    "forced call with a thinking budget",
    "use adaptive thinking, or tool choice auto",
)
def check_forced_thinking(request: Request) -> Iterator[Hit]:
    forced = request.choice is not None and (request.choice.mode in ("required", "tool") or request.choice.required)
    if forced and request.reasoning is not None and request.reasoning.mode == "budget":
        yield Hit("/choice", "a forced call and a thinking budget exclude each other")


@_rule(
    "TW052",
    "warning",
    "gemini",
    "disabling parallel calls is not supported by every provider",
    "execute only the first call",
)
def check_one_call(request: Request) -> Iterator[Hit]:
    if request.parallel is False:
        lacking = [name for name in names() if not get(name).capabilities.parallel]
        yield Hit("/parallel", f"not supported by {', '.join(lacking)}")


@_rule("TW053", "error", "all", "tool choice names an undeclared tool", "declare the tool")
def check_undeclared_choice(request: Request) -> Iterator[Hit]:
    declared = {tool.name for tool in request.tools}
    for name in request.choice.names if request.choice is not None else ():
        if name not in declared:
            yield Hit("/choice", f"{name!r} is not declared")


@_rule("TW054", "warning", "openai_responses openai_chat", "`strict` not set", "set it to true or false")
def check_unset_strict(request: Request) -> Iterator[Hit]:
    for index, tool in enumerate(request.tools):
        if tool.kind == "function" and ":strict" in tool.extra.get("openai_responses", {}):
            yield Hit(f"/tools/{index}", "without it, Responses is strict if possible, and Chat never is")


@_rule("TW060", "error", "openai_chat openai_responses", "call id rejected by other providers", "map the ids")
def check_call_ids(request: Request) -> Iterator[Hit]:
    """Report call ids that are empty, or longer than another wire allows."""
    for path, _, part in _message_parts(request):
        if isinstance(part, ToolCall):
            short = [name for name in names() if len(part.id) > get(name).limits.id_length]
            if short or not part.id:
                words = (
                    f"{len(part.id)} characters are too many for {', '.join(short)}"
                    if part.id
                    else "the call has no id"
                )
                yield Hit(path, words)


@_rule("TW061", "error", "all", "unpaired calls and results", "put the result of every call right after it")
def check_pairing(request: Request) -> Iterator[Hit]:
    """Report results without a call, and calls without a result before the next user message.

    `waiting` maps the ids of calls without a result to their paths.
    """
    waiting: dict[str, str] = {}
    for path, role, part in _message_parts(request):
        if isinstance(part, ToolCall):
            waiting[part.id] = path
        elif isinstance(part, ToolResult):
            if part.call_id and waiting.pop(part.call_id, None) is None:
                yield Hit(path, f"no call has the id {part.call_id!r}")
        elif waiting and role == "user":
            for call_id, where in waiting.items():
                if call_id:
                    yield Hit(where, "the call has no result before the next user message")
            waiting.clear()


@_rule("TW062", "error", "all", "call id used more than once", "give each call its own id")
def check_repeated_ids(request: Request) -> Iterator[Hit]:
    counts = Counter(part.id for _, _, part in _message_parts(request) if isinstance(part, ToolCall) and part.id)
    for path, _, part in _message_parts(request):
        if isinstance(part, ToolCall) and counts[part.id] > 1:
            yield Hit(path, f"{part.id!r} is used {counts[part.id]} times")


@_rule(
    "TW063", "error", "anthropic gemini openai_responses", "reasoning without its signature", "send it back unchanged"
)
def check_unsigned_calls(request: Request) -> Iterator[Hit]:
    for path, _, part in _message_parts(request):
        if isinstance(part, Reasoning) and not part.artefacts:
            yield Hit(path, "the provider that produced it will reject it")


@_rule(
    "TW064", "warning", "anthropic gemini", "arguments are not a JSON object", "repair them before sending them again"
)
def check_arguments(request: Request) -> Iterator[Hit]:
    for path, _, part in _message_parts(request):
        if isinstance(part, ToolCall) and part.kind == "function" and part.arguments is None:
            yield Hit(path, f"the arguments are {part.state}")


@_rule("TW065", "error", "anthropic", "empty message", "remove it")
def check_empty_messages(request: Request) -> Iterator[Hit]:
    for index, message in enumerate(request.messages):
        if not message.parts:
            yield Hit(f"/messages/{index}", "the message has no parts")
    for path, _, part in _message_parts(request):
        if isinstance(part, Text) and not part.text.strip() and not part.artefacts:
            yield Hit(path, "the text is empty")


@_rule("TW066", "error", "openai_chat", "image or file in a result", "send it in a separate message after the results")
def check_media_results(request: Request) -> Iterator[Hit]:
    for path, _, part in _message_parts(request):
        if isinstance(part, ToolResult) and any(isinstance(inner, Media) for inner in part.parts):
            yield Hit(path, "Chat accepts only text in results")


_LOOKS_FAILED = re.compile(r"\s*(?:error\b|exception\b|traceback \(most recent|fatal\b|failed\b)", re.IGNORECASE).match


@_rule(
    "TW067",
    "warning",
    "anthropic gemini",
    "failed result without an error flag",
    "set the error flag and remove the traceback",
)
def check_unflagged_errors(request: Request) -> Iterator[Hit]:
    for path, _, part in _message_parts(request):
        if isinstance(part, ToolResult) and not part.is_error and _LOOKS_FAILED(part.text):
            yield Hit(path, part.text.strip()[:60])
