"""Facts that model servers report: the names of their models, and the context sizes of Ollama's models.

Choose the context size of an Ollama server's models (`num_ctx`), from facts that the server reports.

`wire.ollama.context` has the rule and its reasons. This module asks the server, and remembers each model's largest size:

    sizes = ContextSizes()
    await sizes.refresh(endpoint, transport)                     # /api/show and /api/ps, if they are not known
    sized = SizedBody(sizes.of(endpoint), body)                  # no I/O from here
    sized.data                                                   # with num_ctx, truncate and shift
    sized.resize(fault)                                          # True: send `data` again, with another size

Several processes may use one server. Each remembers its own largest size, and reads the loaded one before a request, so
that no process loads a model again with a smaller context than another one uses.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from logging import getLogger
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from msgspec.structs import replace

from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.pointer import JSON, Object
from ...ir.response import Fault, FaultKind, UpstreamError
from ...ir.text import to_bytes
from ...stream.strict import parse
from ...wire.faults import CONTEXT_LENGTH, overflow_counts
from ...wire.ollama.context import (
    ModelFacts,
    choose_context,
    estimate_prompt,
    output_limit,
    read_loaded_context,
    read_model_facts,
)
from ...wire.ollama.fault import OUT_OF_MEMORY
from ..http.client import HttpTransport
from ..http.transport import Transport
from .endpoint import Endpoint, endpoint_of
from .key_command import KeyCommandError
from .replies import read_reply_body

if TYPE_CHECKING:
    from ...wire.models.vendor_types import Vendor


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
        """Return the size for a request of `needed` tokens, and remember it as the largest.

        Threads may call this at once: /api/ps corrects a lost update.
        """
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
        """Return the context of a model, a new one if it is unknown or was idle for so long that it is unloaded."""
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
        """Read /api/show and /api/ps into `size` in a short time. A failure is logged, and tried again after a while."""
        send = getattr(transport, "send", None)  # a program's own transport may have only `post`
        base, _, _ = endpoint.url(stream=False).partition("?")
        valid_seconds = _FAILURE_SECONDS
        try:
            if send is None or not _REQUEST_PATH.search(base):
                return
            async with asyncio.timeout(_TIMEOUT):

                async def read(method: str, path: str, body: bytes) -> JSON:
                    url = _REQUEST_PATH.sub(path, base)
                    secrets = await endpoint.authorise(method, url, endpoint.headers, body)
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

    def __init__(self, size: ContextSize, body: Object) -> None:
        self._size = size
        self._options = dict(body.get("options") or {})
        self._flags = {name: body.get(name, False) for name in ("truncate", "shift")}
        others = {name: value for name, value in body.items() if name != "options" and name not in self._flags}
        self._rest = to_bytes(others)
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
        """Change the size after a fault that another size can avoid: halve it if memory is short, or enlarge it once.

        Return whether to send the request again.
        """
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


# Ask a server for the names of its models. It also shows that the server is reachable and accepts the key.


_MAX_BODY = 8 * 1024 * 1024  # bytes; enough for vendors with hundreds of models and their prices; not measured
_MAX_LISTED = 10_000  # models; far more than any server lists
_ANY_MODEL = "model"  # the list does not depend on the model, but an endpoint has one


class _ModelListing(NamedTuple):
    """A wire's list of models: the end of a request's path, the path of the list, and its fields."""

    request: re.Pattern[str]
    path: str
    items: str
    name: str


_OPENAI = _ModelListing(re.compile(r"/(?:chat/completions|responses)\Z"), "/models", "data", "id")
_LISTINGS: Mapping[str, _ModelListing] = {
    "openai_chat": _OPENAI,
    "openai_responses": _OPENAI,
    "anthropic": _ModelListing(re.compile(r"/messages\Z"), "/models?limit=1000", "data", "id"),
    "gemini": _ModelListing(re.compile(r"/models/[^/]+\Z"), "/models?pageSize=1000", "models", "name"),
    "gemini_interactions": _ModelListing(re.compile(r"/interactions\Z"), "/models?pageSize=1000", "models", "name"),
    "ollama": _ModelListing(re.compile(r"/api/chat\Z"), "/api/tags", "models", "name"),
    "cohere": _ModelListing(re.compile(r"/v2/chat\Z"), "/v1/models?endpoint=chat&page_size=1000", "models", "name"),
}


async def list_vendor_models(
    vendor: Vendor, environment: Mapping[str, str], *, base_url: str | None = None, seconds: float = 10.0
) -> tuple[str, ...]:
    """Return the models that a vendor lists. Raise ConfigError if its key is missing or it has no list."""
    return await list_models(endpoint_of(vendor, _ANY_MODEL, environment, base_url=base_url), environment, seconds)


# For a document without computation.
async def list_models(endpoint: Endpoint, environment: Mapping[str, str], seconds: float = 10.0) -> tuple[str, ...]:
    """Return the names of a server's models, sorted.

    Raise UpstreamError if it cannot be reached or refuses, and ConfigError if it has no list.
    """
    url, listing = _listing_of(endpoint)
    secrets = await endpoint.authorise("GET", url, endpoint.headers, b"")
    transport = HttpTransport(environment=environment)
    async with aclosing(transport):
        try:
            async with transport.send("GET", url, endpoint.headers, secrets, b"", seconds) as reply:
                received = bytearray()
                while len(received) <= _MAX_BODY and (piece := await reply.read()):
                    received += piece
                status = reply.status
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {seconds:g} seconds"
            raise _failure("overloaded", f"cannot reach {endpoint.origin}: {reason}", 503) from error
    if status in (401, 403):
        raise _failure("authentication", f"{endpoint.origin} rejected the key (status {status})", status)
    if status != 200:
        raise _failure("server", f"{endpoint.origin} returned status {status} for its list of models", status)
    return _read_names(bytes(received), listing, endpoint.origin)


@runtime_checkable
class ProbedTransport(Protocol):
    """A transport to a server that can be probed."""

    def for_probes(self) -> HttpTransport | None:
        """Return a client with connections of its own, because all connections of the transport may be in use."""
        ...


def has_model_list(endpoint: Endpoint) -> bool:
    """Return whether the server has a list of models that toolwire can read."""
    try:
        _listing_of(endpoint)
    except ConfigError:
        return False
    return True


async def is_answering(endpoint: Endpoint, transport: HttpTransport, seconds: float) -> bool:
    """Ask for the list of models. Return whether the server answers within `seconds`, with any status.

    Without a key, nothing is asked, and nothing is known against the server.
    """
    url, _ = _listing_of(endpoint)
    try:
        secrets = await endpoint.authorise("GET", url, endpoint.headers, b"")
    except KeyCommandError:
        return True
    try:
        async with transport.send("GET", url, endpoint.headers, secrets, b"", seconds):
            return True
    except OSError:  # a TimeoutError is one
        return False


def _failure(kind: FaultKind, message: str, status: int = 502) -> UpstreamError:
    return UpstreamError(Fault(kind, message, status))


def _listing_of(endpoint: Endpoint) -> tuple[str, _ModelListing]:
    """Return the URL of the list, beside the URL of requests, and its form. Raise ConfigError if there is none."""
    listing = _LISTINGS.get(endpoint.wire.name)
    path, _, _ = endpoint.url(stream=False).partition("?")
    if listing is None or not listing.request.search(path):
        raise ConfigError(f"{endpoint.vendor.name} has no list of models that toolwire can read")
    return listing.request.sub(listing.path, path), listing


def _read_names(data: bytes, listing: _ModelListing, origin: str) -> tuple[str, ...]:
    """Return the sorted names in a list of models. Raise UpstreamError if it has another form."""
    try:
        document: Any = parse(data)
    except ProtocolError as error:
        raise _failure("server", f"the list of models of {origin} is not JSON: {error.message}") from None
    items = document.get(listing.items) if type(document) is dict else None
    if type(items) is not list:
        raise _failure("server", f"the list of models of {origin} has no array {listing.items!r}")
    names = (item.get(listing.name) for item in items[:_MAX_LISTED] if type(item) is dict)
    return tuple(sorted({name.removeprefix("models/") for name in names if type(name) is str}))
