"""Convert a parsed settings file to settings, or list every problem in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..ir.errors import ConfigError
from ..ir.pointer import JSON
from .settings import Settings
from .settings_location import Path
from .settings_rules import find_rule_problems
from .settings_shape import SettingsProblem, find_shape_problems

__all__ = ["ParsedSettings", "parse_settings", "parse_valid_part"]

_NAMED_TABLES = ("upstreams", "models", "keys", "tools")


class ParsedSettings(msgspec.Struct, frozen=True):
    """The valid part of a settings file, and the problems of the rest."""

    settings: Settings
    problems: tuple[SettingsProblem, ...] = ()


def parse_settings(document: JSON) -> Settings:
    """Convert a parsed file to settings. ConfigError names the location of the first problem and counts the others."""
    parsed = parse_valid_part(document)
    if parsed.problems:
        raise _make_error(parsed.problems)
    return parsed.settings


def parse_valid_part(document: JSON) -> ParsedSettings:
    """Convert the valid part of a parsed file, and list all problems.

    The rules of a table are checked only if its names and types are valid: a misspelt setting is one problem.
    """
    problems = find_shape_problems(document)
    settings = msgspec.convert(_without(document, problems) if problems else document, Settings)
    invalid = {problem.path[:2] for problem in problems}
    problems += [problem for problem in find_rule_problems(settings) if problem.path[:2] not in invalid]
    return ParsedSettings(settings, tuple(problems))


def _make_error(problems: Sequence[SettingsProblem]) -> ConfigError:
    message = str(problems[0])
    if len(problems) > 1:
        noun = "problem" if len(problems) == 2 else "problems"
        message += f"; {len(problems) - 1} more {noun}: run `toolwire serve check`"
    return ConfigError(message, hint=problems[0].hint or "`toolwire serve init` writes an example")


def _without(document: JSON, problems: Sequence[SettingsProblem]) -> Any:
    """Return the document without the settings that have problems, so that the rest can be converted.

    Named rows stay, because other tables refer to them.
    """
    if not isinstance(document, dict):
        return {}
    removed: set[Path] = {problem.path[: 3 if problem.path[0] in _NAMED_TABLES else 2] for problem in problems}
    return _prune(document, (), removed)


def _prune(value: Any, path: Path, removed: set[Path]) -> Any:
    if not isinstance(value, dict) or len(path) == 3:
        return value
    inner = {name: (entry, (*path, name)) for name, entry in value.items()}
    return {name: _prune(entry, where, removed) for name, (entry, where) in inner.items() if where not in removed}
