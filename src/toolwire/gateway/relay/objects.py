"""Objects that clients create at upstreams: files, batches, jobs, uploads. Their ids belong to one key and one upstream.

All clients of a gateway share the upstream's key, so the upstream cannot distinguish them. The store of `[responses]` has an
entry for each id that an answer to a client contained. Without the entry, an id is unknown: 404, also if another client
owns it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ..responses.store import ResponseStore

# Providers keep files and jobs for as long as their owner pays: 30 years are the lifetime of no key.
_SECONDS = 30 * 365 * 24 * 3600.0
_is_id = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,255}").fullmatch
# Fields of an answer with the ids of further objects that it has created: the results of batches and of fine-tuning jobs.
_CREATED = ("id", "output_file_id", "error_file_id", "result_files", "file")
_REFERENCES = ("input_file_id", "training_file", "validation_file", "file_id", "file_ids", "part_ids")
"""Fields of a request that refer to objects."""


class UnknownObject(ProtocolError):
    """The client owns no object with this id."""

    default_status = 404
    code = "not_found"


class ObjectOwners:
    """The upstream of each object, by the client that owns it."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    async def save(self, client: str, ids: Iterable[str], upstream: str) -> None:
        """Note the owner of objects. Raise StoreError if the store is unavailable."""
        data = msgspec.json.encode(upstream)
        for object_id in ids:
            await self._store.save(_owner(client), object_id, data, _SECONDS)

    async def find(self, client: str, ids: Iterable[str]) -> dict[str, str]:
        """Return the upstreams of the objects that a client owns."""
        known = await self._store.load(_owner(client), [*ids], _SECONDS)
        return {object_id: msgspec.json.decode(data, type=str) for object_id, data in known.items()}

    async def require(self, client: str, ids: Mapping[str, str]) -> str:
        """Return the only upstream of objects, given with the pointers to their ids.

        Raise UnknownObject for an id that the client does not own, and ProtocolError if they are at several upstreams.
        """
        found = await self.find(client, ids)
        for object_id, pointer in ids.items():
            if object_id not in found:
                raise UnknownObject(f"there is no object {object_id[:100]!r}", pointer=pointer)
        upstreams = sorted(set(found.values()))
        if len(upstreams) > 1:
            message = f"the objects are at different upstreams: {', '.join(upstreams)}"
            raise ProtocolError(message, hint="create all of them at the same upstream", status=400)
        return upstreams[0]

    async def drop(self, client: str, object_id: str) -> None:
        await self._store.delete(_owner(client), [object_id])


def _owner(client: str) -> str:
    return f"objects of {client}"


def created_ids(document: Object) -> list[str]:
    """List the ids of objects in an answer about an object."""
    found: list[str] = []
    for name in _CREATED:
        value = document.get(name)
        if isinstance(value, dict):
            value = value.get("id")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and _is_id(item) is not None:
                found.append(item)
    return found


def referred_ids(document: Object) -> dict[str, str]:
    """Return the ids of objects in a request, each with its pointer."""
    found: dict[str, str] = {}
    for name in _REFERENCES:
        value = document.get(name)
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(item, str):
                found[item] = f"/{name}/{number}" if isinstance(value, list) else f"/{name}"
    return found


def listed_ids(document: Object) -> list[str]:
    """List the ids of the objects in a list. Items without an id are omitted."""
    items: JSON = document.get("data")
    ids = [item.get("id") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [object_id for object_id in ids if isinstance(object_id, str)]
