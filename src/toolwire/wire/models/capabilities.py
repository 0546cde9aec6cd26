"""Rows of facts about models: their types, and rows of a user as JSON.

A field that no row sets is unknown, and an unknown field never drops or changes anything.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ...ir.errors import ConfigError
from ...ir.hosted import HOSTED_KINDS
from ...ir.pointer import JSON
from ...ir.request import Params
from ...ir.value import Value

_NonNegative = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]


class ModelCapabilities(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Features that a model accepts or refuses on one wire. None: unknown, so nothing is changed."""

    system: Literal["start", "after_user", "anywhere"] | None = None
    """Positions of system messages: at the start; also directly after a user turn, as the last message or before an
    assistant turn; or anywhere."""
    forced_choice: bool | None = None  # a tool choice that forces a call
    forced_choice_when_thinking: bool | None = None  # the same, while the model reasons
    choice_by_schema: Literal["declared", "stated"] | None = None
    """The server ignores a forced choice, but enforces a schema of the answer: a forced call is sent as one. `stated`:
    the chat template of the model also drops tools, so they are part of the instructions."""
    thinking: bool | None = None  # False: the model never reasons and refuses reasoning settings
    thinking_off: bool | None = None  # reasoning can be turned off
    thinking_off_type: str | None = None
    """The wire's thinking type that is nearest to off; on Chat also `enable_thinking`, a switch."""
    thinking_off_effort: str | None = None  # the highest effort that is accepted while thinking is off
    adaptive: bool | None = None  # thinking without a fixed amount
    budgets: bool | None = None  # a thinking budget in tokens
    min_budget: _NonNegative | None = None
    max_budget: _NonNegative | None = None
    thinking_before_calls: bool | None = None  # with a budget, the last turn with calls must begin with its thinking
    efforts: tuple[str, ...] | None = None  # effort levels, ascending; () if there is no such parameter
    default_effort: str | None = None  # the level of a request without one
    effort_with_tools: bool | None = None  # False: tools are accepted only without reasoning
    refused_params: tuple[str, ...] | None = None  # names of `Params`
    refused_when_thinking: tuple[str, ...] | None = None  # the same, while the model reasons
    exclusive_params: tuple[str, ...] | None = None  # at most one of these; the first is kept
    reasoning_replay: Literal["required", "accepted", "refused"] | None = None
    """The reasoning of earlier tool turns must, may or must not be returned."""
    parallel_calls: bool | None = None  # several calls in one answer
    window: _Positive | None = None  # tokens of prompt and answer together, at most; a server may be set up with fewer
    min_output: _NonNegative | None = None  # minimum of max_tokens
    max_output: _Positive | None = None  # maximum of max_tokens
    cache_marks: bool | None = None  # prompt-cache marks
    cache_minimum: _NonNegative | None = None  # tokens of the smallest prefix that a mark caches
    media: tuple[str, ...] | None = None  # kinds of media in messages
    result_media: tuple[str, ...] | None = None  # kinds of media in tool results
    strict: bool | None = None  # strict tools
    output_schemas: bool | None = None  # answers that match a JSON Schema
    output_with_tools: bool | None = None  # a required form of the answer in a request with tools
    json_mode: bool | None = None  # answers that are JSON, without a schema
    prefill: bool | None = None  # continues an assistant message at the end of a request
    signed_calls: bool | None = None  # requires its signature back with its calls
    name: str | None = None  # a regular expression for tool names
    name_length: _Positive | None = None
    id: str | None = None  # a regular expression for call ids
    id_length: _Positive | None = None
    tools: _NonNegative | None = None  # maximum number of tools
    hosted: tuple[str, ...] | None = None
    """The hosted tools that its provider runs, such as `web_search`; on Chat none is known without a row."""
    hosted_with_functions: bool | None = None  # hosted tools beside functions


UNKNOWN_MODEL = ModelCapabilities()
"""The capabilities of a model without a row: nothing is known, so nothing is dropped or changed."""


class CapabilityRow(Value, frozen=True, forbid_unknown_fields=True):
    """Facts about the models whose names match one of the patterns `models`, on these wires, versions and vendors.

    An empty tuple of `wires`, `versions` or `vendors` matches all. Patterns match the whole normalised name, so they
    cannot match in its middle unless they begin with `*`.
    """

    models: tuple[str, ...]
    capabilities: ModelCapabilities
    source: str
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    wires: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    def applies(self, wire: str, version: str | None, vendor: str, names: tuple[str, str]) -> bool:
        """Return whether the row applies. `names` are the model's name as given and normalised."""
        return (
            (not self.wires or wire in self.wires)
            and (not self.versions or version in self.versions)
            and (not self.vendors or any(fnmatchcase(vendor, pattern) for pattern in self.vendors))
            and self.matches(names)
        )

    def matches(self, names: tuple[str, str]) -> bool:
        """Return whether a pattern matches one of a model's names, on any wire and at any vendor."""
        return any(fnmatchcase(name, pattern) for pattern in self.models for name in names)

    @property
    def is_about_every_model(self) -> bool:
        """True if a pattern matches every name, such as `*`: the row states rules of its wire or vendor."""
        return not all(pattern.strip("?*") for pattern in self.models)


def parse_capability_rows(document: JSON) -> tuple[CapabilityRow, ...]:
    """Read rows from a JSON document: an array of objects. Raise ConfigError with the row and the field."""
    if type(document) is not list:
        raise ConfigError("expected an array of capability rows", hint='write [{"models": ["NAME*"], …}]')
    return tuple([_parse_row(entry, f"row {number}") for number, entry in enumerate(document)])


def _parse_row(entry: JSON, location: str) -> CapabilityRow:
    """Read one row; raise ConfigError with `location` if a field is unknown or invalid."""
    if type(entry) is dict:
        refuse_unknown_field(entry, CapabilityRow, location)
        if type(entry.get("capabilities")) is dict:
            refuse_unknown_field(entry["capabilities"], ModelCapabilities, f"{location}.capabilities")
    try:
        row = msgspec.convert(entry, CapabilityRow)
    except msgspec.ValidationError as error:
        detail = re.sub(r" - at `\$\.?(.*)`", r" in \1", str(error))
        hint = "a row has models, capabilities, source and date"
        raise ConfigError(f"{location}: {detail}", hint=hint) from None
    check_capabilities(row.capabilities, location)
    return row


def refuse_unknown_field(entry: dict[str, JSON], kind: type[Value], location: str) -> None:
    """Raise ConfigError, with the closest known name, if `entry` has a field that `kind` has not."""
    known = kind.__struct_fields__
    for name in entry:
        if name not in known:
            close_matches = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {close_matches[0]!r}?" if close_matches else f"known fields: {', '.join(known)}"
            raise ConfigError(f"unknown field {name!r} in {location}", hint=hint)


def check_capabilities(capabilities: ModelCapabilities, location: str) -> None:
    """Check the rules that types cannot express: regular expressions, names of parameters, kinds of media.

    Raise ConfigError with `location` if a rule is broken.
    """
    for field in ("name", "id"):
        pattern = getattr(capabilities, field)
        try:
            compiled = pattern is None or re.compile(pattern)
        except re.error as error:
            detail = f"{location}.{field}: {pattern!r} is not a valid regular expression: {error}"
            raise ConfigError(detail, hint="use the syntax of Python's re") from None
        if field == "name" and isinstance(compiled, re.Pattern) and not compiled.fullmatch("_aZ0"):
            hint = "admit letters, digits and _, of which other names are made"
            raise ConfigError(f"{location}.name: {pattern!r} does not match '_aZ0'", hint=hint)
    for field, known in NAMED_VALUES:
        for value in getattr(capabilities, field) or ():
            if value not in known:
                raise ConfigError(f"unknown value {value!r} in {location}.{field}", hint=f"use {', '.join(known)}")


_MEDIA = ("image", "audio", "video", "file")
NAMED_VALUES = (
    ("refused_params", Params.__struct_fields__),
    ("refused_when_thinking", Params.__struct_fields__),
    ("exclusive_params", Params.__struct_fields__),
    ("media", _MEDIA),
    ("result_media", _MEDIA),
    ("hosted", HOSTED_KINDS),
)
"""The fields that are lists of names, with the known names."""
