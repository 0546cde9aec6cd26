"""Compare one document with its translations: the text of each, the places of its elements and of its losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.losses import Loss, LossError, require_lossless
from ...ir.tools import Tool
from ...ir.value import Value
from ...stream.positions import find_places
from ...stream.strict import as_bytes
from ...text import detect as detect_format
from ...text import get as get_format
from ...text import names as format_names
from ...wire import get, mcp
from ...wire import names as wire_names
from ..translation.detection import detect
from ..translation.outcome import typed_errors
from .places import Placed, TextRange, place_elements
from .reading import MAX_ELEMENTS
from .sources import ComparisonSource, Element, Family, Language, TextDocument, WireDocument, Written

KINDS = ("request", "response", "stream", "tools", "error")


class PlacedLoss(Value, frozen=True):
    """A loss, with its positions in the text of the source and of the translation."""

    loss: Loss
    source_at: TextRange | None = None
    target_at: TextRange | None = None


class TargetFailure(Value, frozen=True):
    """The reason why a document has no translation; `at` is a position in the source."""

    type: str
    message: str
    pointer: str
    hint: str
    at: TextRange | None = None


class ComparedDocument(Value, frozen=True):
    """A document. `text` is None for a translation that failed."""

    name: str
    family: Family
    language: Language
    text: str | None
    places: tuple[Placed, ...] = ()
    losses: tuple[PlacedLoss, ...] = ()
    error: TargetFailure | None = None
    model: str = ""


class Comparison(Value, frozen=True):
    """A document and its translations. `left_out` elements of a large document have no places."""

    kind: str
    source: ComparedDocument
    outputs: tuple[ComparedDocument, ...]
    elements: Mapping[str, Element]
    left_out: int = 0
    is_detected: bool = False


def compare(
    text: str,
    *,
    source: str | None = None,
    kind: str | None = None,
    targets: Sequence[str] = ("wires",),
    model: str | None = None,
    strict: bool = False,
    tools: Sequence[Tool] = (),
) -> Comparison:
    """Translate a document to each target, and locate its elements and losses.

    `source` is a wire, "mcp" or a text format, and `kind` the kind of the document; both are detected by default.
    `targets` are names of wires and text formats, "wires" or "formats" for all of them without the source. With
    `strict`, a translation with a loss above `info` fails. `tools` are declared to the parser of a text format. Raise
    `ToolwireError` if the source cannot be read; a translation that fails has an `error`.
    """
    with typed_errors(text):
        origin = _open_text(text, source, kind, tools)
        origin.limit_elements(MAX_ELEMENTS)
        names = _target_names(targets, origin)
        outputs = tuple(_translate(origin, name, model, strict) for name in names)
    is_detected = source is None or (kind is None and isinstance(origin, WireDocument))
    document = ComparedDocument(origin.name, origin.family, origin.language, text, origin.places())
    return Comparison(origin.kind, document, outputs, origin.elements(), origin.left_out, is_detected)


def _open_text(text: str, source: str | None, kind: str | None, tools: Sequence[Tool]) -> ComparisonSource:
    """Read the source, and detect its wire or format and its kind."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"unknown kind {kind!r}", hint=f"use one of {', '.join(KINDS)}")
    if not text.strip():
        raise ConfigError("the input is empty", hint="paste a request, an answer, a stream, tools or a model's text")
    if source is not None and source in format_names():
        return TextDocument(get_format(source), text, tools)
    if source not in (None, mcp.NAME):
        get(source or "")
    if source is not None and kind is not None:
        return WireDocument(source, kind, text)
    try:
        detected = detect(as_bytes(text))
    except ProtocolError:
        form = detect_format(f"{text}\n") if source is None and kind in (None, "response") else None
        if form is None:
            raise
        return TextDocument(get_format(form), text, tools)
    if detected.kind == "message" and kind is None:
        message = f"the document is a message of {detected.wire} without its response"
        raise ConfigError(message, hint="paste the whole response, or a request that contains the message")
    return WireDocument(source or detected.wire, kind or str(detected.kind), text)


def _target_names(targets: Sequence[str], origin: ComparisonSource) -> list[str]:
    """Return the names of the targets. MCP has only tools, and a text format has no errors and no streams."""
    names: dict[str, None] = {}
    has_formats = origin.kind in ("request", "response", "tools")
    for target in targets:
        if target == "wires":
            names |= dict.fromkeys(name for name in wire_names() if name != origin.name.partition("@")[0])
            if origin.kind == "tools" and origin.name != mcp.NAME:
                names[mcp.NAME] = None
        elif target == "formats":
            names |= dict.fromkeys(name for name in format_names() if has_formats and name != origin.name)
        else:
            if target not in format_names() and target != mcp.NAME:
                get(target)
            names[target] = None
    return list(names)


def _translate(origin: ComparisonSource, target: str, model: str | None, strict: bool) -> ComparedDocument:
    """Translate the document to one target; a failure is part of the result."""
    is_format = target in format_names()
    family: Family = "text" if is_format else "wire"
    try:
        with typed_errors(None):
            _check_kind(origin.kind, target, is_format=is_format)
            written = origin.write_format(get_format(target), model) if is_format else origin.write_wire(target, model)
            if strict:
                require_lossless(written.losses)
    except ToolwireError as error:
        losses = error.losses if isinstance(error, LossError) else ()
        found = origin.find([error.pointer, *(loss.path for loss in losses)])
        failure = TargetFailure(
            type(error).__name__, error.message, error.pointer, error.hint, found.get(error.pointer)
        )
        placed = tuple(PlacedLoss(loss, found.get(loss.path)) for loss in losses)
        return ComparedDocument(target, family, "text" if is_format else "json", None, losses=placed, error=failure)
    known = origin.elements()
    places = place_elements(written.text, [(link.id, link.target, link.is_changed) for link in written.links])
    places += tuple(place for place in written.placed if place.id in known)
    return ComparedDocument(
        target, family, written.language, written.text, places, _place_losses(origin, written), model=written.model
    )


def _check_kind(kind: str, target: str, *, is_format: bool) -> None:
    if target == mcp.NAME and kind != "tools":
        raise ConfigError("MCP has only tools, no conversations", hint="choose a wire")
    if is_format and kind in ("stream", "error"):
        raise ConfigError(f"a text format has no {kind}", hint="choose a wire")


def _place_losses(origin: ComparisonSource, written: Written) -> tuple[PlacedLoss, ...]:
    sources = origin.find([loss.path for loss in written.losses])
    is_json = written.language == "json"
    pointers = [loss.target for loss in written.losses if loss.target] if is_json else []
    targets = find_places(written.text, pointers) if pointers else {}
    placed = []
    for loss in written.losses:
        place = targets.get(loss.target or "")
        at = None if place is None else (place.member, place.end)
        placed.append(PlacedLoss(loss, sources.get(loss.path), at))
    return tuple(placed)
