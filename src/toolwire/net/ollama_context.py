"""Choose the context of the models of an Ollama server (`num_ctx`), from facts that the server reports.

`wire.ollama.context` has the rule and its reasons. This module asks the server, and remembers each model's largest size:

    sizes = ContextSizes()
    await sizes.refresh(endpoint, transport)                     # /api/show and /api/ps, if they are not known
    sized = SizedBody(sizes.of(endpoint), body, "messages")      # no I/O from here
    sized.data                                                   # with num_ctx, truncate and shift
    sized.resize(fault)                                          # True: send `data` again, with another size

Several processes may use one server. Each remembers its own largest size, and reads the loaded one before a request, so
that no process loads a model again with a smaller context than another one uses.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from logging import getLogger
from typing import Any

from msgspec.structs import replace

from ..ir.errors import ToolwireError
from ..ir.pointer import JSON, Object
from ..ir.response import Fault
from ..ir.text import to_bytes
from ..stream.strict import parse
from ..wire.codec import body_to_bytes
from ..wire.faults import CONTEXT_LENGTH, overflow_counts
from ..wire.ollama.context import (
    ModelFacts,
    choose_context,
    estimate_prompt,
    output_limit,
    read_loaded_context,
    read_model_facts,
)
from ..wire.ollama.fault import OUT_OF_MEMORY
from .endpoint import Endpoint
from .http import Transport
from .replies import read_reply_body

__all__ = ["ContextSize", "ContextSizes", "SizedBody"]

_log = getLogger("toolwire.net")
_MAX_MODELS = 256  # of one server; clients may request any number of names
_TIMEOUT = 1.0  # seconds for both reports: while a model loads, /api/ps does not answer (server/sched.go)
_SHOW_SECONDS = 600.0  # a Modelfile changes rarely
_LOADED_SECONDS = 1.0  # the loaded size can change with every request of another process; the report takes about 1 ms
_FAILURE_SECONDS = 30.0  # a server without these reports, or a slow one, delays few requests
_IDLE_SECONDS = 300.0  # the server unloads a model that was idle for so long (OLLAMA_KEEP_ALIVE)
_REPORT_LIMIT = 4 * 1024 * 1024  # bytes; with its licence and tensors, a report has some 100 kB
_CLOUD = "https://ollama.com"  # models there have their full length
_REQUEST_PATH = re.compile(r"/api/(?:chat|generate)\Z")


class ContextSize:
    """The context of one model. `context_max` is the limit of the settings."""

    def __init__(self, context_max: int | None) -> None:
        self.facts = ModelFacts()
        self.loaded: int | None = None
        self.used_at = 0.0
        self.show_until = self.loaded_until = 0.0
        self.refreshing: asyncio.Task[None] | None = None
        self._context_max = context_max
        self._largest = 0  # that a request has used
        self._memory_limit: int | None = None  # after the server had too little memory

    @property
    def window(self) -> int | None:
        """The tokens that the model can hold on this server, or None if they are not known."""
        known = [size for size in (self.facts.length, self._context_max, self._memory_limit) if size is not None]
        return max(min(known), self._in_use) if known else None

    @property
    def _in_use(self) -> int:
        least = max(self.loaded or 0, self.facts.modelfile or 0, self._largest)
        return least if self.facts.length is None else min(least, self.facts.length)

    def choose(self, needed: int) -> int:
        """Return the size for a request. Threads may call this at once: /api/ps corrects a lost update."""
        self._largest = choose_context(needed + self.facts.own_prompt, least=self._in_use, most=self.window)
        return self._largest

    def halve(self, size: int) -> int:
        """Return the size to use after the server had too little memory for `size`."""
        self._memory_limit = self._largest = choose_context(1, least=size // 2)
        self.loaded = None  # the server has unloaded the model
        return self.choose(1)


class ContextSizes:
    """The contexts of all models of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sizes: dict[str, ContextSize] = {}

    def of(self, endpoint: Endpoint) -> ContextSize:
        """Return the context of a model, also if nothing is known about it yet."""
        now = self._clock()
        size = self._sizes.get(endpoint.model)
        if size is None or now - size.used_at > _IDLE_SECONDS:
            if len(self._sizes) >= _MAX_MODELS:
                self._sizes.clear()
            size = self._sizes[endpoint.model] = ContextSize(endpoint.context_max)
        size.used_at = now
        return size

    def window(self, model: str) -> int | None:
        """Return the known window of a model, without a new entry for it."""
        size = self._sizes.get(model)
        return None if size is None else size.window

    async def refresh(self, endpoint: Endpoint, transport: Transport) -> None:
        """Read the server's reports if they have expired. Concurrent requests share them. No failure is raised."""
        size, now = self.of(endpoint), self._clock()
        if now < size.loaded_until:
            return
        loop, pending = asyncio.get_running_loop(), size.refreshing
        if pending is None or pending.done() or pending.get_loop() is not loop:
            pending = size.refreshing = loop.create_task(self._read_reports(size, endpoint, transport))
        await asyncio.shield(pending)  # a cancelled request does not cancel it for the others

    async def _read_reports(self, size: ContextSize, endpoint: Endpoint, transport: Transport) -> None:
        """Read /api/show and /api/ps in a short time, or try again after a while."""
        send = getattr(transport, "send", None)  # a program's own transport may have only `post`
        base, _, _ = endpoint.url(stream=False).partition("?")
        valid_seconds = _FAILURE_SECONDS
        try:
            if send is None or not _REQUEST_PATH.search(base):
                return
            async with asyncio.timeout(_TIMEOUT):
                secrets = await endpoint.authorise()

                async def read(method: str, path: str, body: bytes) -> JSON:
                    url = _REQUEST_PATH.sub(path, base)
                    async with send(method, url, endpoint.headers, secrets, body, _TIMEOUT) as reply:
                        data = await read_reply_body(reply, _REPORT_LIMIT)
                    return parse(data) if reply.status == 200 else None

                if self._clock() >= size.show_until:
                    facts = read_model_facts(await read("POST", "/api/show", to_bytes({"model": endpoint.model})))
                    size.facts = replace(facts, is_remote=True) if endpoint.origin == _CLOUD else facts
                    size.show_until = self._clock() + _SHOW_SECONDS
                report: Any = None if size.facts.is_remote else await read("GET", "/api/ps", b"")
                if type(report) is dict:
                    size.loaded = read_loaded_context(report, endpoint.model)
                    valid_seconds = _LOADED_SECONDS
        except (TimeoutError, OSError, ValueError, ToolwireError) as error:
            _log.info("no report of %s about the context of %s: %s", endpoint.origin, endpoint.model, error)
        finally:
            size.loaded_until = self._clock() + valid_seconds


class SizedBody:
    """The body of a request with the size of its context, which can be changed once in each direction.

    A size in the request or in the settings (`extra_body`) is kept. So are its `truncate` and `shift`.
    """

    def __init__(self, size: ContextSize, body: Object, conversation: str) -> None:
        self._size = size
        self._options = dict(body.get("options") or {})
        self._flags = {name: body.get(name, False) for name in ("truncate", "shift")}
        rest = {name: value for name, value in body.items() if name != "options" and name not in self._flags}
        self._rest = body_to_bytes(rest, conversation)
        self._is_chosen = "num_ctx" not in self._options and not size.facts.is_remote
        self._may_halve = self._may_grow = self._is_chosen
        if self._is_chosen:
            self._set(size.choose(estimate_prompt(self._rest) + output_limit(self._options)))

    def _set(self, num_ctx: int) -> None:
        self._options["num_ctx"] = num_ctx

    @property
    def data(self) -> bytes:
        """The encoded body. The options are written at its end, so that the conversation is encoded once."""
        more = self._flags | ({"options": self._options} if self._options else {})
        return b"%b,%b" % (self._rest[:-1], to_bytes(more)[1:])

    def resize(self, fault: Fault) -> bool:
        """Change the size after a fault that another size can avoid. Return whether to send the request again."""
        sent: int = self._options.get("num_ctx", 0)
        if fault.code == OUT_OF_MEMORY and self._may_halve:
            self._may_halve = self._may_grow = False
            self._set(self._size.halve(sent))
            _log.warning("num_ctx %d needs too much memory; trying %d: set context_max", sent, self._options["num_ctx"])
        elif fault.code == CONTEXT_LENGTH and self._may_grow:
            self._may_grow = False
            counts = overflow_counts(fault.message)
            self._set(self._size.choose(2 * sent if counts is None else counts[0] + output_limit(self._options)))
        return bool(self._options.get("num_ctx", 0) != sent)
