"""Rules beyond the schema: may this call be made, by this caller, now?

    policy = Policy(
        checks=(deny("delete_*"), path_jail("path", "/files"), hosts("url", "api.example.com"), at_most("amount", 100)),
        approve=("write",),
        taint="enforce",
    )

A check looks at a `Pending` call and returns None, a `Deny` or an `Ask`. The checks here look at the values that the tool will
receive: converted to its types, with defaults filled in (`toolwire.run.values`). A value that they cannot judge is denied.
They name an argument, or point into one: `amount`, `/order/amount`. Of a list they judge every item.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.pointer import Object
from ..ir.tools import Effect
from ..ir.value import Value
from .gates import Pending
from .jail import PathJail
from .keys import canonical
from .values import Uncheckable, received, shown
from .verdicts import Ask, Check, Deny

if TYPE_CHECKING:
    from decimal import Decimal

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

# Python's URL parser removes or accepts characters that an HTTP client may read as the end of the host.
_ODD_URL = re.compile(r"[\x00-\x20\x7f\\]")
_ODD_HOST = re.compile(r"[^\w.:-]")


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
        """`rewrite` and `check` in one step."""
        rewritten = self.rewrite(pending)
        return rewritten if isinstance(rewritten, Deny) else self.check(rewritten)

    def rewrite(self, pending: Pending) -> Pending | Deny:
        """The call with its arguments in the form in which they are checked and run.

        A check with a method `rewrite` may replace arguments: `path_jail` makes paths absolute. They have to fit the schema
        of the tool as before.
        """
        before = pending
        for check in self.checks:
            change = getattr(check, "rewrite", None)
            if change is not None:
                found = change(pending)
                if type(found) is Deny:
                    return found
                if not isinstance(found, Pending):
                    raise ConfigError(f"rewrite gave {found!r}", hint="rewrite returns the Pending call, or Deny(why)")
                pending = found
        return pending if pending.arguments is before.arguments else _refitted(before, pending)

    def check(self, pending: Pending) -> Deny | Ask | None:
        """Judge the call as it is."""
        if not self.checks and not self.approve and self.taint != "enforce":
            return None
        found = [_known(verdict) for check in self.checks if (verdict := check(pending)) is not None]
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
    """The argument, a path or a list of paths, stays below `root`, as it is written: links are not followed.

    The tool receives absolute paths: a relative path is taken as one below `root`. `toolwire.net.jail.disk_jail` also
    follows the links on the disk.
    """
    return PathJail(argument, root)


def hosts(argument: str, *allowed: str) -> Check:
    """The argument, a URL, goes to one of these hosts (`*.example.com` for those below one), by https or http."""

    def check(pending: Pending) -> Deny | None:
        try:
            urls = [_url(value) for value in received(pending, argument)]
        except Uncheckable as error:
            return Deny(f"{argument} must be a URL, or a list of URLs; {error}")
        for url in urls:
            host = _host(url)
            if host is None:
                return Deny(f"{argument} must be a plain http or https URL, got {shown(url)}")
            if not any(fnmatchcase(host, pattern) for pattern in allowed):
                return Deny(f"{argument} may only go to {', '.join(allowed)}")
        return None

    return check


def at_most(argument: str, most: float | Decimal) -> Check:
    """The argument, a number or a list of numbers, is no larger than `most`. Text is no number, even if it has only digits."""
    if not (_is_number(most) and _is_finite(most)):
        raise ConfigError(f"the limit of at_most must be a finite number, got {most!r}")

    def check(pending: Pending) -> Deny | None:
        try:
            for value in received(pending, argument):
                if not (_is_number(value) and _is_finite(value)):
                    return Deny(f"{argument} must be a number of at most {most}, got {shown(value)}")
                if not value <= most:
                    return Deny(f"{argument} may be {most} at most, not {shown(value)}")
        except Uncheckable as error:
            return Deny(f"{argument} must be a number of at most {most}; {error}")
        return None

    return check


def _refitted(before: Pending, pending: Pending) -> Pending | Deny:
    parameters, arguments = pending.box.parameters[pending.call.name], pending.arguments
    if parameters.accept(before.arguments) and not parameters.accept(arguments):
        problem = next(iter(parameters.problems(arguments)), "an argument is unknown")
        return Deny(f"the policy rewrites arguments, and {pending.call.name} does not accept the result: {problem}")
    return replace(pending, asked=before.identity, checked=None, values=None, unfit=None)


def _known(verdict: Any) -> Deny | Ask:
    if type(verdict) not in (Deny, Ask):  # a bool, from somebody who guessed
        raise ConfigError(f"a check gave {verdict!r}", hint="a check gives None, Deny(why) or Ask(why)")
    return verdict  # type: ignore[no-any-return]


def _named(pending: Pending, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(pending.call.name, pattern) for pattern in patterns)


def _is_number(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    from decimal import Decimal
    from fractions import Fraction

    return isinstance(value, (Decimal, Fraction))


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return not hasattr(value, "is_finite") or bool(value.is_finite())


def _url(value: Any) -> str:
    """A URL as the tool receives it: text, or one of pydantic's URL types."""
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(value, "unicode_string"):
        return str(value)
    raise Uncheckable(f"got {shown(value)}")


def _host(url: str) -> str | None:
    """The host of a plain http or https URL; None where clients may disagree about the host."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return None
    odd = _ODD_URL.search(url) or "@" in parts.netloc or _ODD_HOST.search(host)
    return None if odd or parts.scheme not in ("https", "http") else host
