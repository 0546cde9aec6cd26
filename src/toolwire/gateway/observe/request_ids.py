"""The ids of requests, in the log and in the header `x-request-id` of every answer."""

from __future__ import annotations

from itertools import count
from secrets import token_hex

_PROCESS = token_hex(8)
_request_numbers = count()


def choose_request_id(given: str) -> str:
    """Return the client's id of a request if it is plain, or else a new one, which begins with the process's own part."""
    return given if given and _is_plain(given) else f"{_PROCESS}{next(_request_numbers):08x}"


def _is_plain(client_request_id: str) -> bool:
    """Check whether a client's request id is short and plain, so that it can be used."""
    return (
        len(client_request_id) <= 64
        and client_request_id.isascii()
        and client_request_id.replace("-", "").replace("_", "").isalnum()
    )
