"""Formats: those that are checked in every draft, and those that a pattern expresses exactly.

A pattern replaces a format in dialects that accept patterns but not the format. The validator checks the same
formats in all drafts: generators write `uuid` into schemas of draft 7, which does not define it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ..ir.pointer import JSON
from .identifiers import old_draft_number

__all__ = ["ASSERTED", "INCOMPLETE", "format_checks", "format_pattern"]

ASSERTED = frozenset(
    "date-time date time duration email idn-email hostname idn-hostname ipv4 ipv6 uri uri-reference iri iri-reference "
    "uuid uri-template json-pointer relative-json-pointer regex".split()
)
"""The formats that the validator checks. Any other format is an annotation."""
_DEFINED_LATER = {
    4: "uri-reference uri-template json-pointer iri iri-reference idn-hostname relative-json-pointer duration uuid",
    6: "iri iri-reference idn-hostname relative-json-pointer duration uuid",
    7: "duration uuid",
}
"""Formats that were defined after a draft; the engine itself checks those that the draft of the schema defines."""

_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ESCAPE = r"%[0-9A-Fa-f]{2}"
_NAME = rf"(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_ESCAPE})"
_PATH = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_ESCAPE})"
_TAIL = rf"(?:{_PATH}|[/?])*"
_HOST = rf"//(?:(?:{_NAME}|:)*@)?{_NAME}*(?::[0-9]*)?(?:/{_PATH}*)*"

_PATTERNS = {
    "date": rf"^{_DATE}$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "ipv4": rf"^{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}$",
    "uri": (
        rf"^[A-Za-z][A-Za-z0-9+.-]*:(?:{_HOST}|/(?:{_PATH}+(?:/{_PATH}*)*)?|{_PATH}+(?:/{_PATH}*)*)?"
        rf"(?:\?{_TAIL})?(?:#{_TAIL})?$"
    ),
}
INCOMPLETE = {"uri": "hosts in brackets (IPv6)"}
"""Values of a format that its pattern does not match: an exact pattern for IPv6 would be four times as long."""


def format_pattern(name: str) -> str | None:
    return _PATTERNS.get(name)


def format_checks(schema: JSON) -> dict[str, Callable[[str], bool]]:
    """Return checks for the formats that the draft of the schema does not define."""
    draft = old_draft_number(schema)
    return {} if draft is None else {name: _make_check(name) for name in _DEFINED_LATER.get(draft, "").split()}


@lru_cache
def _make_check(name: str) -> Callable[[str], bool]:
    import jsonschema_rs

    return jsonschema_rs.validator_for({"format": name}, validate_formats=True, offline=True).is_valid
