"""The result of a translation, and the checks that all kinds of documents share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from ..ir.errors import ProtocolError
from ..ir.losses import Loss, require_lossless
from ..ir.pointer import JSON, Object, join
from ..ir.text import to_bytes
from ..stream.strict import as_bytes, parse, parse_object, type_label
from ..wire import get, mcp

__all__ = ["Translation", "accept", "parse_body", "pass_through", "require_json", "typed_errors"]

Body = TypeVar("Body")


class Translation(Generic[Body]):
    """A document on another wire. `status` and `headers` belong to it over HTTP; `model` is the model that it names."""

    __slots__ = ("_losses", "_raw", "body", "headers", "model", "status")

    def __init__(
        self,
        body: Body,
        losses: tuple[Loss, ...] | Callable[[], tuple[Loss, ...]] = (),
        status: int = 200,
        model: str = "",
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> None:
        self.body = body
        self.headers = headers or {}
        self._raw = raw
        self.status = status
        self.model = model
        self._losses = losses

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses, with pointers into the source document and, where something remains, into this one."""
        if callable(self._losses):
            self._losses = self._losses()
        return self._losses

    def __bytes__(self) -> bytes:
        return to_bytes(self.body) if self._raw is None else self._raw


def parse_body(body: JSON | bytes | str) -> Object:
    if isinstance(body, (bytes, str)):
        return parse_object(body)
    if type(body) is not dict:
        raise ProtocolError(f"expected a JSON object, got {type_label(body)}")
    return body


def accept(translation: Translation[Body], *, strict: bool) -> Translation[Body]:
    """Return the translation; with `strict`, raise LossError if a loss is more severe than `info`."""
    if strict:
        require_lossless(translation.losses)
    return translation


def pass_through(body: JSON | bytes | str, wire: str, *, is_object: bool) -> Translation[JSON]:
    """Check that a document whose source and target are the same is a valid document."""
    if wire != mcp.NAME:
        get(wire)
    if isinstance(body, (bytes, str)):
        return Translation(parse_object(body) if is_object else parse(body), raw=as_bytes(body))
    return Translation(parse_body(body) if is_object else body)


@contextmanager
def typed_errors(body: JSON) -> Iterator[None]:
    """Raise ProtocolError for documents that are nested too deeply, and for values that JSON cannot represent."""
    try:
        yield
    except RecursionError:
        raise ProtocolError("the document is nested too deeply") from None
    except (AttributeError, TypeError):
        require_json(body)
        raise


def require_json(value: JSON, path: str = "") -> None:
    """Refuse parsed values that JSON cannot represent: keys that are not strings, and values of other types."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ProtocolError(f"not JSON: key {key!r} is not a string", pointer=path)
            require_json(inner, path + join(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            require_json(inner, path + join(index))
    elif value is not None and not isinstance(value, (str, bytes, bool, int, float)):
        raise ProtocolError(f"not JSON: value of type {type(value).__name__}", pointer=path)
