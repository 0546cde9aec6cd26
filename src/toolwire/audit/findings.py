"""A rule, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from ..ir.tools import Tool
from ..ir.value import Value
from .targets import concerns

__all__ = [
    "CHECKS",
    "LEVELS",
    "RULES",
    "Finding",
    "Hit",
    "Level",
    "Place",
    "Rule",
    "chosen",
    "declare",
    "found_at",
    "registering",
    "rule",
]

C = TypeVar("C")
Level: TypeAlias = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")


class Hit(NamedTuple):
    """Where in the tool (a JSON pointer into its declaration in canonical terms), and what is there."""

    path: str
    message: str


Check: TypeAlias = Callable[[tuple[Tool, ...]], Iterator[tuple[int, Hit]]]
"""Over all tools of a list; each hit with the index of its tool, or -1 for the list itself."""


class Place(NamedTuple):
    """A file, a line of it if it has one document a line, and a pointer to what was read if more stands around it."""

    file: str = ""
    line: int = 0
    at: str = ""


class Rule(NamedTuple):
    """`providers`: who refuses it, or does something else with it than was meant."""

    id: str
    level: Level
    providers: tuple[str, ...]
    title: str
    fix: str
    asked: bool = False
    """Looked at only where it is selected, or where its provider is the target."""


class Finding(Value, frozen=True):
    """`tool` is empty where it is about something else; `line` is 0 where the whole file is meant."""

    rule: str
    level: Level
    providers: tuple[str, ...]
    tool: str
    path: str
    message: str
    fix: str
    file: str = ""
    line: int = 0

    @property
    def fingerprint(self) -> str:
        """The same for the same finding, wherever the tool stands in its list or the request in its log."""
        where = self.path if self.path or not self.line else f":{self.line}"
        return f"{self.rule} {self.tool or self.file} {where}"

    @property
    def where(self) -> str:
        """For people: file and line where there are lines, and the pointer."""
        line = f"{self.file}:{self.line}" if self.line else ""
        return " ".join(filter(None, (line, self.path))) or "/"


RULES: dict[str, Rule] = {}
"""All rules, whatever they look at."""
CHECKS: dict[str, Check] = {}
"""Those over tools."""


def declare(rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False) -> None:
    """Ids are stable: one that is given up is not used again."""
    assert rule_id not in RULES
    RULES[rule_id] = Rule(rule_id, level, tuple(providers.split()), title, fix, asked)


class Registrar(Protocol[C]):
    def __call__(
        self, rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False
    ) -> Callable[[C], C]: ...


def registering(checks: dict[str, C]) -> Registrar[C]:
    """A decorator for rules whose checks go into `checks`: rule(id, level, providers, title, fix)."""

    def rule(
        rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False
    ) -> Callable[[C], C]:
        def register(check: C) -> C:
            declare(rule_id, level, providers, title, fix, asked=asked)
            checks[rule_id] = check
            return check

        return register

    return rule


rule = registering(CHECKS)


def chosen(
    rule_id: str, select: Collection[str] = (), ignore: Collection[str] = (), targets: Collection[str] = ()
) -> bool:
    """Whether a rule is to be looked at. `select` and `ignore` are beginnings of ids."""
    rule = RULES[rule_id]
    if rule_id.startswith(tuple(ignore)) or not concerns(rule_id, rule.providers, targets):
        return False
    if select:
        return rule_id.startswith(tuple(select))
    return not rule.asked or not set(targets).isdisjoint(rule.providers)


def found_at(place: Place, rule_id: str, tool: str, path: str, message: str) -> Finding:
    rule = RULES[rule_id]
    return Finding(rule.id, rule.level, rule.providers, tool, path, message, rule.fix, place.file, place.line)
