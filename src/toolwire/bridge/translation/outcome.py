"""The result of a translation: the document, its losses, and the checks that all kinds of documents share.

A loss has a pointer into the source document, and a pointer into the target document where a part of the value remains.
Losses are found on canonical values. Wires map canonical paths to pointers (`Wire.locator`), and `Prepared` maps paths
of the request to paths of the fitted request and back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Loss, require_lossless
from ...ir.parts import Media, Opaque, Part, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, find_field, join, nearest_existing, resolve, split
from ...ir.request import Request
from ...ir.text import to_bytes
from ...stream.strict import as_bytes, parse, parse_object, type_label
from ...wire import get, mcp
from ...wire.protocol import Wire

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
    """Return the object that the body is or contains as JSON. Raise ProtocolError for anything else."""
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
    """Raise ProtocolError for parsed values that JSON cannot represent: keys that are not strings, other types."""
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


_MAX_SEARCHES = 100
"""Each search reads all texts of the document."""

Locator: TypeAlias = Callable[[str], str]


class SourceDocument(NamedTuple):
    """A source document, and the function from paths of losses to pointers into it."""

    document: JSON
    locate: Locator


class TargetDocument(NamedTuple):
    """A target document, and the function from paths of losses to pointers into it, None for dropped values."""

    document: JSON
    locate: Callable[[str], str | None]


def locate(losses: Iterable[Loss], origin: SourceDocument, destination: TargetDocument | None = None) -> list[Loss]:
    """Return the losses with pointers into the documents."""
    return [
        replace(loss, path=_source_pointer(loss, origin), target=_target_pointer(loss, destination)) for loss in losses
    ]


class WrittenRequest:
    """Find the values of a fitted request in the document that a wire wrote for it.

    A wire may split a message, or merge and reorder its parts. So the document is decoded again, and the parts of the
    two requests are matched by their content.
    """

    def __init__(self, fitted: Request, document: Object, writer: Wire) -> None:
        """Decode `document`, and assign to each part of `fitted` the path of its copy in the decoded request."""
        returned = writer.decode_request(document)
        self._fitted = fitted
        self._locate = writer.locator(returned)
        self._tools = {(tool.namespace, tool.name): index for index, tool in enumerate(returned.tools)}
        self._parts: dict[Hashable, deque[str]] = {}
        self._texts: list[tuple[str, str]] = []  # path and text
        self._searches = 0
        for index, message in enumerate(returned.messages):
            for number, part in enumerate(message.parts):
                path = join("messages", index, "parts", number)
                self._parts.setdefault(_content_key(part), deque()).append(path)
                if isinstance(part, Text):
                    self._texts.append((path, part.text))
        self._paths = {
            (index, number): self._take(part)
            for index, message in enumerate(fitted.messages)
            for number, part in enumerate(message.parts)
        }

    def locate(self, path: str) -> str | None:
        """Return the pointer of the value at `path` in the fitted request, or None if it was not found."""
        match split(path):
            case ["messages", index, "parts", number, *rest]:
                decoded_path = self._paths.get((int(index), int(number))) or self._find_joined(int(index), int(number))
                return None if decoded_path is None else self._locate(decoded_path + join(*rest))
            case ["messages", index, *rest]:
                return self._locate_message(int(index), rest)
            case ["tools", index, *rest] if int(index) < len(self._fitted.tools):
                tool = self._fitted.tools[int(index)]
                position = self._tools.get((tool.namespace, tool.name))
                return None if position is None else self._locate(join("tools", position, *rest))
            case ["tools", *_]:
                return None
        return self._locate(path)

    def _locate_message(self, index: int, rest: list[str]) -> str | None:
        paths = [self._paths[index, number] for number, _ in enumerate(self._fitted.messages[index].parts)]
        found = next((path for path in paths if path is not None), None)
        return None if found is None else self._locate(found.rpartition("/parts/")[0] + join(*rest))

    def _find_joined(self, index: int, number: int) -> str | None:
        """Return the path of the text that contains a text: some wires join the texts of a message."""
        text = getattr(self._fitted.messages[index].parts[number], "text", "")
        self._searches += 1
        if not text or self._searches > _MAX_SEARCHES:
            return None
        return next((path for path, joined in self._texts if text in joined), None)

    def _take(self, part: Part) -> str | None:
        paths = self._parts.get(_content_key(part))
        return paths.popleft() if paths else None


def _content_key(part: Part) -> Hashable:
    """Return the content by which a part is recognised after encoding and decoding."""
    if isinstance(part, ToolCall):
        return "call", part.id or part.name
    if isinstance(part, ToolResult):
        return "result", part.call_id or part.name
    if isinstance(part, Media):
        return "media", part.data or part.url or part.file_id
    if isinstance(part, Opaque):
        return "opaque", part.type
    return type(part), part.text


def _source_pointer(loss: Loss, origin: SourceDocument) -> str:
    """Return the pointer of the statement; of its nearest ancestor if the document does not contain it."""
    pointer = origin.locate(loss.path)
    found = nearest_existing(origin.document, pointer)
    if _depth(found) == _depth(pointer):
        return found
    return find_field(origin.document, pointer) or found


def _target_pointer(loss: Loss, destination: TargetDocument | None) -> str | None:
    """Return the pointer of the statement's remainder, or None if only the array around it is left."""
    if destination is None or loss.action == "dropped":
        return None
    pointer = destination.locate(loss.path if loss.target is None else loss.target)
    if pointer is None:
        return None
    nearest = nearest_existing(destination.document, pointer)
    is_exact = _depth(nearest) == _depth(pointer)
    return nearest if is_exact or (nearest and not isinstance(resolve(destination.document, nearest), list)) else None


def _depth(pointer: str) -> int:
    return pointer.count("/")
