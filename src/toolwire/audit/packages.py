"""Find the package that a command line downloads and runs, and whether its version is pinned."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

__all__ = ["unpinned"]

_EXACT = r"v?\d+(?:\.\d+)+[\w.+-]*"
_LOCAL = re.compile(r"[./~]|file:|[a-zA-Z]:\\").match
_COMMIT = re.compile(r"(?:git\+|github:|https?://).*[@#][0-9a-f]{7,40}").match


def _npm(package: str) -> bool:
    return re.fullmatch(rf"(?:@[^/@]+/)?[^@]+@{_EXACT}", package) is not None


def _python(package: str) -> bool:
    return re.fullmatch(rf"[^=@]+(?:==|@)\s*{_EXACT}", package) is not None


def _image(package: str) -> bool:
    tag = package.rpartition("/")[2].partition(":")[2]
    return "@sha256:" in package or tag not in ("", "latest")


# command, test for a pinned version, options followed by the package, options followed by another value
_Launcher = tuple[tuple[str, ...], Callable[[str], bool], tuple[str, ...], tuple[str, ...]]
_LAUNCHERS: tuple[_Launcher, ...] = (
    (("npx",), _npm, ("-p", "--package"), ("-c", "--call", "--registry")),
    (("bunx",), _npm, ("-p", "--package"), ()),
    (("pnpm", "dlx"), _npm, ("--package",), ()),
    (("yarn", "dlx"), _npm, ("-p", "--package"), ()),
    (("uvx",), _python, ("--from",), ("-p", "--python", "--with", "--index", "--index-url")),
    (("uv", "tool", "run"), _python, ("--from",), ("-p", "--python", "--with", "--index", "--index-url")),
    (("pipx", "run"), _python, ("--spec",), ("--python", "--pip-args")),
)
_DOCKER_FLAGS = frozenset("--rm -i --interactive -t --tty -it -ti --init -d --detach --privileged --read-only".split())


def unpinned(words: Sequence[str]) -> str | None:
    """Return the package that a command line runs, if it is downloaded and its version is not pinned."""
    line = [re.sub(r"^.*[/\\]|\.(?:cmd|exe)$", "", word) for word in words]
    for start in range(min(len(line), 3)):  # the launcher may come after `cmd /c`
        for names, pinned, before, others in _LAUNCHERS:
            if tuple(line[start : start + len(names)]) == names:
                package = _package(words[start + len(names) :], before, others)
                return None if package is None or _fixed(package, pinned) else package
        if line[start] in ("docker", "podman") and line[start + 1 : start + 2] == ["run"]:
            image = _docker_image(words[start + 2 :])
            return None if image is None or _fixed(image, _image) else image
    return None


def _fixed(package: str, pinned: Callable[[str], bool]) -> bool:
    return bool(_LOCAL(package) or _COMMIT(package) or "$" in package or pinned(package))


def _package(words: Sequence[str], before: Sequence[str], others: Sequence[str]) -> str | None:
    for index, word in enumerate(words):
        option, _, value = word.partition("=")
        following = words[index + 1] if index + 1 < len(words) else None
        if option in before:
            return value or following
        if not word.startswith("-") and (index == 0 or words[index - 1] not in others):
            return word
    return None


def _docker_image(words: Sequence[str]) -> str | None:
    """Return the first argument that is neither an option nor the value of one."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word not in _DOCKER_FLAGS and "=" not in word
        else:
            return word
    return None
