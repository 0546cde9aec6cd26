"""Rules, their registration, the targets to which they apply, and their findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from ..ir.errors import ConfigError
from ..ir.notebook import repr_html
from ..ir.tools import Tool
from ..ir.value import Value
from ..schema.dialects import DIALECTS, PORTABLE

# The targets that tools have to work with, and the rules that apply to each.


TARGETS = ("openai", "openai_strict", "anthropic", "anthropic_strict", "gemini", "gemini_json_schema", "ollama")
"""The targets of the overview, if none is given."""
_EVERYWHERE = frozenset({"all", "models", "mcp"})
_BASE_TARGETS = {f"{name}_strict": (name,) for name in ("openai", "anthropic", "bedrock", "cohere")}
_WIRES = {
    "openai": ("openai_chat", "openai_responses"),
    "openai_strict": ("openai_chat", "openai_responses"),
    "gemini_json_schema": ("gemini",),
}
_SERVER_ENGINES = {"vllm": "xgrammar", "sglang": "xgrammar", "llamacpp": "gbnf", "llama.cpp": "gbnf"}
"""Servers of open models, by the engine that they prefer: vLLM's backend `auto` tries xgrammar first."""
_SCHEMA_RULES = ("TW02", "TW03", "TW04")  # these rules name dialects, the others wires


def parse_targets(names: Collection[str]) -> tuple[str, ...]:
    """Split comma-separated names, and replace a server by its engine. Raise ConfigError for an unknown name."""
    given = (one.strip().lower() for name in names for one in name.split(",") if one.strip())
    targets = tuple(dict.fromkeys(_SERVER_ENGINES.get(name, name) for name in given))
    for target in targets:
        if target not in DIALECTS:
            known = ", ".join((*DIALECTS, *_SERVER_ENGINES))
            raise ConfigError(f"unknown target {target!r}", hint=f"use one of {known}")
    return targets


def applies_to(rule_id: str, providers: Collection[str], targets: Collection[str]) -> bool:
    """Return True if a rule about these providers applies to a target; without targets, every rule applies."""
    if not targets or PORTABLE.name in targets or not _EVERYWHERE.isdisjoint(providers):
        return True
    words = {*targets, *(word for target in targets for word in _BASE_TARGETS.get(target, ()))}
    if not rule_id.startswith(_SCHEMA_RULES):
        words |= {word for target in targets for word in _WIRES.get(target, ())}
    return not words.isdisjoint(providers)


C = TypeVar("C")
Level: TypeAlias = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")


class Hit(NamedTuple):
    """A JSON pointer into the canonical form of the declaration, and a message.

    `providers` are the rule's providers that this hit is about, if not all of them.
    """

    path: str
    message: str
    providers: tuple[str, ...] = ()


ToolListCheck: TypeAlias = Callable[[tuple[Tool, ...]], Iterator[tuple[int, Hit]]]
"""Checks all tools of a list; yields each hit with the index of its tool, or -1 for the list itself."""


class SourceLocation(NamedTuple):
    """A file, a line number if the file has one document per line, and a pointer if the input is part of a document."""

    file: str = ""
    line: int = 0
    at: str = ""


class Rule(NamedTuple):
    """A rule. `providers` are those that reject the input or do not handle it as intended."""

    id: str
    level: Level
    providers: tuple[str, ...]
    title: str
    fix: str
    opt_in: bool = False
    """Off by default: checked only if selected, or if its provider is a target."""


class Finding(Value, frozen=True):
    """A problem that a rule reports. `tool` is empty if it is not about a tool; `line` is 0 for the whole file.

    A rule that fires for several properties of a tool gives one finding: `path` is the first, `paths` are all of them.
    """

    rule: str
    level: Level
    providers: tuple[str, ...]
    tool: str
    path: str
    message: str
    fix: str
    file: str = ""
    line: int = 0
    paths: tuple[str, ...] = ()
    _columns = "level rule tool where message fix"
    _repr_html_ = repr_html

    @property
    def fingerprint(self) -> str:
        """A stable id, independent of the position of the tool in its list or of the request in its log."""
        return self.fingerprints[0]

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The stable ids of all paths: a new path makes a finding new."""
        places = self.paths or (self.path if self.path or not self.line else f":{self.line}",)
        return tuple(f"{self.rule} {self.tool or self.file} {place}" for place in places)

    @property
    def where(self) -> str:
        """The location for people: file and line, if there is a line, and the pointer."""
        line = f"{self.file}:{self.line}" if self.line else ""
        more = f"(+{len(self.paths) - 1})" if len(self.paths) > 1 else ""
        return " ".join(filter(None, (line, self.path, more))) or "/"


# Errors that no translation of the tool repairs, and that its declaration cannot suppress: an untrusted server wrote it.
REJECTED = frozenset({"TW001", "TW027", "TW037"})
DANGEROUS = frozenset({"TW016", "TW017", "TQ20"})  # accepted by the provider, but misleading for the model
RULES: dict[str, Rule] = {}
"""All rules, for every kind of input."""
CHECKS: dict[str, ToolListCheck] = {}
"""Checks of lists of tools, by rule id."""


def declare(rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False) -> None:
    """Register a rule. Ids are stable: the id of a removed rule is never reused."""
    assert rule_id not in RULES
    RULES[rule_id] = Rule(rule_id, level, tuple(providers.split()), title, fix, asked)


class Registrar(Protocol[C]):
    """The type of the decorators that `rule_decorator` returns. `asked`: the rule is off by default (`opt_in`)."""

    def __call__(
        self, rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False
    ) -> Callable[[C], C]: ...


def rule_decorator(checks: dict[str, C]) -> Registrar[C]:
    """Return a decorator that registers checks in `checks`: rule(id, level, providers, title, fix)."""

    def rule(
        rule_id: str, level: Level, providers: str, title: str, fix: str, *, asked: bool = False
    ) -> Callable[[C], C]:
        def register(check: C) -> C:
            declare(rule_id, level, providers, title, fix, asked=asked)
            checks[rule_id] = check
            return check

        return register

    return rule


rule = rule_decorator(CHECKS)


def is_selected(
    rule_id: str, select: Collection[str] = (), ignore: Collection[str] = (), targets: Collection[str] = ()
) -> bool:
    """Return True if a rule is enabled. `select` and `ignore` are prefixes of ids."""
    rule = RULES[rule_id]
    if rule_id.startswith(tuple(ignore)) or not applies_to(rule_id, rule.providers, targets):
        return False
    if select:
        return rule_id.startswith(tuple(select))
    return not rule.opt_in or not set(targets).isdisjoint(rule.providers)


def make_finding(location: SourceLocation, rule_id: str, tool: str, path: str, message: str) -> Finding:
    rule = RULES[rule_id]
    return Finding(rule.id, rule.level, rule.providers, tool, path, message, rule.fix, location.file, location.line)
