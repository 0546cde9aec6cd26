"""Write parts as Gemini parts."""

from __future__ import annotations

from ...ir.losses import Losses
from ...ir.parts import Artefact, Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, part_label
from ...ir.pointer import JSON, Object
from ..codec import report_search_call
from ..content import found_as_text, guess_media_type, placeholder_arguments
from .field_names import NAME, write_fields
from .parts import (
    _CALL,
    _DATA,
    _DATA_FORM,
    _DEFAULT_TYPES,
    _FOREIGN,
    _FORM,
    _RESULT,
    _TO_URL,
    _UNPADDED,
    _URL,
    _WRAPPERS,
    PROVIDER,
    _unwrap,
)


def write_part(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a part; return None and report the loss if Gemini has no such part."""
    if isinstance(part, Text):
        if not part.extra and not part.artefacts and part.cache is None:
            return {"text": part.text}
        return write_fields(
            _add_signature({"text": part.text}, part.artefacts, part.cache, losses, path), part.extra, NAME
        )
    if isinstance(part, ToolCall):
        return _write_call(part, losses, path)
    if isinstance(part, ToolResult):
        return write_result(part, losses, path)
    if isinstance(part, Reasoning):
        content = part.joined_text
        if part.summary:
            losses.add(f"{path}/summary", "reasoning summary", "rewritten", "Gemini thoughts are plain text", "info")
        return write_fields(
            _add_signature({"text": content, "thought": True}, part.artefacts, None, losses, path), part.extra, NAME
        )
    if isinstance(part, Media):
        return _write_data(part, losses, path)
    if isinstance(part, Refusal):
        losses.add(path, "refusal", "rewritten", "Gemini has no refusal part; sent as text", "info")
        return {"text": part.text}
    if part.wire == NAME:
        return part.value
    losses.add(path, part_label(part), "dropped", "Gemini has no equivalent part", "error")
    return None


def _add_signature(
    out: Object, artefacts: tuple[Artefact, ...], cache: str | None, losses: Losses, path: str
) -> Object:
    """Add Google's thought signature to `out` and return it; report artefacts of other providers and the cache mark."""
    for artefact in artefacts:
        if artefact.provider == PROVIDER:
            out["thoughtSignature"] = artefact.data
        else:
            losses.add(f"{path}/artefacts", "artefact", "dropped", _FOREIGN)
    if cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Gemini has no cache marks", "info")
    return out


def report_foreign(artefacts: tuple[Artefact, ...], losses: Losses, path: str) -> None:
    """Add a loss for artefacts of another provider."""
    if any(artefact.provider != PROVIDER for artefact in artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", _FOREIGN)


def _write_call(call: ToolCall, losses: Losses, path: str) -> Object:
    report_search_call(call, path, losses)
    if call.arguments is not None and not call.extra and call.id and call.namespace is None and call.cache is None:
        plain: Object = {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
        return _add_signature(plain, call.artefacts, None, losses, path) if call.artefacts else plain
    return _write_any_call(call, losses, path)


def _write_any_call(call: ToolCall, losses: Losses, path: str) -> Object:
    """Write a call with any fields; arguments that were absent when it was read are left out again.

    A namespace and arguments that are not an object are losses.
    """
    inner: Object = {"id": call.id} if call.id else {}
    inner["name"] = call.name
    if call.arguments is None:
        inner["args"] = placeholder_arguments(call, losses, path)
    elif call.arguments or call.extra.get(f"{_CALL}~", {}).keys().isdisjoint((":args", "args")):
        inner["args"] = call.arguments
    if call.namespace is not None:
        losses.add(f"{path}/namespace", "namespace", "dropped", "Gemini calls have no namespace")
    out: Object = {"functionCall": write_fields(inner, call.extra, _CALL)}
    return write_fields(_add_signature(out, call.artefacts, call.cache, losses, path), call.extra, NAME)


def write_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a function response; one text under `output` or `error` takes the fast path.

    References to found tools become text, with a loss.
    """
    result = found_as_text(result, path, losses)
    parts = result.parts
    if len(parts) == 1 and not result.extra and result.call_id and result.structured is None and result.cache is None:
        only = parts[0]
        if type(only) is Text and result.name is not None:
            response = {"error" if result.is_error else "output": only.text}
            return {"functionResponse": {"id": result.call_id, "name": result.name, "response": response}}
    return _write_any_result(result, losses, path)


def _write_any_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a function response with any parts; text goes into `response`, media into `parts`.

    A changed order and a cache mark are losses.
    """
    inner: Object = {"id": result.call_id} if result.call_id else {}
    if result.name is not None:
        inner["name"] = result.name
    wrapper = result.extra.get(_FORM, {}).get(":wrapper")
    if wrapper != "absent" or result.parts or result.structured:
        inner["response"] = _wrap(result, wrapper, losses, path)
    texts = [isinstance(part, Text) for part in result.parts]
    # a text comes after other content
    if texts != sorted(texts, reverse=True):
        losses.add(
            f"{path}/parts", "order of a result", "moved", "Gemini writes the text of a result before its media", "info"
        )
    media = [write_part(part, losses, path) for part in result.parts if not isinstance(part, Text)]
    if any(part is not None for part in media):
        inner["parts"] = [part for part in media if part is not None]
    if result.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Gemini has no cache marks", "info")
    return write_fields({"functionResponse": write_fields(inner, result.extra, _RESULT)}, result.extra, NAME)


def _wrap(result: ToolResult, wrapper: str | None, losses: Losses, path: str) -> Object:
    """Return the object of a function response; `wrapper` is the key from which it was read, if unusual.

    Several texts are joined, and text beside a structured value is dropped, with losses.
    """
    content = [part.text for part in result.parts if isinstance(part, Text)]
    if len(content) > 1:
        losses.add(
            f"{path}/parts",
            "parts of a result",
            "weakened",
            "a Gemini result is one object; its texts are joined",
            "info",
        )
    if result.structured is not None and any(content):
        losses.add(f"{path}/parts", "words of a result", "dropped", "its structured value is sent instead", "info")
    value: JSON = "".join(content) if result.structured is None else result.structured
    if result.is_error:
        return {"error": value}
    if wrapper == "name":
        return {"name": result.name, "content": value}
    if wrapper in _WRAPPERS:
        return {wrapper: value}
    # an object that would not be read as wrapped stays as it is
    if type(value) is dict and wrapper is None and _unwrap(value, result.name)[3] is None:
        return value
    return {"output": value}


def _write_data(part: Media, losses: Losses, path: str) -> Object | None:
    """Write media as `inlineData` or `fileData`; return None and report the loss if it has no content.

    A missing media type is guessed, because Gemini requires one; settings that Gemini lacks are losses.
    """
    data: Object = {} if part.media_type is None else {"mimeType": part.media_type}
    uri = part.url or part.file_id
    if part.media_type is None and ":mimeType" not in part.extra.get(_DATA_FORM, {}):
        data["mimeType"] = guess_media_type(part.name or uri or "") or _DEFAULT_TYPES[part.kind]
        detail = f"Gemini requires it; guessed {data['mimeType']} from the name"
        losses.add(f"{path}/media_type", "media type", "rewritten", detail, "info")
    if part.data is not None:
        data["data"] = _write_base64(part.data, part.extra.get(_DATA_FORM, {}))
    elif uri is not None:
        data["fileUri"] = uri
    else:
        losses.add(path, part.kind, "dropped", "it has no content", "error")
        return None
    if part.name is not None:
        data["displayName"] = part.name
    for concept in ("detail", "cache"):
        if getattr(part, concept) is not None:
            losses.add(f"{path}/{concept}", concept, "dropped", "Gemini media have no such setting", "info")
    field = "inlineData" if part.data is not None else "fileData"
    return write_fields({field: write_fields(data, part.extra, _DATA)}, part.extra, NAME)


def _write_base64(data: str, form: Object) -> str:
    """Return `data` in its original form; the inverse of `_read_base64`."""
    if _URL in form:
        data = data.translate(_TO_URL)
    return data.rstrip("=") if _UNPADDED in form else data
