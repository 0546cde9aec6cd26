"""Rules about recorded requests and logs: the constraints of their own provider (`provider_rules`), portability, and TW068."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from ..ir.parts import Media, Text, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.text import to_bytes
from ..ir.tools import Tool
from ..wire import get, names
from ..wire.protocol import Wire
from .findings import RULES, Finding, Hit, SourceLocation, is_selected, make_finding, rule_decorator
from .provider_rules.constraints import BODY_RULES
from .provider_rules.documents import is_blank
from .provider_rules.openai_shared import CALL_ID_LENGTHS
from .provider_rules.providers import PROVIDERS, check_body
from .tools import audit_tools

# Rules about recorded requests: the constraints of their own provider (`provider_rules`), and portability.
#
# TW014, TW050, TW052, TW054, TW060, TW064, TW066 and TW067 report what other providers reject or interpret
# differently.


RequestCheck: TypeAlias = Callable[[Request], Iterator[Hit]]
REQUEST_CHECKS: dict[str, RequestCheck] = {}


_rule = rule_decorator(REQUEST_CHECKS)
OTHER_WIRE_CHECKS: dict[str, RequestCheck] = {}
"""Checks of body rules for requests of other wires: the rules of Anthropic, for a request that was not sent to it."""


def audit_request(
    request: Request,
    wire: Wire,
    body: Object,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
    location: SourceLocation = SourceLocation(),  # noqa: B008  a value
) -> tuple[Finding, ...]:
    """Run the rules on a request and on the `body` that it was decoded from; the findings point into the body.

    `OTHER_WIRE_CHECKS` are skipped for Anthropic, whose constraints on the body report the same. Rules about tools are
    run by `audit_tools`.
    """
    locate = wire.locator(request)
    found: list[Finding] = []
    for rule_id, check in (REQUEST_CHECKS | (OTHER_WIRE_CHECKS if wire.name != "anthropic" else {})).items():
        if is_selected(rule_id, select, ignore, targets):
            found += [
                make_finding(location, rule_id, "", location.at + locate(hit.path), hit.message)
                for hit in check(request)
            ]
    for violation in check_body(body, wire.name, request.model or None) if wire.name in PROVIDERS else ():
        # audit_tools reports the tool rules
        if violation.rule in BODY_RULES and is_selected(violation.rule, select, ignore, targets):
            found.append(make_finding(location, violation.rule, "", location.at + violation.path, violation.message))
    return tuple(dict.fromkeys(found))


def audit_body(
    body: Object,
    provider: str,
    model: str | None = None,
    *,
    version: str | None = None,
    file: str = "",
    select: Collection[str] = (),
    ignore: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Return the violations of a body as findings. Unlike `audit_request`, it needs no codec that can decode the body."""
    providers = {rule.id: rule.providers for rule in RULES.values()}
    return tuple(
        Finding(one.rule, "error", providers.get(one.rule, (provider,)), "", one.path, one.message, one.fix, file)
        for one in check_body(body, provider, model, version=version)
        if not one.rule.startswith(tuple(ignore)) and (not select or one.rule.startswith(tuple(select)))
    )


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
            short = [name for name, most in CALL_ID_LENGTHS.items() if len(part.id) > most]
            if short or not part.id:
                words = (
                    f"{len(part.id)} characters are too many for {', '.join(short)}"
                    if part.id
                    else "the call has no id"
                )
                yield Hit(path, words)


@_rule(
    "TW064", "warning", "anthropic gemini", "arguments are not a JSON object", "repair them before sending them again"
)
def check_arguments(request: Request) -> Iterator[Hit]:
    for path, _, part in _message_parts(request):
        if isinstance(part, ToolCall) and part.kind == "function" and part.arguments is None:
            yield Hit(path, f"the arguments are {part.state}")


def check_forced_thinking(request: Request) -> Iterator[Hit]:
    """Report a forced call with a thinking budget (TW051)."""
    forced = request.choice is not None and request.choice.forces_call
    if forced and request.reasoning is not None and request.reasoning.mode == "budget":
        yield Hit("/choice", "a forced call and a thinking budget exclude each other")


def check_empty_messages(request: Request) -> Iterator[Hit]:
    """Report messages without parts, and texts of whitespace (TW065)."""
    for index, message in enumerate(request.messages):
        if not message.parts:
            yield Hit(f"/messages/{index}", "the message has no parts")
    for path, _, part in _message_parts(request):
        if isinstance(part, Text) and is_blank(part.text) and not part.artefacts:
            yield Hit(path, "the text is empty")


OTHER_WIRE_CHECKS |= {"TW051": check_forced_thinking, "TW065": check_empty_messages}


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


# TW068, and the other rules applied to all requests of a log. A problem repeated in every turn is reported once.


class LoggedRequest(NamedTuple):
    """A request, its wire and its location. `body` is the document that it was decoded from."""

    location: SourceLocation
    request: Request
    wire: Wire
    body: Object


LogCheck: TypeAlias = Callable[[Sequence[LoggedRequest]], Iterator[tuple[int, Hit]]]
LOG_CHECKS: dict[str, LogCheck] = {}
_log_rule = rule_decorator(LOG_CHECKS)


def audit_log(
    log: Sequence[LoggedRequest],
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Run the rules on requests, on the tools that they declare (each list once), and on the whole log.

    Findings that repeat in several requests are merged.
    """
    found: list[Finding] = []
    lists: set[bytes] = set()
    for location, request, wire, body in log:
        tools = _encode_tools(request.tools)
        if request.tools and tools not in lists:
            lists.add(tools)
            places = (location,) * len(request.tools)
            found += audit_tools(request.tools, select=select, ignore=ignore, targets=targets, locations=places)
        found += audit_request(request, wire, body, select=select, ignore=ignore, targets=targets, location=location)
    for rule_id, check in LOG_CHECKS.items():
        for index, hit in check(log) if is_selected(rule_id, select, ignore, targets) else ():
            location, request, wire, _ = log[index]
            found.append(
                make_finding(location, rule_id, "", location.at + wire.locator(request)(hit.path), hit.message)
            )
    return _merge_repeated(found)


def _encode_tools(tools: Sequence[Tool]) -> bytes:
    return to_bytes(msgspec.to_builtins(tools))


def _merge_repeated(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Report repeated findings at their first line with a count: each turn repeats the turns before it."""
    first: dict[Finding, list[Finding]] = {}
    for finding in findings:
        first.setdefault(replace(finding, line=0), []).append(finding)
    return tuple(_add_count(same[0], len(same) - 1) for same in first.values())


def _add_count(finding: Finding, others: int) -> Finding:
    words = f"{finding.message} (and on {others} other line{'s' if others > 1 else ''})"
    return replace(finding, message=words) if others else finding


@_log_rule(
    "TW068",
    "warning",
    "all",
    "declarations change between requests",
    "send identical tools in the same order: a prompt cache holds only the prefix before the first change",
)
def check_varying_prefix(log: Sequence[LoggedRequest]) -> Iterator[tuple[int, Hit]]:
    """Report requests whose tools differ from an earlier request of the same wire and model, which breaks its cache.

    Compared is the first request with the same tool names or the same prefix. Each different list of tools is reported
    once.
    """
    seen: dict[bytes, tuple[int, Sequence[Tool]]] = {}
    reported: set[tuple[bytes, bytes]] = set()
    for index, (_, request, wire, _body) in enumerate(log):
        if not request.tools:
            continue
        about = to_bytes([wire.name, request.model])
        names = to_bytes(sorted(tool.name for tool in request.tools))
        for key in filter(None, (about + names, _request_prefix(request) and about + _request_prefix(request))):
            first, tools = seen.setdefault(key, (index, request.tools))
            difference = _describe_difference(tools, request.tools)
            if difference and (about, _encode_tools(request.tools)) not in reported:
                reported.add((about, _encode_tools(request.tools)))
                file, line, _ = log[first].location
                yield index, Hit("/tools/0", f"{difference}; first request: {f'{file}:{line}' if line else file}")


def _request_prefix(request: Request) -> bytes:
    """Encode the messages up to the first user message: requests with the same prefix can share a prompt cache."""
    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    return to_bytes(msgspec.to_builtins(request.messages[: users[0] + 1])) if users else b""


def _describe_difference(before: Sequence[Tool], now: Sequence[Tool]) -> str:
    """Return how the tools differ (added, removed, changed, order), or '' if they do not. Cache markers are ignored."""
    old, new = {tool.name: tool for tool in before}, {tool.name: tool for tool in now}
    come, gone = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    if come or gone:
        return "; ".join(
            f"{words} {', '.join(names)}" for words, names in (("added:", come), ("removed:", gone)) if names
        )
    changed = [name for name, tool in new.items() if replace(tool, cache=None) != replace(old[name], cache=None)]
    if changed:
        return f"changed: {', '.join(changed)}"
    return "" if list(old) == list(new) else "different order"
