"""Find the package that a command line downloads and runs, and whether its version is pinned."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

__all__ = ["find_unpinned"]

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
_LAUNCHERS: tuple[_Launcher, ...] = (
    (("npx",), _is_pinned_npm, ("-p", "--package"), ("-c", "--call", "--registry")),
    (("bunx",), _is_pinned_npm, ("-p", "--package"), ()),
    (("pnpm", "dlx"), _is_pinned_npm, ("--package",), ()),
    (("yarn", "dlx"), _is_pinned_npm, ("-p", "--package"), ()),
    (("uvx",), _is_pinned_python, ("--from",), ("-p", "--python", "--with", "--index", "--index-url")),
    (("uv", "tool", "run"), _is_pinned_python, ("--from",), ("-p", "--python", "--with", "--index", "--index-url")),
    (("pipx", "run"), _is_pinned_python, ("--spec",), ("--python", "--pip-args")),
)
_DOCKER_FLAGS = frozenset("--rm -i --interactive -t --tty -it -ti --init -d --detach --privileged --read-only".split())


def find_unpinned(arguments: Sequence[str]) -> str | None:
    """Return the package that a command line runs, if it is downloaded and its version is not pinned."""
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

    `others` are options whose value is not the package.
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
    """Return the first argument that is neither an option nor the value of one."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument.startswith("-"):
            skip = argument not in _DOCKER_FLAGS and "=" not in argument
        else:
            return argument
    return None
