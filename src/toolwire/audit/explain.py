"""Explain a rule on the terminal or as a markdown page, with an example that triggers it and one that does not.

The examples are data (examples/*.toml); a test runs every one of them through its rule.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from . import code_rules, config_rules, request_rules, tools
from .findings import CHECKS, RULES, Level, Rule
from .provider_rules.constraints import BODY_RULES, Constraint
from .provider_rules.providers import list_constraints
from .schema_rules import SCHEMA_CHECKS

_RULE_MODULES = (code_rules, config_rules, request_rules, tools)  # importing them registers their rules
KINDS = ("tools", "request", "log", "code", "config")
_LANGUAGES = {"code": "python", "log": "jsonl"}
_LEVEL_MEANINGS: dict[Level, str] = {
    "error": "it is rejected, or something is lost",
    "warning": "it is accepted, but does not work as intended",
    "info": "advice",
}
_INPUT_LABELS = {
    "tools": "tool declarations",
    "request": "recorded requests",
    "log": "logs of several requests",
    "code": "Python source",
    "config": "MCP server lists",
}


class RuleExample(NamedTuple):
    """An input that the rule reports, and one that it does not. Bodies are checked for a provider and a model."""

    bad: str
    good: str
    provider: str = ""
    model: str = ""
    version: str = ""


@cache
def examples() -> dict[str, RuleExample]:
    """Load the examples of all rules, by rule id."""
    found: dict[str, RuleExample] = {}
    for file in files(__package__).joinpath("examples").iterdir():
        if file.name.endswith(".toml"):
            for rule_id, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
                context = (row.get("provider", ""), row.get("model", ""), row.get("version", ""))
                found[rule_id] = RuleExample(row["bad"].strip("\n"), row["good"].strip("\n"), *context)
    return found


def list_rules() -> list[Rule]:
    assert _RULE_MODULES
    return sorted(RULES.values(), key=lambda rule: rule.id)


def rule_kind(rule_id: str) -> str:
    """Return the kind of input that the rule checks, by the table in which it is registered."""
    homes: tuple[Container[str], ...] = (
        CHECKS.keys() | SCHEMA_CHECKS.keys(),
        request_rules.REQUEST_CHECKS.keys() | BODY_RULES.keys(),
        request_rules.LOG_CHECKS,
        code_rules.CODE_CHECKS.keys() | {code_rules.UNREADABLE_TOOL},
        config_rules.CONFIG_CHECKS,
    )
    return next(kind for kind, home in zip(KINDS, homes, strict=True) if rule_id in home)


def rule_sources(rule_id: str) -> list[Constraint]:
    """Return the documented constraints of a rule about request bodies, one for each wire and source."""
    return [row for rows in list_constraints().values() for row in rows if row.rule == rule_id]


def _labelled(example: RuleExample | None, bad: str, good: str) -> list[tuple[str, str]]:
    """Return the texts of an example with labels that name the provider, the model and the version."""
    if example is None:
        return []
    context = ", ".join(filter(None, (example.provider, example.model, example.version)))
    labels = [f"{words} ({context})" if context else words for words in (bad, good)]
    return list(zip(labels, (example.bad, example.good), strict=True))


def explain(rule_id: str) -> str:
    """Return the explanation of a rule for the terminal: level, providers, fix, sources, example."""
    rule = RULES[rule_id]
    lines = [f"{rule.id} ({rule.level}): {rule.title}", f"affects: {', '.join(rule.providers)}", f"fix: {rule.fix}"]
    lines += ["off by default: enable it with --select or --target"] if rule.opt_in else []
    lines += [f"source: {row.wire}: {row.source}" for row in rule_sources(rule_id)]
    example = examples().get(rule_id)
    for words, text in _labelled(example, "bad", "good"):
        lines += ["", f"{words}:", *(f"  {line}" for line in text.splitlines())]
    return "\n".join(lines)


def render_page(rule_id: str) -> str:
    """Return the Markdown page of a rule, with its sources and an example."""
    rule, kind = RULES[rule_id], rule_kind(rule_id)
    opt_in = f" Off by default: enable it with `--select {rule_id}`" + (
        f" or `--target {rule.providers[0]}`." if kind == "tools" and rule.providers == ("portable",) else "."
    )
    lines = [
        f"# {rule.id}: {rule.title}",
        "",
        f"Checks {_INPUT_LABELS[kind]}. Level: **{rule.level}** ({_LEVEL_MEANINGS[rule.level]}). Affects: {', '.join(rule.providers)}."
        + (opt_in if rule.opt_in else ""),
        "",
        f"**Fix:** {rule.fix}.",
        "",
    ]
    lines += _source_table(rule_id)
    example = examples().get(rule_id)
    fence = _LANGUAGES.get(kind, "json")
    for words, text in _labelled(example, "Reported", "Not reported"):
        lines += [f"{words}:", "", f"```{fence}", text, "```", ""]
    return "\n".join(lines)


def _source_table(rule_id: str) -> list[str]:
    """Return a rule's sources as a Markdown table, or nothing without sources.

    Vendors named after a wire repeat the wire and are left out.
    """
    rows = rule_sources(rule_id)
    if not rows:
        return []
    lines = ["| wire | source | message of the provider |", "|---|---|---|"]
    for row in rows:
        vendors = ", ".join(name for name in row.vendors if not name.startswith("openai_"))
        applies = f"{row.wire} ({vendors})" if vendors else row.wire
        error = row.error.replace("|", "\\|")
        lines.append(f"| {applies} | {row.source} | {error} |")
    return [*lines, ""]
