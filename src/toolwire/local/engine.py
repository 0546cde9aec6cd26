"""Run llama.cpp in this process through xllamacpp, which only this module imports. All functions block.

llama.cpp always starts its HTTP server. It listens on a socket in a temporary folder that is deleted once the engine is
ready, and requires a random key that is not stored. The only access is `chat`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xllamacpp import Server

__all__ = ["Engine", "default_threads"]

_PROMPT_BATCH = 64  # prompt tokens between two checks for cancellation


class Engine:
    """A loaded model. Each of the `slots` handles one request at a time, with `context` tokens."""

    def __init__(self, weights: Path, name: str, *, threads: int, slots: int, context: int) -> None:
        from xllamacpp import CommonParams, Server

        params = CommonParams()
        params.model.path = str(weights)
        params.model_alias = {name}
        params.n_parallel = slots
        params.kv_unified = False
        params.n_ctx = slots * context
        params.n_batch = params.n_ubatch = _PROMPT_BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = 0  # otherwise finished conversations stay in memory, up to gigabytes
        params.n_threads_http = 1
        params.verbosity = -1
        params.warmup = False
        params.ui = False
        params.api_keys = [token_hex(16)]
        with TemporaryDirectory() as folder:
            if os.name == "posix":
                params.hostnames = [f"{folder}/engine.sock"]
            self._server: Server | None = Server(params)

    def chat(self, body: bytes, on_chunk: Callable[[bytes], Any]) -> None:
        """Generate a response. `on_chunk` gets each chunk as JSON and stops the generation by returning True.

        Raises ValueError or RuntimeError for a request that llama.cpp cannot parse.
        """
        assert self._server is not None, "closed"
        self._server.handle_chat_completions(body, on_chunk)

    def close(self) -> None:
        """Free the memory. No call of `chat` may be running."""
        self._server = None


def default_threads() -> int:
    """Return the number of cores, or 1 on a busy machine, because threads of llama.cpp spin while they wait."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > cores / 2
    return 1 if busy or os.environ.get("CI") else cores
