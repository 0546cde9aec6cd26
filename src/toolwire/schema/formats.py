"""Formats that can be said as a pattern, exactly: for dialects that take patterns but do not know the format."""

from __future__ import annotations

__all__ = ["ASSERTED", "format_pattern"]

ASSERTED = frozenset(
    "date-time date time duration email idn-email hostname idn-hostname ipv4 ipv6 uri uri-reference iri iri-reference "
    "uuid uri-template json-pointer relative-json-pointer regex".split()
)
"""What the validator checks. Any other format is a remark."""

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


def format_pattern(name: str) -> str | None:
    return _PATTERNS.get(name)
