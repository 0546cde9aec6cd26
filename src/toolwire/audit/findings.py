"""A rule, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from ..ir.tools import Tool
from ..ir.value import Value

__all__ = ["CHECKS", "RULES", "Finding", "Hit", "Level", "Rule", "chosen", "declare", "registering", "rule"]

C = TypeVar("C")
Level: TypeAlias = Literal["error", "warning", "info"]


class Hit(NamedTuple):
    """Where in the tool (a JSON pointer into its declaration in canonical terms), and what is there."""

    path: str
    message: str


Check: TypeAlias = Callable[[tuple[Tool, ...]], Iterator[tuple[int, Hit]]]
"""Over all tools of a list; each hit with the index of its tool, or -1 for the list itself."""


class Rule(NamedTuple):
    """`providers`: who refuses it, or does something else with it than was meant."""

    id: str
    level: Level
    providers: tuple[str, ...]
    title: str
    fix: str


class Finding(Value, frozen=True):
    rule: str
    level: Level
    providers: tuple[str, ...]
    tool: str
    path: str
    message: str
    fix: str

    @property
    def fingerprint(self) -> str:
        """The same for the same finding, wherever the tool stands in its list."""
        return f"{self.rule} {self.tool} {self.path}"


RULES: dict[str, Rule] = {}
"""All rules, whatever they look at."""
CHECKS: dict[str, Check] = {}
"""Those over tools."""


def declare(rule_id: str, level: Level, providers: str, title: str, fix: str) -> None:
    """Ids are stable: one that is given up is not used again."""
    assert rule_id not in RULES
    RULES[rule_id] = Rule(rule_id, level, tuple(providers.split()), title, fix)


def registering(checks: dict[str, C]) -> Callable[[str, Level, str, str, str], Callable[[C], C]]:
    """A decorator for rules whose checks go into `checks`: rule(id, level, providers, title, fix)."""

    def rule(rule_id: str, level: Level, providers: str, title: str, fix: str) -> Callable[[C], C]:
        def register(check: C) -> C:
            declare(rule_id, level, providers, title, fix)
            checks[rule_id] = check
            return check

        return register

    return rule


rule = registering(CHECKS)


def chosen(rule_id: str, select: Collection[str], ignore: Collection[str]) -> bool:
    """Whether a rule is to be looked at; both are beginnings of ids."""
    return not (select and not rule_id.startswith(tuple(select))) and not (ignore and rule_id.startswith(tuple(ignore)))
