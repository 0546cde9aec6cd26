"""Capabilities of a model on a wire: rows of data with their source, and their lookup.

    capabilities_for("anthropic", "claude-opus-5-5").forced_choice            # False
    capabilities_for("ollama", "my-claude-clone") == ModelCapabilities()      # unknown: nothing is changed
    explain_capabilities("gemini", "gemini-2.5-pro").rows["thinking_off"]     # the row, with its source and date

A row applies only where the wire, its version, the vendor and the beginning of the model's name match. Several rows may
match; for each field the first one that sets it decides. A field that no row sets is unknown, and an unknown field
never drops or changes anything. The built-in rows are in `model_rows`; anything that needs code does not belong there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from ..ir.errors import ConfigError
from ..ir.pointer import JSON
from ..ir.value import Value
from .codec import WireCodec
from .protocol import Capabilities, Limits, Wire

__all__ = [
    "UNKNOWN_MODEL",
    "CapabilityMatch",
    "CapabilityRow",
    "ModelCapabilities",
    "capabilities_for",
    "explain_capabilities",
    "fit_codec",
    "normalise_model",
    "overlay",
    "parse_capability_rows",
]

_Count = Annotated[int, Meta(ge=0)]
_Length = Annotated[int, Meta(ge=1)]


class ModelCapabilities(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Features that a model accepts or refuses on one wire. None: unknown, so nothing is changed."""

    system: Literal["start", "after_user", "anywhere"] | None = None
    """Positions of system messages: at the start; also directly after a user turn, as the last message or before an
    assistant turn; or anywhere."""
    forced_choice: bool | None = None  # a tool choice that forces a call
    thinking: bool | None = None  # False: the model never reasons and refuses reasoning settings
    thinking_off: bool | None = None  # reasoning can be turned off
    thinking_off_type: str | None = None  # the wire's thinking type that is nearest to off
    thinking_off_effort: str | None = None  # the highest effort that is accepted while thinking is off
    adaptive: bool | None = None  # thinking without a fixed amount
    budgets: bool | None = None  # a thinking budget in tokens
    min_budget: _Count | None = None
    max_budget: _Count | None = None
    thinking_before_calls: bool | None = None  # with a budget, the last turn with calls must begin with its thinking
    efforts: tuple[str, ...] | None = None  # effort levels, ascending; () if there is no such parameter
    default_effort: str | None = None  # the level of a request without one
    effort_with_tools: bool | None = None  # False: tools are accepted only without reasoning
    refused_params: tuple[str, ...] | None = None  # names of `Params`
    refused_when_thinking: tuple[str, ...] | None = None  # the same, while the model reasons
    exclusive_params: tuple[str, ...] | None = None  # at most one of these; the first is kept
    min_output: _Count | None = None  # minimum of max_tokens
    media: tuple[str, ...] | None = None  # kinds of media in messages
    result_media: tuple[str, ...] | None = None  # kinds of media in tool results
    prefill: bool | None = None  # continues an assistant message at the end of a request
    signed_calls: bool | None = None  # requires its signature back with its calls
    name: str | None = None  # a regular expression for tool names
    name_length: _Length | None = None
    id: str | None = None  # a regular expression for call ids
    id_length: _Length | None = None
    tools: _Count | None = None  # maximum number of tools


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
            and any(fnmatchcase(name, pattern) for pattern in self.models for name in names)
        )


class CapabilityMatch(NamedTuple):
    """The capabilities of a model, and for each known field the row that decided it."""

    capabilities: ModelCapabilities
    rows: Mapping[str, CapabilityRow]


_PATH = re.compile(r"(?:ft:|.*/)")  # `models/`, `anthropic/`, a resource path; a fine-tuned model
_CLOUD_PREFIX = re.compile(r"(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|meta|mistral|amazon)\.")
_SUFFIX = re.compile(r"[@:].*|-v\d{1,2}(?::.*)?\Z")
_CLAUDE_VERSION = re.compile(r"(?<=\d)\.(?=\d)")


def normalise_model(model: str) -> str:
    """Return the name of a model without the vendor's path, the cloud's prefix and the suffix of a release.

    `us.anthropic.claude-opus-4-6-v1:0`, `anthropic/claude-opus-4.6` and `claude-opus-4-6@20260101` are one model.
    """
    name = _PATH.sub("", model.strip().lower(), count=1) if "/" in model or model.startswith("ft:") else model.lower()
    name = _SUFFIX.sub("", _CLOUD_PREFIX.sub("", name, count=1), count=1)
    return _CLAUDE_VERSION.sub("-", name) if name.startswith("claude") else name


def capabilities_for(
    wire: Wire | str,
    model: str,
    version: str | None = None,
    *,
    vendor: str | None = None,
    rows: Iterable[CapabilityRow] = (),
) -> ModelCapabilities:
    """Return what is known about a model on a wire.

    `version` defaults to the wire's newest one and `vendor` to the provider of the wire. `rows` come before the
    built-in ones.
    """
    return explain_capabilities(wire, model, version, vendor=vendor, rows=rows).capabilities


def explain_capabilities(
    wire: Wire | str,
    model: str,
    version: str | None = None,
    *,
    vendor: str | None = None,
    rows: Iterable[CapabilityRow] = (),
) -> CapabilityMatch:
    """Return what is known about a model, with the row that each fact comes from."""
    if isinstance(wire, str):
        from . import get

        wire = get(f"{wire}@{version}" if version else wire)
    return _match(wire.name, version or wire.version, vendor or wire.provider, model, tuple(rows))


@lru_cache(512)
def _match(wire: str, version: str | None, vendor: str, model: str, rows: tuple[CapabilityRow, ...]) -> CapabilityMatch:
    from .model_rows import ROWS

    names = (model.lower(), normalise_model(model))
    known: dict[str, object] = {}
    decided: dict[str, CapabilityRow] = {}
    for row in (*rows, *ROWS) if model else ():
        if row.applies(wire, version, vendor, names):
            for field, value in asdict(row.capabilities).items():
                if value is not None and field not in known:
                    known[field], decided[field] = value, row
    return CapabilityMatch(ModelCapabilities(**known) if known else UNKNOWN_MODEL, decided)  # type: ignore[arg-type]


@lru_cache(512)
def overlay(capabilities: ModelCapabilities, base: ModelCapabilities) -> ModelCapabilities:
    """Return `base` with the known fields of `capabilities`."""
    if capabilities is UNKNOWN_MODEL:
        return base
    known = {field: value for field, value in asdict(capabilities).items() if value is not None}
    return replace(base, **known) if known else base


@lru_cache(512)
def fit_codec(wire: WireCodec, model: ModelCapabilities) -> WireCodec:
    """Return the codec with the limits and capabilities of one model."""
    return replace(wire, limits=_fit_limits(wire.limits, model), capabilities=_fit_features(wire.capabilities, model))


def _fit_limits(limits: Limits, model: ModelCapabilities) -> Limits:
    changes = {
        field: value
        for field in ("name", "name_length", "id", "id_length", "tools", "min_output", "min_budget")
        if (value := getattr(model, field)) is not None and (field != "min_budget" or limits.min_budget)
    }
    return replace(limits, **changes) if changes else limits


def _fit_features(can: Capabilities, model: ModelCapabilities) -> Capabilities:
    """Restrict the features of a wire to those of the model; a row cannot add what the wire does not have."""
    changes: dict[str, object] = {}
    if model.forced_choice is False:
        changes["choices"] = can.choices - {"required", "tool"}
    if model.system is not None:
        changes["system_anywhere"] = model.system == "anywhere"
        changes["system_after_user"] = model.system == "after_user"
    if model.efforts is not None:
        changes["efforts"] = tuple(effort for effort in model.efforts if effort != "none")
    for field in ("media", "result_media"):
        if (kinds := getattr(model, field)) is not None:
            changes[field] = getattr(can, field) & frozenset(kinds)
    for field in ("adaptive", "budgets", "prefill"):
        if getattr(model, field) is False:
            changes[field] = False
    if model.signed_calls is False:
        changes["unsigned_call"] = None
    return replace(can, **changes)


def parse_capability_rows(document: JSON) -> tuple[CapabilityRow, ...]:
    """Read rows from a JSON document: an array of objects. ConfigError names the row and the field."""
    if type(document) is not list:
        raise ConfigError("expected an array of capability rows", hint='write [{"models": ["NAME*"], …}]')
    return tuple([_parse_row(entry, f"row {number}") for number, entry in enumerate(document)])


def _parse_row(entry: JSON, location: str) -> CapabilityRow:
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
    """Check the rules that types cannot express: regular expressions, names of parameters, kinds of media."""
    from ..ir.request import Params

    for field in ("name", "id"):
        pattern = getattr(capabilities, field)
        try:
            legal = pattern is None or re.compile(pattern)
        except re.error as error:
            detail = f"{location}.{field}: {pattern!r} is not a valid regular expression: {error}"
            raise ConfigError(detail, hint="use the syntax of Python's re") from None
        if field == "name" and isinstance(legal, re.Pattern) and not legal.fullmatch("_aZ0"):
            hint = "admit letters, digits and _, of which other names are made"
            raise ConfigError(f"{location}.name: {pattern!r} does not match '_aZ0'", hint=hint)
    for field, known in (
        ("refused_params", Params.__struct_fields__),
        ("refused_when_thinking", Params.__struct_fields__),
        ("exclusive_params", Params.__struct_fields__),
        ("media", _MEDIA),
        ("result_media", _MEDIA),
    ):
        for value in getattr(capabilities, field) or ():
            if value not in known:
                raise ConfigError(f"unknown value {value!r} in {location}.{field}", hint=f"use {', '.join(known)}")


_MEDIA = ("image", "audio", "video", "file")
