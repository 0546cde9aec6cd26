"""Heads of toolkens as models: the provider `toolken` of the gateway and of `ModelClient`.

A model is the name of a head in a folder of TOOLWIRE_MODELS. It runs in this process, like the provider `local`: a head
needs no server of its own, and every wire, limit and log of the gateway applies. The provider's row names
`ToolkenTransport` as a text, so that neither the gateway nor the client imports this package before its first request.
torch is imported by that request, in the thread that generates.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from ...ir.errors import ConfigError
from ...ir.losses import Losses
from ...ir.request import Request
from ...ir.response import Fault, UpstreamError
from ...ir.text import to_bytes
from ...local.engine import Generations, fold_stream, read_body, request_usage
from ...local.model import decode_request, refuse_media
from ...local.transport import InProcessTransport
from ...wire import get
from ..run_folder import require_installed

if TYPE_CHECKING:
    from .answers import AnsweringHead

_log = logging.getLogger("toolwire.learn")
_MANIFEST = "head.json"  # as in `head`, which needs torch
_open: dict[Path, ToolkenModel] = {}
_opening = Lock()


def served_heads() -> dict[str, Path]:
    """Return the heads in the folders of TOOLWIRE_MODELS by the name of their folder, or of their run's folder.

    Names are looked up, never joined to a path: a client of the gateway may choose the name of a model.
    """
    folders = [Path(folder) for folder in os.environ.get("TOOLWIRE_MODELS", "").split(os.pathsep) if folder]
    found: dict[str, Path] = {}
    for folder in folders:
        for manifest in sorted(folder.glob(f"*/{_MANIFEST}")):
            found.setdefault(manifest.parent.name, manifest.parent.resolve())
        for manifest in sorted(folder.glob(f"*/head/{_MANIFEST}")):
            found.setdefault(manifest.parent.parent.name, manifest.parent.resolve())
    return found


class ToolkenTransport(InProcessTransport):
    """A transport to heads of toolkens."""

    def __init__(self) -> None:
        super().__init__(_NamedHead)


class _NamedHead:
    """The head with the name of a request. It is found in a thread, because that reads the folders of TOOLWIRE_MODELS."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def stream(self, body: bytes, losses: Losses | None = None) -> AsyncGenerator[bytes, None]:
        async with aclosing((await self._find()).stream(body, losses)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def complete(self, body: bytes, losses: Losses | None = None) -> bytes:
        return await (await self._find()).complete(body, losses)

    async def _find(self) -> ToolkenModel:
        """Return the head. Raise UpstreamError for an unknown name; the names of others are only logged."""
        try:
            return await asyncio.to_thread(open_head, self._name)
        except ConfigError as error:
            _log.warning("cannot open a head: %s", error)
            message = f"unknown model {str(self._name)[:100]!r}"
            raise UpstreamError(Fault("not_found", message, 404, "model_not_found")) from None


def open_head(name: str) -> ToolkenModel:
    """Return the head with this name, one per process. Its model is loaded at the first request.

    It reads folders, so it is not called on an event loop.

    Raises `ConfigError` for an unknown name, and `MissingExtra` without the extra `learn`.
    """
    require_installed("a head of toolkens", "torch", "transformers", "llguidance")
    heads = served_heads()
    if name not in heads:
        known = f"available: {', '.join(heads)}" if heads else "set TOOLWIRE_MODELS to the folder that has its folder"
        raise ConfigError(f"unknown head {name!r}", hint=known)
    with _opening:
        found = _open.get(heads[name])
        if found is None:
            found = _open[heads[name]] = ToolkenModel(name, heads[name])
        return found


class ToolkenModel:
    """A head and its frozen model. Requests are answered one after the other. Use `open_head` to create it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._head: AnsweringHead | None = None
        self._generations = Generations(1)

    async def stream(self, body: bytes, losses: Losses | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a stream; see `InProcessModel`."""
        document = read_body(body)
        refuse_media(document, self.name)
        request = decode_request(document)
        reported = Losses() if losses is None else losses
        left = Event()  # the reader is gone; a chunk that reports it may come late, or never

        def generate(put_chunk: Callable[[bytes], bool]) -> None:
            self._generate(request, reported, put_chunk, left.is_set)

        try:
            async with aclosing(self._generations.chunks(generate)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            left.set()

    async def complete(self, body: bytes, losses: Losses | None = None) -> bytes:
        """Return a complete response."""
        return await fold_stream(self.stream(to_bytes(request_usage(read_body(body))), losses))

    def close(self) -> None:
        """Stop all generations; the next `open_head` loads the head again."""
        with _opening:
            if _open.get(self._folder) is self:
                del _open[self._folder]
        self._generations.close()
        self._head = None

    def _generate(
        self, request: Request, losses: Losses, put_chunk: Callable[[bytes], bool], is_abandoned: Callable[[], bool]
    ) -> None:
        """Generate an answer in a thread, until `is_abandoned` returns True.

        A head that cannot be used is a fault of the server. The reason is only logged, because it contains paths of this
        machine, as `Generations` logs errors of torch.
        """
        from .answers import Abandoned, AnsweringHead

        encoder = get("openai_chat").stream_encoder(request)
        try:
            if self._head is None:
                self._head = AnsweringHead(self._folder)
            with closing(self._head.answer(request, losses, is_abandoned)) as events:
                for event in events:
                    if (chunk := encoder.feed(event)) and put_chunk(chunk):
                        return
        except ConfigError as error:
            _log.error("cannot use the head %s: %s", self.name, error)
            raise UpstreamError(Fault("server", f"the head {self.name} cannot be used", 503)) from None
        except Abandoned:
            pass


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.clear)  # threads do not survive a fork
