"""Beyond the schema: may this call be made, by this caller, now?

    policy = Policy(
        checks=(deny("delete_*"), path_jail("path", "/files"), hosts("url", "api.example.com"), at_most("amount", 100)),
        approve=("write",),
        taint="enforce",
    )

A check looks at a call on its way and gives None, a `Deny` or an `Ask`. The model's request is a suggestion, not a command.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from ..ir.errors import ConfigError
from ..ir.pointer import Object
from ..ir.tools import Effect
from ..ir.value import Value
from .gates import Pending
from .keys import canonical

__all__ = [
    "Ask",
    "Check",
    "Deny",
    "Policy",
    "allow",
    "approval_hash",
    "at_most",
    "deny",
    "hosts",
    "only_effects",
    "path_jail",
]


class Deny(Value, frozen=True):
    """No, and why, in words for the model."""

    why: str


class Ask(Value, frozen=True):
    """Only if a person agrees."""

    why: str


Check: TypeAlias = Callable[[Pending], Deny | Ask | None]


class Policy(Value, frozen=True):
    """All checks have to agree. `approve`: effects that a person has to agree to.

    `taint`: once a tool whose output is untrusted has spoken, writes need approval (`enforce`) or are reported (`warn`).
    """

    checks: tuple[Check, ...] = ()
    approve: tuple[Effect, ...] = ()
    taint: Literal["off", "warn", "enforce"] = "off"

    def __post_init__(self) -> None:
        for effect in self.approve:
            if effect not in get_args(Effect):
                raise ConfigError(f"unknown effect {effect!r}", hint=f"one of {', '.join(get_args(Effect))}")
        if self.taint not in ("off", "warn", "enforce"):
            raise ConfigError(f"taint is off, warn or enforce, not {self.taint!r}")

    def verdict(self, pending: Pending) -> Deny | Ask | None:
        if not self.checks and not self.approve and self.taint != "enforce":
            return None
        found = [verdict for check in self.checks if (verdict := check(pending)) is not None]
        for odd in found:
            if type(odd) not in (Deny, Ask):  # a bool, from somebody who guessed
                raise ConfigError(f"a check gave {odd!r}", hint="a check gives None, Deny(why) or Ask(why)")
        refused = next((verdict for verdict in found if isinstance(verdict, Deny)), None)
        if refused is not None:
            return refused
        effect = pending.tool.tool.effect
        if effect in self.approve:
            found.append(Ask(f"{pending.call.name} is a {effect} tool"))
        if self.taint == "enforce" and pending.tainted and effect in ("write", "idempotent"):
            found.append(Ask("the conversation contains output of strangers, which may have asked for this"))
        return found[0] if found else None


def approval_hash(tool: str, arguments: Object) -> str:
    """What an approval is bound to: this tool with these arguments, and nothing else."""
    return sha256(tool.encode() + b"\x00" + canonical(arguments)).hexdigest()


def allow(*patterns: str) -> Check:
    """Only tools of these names."""
    return lambda pending: (
        None if _named(pending, patterns) else Deny(f"{pending.call.name} is not among the tools that may be used here")
    )


def deny(*patterns: str) -> Check:
    """No tools of these names."""
    return lambda pending: Deny(f"{pending.call.name} may not be used here") if _named(pending, patterns) else None


def only_effects(*effects: Effect) -> Check:
    """Only tools that do no more than this."""
    return lambda pending: (
        None
        if pending.tool.tool.effect in effects
        else Deny(
            f"{pending.call.name} is a {pending.tool.tool.effect} tool; here only {', '.join(effects)} ones may run"
        )
    )


def path_jail(argument: str, root: str) -> Check:
    """The argument, a path, stays below `root`, as it is written: `toolwire.net.jail` looks at the disk, and at links on it."""
    jail = posixpath.normpath(root)

    def check(pending: Pending) -> Deny | None:
        paths = _texts(pending, argument)
        if paths is None:
            return Deny(f"{argument} must be a path, or a list of paths")
        for path in paths:
            whole = posixpath.normpath(posixpath.join(jail, path.replace("\\", "/")))
            if (
                "\x00" in path
                or path.startswith("~")
                or not (whole == jail or whole.startswith(jail.rstrip("/") + "/"))
            ):
                return Deny(f"{argument} must stay below {root}; {path!r} does not")
        return None

    return check


def hosts(argument: str, *allowed: str) -> Check:
    """The argument, a URL, goes to one of these hosts (`*.example.com` for those below one), by https or http."""

    def check(pending: Pending) -> Deny | None:
        urls = _texts(pending, argument)
        if urls is None:
            return Deny(f"{argument} must be a URL, or a list of URLs")
        for url in urls:
            try:
                parts = urlsplit(url)
                host = (parts.hostname or "").rstrip(".")
            except ValueError:
                return Deny(f"{argument} is not a URL")
            odd = parts.scheme not in ("https", "http") or "@" in parts.netloc or "\\" in url
            if odd or not any(fnmatchcase(host, pattern) for pattern in allowed):
                return Deny(f"{argument} may only go to {', '.join(allowed)}")
        return None

    return check


def at_most(argument: str, most: float) -> Check:
    """The argument, a number, is no larger than this."""

    def check(pending: Pending) -> Deny | None:
        value = pending.arguments.get(argument)
        too_large = isinstance(value, (int, float)) and not isinstance(value, bool) and not value <= most
        return Deny(f"{argument} may be {most} at most, not {value}") if too_large else None

    return check


def _named(pending: Pending, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(pending.call.name, pattern) for pattern in patterns)


def _texts(pending: Pending, argument: str) -> list[str] | None:
    """The texts of an argument; None where it is something else, which nobody can judge."""
    if argument not in pending.arguments:
        return []
    value: Any = pending.arguments[argument]
    items = value if isinstance(value, list) else [value]
    return items if all(isinstance(item, str) for item in items) else None
