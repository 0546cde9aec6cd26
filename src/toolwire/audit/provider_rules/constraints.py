"""Constraints of providers: the rules about request bodies, their registration with a source, and the checked body and its model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ...ir.pointer import Object
from ...ir.value import Value
from ..findings import Hit, declare
from .shapes import ShapeProblem

# Names of models: the family and the version that a name states. Names without a known prefix have no family.


_CLAUDE = re.compile(
    r"claude-(?:(?P<tier>opus|sonnet|haiku|fable|mythos)-(?P<major>\d)(?:-(?P<minor>\d{1,2}))?(?!\d)"
    r"|(?P<old>[1-3])(?:-(?P<old_minor>\d))?(?!\d)(?:-(?P<old_tier>opus|sonnet|haiku))?)"
)
_GPT = re.compile(r"(?:ft:)?(?:chatgpt|gpt)-(?P<major>\d)(?:[.-](?P<minor>\d)(?!\d))?")
_O_SERIES = re.compile(r"(?:ft:)?o(?P<major>\d)(?:-|$)")
_GEMINI = re.compile(r"gemini-(?P<major>\d)(?:[.-](?P<minor>\d)(?!\d))?")


class ModelName(NamedTuple):
    """A name without the path before it, its family ("claude-opus", "gpt", "o", "gemini", ""), and its version."""

    name: str
    family: str = ""
    version: tuple[int, int] = (0, 0)

    @property
    def claude(self) -> bool:
        return self.family.startswith("claude")

    @property
    def openai(self) -> bool:
        return self.family in ("gpt", "o")

    @property
    def reasons(self) -> bool:
        """Return True for OpenAI's reasoning models: the o series, and GPT-5 except its chat variants."""
        return self.family == "o" or (self.family == "gpt" and self.version >= (5, 0) and "-chat" not in self.name)


@lru_cache(256)
def parse_model(name: str) -> ModelName:
    """Return the family and version of a model, or '' and (0, 0) for an unknown name.

    A path (`models/…`, `publishers/google/models/…`) before the name is ignored. The number of an o-series model has no
    minor part.
    """
    bare = name.rpartition("/")[2].lower()
    dashed = bare.replace(".", "-").replace("@", "-")
    if found := _CLAUDE.search(dashed):
        tier = found["tier"] or found["old_tier"] or ""
        version = (int(found["major"] or found["old"]), int(found["minor"] or found["old_minor"] or 0))
        return ModelName(bare, f"claude-{tier}" if tier else "claude", version)
    for family, pattern in (("gpt", _GPT), ("o", _O_SERIES), ("gemini", _GEMINI)):
        if found := pattern.match(bare):
            minor = found["minor"] if family != "o" else None
            return ModelName(bare, family, (int(found["major"]), int(minor or 0)))
    return ModelName(bare)


# The rules about request bodies: TW051 to TW065 and TW100 to TW135, and the tool rules that a body can violate too.


class RuleText(NamedTuple):
    """The title of a rule, and how to fix a body that violates it."""

    title: str
    fix: str


_CHAT_AND_RESPONSES = "openai_chat openai_responses"
_ROWS = (
    ("TW051", "anthropic", "forced call with thinking", "use tool choice auto, or leave out the thinking budget"),
    ("TW053", "all", "tool choice names an undeclared tool", "declare the tool"),
    ("TW061", "all", "unpaired calls and results", "put the result of every call right after it"),
    ("TW062", "anthropic openai_chat openai_responses", "call id used more than once", "give each call its own id"),
    ("TW063", "anthropic", "reasoning without its signature", "send it back unchanged, or remove it"),
    ("TW065", "anthropic gemini", "empty message or text", "remove it"),
    ("TW100", "all", "field not known to the provider", "remove it"),
    ("TW101", "all", "required field missing", "add it"),
    ("TW102", "all", "value of the wrong type", "use a value of the documented type"),
    ("TW103", "all", "kind of part not known to the provider", "use a documented kind"),
    ("TW104", "all", "empty list", "add an element, or leave the field out"),
    ("TW105", "all", "number or text outside of its limits", "use a value within the limits"),
    ("TW106", "all", "tool choice without tools", "declare tools, or leave the tool choice out"),
    ("TW107", _CHAT_AND_RESPONSES, "field without the field that it depends on", "set both, or neither"),
    ("TW108", "all", "too many stop sequences, or a blank one", "remove the surplus stop sequences"),
    ("TW109", "anthropic openai_chat openai_responses", "schema outside of the strict subset", "lower the schema, or set strict to false"),
    ("TW110", "all", "schema of the answer rejected", "lower the schema to the provider's subset"),
    ("TW111", "gemini openai_responses", "two exclusive fields", "keep one of them"),
    ("TW112", _CHAT_AND_RESPONSES, "JSON mode without a message that mentions JSON", "mention JSON in a message"),
    ("TW113", "all", "sampling parameter rejected by the model", "leave it out"),
    ("TW114", "all", "reasoning setting rejected by the model", "use a setting that the model supports"),
    ("TW115", "anthropic", "thinking budget outside of its limits", "use at least 1024, and less than max_tokens"),
    ("TW116", "anthropic", "forced call rejected by the model", "use tool choice auto"),
    ("TW117", "anthropic openai_chat", "parameter rejected by the model", "use the parameter that replaces it, or leave it out"),
    ("TW118", "openai_chat anthropic", "role rejected by the model", "use a role that the model supports"),
    ("TW119", "anthropic", "system message at the wrong position", "move it after a user turn and before an assistant turn"),
    ("TW120", "anthropic gemini mistral", "final assistant message rejected", "end the messages with a user turn"),
    ("TW121", "anthropic", "trailing whitespace in the final assistant message", "remove the whitespace"),
    ("TW122", "gemini", "conversation begins with an answer", "begin it with a user turn"),
    ("TW123", "anthropic", "result after other content", "put the results first in the user turn"),
    ("TW124", "anthropic", "turn with calls does not begin with its thinking", "send the thinking back first, or turn thinking off"),
    ("TW125", "anthropic", "too many cache breakpoints", "keep at most four"),
    ("TW126", _CHAT_AND_RESPONSES, "media rejected by the model", "send it in a form that the model accepts"),
    ("TW127", "gemini", "call without its thought signature", "send the signature back in the same part"),
    ("TW128", "gemini", "calls at the wrong position", "put calls after a user turn or after results"),
    ("TW129", "openai_responses", "reasoning item without the item that follows it", "send both items back unchanged, or neither"),
    ("TW130", "all", "call id rejected", "give the call an id that the provider accepts, and use it for the result"),
    ("TW131", "openai_responses", "item id rejected", "send the id that the provider gave, or none"),
    ("TW132", "gemini", "combination of tools rejected by the model", "use them in separate requests, or a newer model"),
    ("TW133", "bedrock", "tool not available at this vendor", "remove the tool"),
    ("TW134", "anthropic openai_chat", "more output tokens than the model can write", "lower the limit, or leave it out"),
    ("TW135", "mistral", "role at the wrong position", "put an assistant message between results and a user message"),
)  # fmt: skip
BODY_RULES: dict[str, RuleText] = {}
"""The rules of this package by id."""
for _id, _providers, _title, _fix in _ROWS:
    declare(_id, "error", _providers, _title, _fix)
    BODY_RULES[_id] = RuleText(_title, _fix)

TOOL_RULES = {
    "TW001": RuleText("duplicate tool name", "rename one of the tools"),
    "TW002": RuleText("tool name rejected", "use letters, digits, _ and -, at most 64 characters"),
    "TW003": RuleText("tool name rejected", "use letters, digits, _ and -, at most 128 characters"),
    "TW004": RuleText("tool name rejected", "begin with a letter or _; use letters, digits and _ . : -, at most 128"),
    "TW010": RuleText("too many tools for one request", "send fewer tools"),
    "TW012": RuleText("too many strict tools or options for one request", "make some of the tools non-strict"),
    "TW020": RuleText("root type is not object", 'set "type": "object"'),
    "TW021": RuleText("combinator at the root", "move the union into a property"),
    "TW022": RuleText("property name rejected", "use letters, digits and _ . -, at most 64 characters"),
    "TW023": RuleText("schema rejected by Gemini's `parameters`", "lower the schema, or use `parametersJsonSchema`"),
    "TW029": RuleText("keyword beside $ref", "move the keyword into the definition"),
}
"""Rules about tools that a body can violate too. `toolwire audit` reports them for the tools themselves."""


# Constraints of providers: a rule, the provider that documents it, the check, and the source of the statement.


class CheckedBody(NamedTuple):
    """A request body, with the provider and the model that it is meant for."""

    body: Object
    provider: str
    wire: str
    model: ModelName
    version: str | None = None
    problems: tuple[ShapeProblem, ...] = ()
    """Differences from the shapes of the wire, for a provider that checks them."""


BodyCheck: TypeAlias = Callable[[CheckedBody], Iterable[Hit]]


class Constraint(NamedTuple):
    """A check of one rule for the bodies of one wire.

    `vendors` are the providers that it applies to; it is empty if it applies to every provider of the wire.
    """

    rule: str
    wire: str
    check: BodyCheck
    source: str
    error: str = ""
    vendors: tuple[str, ...] = ()


class Violation(Value, frozen=True):
    """A constraint that a body violates. `error` is the provider's own message, where it is known."""

    rule: str
    provider: str
    path: str
    message: str
    fix: str
    source: str
    error: str = ""


CONSTRAINTS: dict[str, list[Constraint]] = {}
"""The constraints by wire."""


def constraint(
    rule_id: str, wire: str, source: str, *, error: str = "", vendors: str = ""
) -> Callable[[Callable[[CheckedBody], Iterator[Hit]]], Callable[[CheckedBody], Iterator[Hit]]]:
    """Return a decorator that registers a check. `source` names the document and its date."""

    def register(check: Callable[[CheckedBody], Iterator[Hit]]) -> Callable[[CheckedBody], Iterator[Hit]]:
        for name in wire.split():
            row = Constraint(rule_id, name, check, source, error, tuple(vendors.split()))
            CONSTRAINTS.setdefault(name, []).append(row)
        return check

    return register
