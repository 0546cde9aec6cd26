"""Parts of Gemini contents.

    {"text"}  {"text", "thought": true}  {"functionCall"}  {"functionResponse"}  {"inlineData"}  {"fileData"}

Any of them may have a `thoughtSignature`, which belongs to exactly that part.

A function response must be an object, so every client wraps the result of a tool in a key of its own choice. The
wrapper is form: `{"output": "22 °C"}` is the text 22 °C, `{"error": …}` is a failure.
"""

from __future__ import annotations

from ...ir.errors import ProtocolError
from ...ir.parts import (
    Artefact,
    CallState,
    Extra,
    Media,
    MediaKind,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    part_label,
)
from ...ir.pointer import JSON, Object
from ...stream.strict import parse_arguments
from ..content import guess_media_type
from ..fields import (
    decode_list,
    is_empty,
    odd_values,
    read_boolean,
    read_label,
    read_optional_string,
    read_string,
    require_object,
)
from .field_names import NAME, read_fields, to_camel_case

PROVIDER = "google"
_FORM = "gemini~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_FOREIGN = "it belongs to another provider"
_CALL = "gemini/functionCall"
_RESULT = "gemini/functionResponse"
_DATA = "gemini/data"
_DATA_FORM = "gemini/data~"

_TEXT = frozenset({"text", "thought", "thoughtSignature"})
_CALL_PART = frozenset({"functionCall", "thoughtSignature"})
_RESULT_PART = frozenset({"functionResponse", "thoughtSignature"})
_INLINE_PART = frozenset({"inlineData"})
_FILE_PART = frozenset({"fileData"})
_CALL_FIELDS = frozenset({"id", "name", "args"})
_CALL_TYPES = {"id": (str,), "args": (dict,)}
_RESULT_FIELDS = frozenset({"id", "name", "response", "parts"})
_DATA_FIELDS = frozenset({"mimeType", "data", "fileUri", "displayName"})

_TO_STANDARD = str.maketrans("-_", "+/")
_TO_URL = str.maketrans("+/", "-_")
_URL = ":url_alphabet"
_UNPADDED = ":unpadded"

_WRAPPERS = ("output", "result", "return_value", "content")
_OWN_FILES = ("https://generativelanguage.googleapis.com/", "gs://")


def read_part(raw: JSON) -> Part:
    """Read a part of a message, in either spelling; a part of an unknown kind stays Opaque.

    Raise ProtocolError if it is invalid.
    """
    # protobuf reads a null as an absent field, so a part may list all its members
    fields = {key: value for key, value in to_camel_case(require_object(raw)).items() if value is not None}
    if "functionCall" in fields:
        return _read_call(raw)
    if "text" in fields:
        return _read_text(raw)
    if "functionResponse" in fields:
        return _read_result(raw)
    for field, known in (("inlineData", _INLINE_PART), ("fileData", _FILE_PART)):
        if field in fields:
            return _read_data(raw, field, known)
    names = [key for key in fields if key != "thoughtSignature"]
    return Opaque(NAME, names[0] if names else "part", raw)


def read_signature(fields: Object) -> tuple[Artefact, ...]:
    signature = read_optional_string(fields, "thoughtSignature")
    return (Artefact(PROVIDER, "thought_signature", signature),) if signature else ()


def _read_text(raw: Object) -> Text | Reasoning:
    """Read a text, or reasoning if the part is marked as a thought, with its signature; no text is noted as form."""
    extra: Extra = {}
    fields = read_fields(raw, _TEXT, NAME, extra)
    text = read_optional_string(fields, "text") or ""
    if not text:
        extra[_FORM] = {**extra.get(_FORM, {}), ":empty": True}
    if read_boolean(fields, "thought"):
        return Reasoning(text, artefacts=read_signature(fields), extra=extra)
    return Text(text, artefacts=read_signature(fields), extra=extra)


def _read_call(raw: Object) -> ToolCall:
    """Read a call in either spelling; absent and odd arguments are recorded in `extra`.

    Arguments as text are parsed. Raise ProtocolError if the call is invalid.
    """
    extra: Extra = {}
    fields = read_fields(raw, _CALL_PART, NAME, extra)
    call = read_fields(require_object(fields["functionCall"], "functionCall"), _CALL_FIELDS, _CALL, extra)
    try:
        value = call.get("args")
        arguments: Object | None = {}
        raw_text: str | None = None
        state: CallState = "complete"
        if type(value) is str:  # a server that copies OpenAI's arguments
            arguments, state = parse_arguments(value)
            raw_text = None if state == "complete" else value
        elif not is_empty(value):
            arguments = require_object(value, "args")
        call_id, name = read_label(call, "id"), read_string(call, "name")
    except ProtocolError as error:
        raise error.within("functionCall") from None
    if value is None:
        extra.setdefault(f"{_CALL}~", {})[":args"] = "absent"
    extra |= odd_values(call, _CALL_TYPES, _CALL)
    return ToolCall(call_id, name, arguments, raw_text, state, artefacts=read_signature(fields), extra=extra)


def _read_result(raw: Object) -> ToolResult:
    """Read a function response; a wrapper that `_wrap` would not choose itself is recorded as form.

    Raise ProtocolError if it is invalid.
    """
    extra: Extra = {}
    fields = read_fields(raw, _RESULT_PART, NAME, extra)
    result = read_fields(
        require_object(fields["functionResponse"], "functionResponse"), _RESULT_FIELDS, _RESULT, extra, ("parts",)
    )
    try:
        response = result.get("response")
        response = {} if response is None else require_object(response, "response")
        content, structured, is_error, wrapper = _unwrap(response, result.get("name"))
        media = decode_list(result, "parts", _read_result_media)
        call_id, name = read_optional_string(result, "id") or "", read_optional_string(result, "name")
    except ProtocolError as error:
        raise error.within("functionResponse") from None
    if result.get("response") is None:
        wrapper = "absent"
    usual_wrapper = (wrapper, is_error) in (("output", False), ("error", True)) and type(structured) is not dict
    if wrapper is not None and not usual_wrapper:
        extra[_FORM] = {**extra.get(_FORM, {}), ":wrapper": wrapper}
    if read_signature(fields):
        extra[NAME] = {**extra.get(NAME, {}), "thoughtSignature": fields["thoughtSignature"]}
    return ToolResult(call_id, name, (*content, *media), structured, is_error, extra=extra)


def _unwrap(response: Object, name: JSON) -> tuple[tuple[Text, ...], JSON, bool, str | None]:
    """Split a function response into (text parts, structured value, is_error, wrapper).

    The wrapper is the only key, if it is a usual one, or "name" for {name, content}; None: the response is the value.
    """
    wrapper: str | None = None
    if len(response) == 1:
        (wrapper,) = response
        if wrapper not in (*_WRAPPERS, "error") or response[wrapper] is None:
            wrapper = None
    elif len(response) == 2 and response.get("name") == name and response.get("content") is not None:
        wrapper = "name"
    if wrapper is None:
        return (), response, False, None
    value = response["content" if wrapper == "name" else wrapper]
    if type(value) is str:
        return ((Text(value),) if value else ()), None, wrapper == "error", wrapper
    return (), value, wrapper == "error", wrapper


def _read_result_media(raw: JSON) -> Media | Opaque:
    part = read_part(raw)
    return part if isinstance(part, (Media, Opaque)) else Opaque(NAME, part_label(part), raw)


def _read_data(raw: Object, field: str, known: frozenset[str]) -> Media | Opaque:
    """Read inline data or a file; a URI on Google's own storage is a file id that Google owns.

    Without data and URI, the part stays Opaque.
    """
    extra: Extra = {}
    fields = read_fields(raw, known, NAME, extra)
    data = read_fields(require_object(fields[field], field), _DATA_FIELDS, _DATA, extra)
    media_type, uri = read_optional_string(data, "mimeType"), read_optional_string(data, "fileUri")
    is_own_file = uri is not None and uri.startswith(_OWN_FILES)
    inline = read_optional_string(data, "data")
    form: Object = {}
    if inline is not None:
        inline, form = _read_base64(inline)
    elif not uri:
        return Opaque(NAME, field, raw)
    if media_type is None:  # the API detects the type of a YouTube video itself
        form[":mimeType"] = "absent"
    if form:
        extra[_DATA_FORM] = {**extra.get(_DATA_FORM, {}), **form}
    return Media(
        _media_kind(media_type or guess_media_type(uri or "")),
        media_type,
        inline,
        None if is_own_file else uri,
        uri if is_own_file else None,
        read_optional_string(data, "displayName"),
        owner=PROVIDER if is_own_file else None,
        extra=extra,
    )


_DEFAULT_TYPES: dict[MediaKind, str] = {
    "image": "image/jpeg",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "file": "application/octet-stream",
}


def _media_kind(media_type: str | None) -> MediaKind:
    """Return the kind of media for a media type; anything unknown is a file."""
    match (media_type or "").partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
    return "file"


def _read_base64(data: str) -> tuple[str, Object]:
    """Return `data` in the standard alphabet, padded, and its original form.

    Google accepts both alphabets of base64, with and without padding, and its Python SDK writes the URL-safe one. No
    other provider accepts that one, so it is form here.

    >>> _read_base64("-_8")
    ('+/8=', {':url_alphabet': True, ':unpadded': True})
    """
    form: Object = {}
    if "-" in data or "_" in data:
        data = data.translate(_TO_STANDARD)
        form[_URL] = True
    if len(data) % 4 > 1:
        data += "=" * (-len(data) % 4)
        form[_UNPADDED] = True
    return data, form
