"""TQ01 to TQ20: wording of declarations that leads models to wrong calls, such as near-duplicate descriptions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from typing import TypeAlias

from ..ir.errors import SchemaError
from ..ir.pointer import Object
from ..ir.tools import Tool
from ..schema.validation.validator import validator
from .findings import Hit, rule
from .provider_rules.documents import items_of, texts_in

# Near-duplicate texts are found without comparing every pair. Two word sets with a high Jaccard similarity must share at least
# one of their rarest words. The number of rarest words to index follows from the sizes of the sets (prefix filtering).


SIMILARITY_THRESHOLD = 0.85  # of 20 words, two descriptions share all but about three
"""Minimum Jaccard similarity of two near-duplicates: shared words divided by all words."""
_MIN_WORDS = 5  # words; shorter texts give no meaningful similarity

Words: TypeAlias = frozenset[str]


def first_similar(texts: Sequence[Words]) -> Iterator[tuple[int, int]]:
    """Yield (index, first earlier near-duplicate) for each text; texts with identical word sets are not compared.

    >>> list(first_similar([frozenset("abcdefgh"), frozenset("stuvwxyz"), frozenset("abcdefghi"), frozenset("abcdefgh")]))
    [(2, 0), (3, 2)]
    """
    rarity = Counter(word for words in set(texts) for word in words)
    first: dict[Words, int] = {}
    holders: dict[tuple[int, int, str], list[Words]] = defaultdict(list)
    for index, words in enumerate(texts):
        if len(words) < _MIN_WORDS:
            continue
        ranked = sorted(words, key=lambda word: (rarity[word], word))
        found = [
            first[other]
            for size in _candidate_sizes(len(words))
            for word in _prefix_filter(ranked, size)
            for other in holders.get((size, len(words), word), ())
            if other != words and len(words & other) >= SIMILARITY_THRESHOLD * len(words | other)
        ]
        if found:
            yield index, min(found)
        if first.setdefault(words, index) == index:
            for size in _candidate_sizes(len(words)):
                for word in _prefix_filter(ranked, size):
                    holders[len(words), size, word].append(words)


def _candidate_sizes(size: int) -> range:
    """Return the sizes of the word sets that can reach `SIMILARITY_THRESHOLD` similarity with a set of this size."""
    return range(ceil(SIMILARITY_THRESHOLD * size), int(size / SIMILARITY_THRESHOLD) + 1)


def _prefix_filter(ranked: list[str], other: int) -> list[str]:
    """Return the rarest words; every near-duplicate of size `other` contains at least one of them."""
    shared = ceil(SIMILARITY_THRESHOLD / (1 + SIMILARITY_THRESHOLD) * (len(ranked) + other) - 1e-9)
    return ranked[: len(ranked) - shared + 1]


__all__: list[str] = []


def _property_schemas(tool: Tool) -> Iterator[tuple[str, Object]]:
    found = (tool.input_schema or {}).get("properties")
    for name, field in found.items() if type(found) is dict else ():
        if type(field) is dict:
            yield name, field


def _is_plain_string(field: Object) -> bool:
    return field.get("type") == "string" and not {"enum", "const", "pattern", "format"} & field.keys()


def _field_text(field: Object) -> str:
    said = field.get("description")
    return said if type(said) is str else ""


def _each_property(tools: tuple[Tool, ...]) -> Iterator[tuple[int, str, Object]]:
    for index, tool in enumerate(tools):
        for name, field in _property_schemas(tool):
            yield index, name, field


def _property_pointer(name: str, keyword: str = "") -> str:
    return f"/input_schema/properties/{name}{'/' if keyword else ''}{keyword}"


@rule("TQ01", "warning", "models", "very short description", "describe its purpose and when to use it")
def check_short_description(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        if tool.description and len(tool.description.split()) < 5:
            yield index, Hit("/description", repr(tool.description))


@rule("TQ02", "warning", "models", "property without a description", "describe it, with an example")
def check_undescribed(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, name, field in _each_property(tools):
        if not _field_text(field) and "$ref" not in field:
            yield index, Hit(_property_pointer(name), "no description")


_GUIDES = re.compile(
    r"\b(?:use|call|choose|prefer|invoke|run) (?:this|it)\b|\buse(?:d|ful)? (?:to|for|when|only|if|after|before|with)\b"
    r"|\bwhen(?:ever)? (?:you|the user|a|an|asked|looking|needed)\b|\binstead of\b|\brather than\b|\b(?:do not|don't|never) use\b"
    r"|\bonly (?:if|when|for|after)\b|\bprefer\b|\bunlike\b|\bafter (?:calling|using)\b|\bbefore (?:calling|using)\b"
    r"|\bif you (?:need|want|have)\b|\bshould be (?:used|called)\b|\bnot for\b",
    re.IGNORECASE,
).search


@rule(
    "TQ03",
    "info",
    "models",
    "no guidance on when to use the tool",
    "state when to use it, when not, and the alternative",
    asked=True,
)
def check_no_guidance(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        if tool.description and not _GUIDES(tool.description):
            yield index, Hit("/description", "it describes the tool, but not when to use it")


_RETURNS = re.compile(
    r"\b(?:returns?|returning|returned|outputs?|produces?|yields?|results?|responds?|response|gives?)\b", re.IGNORECASE
).search
# "get the orders" already names the result, and "delete" is not expected to return more than success
_IMPLIED_RESULT = re.compile(
    r"\W*+(?:\w++\W++){0,2}?(?:get|list|fetch|fetche|retrieve|read|find|search|searche|query|querie|show|look|lookup|describe|count"
    r"|check|compute|calculate|convert|extract|view|display|generate|summarize|browse|delete|remove|clear|close|mark|set|enable"
    r"|disable|click|press|type|scroll|hover|drag|wait|navigate|resize|select|fill)s?\b",
    re.IGNORECASE,
).match


@rule("TQ04", "info", "models", "result not described", "describe the result, or declare an output schema")
def check_no_result(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        said = (tool.description or "").strip()
        if said and tool.kind == "function" and tool.output_schema is None:
            if not _RETURNS(said) and not _IMPLIED_RESULT(said):
                yield index, Hit("/description", "it does not describe the result that the model gets")


# OpenAI's limit of a function description; other providers have none, but each request pays for it
MAX_CHARACTERS = 1024


@rule("TQ05", "info", "models", "description too long", "keep the first three sentences, move the rest to a document")
def check_long_description(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, tool in enumerate(tools):
        if len(tool.description or "") > MAX_CHARACTERS:
            yield index, Hit("/description", f"{len(tool.description or ''):,} characters")
    for index, name, field in _each_property(tools):
        if len(_field_text(field)) > MAX_CHARACTERS:
            yield index, Hit(_property_pointer(name, "description"), f"{len(_field_text(field)):,} characters")


@rule("TQ06", "warning", "models", "fixed set of values as free text", "make it an enum")
def check_missing_enum(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report free text in a property whose name suggests a fixed set of values, such as `status`.

    A description, a default or an example may show that the text is free: an `action` in natural language.
    """
    closed = re.compile(
        r"(?:.*_)?(?:action|mode|type|kind|status|state|sort|order|format|unit|level|severity|priority)"
    )
    free = re.compile(
        r"natural[- ]language|free[- ]?(?:form|text)|plain (?:text|english|language)|\bdescrib(?:e|es|ed|ing)\b"
        r"|\bin (?:your own )?words\b|\bsentences?\b|\binstructions?\b|\bany (?:text|string|value)\b|\barbitrary\b",
        re.IGNORECASE,
    )
    for index, name, field in _each_property(tools):
        shown = texts_in([field.get("default"), *items_of(field.get("examples"))])
        is_free = free.search(_field_text(field)) or any(" " in text for text in shown)
        if _is_plain_string(field) and closed.fullmatch(name) and not is_free:
            yield index, Hit(_property_pointer(name), "accepts any text")


@rule("TQ07", "warning", "models", "allowed values listed only in the description", "make them an enum")
def check_prose_enum(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report free text whose description lists at least two quoted values and nothing else that is allowed."""
    value = r"['\"`][\w.-]{1,40}['\"`]"
    listed = re.compile(
        rf"\b(?:one of|either|allowed values|options are|valid values|possible values|must be)\b[^.'\"`]{{0,30}}"
        rf"{value}(?:\s*+(?:,|/|\||or)){{1,2}}+\s*+{value}",
        re.IGNORECASE,
    )
    open_ended = re.compile(
        r"\b(?:comma|semicolon|separated|e\.g\.|such as|for example|an? (?:integer|number|id))", re.IGNORECASE
    )
    for index, name, field in _each_property(tools):
        text = _field_text(field)
        if _is_plain_string(field) and listed.search(text) and not open_ended.search(text):
            yield index, Hit(_property_pointer(name, "description"), "the description lists the values")


@rule("TQ08", "info", "models", "default stated only in the description", "add `default`")
def check_prose_default(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    said = re.compile(r"\bdefaults?(?: to|:| is| value)", re.IGNORECASE)
    for index, name, field in _each_property(tools):
        if "default" not in field and said.search(_field_text(field)):
            yield index, Hit(_property_pointer(name, "description"), "the description states a default")


@rule("TQ09", "warning", "models", "described as required, declared as optional", "add it to `required`")
def check_prose_required(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report optional properties whose description starts or ends with `required` as a mark of its own.

    In the middle of a sentence it is usually a condition ("required unless body is given") or about something else.
    """
    marked = re.compile(
        r"\W*required(?:\W*$|[.:;,)\]]|\s+[-\u2013\u2014])|.*(?:[(\[]|[.;,:]\s)required[.)\]]*\s*$",
        re.IGNORECASE | re.DOTALL,
    )
    for index, name, field in _each_property(tools):
        required = items_of((tools[index].input_schema or {}).get("required"))
        if name not in required and marked.match(_field_text(field)):
            yield index, Hit(_property_pointer(name, "description"), "the description calls it required")


@rule("TQ10", "info", "models", "id without a pattern or a source", "add a pattern, or name the source of the id")
def check_free_id(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, name, field in _each_property(tools):
        if _is_plain_string(field) and re.fullmatch(r"id|uuid|.*(?:_id|Id|ID|_uuid)", name):
            if not re.search(r"\b(?:from|returned|get|list|see|e\.g\.|example)\b", _field_text(field), re.IGNORECASE):
                yield index, Hit(_property_pointer(name), "accepts any text")


@rule(
    "TQ11",
    "info",
    "models",
    "path with an unspecified base",
    "state that it is absolute, or the directory it is relative to",
)
def check_free_path(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, name, field in _each_property(tools):
        if _is_plain_string(field) and re.fullmatch(r"(?:.*_)?(?:path|file|filename|directory|dir|folder)", name):
            if not re.search(r"absolute|relative|root|under|within", _field_text(field), re.IGNORECASE):
                yield index, Hit(_property_pointer(name), "accepts any text")


def _check_format(
    tools: tuple[Tool, ...], names: str, words: str, described: str = r"(?!)"
) -> Iterator[tuple[int, Hit]]:
    """Report plain text in properties with these names, unless the description matches `described`."""
    known, specified = re.compile(names), re.compile(described, re.IGNORECASE)
    for index, name, field in _each_property(tools):
        if _is_plain_string(field) and known.search(name) and not specified.search(_field_text(field)):
            yield index, Hit(_property_pointer(name), words)


@rule("TQ12", "info", "models", "date or time without a format", 'add "format": "date" or "date-time"')
def check_free_date(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    names = r"(?:(?<![^_])(?:date|time|datetime|timestamp|since|until|deadline)|_at)\Z"
    notation = r"\biso\b|iso.?8601|rfc|\by{2,4}|\bh{1,2}:?m|24.hour|epoch|unix|milliseconds|\butc\b|\d{4}|\d[smhd]\b|duration|relative"
    return _check_format(tools, names, "the notation is not specified", notation)


@rule("TQ13", "info", "models", "URL without a format", 'add "format": "uri"')
def check_free_url(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    return _check_format(tools, r"(?<![^_])(?:url|uri|link|href|endpoint)\Z", "accepts any text")


@rule("TQ14", "info", "models", "limit without a maximum", "add `maximum`")
def check_free_limit(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    for index, name, field in _each_property(tools):
        if re.fullmatch(r"(?:.*_)?(?:limit|page_size|per_page|max_results|count|size|top_k|first)", name):
            if field.get("type") in ("integer", "number") and "maximum" not in field:
                yield index, Hit(_property_pointer(name), "accepts any number")


@rule("TQ15", "warning", "models", "two tools with nearly the same description", "describe how they differ")
def check_near_duplicates(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    said = [frozenset(re.findall(r"\w+", (tool.description or "").lower())) for tool in tools]
    for index, other in first_similar(said):
        yield index, Hit("/description", f"nearly the same text as {tools[other].name!r}")


_NEGATIVE = re.compile(
    r"(?:is_|do_)?(?:no|not|non|dont|disable|disabled|without)_.+|(?:no|not|dont|disable|without)[A-Z].*"
)
_OPPOSITES = tuple(
    frozenset(group.split())
    for group in (
        "asc ascending desc descending",
        "public private internal",
        "open opened closed",
        "draft published archived",
        "include exclude",
        "json xml csv yaml markdown html",
        "low medium high",
        "left right center",
    )
)
_EXCLUDES = re.compile(r"mutually exclusive|cannot be (?:used|combined|set) (?:together )?with", re.IGNORECASE).search


@rule("TQ16", "info", "models", "ambiguous boolean", "name the true case, or make it an enum")
def check_boolean_names(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report negative names, and booleans that exclude each other, which should be one enum."""
    for index, tool in enumerate(tools):
        flags = {name: field for name, field in _property_schemas(tool) if field.get("type") == "boolean"}
        for name in filter(_NEGATIVE.fullmatch, flags):
            yield index, Hit(_property_pointer(name), f"{name!r} set to false is a double negative")
        for names in _exclusive_groups(flags):
            yield (
                index,
                Hit(
                    _property_pointer(names[0]),
                    f"{', '.join(map(repr, names))} exclude each other, but several can be set to true",
                ),
            )


def _exclusive_groups(flags: dict[str, Object]) -> Iterator[list[str]]:
    """Yield groups of booleans that exclude each other, by opposites in their names or by their descriptions."""
    words = {name: re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) for name in flags}
    for group in _OPPOSITES:
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, parts in words.items():
            if group & set(parts):
                alike.setdefault(tuple(part for part in parts if part not in group), []).append(name)
        yield from (names for names in alike.values() if len(names) > 1)
    stating = [name for name, field in flags.items() if _EXCLUDES(_field_text(field))]
    if len(stating) > 1:
        yield stating


@rule(
    "TQ17",
    "warning",
    "models",
    "description gives orders to the model",
    "describe the tool instead of instructing the model",
)
def check_commanding_text(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    orders = re.compile(
        r"\b(?:always|must|never) (?:call|use|run|invoke) (?:this|it)|before any other tool",
        re.IGNORECASE,
    )
    for index, tool in enumerate(tools):
        if found := orders.search(tool.description or ""):
            yield index, Hit("/description", found.group())


@rule("TQ18", "info", "models", "quantity without a unit", "name the unit")
def check_no_unit(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    units = r"second|minute|hour|day|ms\b|byte|\b[kmg]b\b|pixel|px|percent|%|cent|dollar|euro|usd|meter|metre|km|mile|gram|kg"
    for index, name, field in _each_property(tools):
        if field.get("type") in ("integer", "number") and re.fullmatch(
            r"(?:.*_)?(?:timeout|duration|delay|interval|amount|price|weight|distance|width|height|ttl)", name
        ):
            if not re.search(units, f"{name} {_field_text(field)}", re.IGNORECASE):
                yield index, Hit(_property_pointer(name), "no unit")


@rule("TQ19", "warning", "models", "irreversible tool declared as read-only", "declare that it writes")
def check_harmless(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report tools with a verb such as `delete` or `send` in their name that are declared pure or read."""
    verbs = re.compile(
        r"(?:^|_)(?:delete|remove|drop|send|pay|transfer|purge|destroy|publish|execute|write|update|create)(?:_|$)"
    )
    for index, tool in enumerate(tools):
        if tool.effect in ("pure", "read") and verbs.search(tool.name.lower()):
            yield index, Hit("/effect", f"{tool.name!r} is declared {tool.effect!r}")


@rule("TQ20", "error", "models", "example or default violates the schema", "correct the value or the schema")
def check_forbidden_values(tools: tuple[Tool, ...]) -> Iterator[tuple[int, Hit]]:
    """Report defaults and examples that their schema rejects; references are skipped: `$defs` are not in `field`."""
    for index, tool in enumerate(tools):
        for name, field in _property_schemas(tool):
            if "$ref" in str(field):
                continue
            values = [("default", field["default"])] if field.get("default") is not None else []
            values += [("examples", value) for value in items_of(field.get("examples"))]
            for keyword, value in values:
                if not _accepts_value(field, value):
                    yield index, Hit(_property_pointer(name, keyword), f"{value!r} does not match the schema")


def _accepts_value(field: Object, value: object) -> bool:
    try:
        return validator(field).accepts(value)
    except SchemaError:
        return True
