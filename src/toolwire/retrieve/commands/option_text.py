"""Read an option from its spelling in a manual: `-a, --all`, `--color[=WHEN]`, `-n, --lines=NUM`."""

from __future__ import annotations

import re

from .command import CommandOption, OptionStyle

__all__ = ["first_sentence", "read_option"]

_NAME = re.compile(r"--?[A-Za-z0-9@#?](?:[A-Za-z0-9_.+]|-(?=[A-Za-z0-9]))*")
_SEPARATOR = re.compile(r"(?<!\s)\s*+(?:,|\||/|\bor\b)\s*+(?=--?\w)")
_PLACEHOLDER = re.compile(r"[A-Za-z][\w.:@+/-]*")
_CHOICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_INTEGERS = re.compile(r"(?:num|number|count|depth|port|cols|columns|pid|lines|limit|int|integer)", re.IGNORECASE)
_REPEATS = re.compile(r"(?:multiple|several|many) times\b|more than once\b|repeated(?:ly)?\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[a-z0-9)\]>'\"][.;:])\s+(?=[A-Z(\"'`-])")
_MAX_NAMES = 6
_MAX_CHOICES = 24
_MAX_DESCRIPTION = 160


def read_option(tag: str, description: str) -> CommandOption | None:
    """Return the option that a tag describes; None for any other tag."""
    names: list[str] = []
    value: tuple[OptionStyle, str] = ("flag", "")
    for part in _SEPARATOR.split(tag.strip()[:400])[: 2 * _MAX_NAMES]:
        part = part.replace("[no-]", "")
        found = _NAME.match(part)
        if found is None:
            continue
        names.append(found.group())
        style, text = _read_value(part[found.end() :])
        if style != "flag" and (value[0] == "flag" or found.group().startswith("--")):
            value = style, text
    names = [
        name for name in names if name.replace("--no-", "--", 1) == name or name.replace("--no-", "--", 1) not in names
    ]
    if not names:
        return None
    style, text = value
    choices = _read_choices(text)
    placeholder = _PLACEHOLDER.search(text)
    label = placeholder.group() if placeholder else ""
    return CommandOption(
        tuple(dict.fromkeys(names))[:_MAX_NAMES],
        style,
        label[:40],
        first_sentence(description),
        choices,
        _is_integer(label, text, names),
        style != "flag" and (text in ("", "[]") or _REPEATS.search(description[:600]) is not None),
    )


def _is_integer(label: str, default: str, names: list[str]) -> bool:
    """Return True for a number. `find -size n` takes more than numbers, so that `n` needs a long option."""
    has_long = any(name.startswith("--") for name in names)
    is_number = _INTEGERS.fullmatch(label) is not None or (has_long and label.lower() == "n")
    return is_number or re.fullmatch(r"-?\d+", default) is not None


def _read_value(rest: str) -> tuple[OptionStyle, str]:
    """Return the style and the text of the value after the name of an option."""
    text = rest.strip()
    if not text or text[0] in ",;:.":
        return "flag", ""
    if text.startswith("[="):
        inner = text[2:].split("]")[0]
        return ("flag", "") if inner in ("true", "false") else ("optional", inner)
    if text.startswith("="):
        return "attached", text[1:].strip()
    if not rest[0].isspace():
        is_optional = text.startswith("[")
        return ("optional" if is_optional else "attached", text.strip("[]<>"))
    if text.startswith("["):
        return "optional", text.strip("[]")
    word = text.split()[0]
    is_value = word.startswith(("<", "{", "(", '"')) or word.isupper() or len(text.split()) <= 2
    return ("separate", text) if is_value else ("flag", "")


def _read_choices(text: str) -> tuple[str, ...]:
    """Return the values that a placeholder lists, as in `short|full|auto`."""
    inner = text.strip("{}()[]<>")
    parts = [part.strip("<>\"' ") for part in re.split(r"[|,]", inner)]
    is_list = 1 < len(parts) <= _MAX_CHOICES and all(_CHOICE.fullmatch(part) for part in parts)
    return tuple(parts) if is_list and "<" not in inner and not inner.isupper() else ()


def first_sentence(text: str, limit: int = _MAX_DESCRIPTION) -> str:
    """Return the first sentence of a description, shortened at a word."""
    sentence = _SENTENCE.split(text[: 4 * limit].strip(), maxsplit=1)[0]
    if len(sentence) <= limit:
        return sentence
    return sentence[:limit].rsplit(" ", 1)[0].rstrip(",;:") + "…"
