"""Names of the tools of several servers for the model: accepted by every provider, and unique.

A name is kept if possible. If two servers use the same name, both tools get their server's name as a prefix, so that
the result does not depend on the order of the servers. Characters that a provider may reject are replaced, and a hash
of the original name is appended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from ...bridge.conversation.names import short_hash

__all__ = ["assign_names", "is_legal", "make_legal"]

is_legal = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}").fullmatch
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")


def make_legal(name: str) -> str:
    """Return the name if every provider accepts it, otherwise a cleaned form with a hash.

    >>> make_legal("get_weather"), make_legal("files.read")
    ('get_weather', 'files_read_pbmm')
    """
    if is_legal(name):
        return name
    clean = _ILLEGAL.sub("_", name)
    clean = clean if re.match(r"[A-Za-z_]", clean) else f"_{clean}"
    return f"{clean[:59]}_{short_hash(name, 4)}"


def assign_names(tools: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
    """Map (server, tool name of the server) to the name for the model."""
    pairs = [(server, name) for server, names in tools.items() for name in names]
    shared = Counter(make_legal(name) for _, name in pairs)
    candidates = {
        (server, name): make_legal(name) if shared[make_legal(name)] == 1 else make_legal(f"{server}_{name}")
        for server, name in pairs
    }
    clashes = Counter(candidates.values())
    assigned: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for (server, name), candidate in candidates.items():
        while candidate in taken or clashes[candidate] > 1:  # a prefixed name, and another server's tool of that name
            candidate = make_legal(f"{candidate[:50]}.{short_hash(f'{server}/{name}/{candidate}', 6)}")
        taken.add(candidate)
        assigned[server, name] = candidate
    return assigned
