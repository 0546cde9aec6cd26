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
from ...ir.pointer import JSON, Object, join
from ..responses.store import ResponseStore

# Providers keep files and jobs for as long as their owner pays: 30 years are the lifetime of no key.
_SECONDS = 30 * 365 * 24 * 3600.0
_is_id = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,255}").fullmatch
# Fields of an answer with the ids of further objects that it has created: the results of batches and of fine-tuning jobs.
_CREATED = ("id", "output_file_id", "error_file_id", "result_files", "file")
_REFERENCES = frozenset(
    {
        "input_file_id",
        "training_file",
        "validation_file",
        "file_id",
        "file_ids",
        "part_ids",
        "vector_store_id",
        "vector_store_ids",
        # Mistral's batches and fine-tuning jobs
        "input_files",
        "training_files",
        "validation_files",
    }
)
"""Fields of a request that refer to objects, at any depth: in parts of messages, files of batches and images."""
_CLIENT_DATA = frozenset({"metadata", "attributes"})  # of a client's own names, which no provider reads as references
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")  # in `requests` of Anthropic; `input` has a model's arguments
_LOADED_AT_ONCE = 1000  # ids; a batch may name 100,000, and the first unknown id ends the search


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

    async def save_new(self, client: str, page: Object, upstream: str) -> None:
        """Save the ids that a client's objects in a list got since the last answer about them, such as results."""
        items = page["data"]
        assert isinstance(items, list)
        ids = dict.fromkeys(object_id for item in items if isinstance(item, dict) for object_id in created_ids(item))
        known = await self.find(client, ids)
        await self.save(client, [object_id for object_id in ids if object_id not in known], upstream)

    async def find(self, client: str, ids: Iterable[str]) -> dict[str, str]:
        """Return the upstreams of the objects that a client owns."""
        known = await self._store.load(_owner(client), [*ids], _SECONDS)
        return {object_id: msgspec.json.decode(data, type=str) for object_id, data in known.items()}

    async def require(self, client: str, ids: Mapping[str, str]) -> str:
        """Return the only upstream of objects, given with the pointers to their ids.

        Raise UnknownObject for an id that the client does not own, and ProtocolError if they are at several upstreams.
        """
        named, known = [*ids], set[str]()
        for start in range(0, len(named), _LOADED_AT_ONCE):
            some = named[start : start + _LOADED_AT_ONCE]
            found = await self.find(client, some)
            missing = next((object_id for object_id in some if object_id not in found), None)
            if missing is not None:
                raise UnknownObject(f"there is no object {missing[:100]!r}", pointer=ids[missing])
            known.update(found.values())
        upstreams = sorted(known)
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
    """Return the ids of objects in a request, at any depth, each with a pointer to it."""
    found: dict[str, str] = {}
    _collect_references(document, (), found, is_reference=False)
    return found


def _collect_references(value: JSON, path: tuple[str | int, ...], found: dict[str, str], *, is_reference: bool) -> None:
    if isinstance(value, dict):
        is_call = value.get("type") in _CALLS and path[:1] == ("requests",)
        # The source of OpenAI's evals is {"type": "file_id", "id": …}.
        is_source = value.get("type") == "file_id"
        for name, item in value.items():
            if name not in _CLIENT_DATA and not (is_call and name == "input"):
                refers = name in _REFERENCES or (is_source and name == "id")
                _collect_references(item, (*path, name), found, is_reference=refers)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if is_reference or isinstance(item, (dict, list)):
                _collect_references(item, (*path, number), found, is_reference=is_reference)
    elif is_reference and isinstance(value, str):
        found.setdefault(value, join(*path))


def listed_ids(document: Object) -> list[str]:
    """List the ids of the objects in a list. Items without an id are omitted."""
    items: JSON = document.get("data")
    ids = [item.get("id") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [object_id for object_id in ids if isinstance(object_id, str)]


def owned_page(document: Object, known: dict[str, str], upstream: str) -> Object:
    """Return a list with the objects of one client only."""
    items = document.get("data")
    items = items if isinstance(items, list) else []
    kept = [item for item in items if isinstance(item, dict) and known.get(str(item.get("id"))) == upstream]
    ends: Object = {
        name: kept[position]["id"] if kept else None  # the upstream's may be the ids of other clients
        for name, position in (("first_id", 0), ("last_id", -1))
        if name in document
    }
    return {**document, "data": kept, **ends}
