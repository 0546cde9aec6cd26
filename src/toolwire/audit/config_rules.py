"""TW090 to TW093: MCP server lists of clients, and the packages that their command lines download."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ..ir.pointer import JSON, Object, join
from ..wire.loopback import is_loopback
from .findings import Finding, Hit, SourceLocation, is_selected, make_finding, rule_decorator

# Find the package that a command line downloads and runs, and whether its version is pinned.


_EXACT = r"v?\d+\.\d[\w.+-]*"
_LOCAL = re.compile(r"[./~]|file:|[a-zA-Z]:\\").match
_COMMIT = re.compile(r"(?:git\+|github:|https?://).*[@#][0-9a-f]{7,40}").match


def _is_pinned_npm(package: str) -> bool:
    return re.fullmatch(rf"(?:@[^/@]+/)?[^@]+@{_EXACT}", package) is not None


def _is_pinned_python(package: str) -> bool:
    return re.fullmatch(rf"[^=@]+(?:==|@)\s*{_EXACT}", package) is not None


def _is_pinned_image(package: str) -> bool:
    tag = package.rpartition("/")[2].partition(":")[2]
    return "@sha256:" in package or tag not in ("", "latest")


# command, test for a pinned version, options followed by the package, options followed by another value
_Launcher = tuple[tuple[str, ...], Callable[[str], bool], tuple[str, ...], tuple[str, ...]]
_UV_OPTIONS = tuple("-p --python -w --with --with-requirements --index -i --index-url --default-index".split())
_LAUNCHERS: tuple[_Launcher, ...] = (
    (("npx",), _is_pinned_npm, ("-p", "--package"), ("-c", "--call", "--registry", "-w", "--workspace")),
    (("bunx",), _is_pinned_npm, ("-p", "--package"), ()),
    (("pnpm", "dlx"), _is_pinned_npm, ("--package",), ("-C", "--dir")),
    (("pnpx",), _is_pinned_npm, ("--package",), ("-C", "--dir")),
    (("yarn", "dlx"), _is_pinned_npm, ("-p", "--package"), ()),
    (("uvx",), _is_pinned_python, ("--from",), _UV_OPTIONS),
    (("uv", "tool", "run"), _is_pinned_python, ("--from",), _UV_OPTIONS),
    (("pipx", "run"), _is_pinned_python, ("--spec",), ("--python", "--pip-args")),
)
_DOCKER_FLAGS = frozenset("--rm -i --interactive -t --tty -it -ti --init -d --detach --privileged --read-only".split())


def find_unpinned(arguments: Sequence[str]) -> str | None:
    """Return the package or container image that a command line downloads and runs without a pinned version, or None."""
    line = [re.sub(r"^.*[/\\]|\.(?:cmd|exe)$", "", argument) for argument in arguments]
    for start in range(min(len(line), 3)):  # the launcher may come after `cmd /c`
        for names, pinned, before, others in _LAUNCHERS:
            if tuple(line[start : start + len(names)]) == names:
                package = _find_package(arguments[start + len(names) :], before, others)
                return None if package is None or _is_pinned(package, pinned) else package
        if line[start] in ("docker", "podman") and line[start + 1 : start + 2] == ["run"]:
            image = _docker_image(arguments[start + 2 :])
            return None if image is None or _is_pinned(image, _is_pinned_image) else image
    return None


def _is_pinned(package: str, pinned: Callable[[str], bool]) -> bool:
    return bool(_LOCAL(package) or _COMMIT(package) or "$" in package or pinned(package))


def _find_package(arguments: Sequence[str], before: Sequence[str], others: Sequence[str]) -> str | None:
    """Return the package: the value of an option in `before`, or the first positional argument.

    `others` are options whose value is not the package. None if there is no such argument.
    """
    for index, argument in enumerate(arguments):
        option, _, value = argument.partition("=")
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        if option in before:
            return value or following
        if not argument.startswith("-") and (index == 0 or arguments[index - 1] not in others):
            return argument
    return None


def _docker_image(arguments: Sequence[str]) -> str | None:
    """Return the image of `docker run`: the first argument that is neither an option nor the value of an option.

    An option has a value in the next argument unless it is a known flag or contains =. None if all arguments belong to
    options.
    """
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument.startswith("-"):
            skip = argument not in _DOCKER_FLAGS and "=" not in argument
        else:
            return argument
    return None


# TW090 to TW093: MCP server lists of clients. Servers are not started; messages never contain a secret.


class ServerEntry(NamedTuple):
    """A server of a client configuration: its name, the JSON pointer of its entry, and the entry."""

    name: str
    at: str
    entry: Object

    @property
    def line(self) -> list[tuple[str, str]]:
        """(pointer, argument) of the command line; command and arguments are texts or lists, as clients differ."""
        words: list[tuple[str, str]] = []
        for key in ("command", "args"):
            field = self.entry.get(key)
            if type(field) is list:
                words += [(f"{self.at}/{key}/{index}", one) for index, one in enumerate(field) if type(one) is str]
            elif type(field) is str:
                words.append((f"{self.at}/{key}", field))
        return words

    def fields(self, name: str) -> Iterator[tuple[str, str]]:
        found = self.entry.get(name)
        for key, value in found.items() if type(found) is dict else ():
            if type(value) is str:
                yield key, value

    def urls(self) -> Iterator[tuple[str, str]]:
        """Yield (pointer, URL) for each address in the entry."""
        for key in ("url", "serverUrl", "httpUrl"):
            if type(self.entry.get(key)) is str:
                yield f"{self.at}/{key}", self.entry[key]
        yield from ((at, word) for at, word in self.line if re.match(r"[a-z][a-z0-9+.-]*://", word, re.IGNORECASE))


ConfigCheck: TypeAlias = Callable[[ServerEntry], Iterator[Hit]]
CONFIG_CHECKS: dict[str, ConfigCheck] = {}
_rule = rule_decorator(CONFIG_CHECKS)


def find_servers(document: JSON) -> list[ServerEntry] | None:
    """Return the servers of a client configuration, or None if the document is not one."""
    if type(document) is not dict:
        return None
    for key in ("mcpServers", "mcp_servers", "servers"):  # Codex has the second in its config.toml
        found = document.get(key)
        if type(found) is dict and (key != "servers" or (found and all(map(_is_server, found.values())))):
            return [ServerEntry(name, join(key, name), one) for name, one in found.items() if type(one) is dict]
    return None


def _is_server(entry: JSON) -> bool:
    return type(entry) is dict and bool({"command", "url"} & entry.keys())


def audit_config(
    servers: Collection[ServerEntry],
    file: str,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Run the configuration rules. `"x-toolwire-ignore": ["TW092"]` in an entry suppresses a rule."""
    found: list[Finding] = []
    for rule_id, check in CONFIG_CHECKS.items():
        for server in servers if is_selected(rule_id, select, ignore, targets) else ():
            suppressed = server.entry.get("x-toolwire-ignore")
            if type(suppressed) is not list or rule_id not in suppressed:
                found += [
                    make_finding(SourceLocation(file), rule_id, "", hit.path, hit.message) for hit in check(server)
                ]
    return tuple(dict.fromkeys(found))


MIN_TOOL_NAME_LENGTH = 32  # see the measurement below
"""Characters that a prefix should leave for the tool name: 95 % of the names on real servers fit."""


@_rule(
    "TW090",
    "warning",
    "mcp",
    "server name unsuitable as a tool prefix",
    "use only letters, digits, _ and -, at most 25 characters",
)
def check_server_name(server: ServerEntry) -> Iterator[Hit]:
    left = 64 - len(f"mcp__{server.name}__")
    if left < MIN_TOOL_NAME_LENGTH:
        yield Hit(server.at, f"the prefix mcp__…__ leaves {max(left, 0)} of 64 characters for the tool name")
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", server.name):
        yield Hit(server.at, "clients that use it as a prefix have to replace some of its characters")


_SECRET_NAME = re.compile(
    r"(?:^|.*[_-])(?:token|secret|password|passwd|passphrase|pat|credentials?|authorization|bearer"
    r"|(?:api|access|private|secret|auth|signing|encryption|service|account|app|client)[_-]?key|apikey)",
    re.IGNORECASE,
).fullmatch
_SECRET_VALUE = re.compile(
    r"\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}"
    r"|AIza[\w-]{30,}|npm_\w{30,}|hf_\w{20,}|eyJ(?<![\w-]eyJ)[\w-]{10,}+\.[\w-]{10,}+\.[\w-]+)"
).search
# a variable reference, a placeholder, a path, a number, a flag
_PLACEHOLDER = re.compile(
    r".*\$\{?\w.*|.*%\w+%.*|.*\{\{.*|[^<]*+<.*>.*|.*\.\.\..*|.*(?:your|insert|replace|example|changeme|placeholder|x{4}|\*{3}).*"
    r"|[~./].*|[a-zA-Z]:\\.*|\d{1,6}|true|false|yes|no|none|password|secret|token|",
    re.IGNORECASE | re.DOTALL,
).fullmatch


@_rule("TW091", "error", "mcp", "secret in plain text", "reference an environment variable or a prompt of the client")
def check_plain_secret(server: ServerEntry) -> Iterator[Hit]:
    """Report secrets in environment variables, headers, arguments and URLs; placeholders are not secrets.

    A name such as TOKEN suffices, or a value in the form of a known kind of key.
    """
    for group in ("env", "headers"):
        for key, value in server.fields(group):
            bare = re.sub(r"^(?:bearer|basic|token)\s+", "", value, flags=re.IGNORECASE)
            named = (_SECRET_NAME(key) or _SECRET_VALUE(value)) and not _PLACEHOLDER(bare)
            if named or ("://" in value and _has_secret(value)):
                yield Hit(f"{server.at}/{group}{join(key)}", f"the file contains the value of {key!r}")
    yield from _secret_arguments(server.line)
    for at, url in server.urls():
        if _has_secret(url):
            yield Hit(at, "the URL contains a secret")


def _secret_arguments(line: list[tuple[str, str]]) -> Iterator[Hit]:
    """Report secrets in arguments: `--token X`, `--token=X`, `-e TOKEN=X`, `--header "Authorization: Bearer X"`."""
    waiting = ""
    for at, word in line:
        name, _, value = re.sub(r"^([\w-]+): *(?:bearer |basic )?", r"\1=", word, flags=re.IGNORECASE).partition("=")
        if waiting and not word.startswith("-") and not _PLACEHOLDER(word):
            yield Hit(at, f"the file contains the value of {waiting}")
        elif value and _SECRET_NAME(name.lstrip("-")) and not _PLACEHOLDER(value):
            yield Hit(at, f"the file contains the value of {name}")
        elif _SECRET_VALUE(word) and not _PLACEHOLDER(word) and "://" not in word:
            yield Hit(at, "the argument has the form of a secret")
        waiting = name if name.startswith("-") and not value and _SECRET_NAME(name.lstrip("-")) else ""


def _has_secret(url: str) -> bool:
    """Return True if the password, a query parameter or another part of a URL has the form of a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    return (
        bool(parts.password and not _PLACEHOLDER(parts.password))
        or any(_SECRET_NAME(key) and not _PLACEHOLDER(value) for key, _, value in pairs)
        or bool(_SECRET_VALUE(url) and not _PLACEHOLDER(url))
    )


@_rule("TW092", "warning", "mcp", "unpinned server version", "specify the exact version")
def check_floating_version(server: ServerEntry) -> Iterator[Hit]:
    package = find_unpinned([word for _, word in server.line])
    if package is not None:
        yield Hit(server.at, f"the registry decides at each start which version of {package!r} runs")


@_rule("TW093", "error", "mcp", "unencrypted connection to a remote server", "use https://")
def check_unencrypted_url(server: ServerEntry) -> Iterator[Hit]:
    """Report `http://` addresses other than loopback; the value of a variable is unknown and not reported."""
    for at, url in server.urls():
        try:
            parts = urlsplit(url)
        except ValueError:
            continue
        if parts.scheme.lower() == "http" and not _is_local_host(parts.hostname or ""):
            yield Hit(
                at, f"{parts.hostname} is not this machine: others on the network can read and change the traffic"
            )


def _is_local_host(host: str) -> bool:
    return is_loopback(host) or host.startswith("$")  # the value of a variable is unknown
