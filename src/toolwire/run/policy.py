"""Rules beyond the schema that decide whether a caller may make a call.

    policy = Policy(
        checks=(deny("delete_*"), path_jail("path", "/files"), hosts("url", "api.example.com"), at_most("amount", 100)),
        approve=("write",),
        taint="enforce",
    )

A check takes a `Pending` call and returns None, a `Deny` or an `Ask`. The checks of this module use the values that
the tool will receive: converted to its types, with defaults filled in (`toolwire.run.values`). A value that cannot be
checked is denied. A check names an argument (`amount`) or a JSON pointer into one (`/order/amount`). It checks every
item of a list.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.tools import Effect
from ..ir.value import Value
from .jail import PathJail
from .pending import Pending, PolicyCheck, Taint
from .values import Uncheckable, format_value, received
from .verdicts import Ask, Deny

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = [
    "Ask",
    "Deny",
    "Policy",
    "PolicyCheck",
    "allow",
    "at_most",
    "deny",
    "hosts",
    "only_effects",
    "path_jail",
]

# Python's URL parser removes or accepts characters that an HTTP client may read as the end of the host: NUL, spaces,
# escapes, `;` and `&`, also in place of the port. An international name must be normalised: some characters become dots.
_SUSPICIOUS_URL = re.compile(r"[\x00-\x20\x7f\\]")
_PLAIN_NETLOC = re.compile(r"(?:\[[0-9a-f:.]+\]|[\w.-]+)(?::[0-9]{1,5})?", re.IGNORECASE)


class Policy(Value, frozen=True):
    """A call runs only if no check denies it. `approve`: effects that need the approval of a person.

    `taint`: after a result of an untrusted tool, writes need approval (`enforce`) or are reported (`warn`).
    `unoffered`: a call of a tool that its conversation does not offer, such as one that a retriever left out or that a
    `Request` with tools of its own does not name, is refused by default. A tool that changed after it was offered is
    always refused.
    """

    checks: tuple[PolicyCheck, ...] = ()
    approve: tuple[Effect, ...] = ()
    taint: Taint = "off"
    unoffered: Literal["refuse", "allow"] = "refuse"

    def __post_init__(self) -> None:
        for effect in self.approve:
            if effect not in get_args(Effect):
                raise ConfigError(f"unknown effect {effect!r}", hint=f"use one of {', '.join(get_args(Effect))}")
        if self.taint not in get_args(Taint):
            raise ConfigError(f"taint must be off, warn or enforce, got {self.taint!r}")
        if self.unoffered not in ("refuse", "allow"):
            raise ConfigError(f"unoffered must be refuse or allow, got {self.unoffered!r}")

    def verdict(self, pending: Pending) -> Deny | Ask | None:
        """Rewrite and check the call in one step."""
        rewritten = self.rewrite(pending)
        return rewritten if isinstance(rewritten, Deny) else self.check(rewritten)

    def rewrite(self, pending: Pending) -> Pending | Deny:
        """Return the call with its arguments in the form in which they are checked and run.

        A check with a method `rewrite` may replace arguments: `path_jail` makes paths absolute. The new arguments
        must still be valid for the schema of the tool.
        """
        original = pending
        for check in self.checks:
            rewriter = getattr(check, "rewrite", None)
            if rewriter is not None:
                found = rewriter(pending)
                if type(found) is Deny:
                    return found
                if not isinstance(found, Pending):
                    raise ConfigError(f"rewrite returned {found!r}", hint="return the Pending call or Deny(why)")
                pending = found
        return pending if pending.arguments is original.arguments else _check_rewritten(original, pending)

    def check(self, pending: Pending) -> Deny | Ask | None:
        """Check the call without rewriting it."""
        if not self.checks and not self.approve and self.taint != "enforce":
            return None
        found = [_check_verdict(verdict) for check in self.checks if (verdict := check(pending)) is not None]
        denial = next((verdict for verdict in found if isinstance(verdict, Deny)), None)
        if denial is not None:
            return denial
        effect = pending.tool.tool.effect
        if effect in self.approve:
            found.append(Ask(f"{pending.call.name} is a {effect} tool"))
        if self.taint == "enforce" and pending.tainted and effect in ("write", "idempotent"):
            found.append(Ask("the conversation contains untrusted tool output, which may have caused this call"))
        return found[0] if found else None


def allow(*patterns: str) -> PolicyCheck:
    """Allow only tools whose name matches a pattern."""
    return lambda pending: (
        None if _matches_name(pending, patterns) else Deny(f"{pending.call.name} is not one of the allowed tools")
    )


def deny(*patterns: str) -> PolicyCheck:
    """Deny tools whose name matches a pattern."""
    return lambda pending: Deny(f"{pending.call.name} is a denied tool") if _matches_name(pending, patterns) else None


def only_effects(*effects: Effect) -> PolicyCheck:
    """Allow only tools with one of these effects."""
    return lambda pending: (
        None
        if pending.tool.tool.effect in effects
        else Deny(
            f"{pending.call.name} is a {pending.tool.tool.effect} tool; only {', '.join(effects)} tools are allowed"
        )
    )


def path_jail(argument: str, root: str) -> PolicyCheck:
    """Keep an argument, a path or a list of paths, below `root`. Symbolic links are not followed.

    The tool receives absolute paths: a relative path is resolved against `root`. `toolwire.net.jail.disk_jail` also
    follows symbolic links.
    """
    return PathJail(argument, root)


def hosts(argument: str, *allowed: str) -> PolicyCheck:
    """Allow only http and https URLs of these hosts in an argument (`*.example.com` for subdomains)."""

    def check(pending: Pending) -> Deny | None:
        """Deny a call if an argument is not a plain URL of an allowed host."""
        try:
            urls = [_url_text(value) for value in received(pending, argument)]
        except Uncheckable as error:
            return Deny(f"{argument} must be a URL, or a list of URLs; {error}")
        for url in urls:
            host = _plain_host(url)
            if host is None:
                return Deny(f"{argument} must be a plain http or https URL, got {format_value(url)}")
            if not any(fnmatchcase(host, pattern) for pattern in allowed):
                return Deny(f"{argument} must be a URL of {', '.join(allowed)}")
        return None

    return check


def at_most(argument: str, most: float | Decimal) -> PolicyCheck:
    """Deny an argument, a number or a list of numbers, above `most`. Text is not a number, even with digits only."""
    if not (_is_number(most) and _is_finite(most)):
        raise ConfigError(f"the limit of at_most must be a finite number, got {most!r}")

    def check(pending: Pending) -> Deny | None:
        """Deny a call if a value is not a finite number, or is above the limit."""
        try:
            for value in received(pending, argument):
                if not (_is_number(value) and _is_finite(value)):
                    return Deny(f"{argument} must be a number of at most {most}, got {format_value(value)}")
                if not value <= most:
                    return Deny(f"{argument} must be at most {most}, got {format_value(value)}")
        except Uncheckable as error:
            return Deny(f"{argument} must be a number of at most {most}; {error}")
        return None

    return check


def _check_rewritten(original: Pending, pending: Pending) -> Pending | Deny:
    """Deny the call if rewriting made valid arguments invalid; otherwise discard the values of the old arguments."""
    parameters, arguments = pending.box.parameters[pending.call.name], pending.arguments
    if parameters.accept(original.arguments) and not parameters.accept(arguments):
        problem = next(iter(parameters.problems(arguments)), "an argument is unknown")
        return Deny(f"{pending.call.name} does not accept the arguments that the policy rewrote: {problem}")
    return replace(
        pending, original_arguments=original.identity, validated_arguments=None, values=None, conversion_error=None
    )


def _check_verdict(verdict: Any) -> Deny | Ask:
    if type(verdict) not in (Deny, Ask):  # such as a bool
        raise ConfigError(f"a check returned {verdict!r}", hint="return None, Deny(why) or Ask(why)")
    return verdict  # type: ignore[no-any-return]


def _matches_name(pending: Pending, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(pending.call.name, pattern) for pattern in patterns)


def _is_number(value: Any) -> bool:
    """Return True for numbers, also Decimal and Fraction, but not for bool, which is an int in Python."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    from decimal import Decimal
    from fractions import Fraction

    return isinstance(value, (Decimal, Fraction))


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return not hasattr(value, "is_finite") or bool(value.is_finite())


def _url_text(value: Any) -> str:
    """Return a URL, text or one of pydantic's URL types, as text."""
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(value, "unicode_string"):
        return str(value)
    raise Uncheckable(f"got {format_value(value)}")


def _plain_host(url: str) -> str | None:
    """Return the host of a plain http or https URL; None if clients may disagree about the host."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return None
    is_plain = not _SUSPICIOUS_URL.search(url) and _PLAIN_NETLOC.fullmatch(parts.netloc) and _is_normalised(host)
    return host if is_plain and parts.scheme in ("https", "http") else None


def _is_normalised(host: str) -> bool:
    if host.isascii():
        return True
    from unicodedata import is_normalized

    return is_normalized("NFKC", host)
