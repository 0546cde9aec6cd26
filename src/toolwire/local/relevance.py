"""Compare the words of a prompt with the tools that are offered.

A model of 135 million parameters cannot judge whether a prompt needs a tool: its own yes-or-no answer is little better
than chance (bench/local.py). A prompt that needs a tool usually names it: it shares a word with the tool's name or
description, or it has the numbers that the tool requires. Words are compared without their English endings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ..ir.pointer import Object
from ..ir.tools import Tool

_MAX_TEXT = 2000  # characters of a prompt or description that are compared
_MAX_ENUM = 50  # values of an enum that are compared with the prompt
_STOP_WORDS = frozenset(
    """a about all also am an and any are as at be been but by call can could current did do does each else find for from
    function get give given gives had has have he her here him his how i if in into is it its just know let like list made
    make may me might my name need new no not now number numbers of off on one or other our out over please return returns
    said say see set she should show so some such take tell than that the their them then there these they this those to
    tool two up us use used user using value values very want was way we were what when where which who whom whose why will
    with would yes you your""".split()
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ies", "ied", "es", "ed", "s", "y", "e")
_MIN_STEM = 3  # letters; "use" and "us" would get the same stem with fewer
_WORD = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NUMBER = re.compile(r"\d++(?:[.,:]\d++)*")
_NUMBER_WORDS = frozenset(
    "zero two three four five six seven eight nine ten eleven twelve twenty fifty hundred".split()
)
_NUMERIC = ("number", "integer")


def mentions_tool(prompt: str, tool: Tool) -> bool:
    """Return True if the prompt shares a content word with the tool, or has the numbers that the tool requires."""
    needed = len(_required_numbers(tool))
    if needed > 1 and _count_numbers(prompt) >= needed:
        return True
    return not content_words(prompt).isdisjoint(_tool_words(tool))


def has_value_for(prompt: str, tool: Tool) -> bool:
    """Return True if the prompt has a name or a number, from which an argument could be taken."""
    if _count_numbers(prompt) < len(_required_numbers(tool)):
        return False
    words = prompt[:_MAX_TEXT].split()
    return _count_numbers(prompt) > 0 or any(_is_name(word) for word in words[1:])


def mentioned_properties(prompt: str, tool: Tool) -> frozenset[str]:
    """Return the properties to offer: the required ones, and the optional ones that the prompt mentions.

    A small model invents a value for every property that it may write.
    """
    properties, required = _properties(tool), _required(tool)
    free_numbers = _count_numbers(prompt) - len(_required_numbers(tool))
    words = content_words(prompt)
    offered = set(required)
    for name, schema in properties.items():
        if isinstance(schema, dict) and schema.get("type") in _NUMERIC:
            is_mentioned = free_numbers > 0
        else:
            is_mentioned = not words.isdisjoint(_property_words(name, schema))
        if is_mentioned:
            offered.add(name)
    return frozenset(offered)


@lru_cache(256)
def content_words(text: str) -> frozenset[str]:
    """Return the stems of the words that have a meaning of their own."""
    spaced = _CAMEL.sub(" ", text[:_MAX_TEXT]).lower()
    return frozenset(_stem(word) for word in _WORD.findall(spaced) if word not in _STOP_WORDS and len(word) > 1)


def _stem(word: str) -> str:
    """Remove one English ending: forecasts, raining, multiplied."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM:
            return word[: -len(ending)]
    return word


def _tool_words(tool: Tool) -> frozenset[str]:
    words = content_words(tool.name) | content_words(tool.description or "")
    return words.union(*(_enum_words(schema) for schema in _properties(tool).values()))


def _property_words(name: str, schema: object) -> frozenset[str]:
    described = schema.get("description") if isinstance(schema, dict) else None
    words = content_words(name) | content_words(described if isinstance(described, str) else "")
    return words | _enum_words(schema)


def _enum_words(schema: object) -> frozenset[str]:
    values = schema.get("enum") if isinstance(schema, dict) else None
    texts: Iterable[str] = (
        [one for one in values[:_MAX_ENUM] if isinstance(one, str)] if isinstance(values, list) else ()
    )
    return frozenset[str]().union(*(content_words(text) for text in texts))


def _is_name(word: str) -> bool:
    """Return True for a capitalised word other than "I", and for a word of a script without capital letters."""
    return not word.isascii() or (word[:1].isupper() and word.rstrip(".,!?") != "I" and not word.startswith("I'"))


def _count_numbers(prompt: str) -> int:
    text = prompt[:_MAX_TEXT]
    return len(_NUMBER.findall(text)) + sum(word in _NUMBER_WORDS for word in _WORD.findall(text.lower()))


def _required_numbers(tool: Tool) -> list[str]:
    properties = _properties(tool)
    return [name for name in _required(tool) if _is_numeric(properties.get(name))]


def _is_numeric(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") in _NUMERIC


def _properties(tool: Tool) -> Object:
    found = (tool.input_schema or {}).get("properties")
    return found if isinstance(found, dict) else {}


def _required(tool: Tool) -> list[str]:
    found = (tool.input_schema or {}).get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
