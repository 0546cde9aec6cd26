"""A client's request: its few fields that the gateway reads itself, and on demand everything else.

A large request that is passed through is never parsed as a whole: typed partial decoding finds the fields, and skips the
rest. A small one is parsed, which costs little, so that a document with two meanings is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from ...asgi.offload import LARGE, ClientOffload
from ...bridge.conversation.fitted_prefix import PrefixStore
from ...bridge.conversation.known_settings import KnownSettings, read_request
from ...bridge.conversation.media import has_media
from ...bridge.conversation.provider_state import find_new_thread, find_stored, may_be_stored
from ...bridge.conversation.reading import RequestReading
from ...bridge.conversation.reasoning_envelope import ENVELOPE_WIRES, has_envelope, may_contain_envelope
from ...ir.errors import ProtocolError, StoredStateError, ToolwireError
from ...ir.pointer import JSON, Object, nearest_existing
from ...ir.request import Request
from ...ir.text import finite_to_bytes, to_bytes
from ...net.http.head import is_header_value
from ...net.model.endpoint import Endpoint
from ...stream.strict import parse_object
from ...wire.openai_responses.content import SUMMARY_MARK
from ...wire.protocol import Wire
from ..keys import Caller
from ..responses.pending_response import PendingResponse
from ..responses.recorder import ResponseRecorder
from ..routing.upstreams import ConfiguredUpstream
from .body import FORBIDDEN_FIELDS, ROUTING_NAME, ClientBody, RoutingRefused, forbidden_field_error, may_route
from .routes import Route

_MAX_MODEL_NAME = 512  # characters; names are cached, and providers' names are much shorter
# protocol headers of a provider's own clients, forwarded to an upstream of the same wire
_SAME_WIRE_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
_SAME_WIRE_NAMES = frozenset(_SAME_WIRE_HEADERS)
_FORBIDDEN_NAMES = frozenset(FORBIDDEN_FIELDS)
_STREAM_TYPES = frozenset({bool, type(None), UnsetType})
CALL_MARKS = (b"tool_use", b"toolUse", b"tool_calls", b"unction", b"custom_tool_call")
"""Bytes of which one occurs with each call, on every wire and in any spelling."""
_MEDIA_MARKS = (
    *(
        b'"image_url"',
        b'"input_image"',
        b'"image"',
        b'"images"',
        b'"document"',
        b'"file"',
        b'"input_file"',
        b'"input_audio"',
    ),
    *(b'"inlineData"', b'"inline_data"', b'"fileData"', b'"file_data"', b'"audio"', b'"video"', b'"video_url"'),
)
"""Bytes of which one occurs with each image or file, on every wire."""
_SUMMARY = f'"{SUMMARY_MARK}'.encode()
_SCHEMA_FIELDS = frozenset(
    {
        "tools",
        "functions",
        "toolConfig",
        "response_format",
        "text",
        "output_config",
        "outputConfig",
        "generationConfig",
        "format",
    }
)
_SHORT = 64  # bytes
_LISTED = 3  # the depth of tools that are items of the list, not of groups in it
_MIN_DECLARATION = len(b'{"name":"x"}')
_EMPTY = (b"null", b"[]", b"{}", b"false")
_find_routing = re.compile(b'"' + ROUTING_NAME + b'"').search
_LONGEST_NAME = 64  # bytes; `content_policy_fallbacks` has 24, and 29 in the longest spelling with its quotes
_SEARCHED = 256 * 1024  # bytes in one call, which no other thread can interrupt: 10 ms if it consists of short strings
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]").search  # in a name, which may be a duplicate in another spelling
_ESCAPED_IN_ANY_CASE = re.compile(rb"\\u(?:00[4-7]|017[fF]|212[aA])").search  # see `forbidden_fields`


class ModelMissing(ProtocolError):
    """The request names no model. The application adds the path that lists the names."""


class _RequestFields(Struct):
    """The fields that the gateway reads itself; all others are skipped."""

    model: str | UnsetType = UNSET
    stream: bool | UnsetType | None = UNSET
    n: int | UnsetType | None = UNSET
    tools: Raw | UnsetType = UNSET
    functions: Raw | UnsetType = UNSET
    tool_config: Raw | UnsetType = field(default=UNSET, name="toolConfig")
    response_format: Raw | UnsetType = UNSET
    text: Raw | UnsetType = UNSET
    output_config: Raw | UnsetType = UNSET
    own_output_config: Raw | UnsetType = field(default=UNSET, name="outputConfig")
    generation_config: Raw | UnsetType = field(default=UNSET, name="generationConfig")
    format: Raw | UnsetType = UNSET
    api_base: Raw | UnsetType = UNSET
    base_url: Raw | UnsetType = UNSET
    api_key: Raw | UnsetType = UNSET
    extra_headers: Raw | UnsetType = UNSET
    custom_llm_provider: Raw | UnsetType = UNSET
    user_config: Raw | UnsetType = UNSET

    def list_schemas(self) -> list[Raw]:
        """Return the encoded fields of `_SCHEMA_FIELDS`."""
        fields = (
            self.tools,
            self.functions,
            self.tool_config,
            self.response_format,
            self.text,
            self.output_config,
            self.own_output_config,
            self.generation_config,
            self.format,
        )
        return [raw for raw in fields if not isinstance(raw, UnsetType)]


_envelopes = msgspec.json.Decoder(_RequestFields)


class ClientRequest:
    """A request as bytes and, on demand, as a document and as a value."""

    pending_response: PendingResponse | None = None  # of OpenAI Responses, with the conversation that it continues
    is_stream_required = False  # by the path
    as_array = False  # a stream as one JSON array
    strict = False  # a loss is an error
    headers: Mapping[str, str] = {}  # see `_SAME_WIRE_HEADERS`
    choices = 1
    _document: Object | None = None  # parsed on demand
    _request: Request | ToolwireError | None = None  # decoded on demand
    _decoded: Request | None = None  # before it was rebuilt
    _schemas: bytes | None = None  # the encoded fields of a large request
    _has_envelopes: bool | None = None  # None: not searched yet
    settings: KnownSettings | None = None  # of the request, set when it is decoded
    upload: ClientBody | None = None  # a body that is sent on while it arrives

    def __init__(
        self,
        route: Route,
        wire: Wire,
        body: bytes,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        work_size: int,
        reading: RequestReading | None = None,
    ) -> None:
        """Read a request. `work_size` is the size of the work to decode it, see `admit_request`.

        `reading` knows the first messages of a large `body`. Raise ProtocolError if the body is invalid or
        names no model, and ConfigError if it sets a field that is forbidden for clients.
        """
        self._read_head(route, headers, query)
        self.own_work = work_size  # without a stored conversation
        self.wire = wire
        if self.ingress.is_invoke:
            body = self._read_invoke(route, body)
        self.body = body
        self._reading = reading
        if len(body) <= LARGE:
            self._document = document = parse_object(body)
            self._read_document_fields(route, document)
        else:
            self._read_large_fields(route)

    def _read_head(self, route: Route, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Read everything but the body. Most requests keep the defaults of the class.

        Gemini streams a JSON array, unless the query asks for events (`alt=sse`).
        """
        self.ingress = route.ingress
        if route.stream:
            self.is_stream_required = True
            self.as_array = self.ingress.wire == "gemini" and query.get("alt") != "sse"
        if headers.get("x-toolwire-strict") == "1":
            self.strict = True
        if not _SAME_WIRE_NAMES.isdisjoint(headers):
            self.headers = {name: headers[name] for name in _SAME_WIRE_HEADERS if name in headers}

    def _read_invoke(self, route: Route, body: bytes) -> bytes:
        """Return the body of InvokeModel as its wire has it: with the model and `stream`, which the path names.

        Fields that take the place of headers become headers.
        """
        document = dict(parse_object(body))
        version, betas = document.pop("anthropic_version", None), document.pop("anthropic_beta", None)
        if not isinstance(version, str):
            raise ProtocolError("'anthropic_version' is missing", hint='set it to "bedrock-2023-05-31"')
        self.headers = {"anthropic-version": self.wire.version or ""}
        if isinstance(betas, list) and all(map(is_header_value, betas)):
            self.headers = {**self.headers, "anthropic-beta": ",".join(betas)}
        self._reading = None
        return to_bytes({"model": route.model, **document, "stream": bool(route.stream)})

    def _read_large_fields(self, route: Route) -> None:
        """Read the model, `stream`, the number of choices, the schemas, and whether there are tools.

        Raise ConfigError for a forbidden field, and ProtocolError without a valid model. A body that is invalid, or that may contain a name twice, is parsed instead, which reports the error.
        """
        new_text = self.body if self._reading is None else self._reading.new_text
        envelope = _read_envelope(new_text)
        if envelope is None:
            document = self._parse_new_text(new_text)
            self._read_document_fields(route, document)
            self._schemas = _encode_schemas(document)
            return
        for name in FORBIDDEN_FIELDS:
            if getattr(envelope, name) is not UNSET:
                raise forbidden_field_error(name)
        self.body_model = None if envelope.model is UNSET else envelope.model  # as far as it is in the body
        self.model = check_model(route, route.model or self.body_model)
        self.stream = _choose_stream(route, envelope.stream)
        self.choices = envelope.n or 1
        self._schemas = b",".join([bytes(raw) for raw in envelope.list_schemas()])
        declared = (envelope.tools, envelope.functions, envelope.tool_config)
        self.has_tools = not all(map(_is_empty, declared))  # perhaps none: Gemini's `toolConfig` has a choice only

    def _parse_new_text(self, new_text: bytes) -> Object:
        """Parse the body without its known messages; an error has its place in the whole body."""
        try:
            return parse_object(new_text)
        except ProtocolError:
            return self.document

    def _read_document_fields(self, route: Route, document: Object) -> None:
        """Read the model, `stream`, the number of choices, and whether there are tools.

        Raise ConfigError for a forbidden field, and ProtocolError for an invalid model or `stream`.
        """
        if not _FORBIDDEN_NAMES.isdisjoint(document):
            raise forbidden_field_error(next(name for name in FORBIDDEN_FIELDS if name in document))
        model = document.get("model")
        self.model = check_model(route, route.model or model)
        self.body_model = model if model is None or type(model) is str else ""  # "" is replaced for every target
        stream = document.get("stream", UNSET)
        if route.stream is None and type(stream) not in _STREAM_TYPES:
            self.wire.decode_request(document)  # raises the error for this field
        self.stream = _choose_stream(route, stream)
        if "n" in document and type(document["n"]) is int:
            self.choices = document["n"]
        self.has_tools = bool(document.get("tools") or document.get("functions"))
        if "toolConfig" in document:  # of Bedrock and Gemini
            config = document["toolConfig"]
            self.has_tools = self.has_tools or (type(config) is dict and bool(config.get("tools")))

    async def check_caller(self, caller: Caller, offload: ClientOffload) -> None:
        """Raise RequestRefused if the caller may not use the model, RoutingRefused if a field could choose another."""
        caller.check(self.model)
        if not caller.has_all_models:
            size = self.own_work + len(self.body) // 16  # half a megabyte of text is searched at once
            await offload.run(size, self._check_routing_fields)

    def _check_routing_fields(self) -> None:
        if self._document is None and not _may_contain_routing(self.body):
            return
        for name in self.document:
            if may_route(name):
                raise RoutingRefused(name)

    def may_have_field(self, name: str) -> bool:
        """Check whether the body may have a field, without parsing it; exact for a small body."""
        return f'"{name}"'.encode() in self.body if self._document is None else name in self._document

    def has_field(self, name: str) -> bool:
        """Check whether the body has a field; a search in the bytes is cheaper than parsing them."""
        return self.may_have_field(name) and name in self.document

    def may_have_more_tools(self, limit: int) -> bool:
        """Return whether there may be more tools than `limit`, without decoding them.

        This is exact for a small body with a plain list of tools.
        """
        if not self.has_tools:
            return False
        if self._document is not None and self.ingress.tool_depth == _LISTED:
            tools = self._document.get("tools") or self._document.get("functions")
            return type(tools) is list and len(tools) > limit
        text = self.body if self._schemas is None else self._schemas
        return len(text) > limit * _MIN_DECLARATION and text.count(b'"name"') > limit

    def has_more_tools(self, limit: int) -> bool:
        """Return whether there are more tools than `limit`, or False if the request cannot be decoded."""
        request = self.request_or_none if self.may_have_more_tools(limit) else None
        return request is not None and len(request.tools) > limit

    def encode_schemas(self) -> bytes:
        """Return the fields that contain schemas, encoded; empty if there are none."""
        return _encode_schemas(self.document) if self._schemas is None else self._schemas

    @property
    def document(self) -> Object:
        """The parsed body. Raise ProtocolError with a pointer if it is not valid JSON."""
        if self._document is None:
            self._document = parse_object(self.body)
        return self._document

    @property
    def request(self) -> Request:
        """The decoded request. Raise ProtocolError with a pointer if it is invalid on its wire.

        It is decoded once, and the error is kept, too.
        """
        if self._request is None:
            try:
                request = self._decode_body()
            except ToolwireError as error:
                self._request = error
            else:
                self._request = replace(request, model=self.model, stream=self.stream or None)
        if isinstance(self._request, ToolwireError):
            raise self._request
        return self._request

    def _decode_body(self) -> Request:
        """Decode the body; a large one without its known messages, also if its document was parsed."""
        reading = self._reading
        if reading is not None and len(self.body) > LARGE and self.body is reading.body:
            request = reading.decode()
            self.settings = reading.settings
        else:
            request, self.settings = read_request(self.wire, self.document)
        return request

    @property
    def translations(self) -> PrefixStore | None:
        """Translations of the first messages, which the next request of this conversation will repeat."""
        return None if self._reading is None else self._reading.store

    def continue_conversation(self, pending: PendingResponse) -> None:
        """Continue a stored conversation: from now on, `request` has its messages.

        If the upstream stores it, the body names the upstream's last response instead.
        """
        self.pending_response = pending
        if pending.last_id:
            self._document = {**self.document, "previous_response_id": pending.last_id}
            self.body = to_bytes(self._document)
            self._request = None
        if pending.is_rebuilt:
            self._decoded = self.request
            self._request = pending.rebuild(self.decoded, None)

    @property
    def decoded(self) -> Request:
        """The request as the client sent it, without the stored conversation that it continues."""
        return self.request if self._decoded is None else self._decoded

    @property
    def is_rebuilt(self) -> bool:
        """True if the request gets its conversation from the store."""
        return self.pending_response is not None and self.pending_response.is_rebuilt

    def request_for(self, endpoint: Endpoint) -> Request:
        """Return the request for one endpoint: with the artefacts of stored messages that this server made."""
        if self.pending_response is None or not self.pending_response.is_rebuilt:
            return self.request
        return self.pending_response.rebuild(self.decoded, endpoint.origin)

    @property
    def work_size(self) -> int:
        """The size of the work for it, with its stored conversation: large for many values, and small for text."""
        pending = self.pending_response
        return self.own_work if pending is None else self.own_work + pending.chain_bytes + pending.found_bytes

    @property
    def wants_store(self) -> bool:
        """True if the answer of OpenAI Responses may be stored, which is the default."""
        return self.document.get("store") is not False

    def records_at(self, upstream: ConfiguredUpstream) -> bool:
        """Check whether the gateway stores the answer of an upstream."""
        return self.pending_response is not None and self.pending_response.records_at(upstream)

    def make_recorder(self, upstream: ConfiguredUpstream, model: str) -> ResponseRecorder | None:
        """Return the recorder for the answer of an upstream, or None if the gateway does not store it."""
        pending = self.pending_response
        return None if pending is None or not pending.records_at(upstream) else pending.make_recorder(model)

    def decode(self) -> None:
        """Decode the request, if that is possible. Call it in a thread for a large one."""
        _ = self.request_or_none

    @property
    def cheap_request(self) -> Request | None:
        """The request, if it is decoded, or small: decoding a large one would keep the event loop busy."""
        is_cheap = self._request is not None or self.work_size <= LARGE
        return self.request_or_none if is_cheap else None

    @property
    def request_or_none(self) -> Request | None:
        """The decoded request, or None if it cannot be decoded: a request that is only passed through need not be."""
        try:
            return self.request
        except ToolwireError:
            return None

    def find_stored_state_error(self, target: str) -> StoredStateError | None:
        """Return the error for a reference to stored state that the wire `target` cannot carry, or None.

        Its pointer is into the client's document.
        """
        if self.pending_response is None and not may_be_stored(self.body, self.wire.name):
            return None
        request = self.request_or_none
        error = None if request is None else find_stored(request, target) or find_new_thread(request, target)
        if request is not None and error is not None:
            error.pointer = nearest_existing(self.document, self.wire.locator(request)(error.pointer))
        return error

    @property
    def has_envelopes(self) -> bool:
        """True if the request has reasoning in an envelope of ours, also of another model, or may get it from the store.

        Use it first in a thread if the body is large.
        """
        if self._has_envelopes is None:
            self._has_envelopes = self.wire.name in ENVELOPE_WIRES and (
                self.is_rebuilt or (may_contain_envelope(self.body) and has_envelope(self.document))
            )
        return self._has_envelopes

    @property
    def has_summary(self) -> bool:
        """True if the body has a summary of the gateway in an item that no upstream can read."""
        return self.ingress.stores_responses and _SUMMARY in self.body

    def may_have_media(self) -> bool:
        """Check whether there may be images or files; a search in the bytes is cheaper than decoding."""
        return self.is_rebuilt or any(mark in self.body for mark in _MEDIA_MARKS)

    def has_media(self, kinds: frozenset[str]) -> bool:
        """Check whether the request has media of one of these kinds; not if it cannot be decoded."""
        request = self.request_or_none if kinds and self.may_have_media() else None
        return request is not None and has_media(request, kinds)

    def may_have_calls(self) -> bool:
        """Check whether the history may contain calls; a search in the bytes is cheaper than decoding."""
        if self.is_rebuilt:
            return True
        return any(mark in self.body for mark in CALL_MARKS)


def _may_contain_routing(body: bytes) -> bool:
    """Search a large body for names that `may_route` refuses, at any depth."""
    if _ESCAPED_IN_ANY_CASE(body) is not None:
        return True
    starts = range(0, len(body), _SEARCHED)
    return any(_find_routing(body, start, start + _SEARCHED + _LONGEST_NAME) for start in starts)


def _encode_schemas(document: Object) -> bytes:
    schemas = [*map(document.get, filter(_SCHEMA_FIELDS.__contains__, document))]
    return finite_to_bytes(schemas) if schemas else b""


def _is_empty(raw: Raw | UnsetType) -> bool:
    if isinstance(raw, UnsetType):
        return True
    text = bytes(raw)
    return len(text) < _SHORT and text.translate(None, b" \t\r\n") in _EMPTY


def _read_envelope(body: bytes) -> _RequestFields | None:
    """Return the fields of a request, or None if it is invalid, or may contain a name twice."""
    if body.count(b'"model"') > 1 or _ESCAPED_LETTER(body) is not None:
        return None
    try:
        if not body.isascii():
            body.decode()  # msgspec does not check the encoding of the fields that it skips
        return _envelopes.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _choose_stream(route: Route, stream: JSON | UnsetType) -> bool:
    """Return whether the client wants a stream: by the path, by the field, or by the default of its protocol."""
    if route.stream is not None:
        return route.stream
    return route.ingress.streams_by_default if stream is UNSET else bool(stream)


def check_model(route: Route, model: object) -> str:
    """Return the model named in the path or else in the body.

    Raise ModelMissing if there is none, and ProtocolError if its name is too long.
    """
    if not isinstance(model, str) or not model:
        raise ModelMissing("the request names no model", pointer=route.model_pointer)
    if len(model) > _MAX_MODEL_NAME:
        message = f"the model name has more than {_MAX_MODEL_NAME} characters"
        raise ProtocolError(message, pointer=route.model_pointer)
    return model


# Remember for which tools the schemas have been converted, because the first time is expensive.
#
# Converting a schema costs up to 0.1 ms for each of its values, and later uses find the result in a cache. Agents
# send the same tools with every request, so only their first request needs a thread.


ToolsKey: TypeAlias = tuple[int, str]

_MAX_KNOWN = 4096  # hashes, some hundred kilobytes; a client has a few lists of tools
_MAX_KNOWN_BYTES = 1024 * 1024  # of all their requests; the caches of schemas hold at least as much
_SMALL = 1024  # bytes; the schemas in a smaller request are converted in a moment


class KnownTools:
    """Hashes of tools and of the targets that they were converted for."""

    def __init__(self) -> None:
        self._known: set[ToolsKey] = set()
        self._size = 0  # bytes of requests with new tools, or with tools that are not remembered

    def key(self, client_request: ClientRequest, label: str) -> ToolsKey | None:
        """Return the key of the schemas of a request for a target.

        None if there are none, if they are small, or if the request is large, which always needs a thread.
        """
        if len(client_request.body) <= _SMALL or client_request.work_size > LARGE:
            return None
        schemas = client_request.encode_schemas()
        return (hash(schemas), label) if schemas else None

    def has(self, key: ToolsKey | None) -> bool:
        return key is None or key in self._known

    def add(self, key: ToolsKey | None, client_request: ClientRequest) -> None:
        """Remember that the schemas of a request are converted, and count its size.

        At the maximum number or size, start again: results of many other schemas have replaced theirs in the caches.
        """
        if key in self._known:
            return
        if key is None and not (client_request.has_tools and client_request.work_size > LARGE):
            return
        self._size += len(client_request.body)
        if len(self._known) >= _MAX_KNOWN or self._size > _MAX_KNOWN_BYTES:
            self._known.clear()
            self._size = len(client_request.body)
        if key is not None:
            self._known.add(key)
