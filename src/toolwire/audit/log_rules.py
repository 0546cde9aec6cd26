"""TW068, and the other rules applied to all requests of a log. A problem repeated in every turn is reported once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.text import to_bytes
from ..ir.tools import Tool
from ..wire.protocol import Wire
from .findings import Finding, Hit, SourceLocation, is_selected, make_finding, rule_decorator
from .request_rules import audit_request
from .tools import audit_tools

__all__ = ["LOG_CHECKS", "LoggedRequest", "audit_log"]


class LoggedRequest(NamedTuple):
    """A request, its wire and its location. `body` is the document that it was decoded from."""

    location: SourceLocation
    request: Request
    wire: Wire
    body: Object


LogCheck: TypeAlias = Callable[[Sequence[LoggedRequest]], Iterator[tuple[int, Hit]]]
LOG_CHECKS: dict[str, LogCheck] = {}
_rule = rule_decorator(LOG_CHECKS)


def audit_log(
    log: Sequence[LoggedRequest],
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Run the rules on requests and on the tools that they declare."""
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
    import msgspec

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


@_rule(
    "TW068",
    "warning",
    "all",
    "declarations change between requests",
    "send identical tools in the same order: a prompt cache holds only the prefix before the first change",
)
def check_varying_prefix(log: Sequence[LoggedRequest]) -> Iterator[tuple[int, Hit]]:
    """Compare requests of one wire and model with the first one that has the same tool names or the same prefix.

    Each different list of tools is reported once.
    """
    seen: dict[bytes, tuple[int, Sequence[Tool]]] = {}
    told: set[tuple[bytes, bytes]] = set()
    for index, (_, request, wire, _body) in enumerate(log):
        if not request.tools:
            continue
        about = to_bytes([wire.name, request.model])
        names = to_bytes(sorted(tool.name for tool in request.tools))
        for key in filter(None, (about + names, _request_prefix(request) and about + _request_prefix(request))):
            first, tools = seen.setdefault(key, (index, request.tools))
            words = _describe_difference(tools, request.tools)
            if words and (about, _encode_tools(request.tools)) not in told:
                told.add((about, _encode_tools(request.tools)))
                file, line, _ = log[first].location
                yield index, Hit("/tools/0", f"{words}; first request: {f'{file}:{line}' if line else file}")


def _request_prefix(request: Request) -> bytes:
    """Encode the messages up to the first user message: requests with the same prefix can share a prompt cache."""
    import msgspec

    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    return to_bytes(msgspec.to_builtins(request.messages[: users[0] + 1])) if users else b""


def _describe_difference(before: Sequence[Tool], now: Sequence[Tool]) -> str:
    """Describe how the tools differ; empty if they do not. Cache markers (`cache`) are ignored."""
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
