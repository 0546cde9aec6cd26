"""Explain a rule on the terminal or as a markdown page, with an example that triggers it and one that does not.

The examples are data (examples/*.toml); a test runs every one of them through its rule.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from . import code_rules, config_rules, log_rules, request_rules, tools
from .findings import CHECKS, RULES, Level, Rule
from .schema_rules import SCHEMA_CHECKS

__all__ = ["KINDS", "Example", "examples", "explain", "list_rules", "render_page", "rule_kind"]

_RULE_MODULES = (code_rules, config_rules, log_rules, request_rules, tools)  # importing them registers their rules
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


class Example(NamedTuple):
    """An input that the rule reports, and one that it does not."""

    bad: str
    good: str


@cache
def examples() -> dict[str, Example]:
    """Load the examples of all rules, by rule id."""
    found: dict[str, Example] = {}
    for file in files(__package__).joinpath("examples").iterdir():
        if file.name.endswith(".toml"):
            for rule_id, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
                found[rule_id] = Example(row["bad"].strip("\n"), row["good"].strip("\n"))
    return found


def list_rules() -> list[Rule]:
    assert _RULE_MODULES
    return sorted(RULES.values(), key=lambda rule: rule.id)


def rule_kind(rule_id: str) -> str:
    """Return the kind of input that the rule checks."""
    homes: tuple[Container[str], ...] = (
        CHECKS.keys() | SCHEMA_CHECKS.keys(),
        request_rules.REQUEST_CHECKS,
        log_rules.LOG_CHECKS,
        code_rules.CODE_CHECKS,
        config_rules.CONFIG_CHECKS,
    )
    return next(kind for kind, home in zip(KINDS, homes, strict=True) if rule_id in home)


def explain(rule_id: str) -> str:
    """Render the explanation of a rule for the terminal."""
    rule = RULES[rule_id]
    lines = [f"{rule.id} ({rule.level}): {rule.title}", f"affects: {', '.join(rule.providers)}", f"fix: {rule.fix}"]
    lines += ["off by default: enable it with --select or --target"] if rule.opt_in else []
    example = examples().get(rule_id)
    for words, text in (("bad", example.bad), ("good", example.good)) if example else ():
        lines += ["", f"{words}:", *(f"  {line}" for line in text.splitlines())]
    return "\n".join(lines)


def render_page(rule_id: str) -> str:
    """Render the markdown page of a rule."""
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
    example = examples().get(rule_id)
    fence = _LANGUAGES.get(kind, "json")
    for words, text in (("Reported", example.bad), ("Not reported", example.good)) if example else ():
        lines += [f"{words}:", "", f"```{fence}", text, "```", ""]
    return "\n".join(lines)
