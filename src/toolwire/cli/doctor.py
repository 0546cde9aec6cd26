"""`toolwire doctor`: check the installation, the keys, the servers on this machine and the configuration."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError, ToolwireError
from .doctor_packages import CheckState, DoctorCheck, check_packages
from .show import count_of, json_text, paint, table

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire doctor                      nothing leaves this machine
  toolwire doctor --online             also asks each provider with a key for its models
  toolwire doctor --config gateway.toml --json

Keys are never shown; only the names of their environment variables are.
exit codes: 0 no problem   1 a problem was found   2 wrong usage
"""
_SIGNS = {"ok": ("✓", "green"), "problem": ("✗", "red"), "note": ("·", "dim")}
_ONLINE_SECONDS = 10.0
_CONFIG = "toolwire.toml"
_PLACEHOLDER = re.compile(r"your[-_ ]|api[-_ ]?key[-_ ]here|changeme|\.\.\.|…|<[^<>]*+>|^x+$", re.IGNORECASE)


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check the installation, keys, servers and configuration",
        description="Check the installation, the keys, the model servers on this machine and the configuration.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--online", action="store_true", help="ask each provider with a key for its models")
    parser.add_argument("--config", metavar="FILE", help=f"the configuration of the gateway ({_CONFIG} if it exists)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run all checks and print them, problems with their fix."""
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
    area = ""
    for check in checks:
        if check.area != area:
            print(("\n" if area else "") + paint(check.area, "bold"))
            area = check.area
        sign, colour = _SIGNS[check.state]
        first, *rest = table([(check.name.ljust(24), check.detail)])
        print(f"  {paint(sign, colour)} {first}")
        print("".join(f"    {line}\n" for line in rest), end="")
        if check.fix:
            print(f"      {check.fix}")


def _check_environment() -> Iterator[DoctorCheck]:
    """Check the state folder, proxies and certificates."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "toolwire"
    try:
        state.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(state, os.W_OK)
    except OSError:
        is_writable = False
    if is_writable:
        yield DoctorCheck("environment", "state folder", "ok", str(state))
    else:
        fix = "set XDG_STATE_HOME to a folder that you can write to"
        yield DoctorCheck("environment", "state folder", "problem", f"cannot write to {state}", fix)
    yield from _check_proxy()
    from ..net.http.connection_settings import ClientTls

    try:
        ClientTls(os.environ)
    except ConfigError as error:
        name, _, problem = error.message.partition(": ")
        yield DoctorCheck("environment", name, "problem", problem, error.hint)


def _check_proxy() -> Iterator[DoctorCheck]:
    """Check the variable that names the proxy. Its value may contain a password and is not shown."""
    from ..net.http.connection_settings import PROXY_VARIABLES, proxies_from_environment

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
    """Check the keys that are set, without showing them. A key that was pasted with quotes or spaces is a problem."""
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
    from .local_servers import find_local_servers
    from .models import key_state

    found = [
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
        *(found or [DoctorCheck("servers", "on this machine", "note", "no model server answers at its usual address")]),
        *await asyncio.gather(*asked),
    ]


async def _ask_online(name: str) -> DoctorCheck:
    from ..net.model.server_facts import list_vendor_models
    from ..wire.models import vendors

    try:
        names = await list_vendor_models(vendors.find(name), os.environ, seconds=_ONLINE_SECONDS)
    except ToolwireError as error:
        return DoctorCheck("servers", name, "problem", error.message, error.hint)
    return DoctorCheck("servers", name, "ok", f"accepts the key; {count_of(len(names), 'model')}")


def _check_config(file: str | None) -> Iterator[DoctorCheck]:
    """Check the configuration of the gateway, if there is one."""
    if file is None and not Path(_CONFIG).exists():
        yield DoctorCheck("configuration", _CONFIG, "note", "not in this folder", "toolwire serve init writes one")
        return
    from .serve_check import check_settings

    name = file or _CONFIG
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
