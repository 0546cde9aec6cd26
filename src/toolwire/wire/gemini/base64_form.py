"""Convert between the base64 alphabets.

Google accepts both alphabets of base64, with and without padding, and its Python SDK writes the URL-safe one. No other
provider accepts that one, so it is form here: the canonical value uses the standard alphabet, padded.
"""

from __future__ import annotations

from ...ir.pointer import Object

__all__ = ["read_base64", "write_base64"]

_TO_STANDARD = str.maketrans("-_", "+/")
_TO_URL = str.maketrans("+/", "-_")
_URL = ":url_alphabet"
_UNPADDED = ":unpadded"


def read_base64(data: str) -> tuple[str, Object]:
    """Return `data` in the standard alphabet, padded, and its original form.

    >>> read_base64("-_8")
    ('+/8=', {':url_alphabet': True, ':unpadded': True})
    """
    form: Object = {}
    if "-" in data or "_" in data:
        data = data.translate(_TO_STANDARD)
        form[_URL] = True
    if len(data) % 4 > 1:
        data += "=" * (-len(data) % 4)
        form[_UNPADDED] = True
    return data, form


def write_base64(data: str, form: Object) -> str:
    """Return `data` in its original form; the inverse of `read_base64`."""
    if _URL in form:
        data = data.translate(_TO_URL)
    return data.rstrip("=") if _UNPADDED in form else data
