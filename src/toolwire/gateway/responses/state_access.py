"""The Responses state as one request uses it: of one owner, within the memory of all requests, large work in threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...asgi.offload import ClientOffload
from ..shared.document_limits import admit_document
from ..shared.memory_bound import MemoryReservation, parsed_size
from ..shared.response_store import ResponseStore
from .records import ConversationEntry, ResponseEntry, ResponseStateError, UpstreamPin, decode_entry

__all__ = ["StateAccess"]

_BATCH = 16  # entries that are loaded at once if their sizes are not known before


class StateAccess:
    """Loads the entries of `owner`. They count as memory of the request, like its body."""

    __slots__ = ("_max_bytes", "_max_values", "_memory", "loaded_bytes", "offload", "owner", "store")

    def __init__(
        self,
        store: ResponseStore,
        owner: str,
        memory: MemoryReservation,
        offload: ClientOffload,
        *,
        max_bytes: int,
        max_values: int,
    ) -> None:
        """Create the access. `max_bytes` limits all entries together, `max_values` the JSON values of one."""
        self.store = store
        self.owner = owner
        self.offload = offload
        self._memory = memory
        self._max_bytes = max_bytes
        self._max_values = max_values
        self.loaded_bytes = 0  # of all entries that this request has loaded

    async def load(
        self, entry_ids: Sequence[str], renew: float | None = None, *, namespace: str | None = None
    ) -> dict[str, ResponseEntry | UpstreamPin | ConversationEntry]:
        """Load and decode entries; `renew` sets the seconds until they expire."""
        loaded = await self.load_bytes(entry_ids, renew, namespace=namespace)
        return await self.offload.run(sum(map(len, loaded.values())), _decode_entries, loaded)

    async def load_bytes(
        self, entry_ids: Sequence[str], renew: float | None = None, *, namespace: str | None = None
    ) -> dict[str, bytes]:
        loaded = await self.store.load(self.owner if namespace is None else namespace, entry_ids, renew)
        for data in loaded.values():
            self._memory.add(len(data))
            self.loaded_bytes += len(data)
            await admit_document(data, self._max_values, self.offload, self._memory)
        return loaded

    async def load_unmeasured(
        self, entry_ids: Sequence[str], renew: float
    ) -> tuple[dict[str, ResponseEntry | UpstreamPin | ConversationEntry], int]:
        """Load entries of unknown size, in batches, and return them with their size in bytes.

        ResponseStateError if they are too large together.
        """
        entries: dict[str, ResponseEntry | UpstreamPin | ConversationEntry] = {}
        size = 0
        for start in range(0, len(entry_ids), _BATCH):
            loaded = await self.load_bytes(entry_ids[start : start + _BATCH], renew)
            size += sum(map(len, loaded.values()))
            self.check_bytes(size, "/input")
            entries.update(await self.offload.run(size, _decode_entries, loaded))
        return entries, size

    def admit_items(self, size: int, values: int, copies: int) -> None:
        """Reserve the memory for stored items that are repeated in a request, before it is built.

        `size` and `values` are those of all repetitions; `copies` is the result of `text_copies`.
        """
        self.check_bytes(size, "/input")
        if values > self._max_values:
            message = (
                f"the items that the input refers to have {values:,} JSON values; the limit is {self._max_values:,}"
            )
            raise ResponseStateError(message, pointer="/input", hint="refer to fewer items", status=413)
        self._memory.add(size + parsed_size(size, values, copies))

    def check_bytes(self, size: int, pointer: str) -> None:
        """Refuse a stored conversation that is larger than a request may be."""
        if size > self._max_bytes:
            message = f"the stored conversation has {size} bytes; the limit is {self._max_bytes}"
            hint = "start again with a shorter conversation in `input`"
            raise ResponseStateError(message, pointer=pointer, hint=hint)


def _decode_entries(loaded: Mapping[str, bytes]) -> dict[str, ResponseEntry | UpstreamPin | ConversationEntry]:
    """Decode entries; those that another version has written are left out."""
    decoded = {entry_id: decode_entry(data) for entry_id, data in loaded.items()}
    return {entry_id: entry for entry_id, entry in decoded.items() if entry is not None}
