"""Gorilla's matching of API calls: find the calls in an answer, and compare them with the calls of a database.

The procedure of the paper (Patil et al., 2023, section 4.1), written anew: the answer is reduced to its call
expressions, and a call matches an entry of the database if the function and the arguments that select the model are
equal. Other arguments (`pretrained=True`, a device) are ignored. A call that matches no entry is a hallucination.
A match is right if the entry's domain is the domain of the task. The parser is tolerant, because answers of models and
some entries of APIBench are not valid Python.
"""

import re
from typing import NamedTuple

HUBS = ("torchhub", "huggingface", "tensorflow")

_START = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", re.DOTALL)
_LITERAL = re.compile(r"""\s*[rbfu]?(['"])(.*?)\1\s*\Z""", re.DOTALL)
_PATH = re.compile(r"()\s*([\w.-]+/[\w./-]+)\s*\Z")  # some entries name a model without quotes
_MODEL_KEYWORDS = ("model", "repo_id", "model_name", "pretrained_model_name_or_path", "source")
_MAX_CALLS = 50
_QUOTES = "'\""
_OPEN, _CLOSE = "([{", ")]}"


class Call(NamedTuple):
    """A call expression: the last part of its function's name, and its string arguments."""

    function: str
    positional: tuple[str, ...]
    keywords: dict[str, str]


class ApiKey(NamedTuple):
    """The part of a call that identifies an API."""

    function: str
    arguments: tuple[str, ...]


def find_calls(text: str) -> list[Call]:
    """Return the call expressions of a text, in order. Nested calls are included."""
    calls = []
    for start in list(_START.finditer(text))[:_MAX_CALLS]:
        positional, keywords = [], {}
        for argument in _split_arguments(text[start.end() :]):
            keyword = _KEYWORD.match(argument)
            value = keyword[2] if keyword else argument
            literal = _LITERAL.match(value) or _PATH.match(value)
            if literal and keyword:
                keywords[keyword[1]] = literal[2]
            elif literal:
                positional.append(literal[2])
        calls.append(Call(start[1].rpartition(".")[2], tuple(positional), keywords))
    return calls


def _split_arguments(text: str) -> list[str]:
    """Split the text after an opening parenthesis at its commas, up to the closing one or to the end."""
    arguments, depth, quote, begin = [], 0, "", 0
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE and depth:
            depth -= 1
        elif char in _CLOSE or (char == "," and not depth):
            arguments.append(text[begin:position])
            begin = position + 1
            if char in _CLOSE:
                return arguments
    return [*arguments, text[begin:]]


def make_key(hub: str, call: Call) -> ApiKey | None:
    """Return the identity of a call's API, or None if the call selects no model of this hub."""
    if hub == "torchhub":
        values = list(call.positional)
        repository = call.keywords.get("repo_or_dir") or (values.pop(0) if values else None)
        model = call.keywords.get("model") or (values.pop(0) if values else "")
        if call.function != "load" or repository is None:
            return None
        return ApiKey("load", (repository.partition(":")[0], model))
    if hub == "tensorflow":
        url = next((value for value in (*call.positional, *call.keywords.values()) if "tfhub.dev/" in value), None)
        return None if url is None else ApiKey(call.function, (url.partition("tfhub.dev/")[2].rstrip("/"),))
    model = next((call.keywords[name] for name in _MODEL_KEYWORDS if name in call.keywords), None)
    model = model or next(iter(call.positional or call.keywords.values()), None)
    return ApiKey(call.function, () if model is None else (model,))


def list_keys(hub: str, text: str) -> list[ApiKey]:
    """Return the identities of all calls in a text."""
    keys = [make_key(hub, call) for call in find_calls(text)]
    return [key for key in keys if key is not None]


class Database:
    """The APIs of a hub by identity, with the domains of their cards."""

    def __init__(self, hub: str, cards: list[dict]) -> None:
        self.hub = hub
        self._domains: dict[ApiKey, set[str]] = {}
        for card in cards:
            for key in list_keys(hub, card["api_call"])[:1]:
                self._domains.setdefault(key, set()).add(_fold(card["domain"]))

    def judge(self, answer: str, reference: dict) -> str:
        """Return "exact", "right" (another API of the domain), "wrong" or "hallucination" for an answer."""
        matched = next((key for key in list_keys(self.hub, answer) if key in self._domains), None)
        if matched is None:
            return "hallucination"
        if matched in list_keys(self.hub, reference["api_call"])[:1]:
            return "exact"
        return "right" if _fold(reference["domain"]) in self._domains[matched] else "wrong"


def _fold(domain: str) -> str:
    return re.sub(r"[\W_]+", " ", domain).strip().lower()
