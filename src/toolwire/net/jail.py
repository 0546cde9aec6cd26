"""A path that stays where it may, links included."""

from __future__ import annotations

import os
from pathlib import Path

from ..run.gates import Pending
from ..run.policy import Check, Deny, path_jail

__all__ = ["disk_jail"]


def disk_jail(argument: str, root: str) -> Check:
    """`path_jail`, and what the path leads to on this disk, through links and all, is below `root`, too.

    It is looked at when the call is judged: who can change links at the same time needs more than this to be kept out.
    """
    as_written, jail = path_jail(argument, root), os.path.realpath(root)

    def check(pending: Pending) -> Deny | None:
        refused = as_written(pending)
        if refused is not None:
            return refused if isinstance(refused, Deny) else None
        value = pending.arguments.get(argument, [])
        for path in value if isinstance(value, list) else [value]:
            leads_to = os.path.realpath(Path(jail, path))
            if os.path.commonpath((jail, leads_to)) != jail:
                return Deny(f"{argument} must stay below {root}; {path!r} leads elsewhere")
        return None

    return check
