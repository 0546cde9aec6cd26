"""The interface of models: prompts become requests, and a `Model` answers them.

A prompt is text, files, images and other parts. Observers get each request as a `ModelOperation`.

await agent.run("What is the weather?")
await agent.run(["What is in this picture?", Path("cat.png")])
await agent.run(["Summarise this.", Media("file", url="https://example.com/report.pdf")])
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from mimetypes import guess_type
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from ...ir.errors import ConfigError
from ...ir.events import Event
from ...ir.parts import Media, MediaKind, Part, Text
from ...ir.request import Message, Request
from ...ir.response import Response
from ...run.calls.observe import ModelOperation


class Model(Protocol):
    """Anything that answers a request, such as a `ModelClient`."""

    async def ask(self, request: Request) -> Response: ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]: ...


request_check: ContextVar[Callable[[Model], None] | None] = ContextVar("toolwire_request_check", default=None)
"""Raises an exception for a model that must not be asked; None if all may be. A replay sets it."""


def check_request(model: Model) -> None:
    """Call the check of the current context, if any; it raises if the model must not be asked, as in a replay."""
    check = request_check.get()
    if check is not None:
        check(model)


def model_operation(
    model: Model, request: Request, run_id: str, *, stream: bool = False, purpose: Literal["", "auxiliary"] = ""
) -> ModelOperation:
    """Describe a request for observers, with the provider's name for the model if the model is a `ModelClient`."""
    endpoint = getattr(model, "endpoint", None)
    if endpoint is None:
        name, provider = request.model or str(getattr(model, "name", "")), ""
    else:
        name, provider = endpoint.model, endpoint.vendor.name
    return ModelOperation(request, run_id, stream, purpose, name, provider)


PromptItem: TypeAlias = str | Path | Text | Media
UserPrompt: TypeAlias = PromptItem | Message | Sequence[PromptItem]

_MAX_FILE_SIZE = 50 * 1024 * 1024  # bytes; providers accept less
_MEDIA_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def as_request(request: object) -> Request:
    """Return a request, or the request of one user message for a text. Raise ConfigError for other values."""
    if isinstance(request, Request):
        return request
    if isinstance(request, str):
        return Request(messages=(Message("user", (Text(request),)),))
    hint = "pass a text, or toolwire.Request(messages=…); toolwire.Agent takes lists and files"
    raise ConfigError(f"a request cannot be a value of type {type(request).__name__}", hint=hint)


async def prompt_message(prompt: UserPrompt) -> Message:
    """Return the message of a prompt. Files are read in a thread. Raise ConfigError if it is empty or invalid."""
    if isinstance(prompt, Message):
        return prompt
    items = prompt if isinstance(prompt, (list, tuple)) else (prompt,)
    if not items:
        raise ConfigError("the prompt is empty", hint="pass text, or a list of texts, paths and media")
    return Message("user", tuple([await _make_part(item) for item in items]))


async def _make_part(item: object) -> Part:
    """Return the part for an item of a prompt; a path is read. Raise ConfigError for another type."""
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, Path):
        return await asyncio.to_thread(_read_file, item)
    if isinstance(item, (Text, Media)):
        return item
    hint = "use str, pathlib.Path, toolwire.Text or toolwire.Media"
    raise ConfigError(f"a prompt cannot contain a value of type {type(item).__name__}", hint=hint)


def _read_file(path: Path) -> Part:
    """Read a file: text as a Text part with the file's name, anything else as Media.

    Raise ConfigError if it cannot be read, is too large, or is not a regular file.
    """
    try:
        if not path.is_file() and path.exists():  # a pipe or a device may never end
            raise ConfigError(f"cannot read {path}: not a regular file", hint="write its content to a file")
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_SIZE + 1)
        if len(data) > _MAX_FILE_SIZE:
            size = path.stat().st_size
            raise ConfigError(f"{path} has {size:,} bytes; at most {_MAX_FILE_SIZE:,} are read into a prompt")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    media_type = guess_type(path.name)[0] or "application/octet-stream"
    main_type = media_type.partition("/")[0]
    if main_type == "text" or media_type in ("application/json", "application/octet-stream"):
        try:
            return Text(f"{path.name}:\n{data.decode()}")
        except UnicodeDecodeError:
            pass  # not text after all
    kind = _MEDIA_KINDS.get(main_type, "file")
    return Media(kind, media_type, b64encode(data).decode(), name=path.name)
