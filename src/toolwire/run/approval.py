"""The approval of a call by a person: the possible replies, and the hash to which an approval is bound."""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias

from ..ir.pointer import Object
from ..ir.value import Value
from .definitions import definition_hash
from .keys import canonical_json
from .toolbox import Entry
from .waiting import Suspend

__all__ = ["ApprovalReply", "Approved", "Denied", "approval_hash"]


class Approved(Value, frozen=True):
    """The call may run. With `arguments`, it runs with these instead, if they pass all gates."""

    arguments: Object | None = None


class Denied(Value, frozen=True):
    """The call must not run. The model reads the reason."""

    reason: str = ""


ApprovalReply: TypeAlias = bool | Approved | Denied | Suspend


def approval_hash(entry: Entry, arguments: Object) -> str:
    """Hash the definition of the tool, its origin and the arguments. An approval is valid for this hash only.

    The origin is the function, the server or the API: another one with the same definition needs its own approval.
    """
    parts = (definition_hash(entry.tool).encode(), entry.origin_id.encode(), canonical_json(arguments))
    return sha256(b"\x00".join(parts)).hexdigest()
