"""Read the arguments of an operation: parameters and body, as one object schema with the location of each argument."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import NamedTuple

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from .api_tools import BODY, ApiParameter
from .document import References
from .encoding import ApiBody, FieldEncoding, body_kind
from .schemas import DocumentLimit, SchemaReader
from .security import SecurityScheme

_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# Set for each request, or not a decision of the model.
_EXCLUDED_HEADERS = frozenset(
    "authorization proxy-authorization content-type content-length content-encoding accept accept-encoding host cookie "
    "connection keep-alive transfer-encoding te trailer upgrade expect idempotency-key".split()
)
_PREFERENCE = ("json", "form", "multipart", "text", "bytes")
_CONCRETE = {"json": "application/json", "text": "text/plain", "bytes": "application/octet-stream"}  # for wildcards
_MAX_PARAMETERS = 500  # of one operation; far above real ones, which have up to a few dozen
MAX_TOTAL_PARAMETERS = 200_000
"""Maximum number of parameters of all operations together; operations may share them."""
_MAX_MEDIA_TYPES = 50  # of one body; real ones have one to three
_MAX_MEDIA_TYPE = 200  # characters; the longest registered types have about 80
_ANY: Object = {}
_is_header_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}").fullmatch
_is_media_type = re.compile(r"[\w!#$&^.+*-]++/[\w!#$&^.+*-]++(?:\s*+;\s*+[\w-]++=[\w.-]++)*+", re.ASCII).fullmatch
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")


class OperationArguments(NamedTuple):
    """The arguments of an operation."""

    schema: Object
    parameters: dict[str, ApiParameter]
    body: ApiBody | None


class ArgumentReader:
    """Reads the arguments of operations. Parameters that carry credentials are not arguments."""

    def __init__(
        self,
        references: References,
        schemas: SchemaReader,
        schemes: Mapping[str, SecurityScheme],
        preset_headers: Collection[str],
    ) -> None:
        self._references = references
        self._schemas = schemas
        self._total = 0  # parameters of all operations
        self._excluded = {(scheme.kind, scheme.parameter.lower()) for scheme in schemes.values()}
        self._excluded |= {("header", name.lower()) for name in (*_EXCLUDED_HEADERS, *preset_headers)}

    def read(self, method: str, path: str, item: Object, fields: Object) -> OperationArguments:
        """Read the arguments of one operation. `item` is its path item, whose parameters apply to every method.

        SchemaError for an invalid parameter or body, DocumentLimit if the document has too many parameters in all.
        """
        declared = self._declared(item, fields)
        self._total += len(declared)
        if self._total > MAX_TOTAL_PARAMETERS:
            hint = "select some operations with tags= or operations="
            raise DocumentLimit(f"the operations have more than {MAX_TOTAL_PARAMETERS:,} parameters", hint=hint)
        properties: Object = {}
        required: list[str] = []
        sources: list[JSON] = []
        parameters: dict[str, ApiParameter] = {}
        for raw in declared.values():
            parameter = _read_parameter(raw)
            if self._is_excluded(parameter):
                continue
            name = _argument_name(parameter, properties)
            source = _parameter_schema(raw)
            sources.append(source)
            properties[name] = _describe(self._schemas.inline(source, "request"), raw.get("description"))
            parameters[name] = parameter
            if raw.get("required") is True or parameter.location == "path":
                required.append(name)
        _check_placeholders(path, parameters)
        body, source, is_required = self._body(method, fields, properties)
        sources += [] if body is None else [source]
        required += [BODY] if is_required else []
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return OperationArguments(self._schemas.with_defs(schema, sources, "request"), parameters, body)

    def _declared(self, item: Object, fields: Object) -> dict[tuple[str, str], Object]:
        """Return the parameters by location and name; an operation's parameters override its path item's.

        SchemaError for too many of them, and for an invalid name or location.
        """
        listed: dict[tuple[str, str], Object] = {}
        for owner in (item, fields):
            raw = owner.get("parameters")
            if type(raw) is list and len(raw) > _MAX_PARAMETERS:
                raise SchemaError(f"the operation has more than {_MAX_PARAMETERS} parameters")
            for element in raw if type(raw) is list else ():
                parameter = self._references.follow(element)
                location, name = parameter.get("in"), parameter.get("name")
                if type(location) is not str or type(name) is not str or not name or location not in _STYLES:
                    raise SchemaError(
                        f"a parameter has an invalid name or location: {str(name)[:80]!r} in {str(location)[:20]!r}"
                    )
                listed[location, name.lower() if location == "header" else name] = parameter
        return listed

    def _is_excluded(self, parameter: ApiParameter) -> bool:
        """Return True for credentials and for headers that are set for each request."""
        name = parameter.name.lower()
        is_reserved = parameter.location == "header" and name.startswith(("proxy-", "sec-"))
        return is_reserved or (parameter.location, name) in self._excluded

    def _body(self, method: str, fields: Object, properties: Object) -> tuple[ApiBody | None, JSON, bool]:
        """Add the argument for the body to `properties`; return the body, its original schema, and if it is required.

        Text and bytes are an argument of type string. SchemaError for an invalid media type.
        """
        declared = self._references.follow(fields.get("requestBody"))
        content = declared.get("content")
        is_required = declared.get("required") is True
        if type(content) is not dict or not content or (method == "get" and not is_required):
            return None, _ANY, False  # OpenAPI 3.0 ignores the body of GET
        media_type, media = _choose_media(content)
        kind = body_kind(media_type)
        schema = media.get("schema", _ANY) if kind == "json" else self._references.follow(media.get("schema"))
        if kind in ("text", "bytes"):
            text = "base64-encoded content" if kind == "bytes" else f"{media_type} as text"
            properties[BODY] = _describe({"type": "string"}, declared.get("description") or text)
            return ApiBody(media_type), _ANY, is_required
        converted = self._schemas.inline(schema, "request")
        properties[BODY] = _describe(converted, declared.get("description"))
        encodings = {} if kind == "json" else self._field_encodings(schema, media.get("encoding"))
        if kind == "multipart":
            properties[BODY] = _mark_files(properties[BODY], encodings)
        return ApiBody(media_type, encodings), schema, is_required

    def _field_encodings(self, schema: Object, declared: JSON) -> dict[str, FieldEncoding]:
        """Return the encodings of a form's fields."""
        properties = schema.get("properties")
        encodings = declared if type(declared) is dict else {}
        return {
            name: _field_encoding(self._references.follow(element), encodings.get(name))
            for name, element in (properties.items() if type(properties) is dict else ())
        }


def _read_parameter(raw: Object) -> ApiParameter:
    """Read location and serialisation; SchemaError if the name or style is not valid.

    Parameters with `content` are text, usually JSON.
    """
    location, name = raw["in"], raw["name"]
    if location == "header" and not _is_header_name(name):
        raise SchemaError(f"{name[:80]!r} is not a valid name of a header")
    style = raw.get("style", _STYLES[location][0])
    if style not in _STYLES[location]:
        raise SchemaError(f"the style {str(style)[:40]!r} is not valid for a {location} parameter")
    explode = raw.get("explode")
    content = raw.get("content") if "schema" not in raw else None
    kind = body_kind(next(iter(content), "")) if type(content) is dict else ""
    return ApiParameter(
        location,
        name,
        style,
        explode=explode if type(explode) is bool else style == "form",
        allow_reserved=raw.get("allowReserved") is True,
        is_json=kind == "json",
        is_text=kind not in ("", "json"),
    )


def _parameter_schema(raw: Object) -> JSON:
    """Return the schema of a parameter, as an object of the document."""
    content = raw.get("content")
    if "schema" in raw or type(content) is not dict or not content:
        return raw.get("schema", _ANY)
    media = next(iter(content.values()))
    return media.get("schema", _ANY) if type(media) is dict else _ANY


def _argument_name(parameter: ApiParameter, taken: Object) -> str:
    """Return a name with the characters that all providers accept, at most 64.

    If it is taken, the location is put before it, or a hash after it.
    """
    name = re.sub(r"[^a-zA-Z0-9_.-]+", "_", parameter.name[:1000]).strip("_") or "value"
    if len(name) > 64:
        name = f"{name[:55]}_{sha256(parameter.name.encode(errors='replace')).hexdigest()[:8]}"
    if name == BODY or name in taken:
        name = f"{parameter.location}_{name}"[:64]
    if name in taken:
        name = f"{name[:55]}_{sha256(parameter.name.encode(errors='replace')).hexdigest()[:8]}"
    return name


def _check_placeholders(path: str, parameters: Mapping[str, ApiParameter]) -> None:
    """Require a path parameter for each placeholder, and a placeholder for each path parameter.

    Raise SchemaError if one is missing.
    """
    declared = {parameter.name for parameter in parameters.values() if parameter.location == "path"}
    placeholders = set(_PLACEHOLDER.findall(path))
    if declared != placeholders:
        names = ", ".join(sorted(declared ^ placeholders))[:200]
        raise SchemaError(f"the declared path parameters do not match the path: {names}")


def _choose_media(content: Object) -> tuple[str, Object]:
    """Return the media type that suits a model best (JSON, else a form, text or bytes), and its media object.

    A wildcard becomes a concrete type. SchemaError if the type is not valid.
    """
    listed = list(content.items())[:_MAX_MEDIA_TYPES]
    media_type, media = min(listed, key=lambda entry: _media_rank(entry[0]))
    if "*" in media_type:
        media_type = _CONCRETE[body_kind(media_type)]
    if not _is_media_type(media_type):
        media_type = media_type.partition(";")[0].strip()  # some documents have invalid parameters
    if len(media_type) > _MAX_MEDIA_TYPE or not _is_media_type(media_type):
        raise SchemaError(f"{media_type[:80]!r} is not a valid media type")
    return media_type, media if type(media) is dict else {}


def _media_rank(media_type: str) -> tuple[int, bool]:
    """Order media types: by kind, and plain JSON before other types with JSON syntax, such as patches."""
    plain = media_type.partition(";")[0].strip().lower() == "application/json"
    return _PREFERENCE.index(body_kind(media_type)), not plain


def _field_encoding(schema: Object, declared: JSON) -> FieldEncoding:
    """Return the encoding of one field; SchemaError if its style is not valid.

    A file is recognised by its format or encoding. An invalid content type is ignored.
    """
    encoding: Object = declared if type(declared) is dict else {}
    element = schema.get("items") if schema.get("type") == "array" else schema
    is_binary = type(element) is dict and (
        element.get("format") in ("binary", "byte", "base64")
        or type(element.get("contentMediaType")) is str
        or element.get("contentEncoding") == "base64"
    )
    content_type = encoding.get("contentType")
    first = content_type.partition(",")[0].strip() if type(content_type) is str else None
    if first is not None and (len(first) > _MAX_MEDIA_TYPE or "*" in first or not _is_media_type(first)):
        first = None
    style, explode = encoding.get("style"), encoding.get("explode")
    if style is None and type(explode) is bool:
        style = "form"
    if style is not None and style not in _STYLES["query"]:
        raise SchemaError(f"the style {str(style)[:40]!r} is not valid for a field of a form")
    return FieldEncoding(first, style, explode if type(explode) is bool else style in (None, "form"), is_binary)


def _mark_files(schema: JSON, encodings: Mapping[str, FieldEncoding]) -> JSON:
    """Describe the files of a multipart body as base64 text."""
    properties = schema.get("properties") if type(schema) is dict else None
    if type(properties) is not dict:
        return schema
    files = {name for name, encoding in encodings.items() if encoding.is_binary}
    marked = {
        name: _describe(element, f"{element.get('description', '')} base64-encoded content of a file".strip())
        if name in files and type(element) is dict
        else element
        for name, element in properties.items()
    }
    return {**schema, "properties": marked}


def _describe(schema: JSON, description: JSON) -> JSON:
    """Add the description of a parameter or body, which is more specific than its schema's."""
    if type(description) is not str or not description.strip() or type(schema) is not dict:
        return schema
    return {**schema, "description": description.strip()}
