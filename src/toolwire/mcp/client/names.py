"""Names of the tools of several servers for the model: accepted by every provider, and unique.

A name is kept if possible. If two servers use the same name, both tools get their server's name as a prefix, so that
the result does not depend on the order of the servers. Characters that a provider may reject are replaced, and a hash
of the original name is appended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from ...bridge.short_hash import short_hash

__all__ = ["LEGAL", "legal", "names_of"]

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}").fullmatch
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")


def legal(name: str) -> str:
    """Return the name if every provider accepts it, otherwise a cleaned form with a hash.

    >>> legal("get_weather"), legal("files.read")
    ('get_weather', 'files_read_pbmm')
    """
    if LEGAL(name):
        return name
    clean = _ILLEGAL.sub("_", name)
    clean = clean if re.match(r"[A-Za-z_]", clean) else f"_{clean}"
    return f"{clean[:59]}_{short_hash(name, 4)}"


def names_of(tools: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
    """Map (server, tool name of the server) to the name for the model."""
    every = [(server, name) for server, names in tools.items() for name in names]
    shared = Counter(legal(name) for _, name in every)
    out: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for server, name in every:
        found = legal(name) if shared[legal(name)] == 1 else legal(f"{server}_{name}")
        while found in taken:
            found = legal(f"{found[:50]}.{short_hash(f'{server}/{name}/{found}', 6)}")
        taken.add(found)
        out[server, name] = found
    return out
