"""Run all rules on a list of tools, merge equal hits into one finding, and rate each tool per provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from ..ir.text import shorten
from ..ir.tools import Tool
from ..schema.lowering.lowered import lower_all

# Importing a module registers its rules, and findings are sorted in the order of registration.
from . import injection_rules, schema_rules, quality_rules, tool_rules  # isort: skip
from .findings import (
    CHECKS,
    DANGEROUS,
    REJECTED,
    RULES,
    TARGETS,
    Finding,
    Hit,
    SourceLocation,
    applies_to,
    is_selected,
    make_finding,
)
from .schema_rules import SCHEMA_CHECKS, AuditedSchema
from .tokens import declaration_tokens

# Merge the hits of a rule on one tool with the same message into one finding, with a count and some property names.
#
# A rule gives equal problems equal messages; different messages are different problems.


_SHOWN = 3  # hits that the message describes
_MAX_LABEL = 60  # characters; a longer file name would push the columns of a report apart


def merge_hits(finding: Finding, hits: Sequence[Hit]) -> Finding:
    """Return the finding of the first hit, extended by the others."""
    distinct = list(dict.fromkeys(hits))
    if len(distinct) == 1:
        return finding
    shown, rest = distinct[:_SHOWN], ", …" if len(distinct) > _SHOWN else ""
    message = f"{finding.message}, {len(distinct)} times: {', '.join(_label(hit.path) for hit in shown)}{rest}"
    return msgspec.structs.replace(finding, message=message, paths=tuple(hit.path for hit in distinct))


def single_message(finding: Finding) -> str:
    """Return the message of a finding without the count and the names that `merge_hits` adds."""
    times = len(finding.paths)
    return finding.message.partition(f", {times} times: ")[0] if times > 1 else finding.message


def _label(path: str) -> str:
    """Return the name of the property that a pointer is about, or the pointer."""
    _, found, name = path.rpartition("/properties/")
    return shorten(name.partition("/")[0] if found else path or "/", _MAX_LABEL)


_RULE_MODULES = (injection_rules, schema_rules, quality_rules, tool_rules)


def audit_tools(
    tools: Sequence[Tool],
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
    locations: Sequence[SourceLocation] = (),
) -> tuple[Finding, ...]:
    """Run the rules on tools, and return the findings in the order of the rules.

    `select` and `ignore` are ids or prefixes of ids ("TQ", "TW02"); `locations` are the locations of the tools. Equal
    messages of a rule about a tool are merged. Rules that a tool suppresses itself are left out.
    """
    assert _RULE_MODULES
    hits = _run_rules(tuple(tools), lambda rule_id: is_selected(rule_id, select, ignore, targets))
    return _make_findings(tuple(tools), hits, targets, locations)


def audit_targets(tools: Sequence[Tool], targets: Sequence[str]) -> dict[str, tuple[Finding, ...]]:
    """Run the rules once, and return for each target what `audit_tools` returns for it alone."""
    assert _RULE_MODULES
    selected = {target: {rule_id for rule_id in RULES if is_selected(rule_id, targets=(target,))} for target in targets}
    hits = list(_run_rules(tuple(tools), lambda rule_id: any(rule_id in rules for rules in selected.values())))
    return {
        target: _make_findings(tuple(tools), (hit for hit in hits if hit[0] in rules), (target,), ())
        for target, rules in selected.items()
    }


def errors_by_target(
    lists: Iterable[Sequence[Tool]], targets: Sequence[str] = TARGETS
) -> dict[tuple[int, str], set[str]]:
    """Return the error rules that fire, by (`id` of the tool, target); `lists` are tools that are declared together.

    Independent of the rules that a user selects, and of those that a declaration suppresses: a provider reads neither.
    """
    assert _RULE_MODULES
    found: dict[tuple[int, str], set[str]] = {}
    wanted = {
        rule_id: [target for target in targets if is_selected(rule_id, targets=(target,))]
        for rule_id, rule in RULES.items()
        if rule.level == "error"
    }
    for tools in lists:
        by_name: dict[tuple[str, str], set[str]] = {}  # both tools with one name are rejected
        for rule_id, index, hit in _run_rules(tuple(tools), lambda rule_id: bool(wanted.get(rule_id))):
            for target in wanted[rule_id]:
                if index >= 0 and (not hit.providers or applies_to(rule_id, hit.providers, (target,))):
                    by_name.setdefault((tools[index].name, target), set()).add(rule_id)
        for tool in tools:
            for target in targets:
                found.setdefault((id(tool), target), set()).update(by_name.get((tool.name, target), ()))
    return found


def _make_findings(
    given: tuple[Tool, ...],
    hits: Iterable[tuple[str, int, Hit]],
    targets: Collection[str],
    locations: Sequence[SourceLocation],
) -> tuple[Finding, ...]:
    places = tuple(locations) or (SourceLocation(),) * len(given)
    of_all = places[0] if len(set(places)) == 1 else SourceLocation()
    suppressed = [_suppressed_rules(tool) for tool in given]
    found: list[Finding] = []
    grouped: dict[tuple[str, int, str], list[Hit]] = {}
    for rule_id, index, hit in hits:
        if hit.providers and not applies_to(rule_id, hit.providers, targets):
            continue
        if index < 0:
            found.append(make_finding(of_all, rule_id, "", hit.path, hit.message))
        elif rule_id not in suppressed[index]:
            grouped.setdefault((rule_id, index, hit.message), []).append(hit)
    for (rule_id, index, _), same in grouped.items():
        found.append(
            merge_hits(make_finding(places[index], rule_id, given[index].name, same[0].path, same[0].message), same)
        )
    order = {rule_id: number for number, rule_id in enumerate(RULES)}
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: order[finding.rule]))


def _without_texts(tool: Tool) -> Tool:
    """Return a typed tool without its description and schema, which are not the author's."""
    return Tool(tool.name, kind="builtin", extra=tool.extra)


def _run_rules(tools: tuple[Tool, ...], wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, Hit]]:
    """Yield (rule, index of the tool, hit): first rules on the whole list, then the schema rules on each function."""
    tools = tuple([_without_texts(tool) if tool.kind == "typed" else tool for tool in tools])
    for rule_id in filter(wanted, CHECKS):
        for index, hit in CHECKS[rule_id](tools):
            yield rule_id, index, hit
    checks = [(rule_id, check) for rule_id, check in SCHEMA_CHECKS.items() if wanted(rule_id)]
    for index, tool in enumerate(tools):
        if tool.kind == "function" and tool.input_schema is not None:
            schema = AuditedSchema(tool.input_schema)
            for rule_id, check in checks:
                for hit in check(schema):
                    yield rule_id, index, hit._replace(path=f"/input_schema{hit.path}")


def _suppressed_rules(tool: Tool) -> frozenset[str]:
    """Return the suppressed rules: `"x-toolwire-ignore": ["TW030"]` in the declaration or its schema."""
    ignored = (tool.input_schema or {}).get("x-toolwire-ignore")
    for fields in tool.extra.values():
        ignored = fields.get("x-toolwire-ignore", ignored)
    named = {one for one in ignored if type(one) is str} if type(ignored) is list else set()
    return frozenset(named - REJECTED - DANGEROUS)


class Compatibility(NamedTuple):
    """✓ accepted unchanged, ~ only as translated, ! translated, but not fully enforced, ✗ not accepted."""

    mark: Literal["✓", "~", "!", "✗"]
    losses: int


def rate_compatibility(tool: Tool, targets: Sequence[str] = TARGETS) -> dict[str, Compatibility]:
    """Return for each target whether the tool's schema fits: ✓ as it is, ~ rewritten, ! with losses, ✗ not."""
    out: dict[str, Compatibility] = {}
    schema = {"type": "object"} if tool.input_schema is None else tool.input_schema
    for name, lowered in zip(targets, lower_all(schema, targets), strict=True):
        losses = sum(loss.severity != "info" for loss in lowered.losses)
        if not lowered.conforms:
            out[name] = Compatibility("✗", losses)
        elif losses:
            out[name] = Compatibility("!", losses)
        else:
            out[name] = Compatibility("✓" if lowered.unchanged else "~", 0)
    return out


def estimate_tokens(tool: Tool) -> int:
    return declaration_tokens(tool, "openai_chat")
