"""TW016 to TW018: hidden characters and instructions for the model in the texts of a declaration."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator

from ..ir.pointer import JSON, child_pointer
from ..ir.tools import Tool
from .findings import Hit, rule

# Find characters that a person does not see and a model reads: tag characters, bidi controls, zero-width characters.
# Characters that scripts and emoji need are not reported.


_TAGS = "\U000e0000-\U000e007f"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_KINDS = {
    "tag character": f"[{_TAGS}]",
    "bidirectional control": "[\u202a-\u202e\u2066-\u2069]",
    "zero-width character": "[\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff]",
    "variation selector": f"[{_SELECTORS}]{{2,}}",  # a single one belongs to the character before it
    "private-use character": "[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]",
    "soft hyphen": "\u00ad{2,}",  # a single one marks a place for a line break
    "invisible letter": "[\u115f\u1160\u3164\uffa0\u2800\ufff9-\ufffb]",
    "control character": "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]",
}
_HIDDEN = re.compile("|".join(f"({pattern})" for pattern in _KINDS.values()))
_NAMES = tuple(_KINDS)

# England, Scotland and Wales: a black flag, at most six tag letters, and the cancel tag
_EMOJI_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_EMOJI = "\u00a9\u00ae\u203c-\u3299\ufe0f\u20e3\U0001f000-\U0001faff"
# scripts with joining or breaking characters: Hebrew, Arabic, Syriac, Indic, Thai to Myanmar, Khmer, Mongolian
_SCRIPTS = "\u0590-\u08ff\u0900-\u109f\u1780-\u18af\ua840-\ua87f\ua8e0-\uaa7f\ufb1d-\ufdff\ufe70-\ufefc"
_JOINED = re.compile(f"(?<=[{_EMOJI}])\u200d(?=[{_EMOJI}])|(?<=[{_SCRIPTS}])[\u200b-\u200d]")
_SHOWN = 60  # characters of hidden text in a finding: enough to recognise it, one line


def describe_hidden(text: str) -> str:
    """Return the kinds and numbers of hidden characters, and the text of tag characters. Empty if there are none."""
    counts: Counter[str] = Counter()
    spelled: list[str] = []
    for found in _HIDDEN.finditer(_remove_needed(text)):
        assert found.lastindex is not None
        kind = _NAMES[found.lastindex - 1]
        counts[kind] += len(found.group())
        if kind == "tag character" and len(spelled) < _SHOWN:
            spelled.append(chr(ord(found.group()) - 0xE0000))
    kinds = ", ".join(f"{number} {kind}{'s' if number > 1 else ''}" for kind, number in counts.items())
    tags = "".join(letter for letter in spelled if letter.isprintable())
    return f"{kinds} that spell {tags!r}" if tags else kinds


def strip_hidden(text: str) -> str:
    """Return the text as a model that ignores hidden characters reads it."""
    return text if text.isascii() else _HIDDEN.sub("", text)


def _remove_needed(text: str) -> str:
    """Remove the sequences in which these characters have their documented use."""
    return text if text.isascii() else _JOINED.sub("", _EMOJI_FLAG.sub("", text.removeprefix("\ufeff")))


# A description is written by the author of a tool, and a model follows it like the user's own text. These rules read
# every text of a declaration: names, descriptions, titles, enum values, defaults, examples, annotations and keys.


__all__: list[str] = []

_MAX_TEXTS = 100_000  # texts of one declaration
_MAX_DEPTH = 200  # below Python's limit of recursion


def _texts(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield the texts of a declaration with their pointers, keys included, up to `_MAX_TEXTS`."""
    fields: dict[str, JSON] = {
        "name": tool.name,
        "namespace": tool.namespace,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "examples": list(tool.examples),
        "extra": dict(tool.extra),
    }
    waiting: list[tuple[str, JSON, int]] = [(f"/{key}", value, 0) for key, value in reversed(fields.items())]
    count = 0
    while waiting and count < _MAX_TEXTS:
        at, value, depth = waiting.pop()
        if type(value) is str:
            count += 1
            yield at, value
        elif depth < _MAX_DEPTH and type(value) is dict:
            waiting.extend((child_pointer(at, key), one, depth + 1) for key, one in reversed(value.items()))
            for key in value:
                count += 1
                yield child_pointer(at, key), key
        elif depth < _MAX_DEPTH and type(value) is list:
            waiting.extend(
                (child_pointer(at, index), one, depth + 1) for index, one in reversed(list(enumerate(value)))
            )


@rule("TW016", "error", "all", "hidden characters", "remove them: a reviewer does not see them, and a model reads them")
def check_hidden_characters(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        for at, text in _texts(tool):
            if found := describe_hidden(text):
                yield index, Hit(at, found)


_SECRETS = (
    r"(?:~/\.ssh|\bid_rsa\b|\bid_ed25519\b|\.aws/credentials|/etc/(?:passwd|shadow)|\.cursor/mcp\.json"
    r"|claude_desktop_config\.json|\.netrc\b|\bmcp\.json\b|(?<![\w/])\.env\b)"
)
_TAKEN = r"(?:secret|token|password|credential|api_?key|conversation|history|context|messages|prompt|env|cookie|data)"
_TAG = r"<(?:important|system|secret|hidden|assistant|admin)>"
# every repetition is bounded, or ends where the next match could begin, so the time is linear in the text
_INJECTIONS = {
    "overrides other instructions": (
        r"\b(?:ignore|disregard|forget|override|bypass) (?:(?:all|any|every|the|of|your|these|those|my) ){0,4}"
        r"(?:previous|prior|preceding|above|earlier|system|foregoing|safety) (?:\w{1,20} ){0,2}?"
        r"(?:instruction|prompt|rule|message|direction|guideline|polic)"
    ),
    "hides something from the user": (
        r"\b(?:(?:do not|don't|never|must not) (?:\w{1,20} ){0,2}?(?:tell|inform|mention|notify|alert|reveal|disclose)"
        r"|(?:without|avoid) (?:telling|informing|mentioning|alerting))\b (?:\w{1,20} ){0,6}?(?:the )?user\b"
    ),
    "contains a tag that imitates a prompt": (
        rf"{_TAG}(?:(?!{_TAG}).){{0,2000}}?\b(?:must|read|send|pass|call|ignore|never|do not|don't|always)\b"
        r"|<\|(?:im_start|im_end|system|user|assistant|eot_id|start_header_id)\|>|\[/?inst\]|<</?sys>>"
    ),
    "asks for a secret file": (
        rf"\b(?:read|open|cat|load|include|send|pass|copy|attach|access|fetch|put)\b.{{0,80}}?{_SECRETS}"
    ),
    "sends data to an address": (
        rf"https?://[^\s\"'<>]{{1,200}}?[?&/=]\$?[{{<\[(]{{1,2}}\w{{0,30}}?{_TAKEN}\w{{0,30}}[}}>\])]"
        rf"|\b(?:send|post|upload|forward|exfiltrate)\b.{{0,60}}?\b{_TAKEN}s?\b.{{0,40}}?\bto https?://"
    ),
}
_ADVICE = {
    "gives instructions about other tools": (
        r"\b(?:before|after|when|whenever|instead of) (?:using|calling|invoking|running) (?:any|every|all|each) (?:of the )?"
        r"(?:other )?tools?\b|\b(?:any|every|all) other tools? (?:\w{1,20} ){0,3}?(?:must|should|is disabled|are disabled|is deprecated)"
    ),
    "asks for the conversation": (
        r"\b(?:include|pass|send|put|insert|append|attach|copy)\b.{0,60}?\b(?:entire|full|whole|complete|previous|all)\b.{0,30}?"
        r"\b(?:conversation|chat history|message history|system prompt)"
    ),
}


def _compile(patterns: dict[str, str]) -> dict[str, re.Pattern[str]]:
    return {label: re.compile(pattern, re.IGNORECASE | re.DOTALL) for label, pattern in patterns.items()}


_FIND_INJECTIONS, _FIND_ADVICE = _compile(_INJECTIONS), _compile(_ADVICE)


@rule(
    "TW017",
    "error",
    "models",
    "text with instructions against the user",
    "remove it, and review the author of the tool",
)
def check_injections(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _search(tools, _FIND_INJECTIONS)


@rule(
    "TW018", "warning", "models", "text with instructions beyond the tool", "describe only this tool and its parameters"
)
def check_instructions(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report instructions about other tools and the conversation, and base64 that decodes to text."""
    yield from _search(tools, _FIND_ADVICE)
    for index, tool in enumerate(tools):
        for at, text in _texts(tool):
            if hidden := _decoded_text(text):
                yield index, Hit(at, f"base64 of {hidden!r}")


def _search(tools: tuple[Tool, ...], patterns: dict[str, re.Pattern[str]]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        for at, text in _texts(tool):
            plain = " ".join(strip_hidden(text).split()) if len(text) > 10 else ""
            for label, pattern in patterns.items() if plain else ():
                if found := pattern.search(plain):
                    yield index, Hit(at, f"{label}: {found.group()[:100]!r}")


_ENCODED_TEXT = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/]{40,4000}={0,2}")
_MAX_BLOBS = 20  # per text, each of which is decoded; the first sentence found ends the search


def _decoded_text(text: str) -> str:
    """Return the text of the first base64 that decodes to a sentence. Hashes, keys and images do not.

    Return "" if there is none.
    """
    for number, found in enumerate(_ENCODED_TEXT.finditer(text)):
        blob = found.group()
        if number == _MAX_BLOBS:
            break
        data = base64.b64decode(blob[: len(blob.rstrip("=")) // 4 * 4])
        if b" " in data and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data):
            return data[:60].decode("ascii")
    return ""
