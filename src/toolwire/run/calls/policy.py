"""Rules beyond the schema that decide whether a caller may make a call.

    policy = Policy(
        checks=(deny("delete_*"), path_jail("path", "/files"), hosts("url", "api.example.com"), at_most("amount", 100)),
        approve=("write",),
        taint="enforce",
    )

A check takes a `Pending` call and returns None, a `Deny` or an `Ask`. The checks of this module use the values that
the tool will receive: converted to its types, with defaults filled in (`received`). A value that cannot be checked is
denied. A check names an argument (`amount`) or a JSON pointer into it (`/order/amount`). It checks every item of a
list.

A `PathJail` keeps the paths of a call below a directory. A relative path names one file below the root and another in
the working directory of the tool. Therefore the argument is rewritten to an absolute path before it is checked, and the
tool receives the path that was checked.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.tools import Effect
from ...ir.value import Value
from .pending import (
    ABSENT,
    Ask,
    Deny,
    Pending,
    PolicyCheck,
    Taint,
    Uncheckable,
    argument_default,
    format_value,
    received,
    split_argument,
)

if TYPE_CHECKING:
    from decimal import Decimal


_MAX_PATH_LENGTH = 4096  # characters of one path; PATH_MAX of Linux
# Every component of a path may cost a system call, so the total size of the paths of an argument is limited.
_MAX_PATHS = 1000
_MAX_TOTAL_LENGTH = 65536  # characters below the root: 16 paths of the maximum length, or thousands of usual ones
_URL = re.compile(r"file:|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DRIVE = re.compile(r"[a-z]:", re.IGNORECASE)


class Outside(Exception):
    """A path that is not accepted. The message is appended to "path must stay below /files; "."""


class PathJail:
    """A check on one argument of every tool that has it.

    `rewrite` makes the paths absolute. The check itself accepts only absolute paths below the root, so it is also
    safe without the rewrite.
    """

    def __init__(self, argument: str, root: str) -> None:
        self.argument = argument
        self.root = self._absolute_root(root)

    def rewrite(self, pending: Pending) -> Pending | Deny:
        """Return the call with absolute paths and a note, or itself if they are; Deny if one is not allowed."""
        name, *rest = split_argument(self.argument)
        argument_value = pending.arguments[name] if name in pending.arguments else _default(pending, name)
        try:
            self._refuse_many(list(_paths(argument_value, rest)))
            absolute = self._rewrite_value(argument_value, rest)
        except Outside as outside:
            return self._make_denial(outside)
        if absolute is argument_value or absolute == argument_value:
            return pending
        return replace(
            pending,
            arguments={**pending.arguments, name: absolute},
            steps=(*pending.steps, f"{self.argument}: made absolute below {self.root}"),
        )

    def __call__(self, pending: Pending) -> Deny | None:
        """Deny the call unless the paths that the tool will receive are absolute, below the root and not too many."""
        try:
            paths = [_path_text(value) for value in received(pending, self.argument)]
            self._refuse_many(paths)
            for path in paths:
                self._check(path)
        except Uncheckable as error:
            return Deny(f"{self.argument} must be a path, or a list of paths; {error}")
        except Outside as outside:
            return self._make_denial(outside)
        return None

    def _absolute_root(self, root: str) -> str:
        if not posixpath.isabs(root):
            hint = "pass an absolute POSIX path, or use toolwire.net.tools.isolation.disk_jail for any path of this machine"
            raise ConfigError(f"the root of path_jail must be absolute, got {root!r}", hint=hint)
        return posixpath.normpath(root)

    def _resolve(self, path: str) -> str:
        """Return the absolute path. Raise Outside if it is not below the root."""
        absolute = posixpath.normpath(posixpath.join(self.root, path))
        if absolute != self.root and not absolute.startswith(self.root.rstrip("/") + "/"):
            raise Outside(f"{format_value(path)} does not")
        return absolute

    def _is_absolute(self, path: str) -> bool:
        return posixpath.isabs(path)

    def _is_foreign(self, path: str) -> bool:
        """Return True for drive letters and backslashes, which mean something else on another system."""
        return _DRIVE.match(path) is not None or "\\" in path

    def _refuse_unusual(self, path: str) -> None:
        if len(path) > _MAX_PATH_LENGTH:
            raise Outside(f"a path may have at most {_MAX_PATH_LENGTH} characters, got {len(path)}")
        if "\x00" in path or path.startswith("~") or _URL.match(path) or self._is_foreign(path):
            raise Outside(f"{format_value(path)} is not a plain path")

    def _refuse_many(self, paths: Sequence[str]) -> None:
        if len(paths) > _MAX_PATHS:
            raise Outside(f"{len(paths)} paths are more than {_MAX_PATHS}; pass fewer at a time")
        size = sum(len(path.removeprefix(self.root)) for path in paths)
        if size > _MAX_TOTAL_LENGTH:
            raise Outside(f"{size} characters of paths are more than {_MAX_TOTAL_LENGTH}; pass fewer at a time")

    def _check(self, path: str) -> None:
        self._refuse_unusual(path)
        if not self._is_absolute(path) or ".." in re.split(r"[/\\]", path):
            raise Outside(f"{format_value(path)} is not an absolute path without '..'")
        self._resolve(path)

    def _rewrite_value(self, value: Any, rest: Sequence[str]) -> Any:
        """Make paths below the members `rest` absolute; Outside for an unusual one. The check refuses anything else."""
        if isinstance(value, list):
            return [self._rewrite_value(item, rest) for item in value]
        if rest:
            if not isinstance(value, dict) or rest[0] not in value:
                return value
            return {**value, rest[0]: self._rewrite_value(value[rest[0]], rest[1:])}
        if not isinstance(value, str):
            return value
        self._refuse_unusual(value)
        return self._resolve(value)

    def _make_denial(self, outside: Outside) -> Deny:
        return Deny(f"{self.argument} must stay below {self.root}; {outside}")


def _default(pending: Pending, name: str) -> Any:
    """Return the default of an omitted argument as JSON; ABSENT if the schema does not declare it."""
    properties = (pending.tool.tool.input_schema or {}).get("properties")
    if not isinstance(properties, dict) or name not in properties:
        return ABSENT
    default = argument_default(pending, name)
    if isinstance(default, (list, tuple)):
        return [_as_json(item) for item in default]
    return _as_json(default)


def _as_json(value: Any) -> Any:
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def _paths(value: Any, rest: Sequence[str]) -> Iterator[str]:
    """Iterate over the paths of an argument that is still JSON. `rest`: the names of the members that lead to them."""
    if isinstance(value, list):
        for item in value:
            yield from _paths(item, rest)
    elif rest:
        if isinstance(value, dict) and rest[0] in value:
            yield from _paths(value[rest[0]], rest[1:])
    elif isinstance(value, str):
        yield value


def _path_text(value: Any) -> str:
    """Return a path, text or a path object, as text."""
    text = _as_json(value)
    if not isinstance(text, str):
        raise Uncheckable(f"got {format_value(value)}")
    return str.__str__(text)  # the plain text, also for an enum that derives from str


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
        must still be valid for the schema of the tool. Deny if a check denies; ConfigError if it returns anything else.
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
        """Return the verdict of all checks and of the approval rules; None if the call may run."""
        if not self.checks and not self.approve and self.taint != "enforce":
            return None
        # All checks, although the first may ask: a denial by a later one must win, so that no person approves it.
        verdicts = [_check_verdict(verdict) for check in self.checks if (verdict := check(pending)) is not None]
        denial = next((verdict for verdict in verdicts if isinstance(verdict, Deny)), None)
        if denial is not None:
            return denial
        effect = pending.tool.tool.effect
        if effect in self.approve:
            verdicts.append(Ask(f"{pending.call.name} is a {effect} tool"))
        if self.taint == "enforce" and pending.tainted and effect in ("write", "idempotent"):
            verdicts.append(Ask("the conversation contains untrusted tool output, which may have caused this call"))
        return verdicts[0] if verdicts else None


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

    The tool receives absolute paths: a relative path is resolved against `root`. `toolwire.net.tools.isolation.disk_jail` also
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
    """Deny numbers (one, or in a list) above `most`; text is no number. Raise ConfigError if `most` is not finite."""
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
