"""One request of an SDK: the meaning of its path, the state of its conversation, and the answer on the SDK's wire."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from secrets import token_hex
from time import monotonic, time
from typing import Literal

from msgspec.structs import replace

from ..bridge.conversation.restored_turns import find_turn_keys, restore_turns, turn_is_incomplete, turn_keys
from ..bridge.conversation.turns import MAX_TURN_BYTES, InMemoryTurns, StoredTurn, TurnRecorder
from ..bridge.fitting.typed_tools import express_items
from ..bridge.restoration.provider_fields import AnswerReporter
from ..ir.errors import ProtocolError, ToolwireError
from ..ir.events import Event, ResponseEnd, ResponseStart, StreamFault
from ..ir.losses import Losses
from ..ir.parts import Part
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.response import Response
from ..ir.text import to_bytes
from ..ir.value import Value
from ..net.model.client import ModelClient
from ..net.model.endpoint import Endpoint
from ..net.model.endpoint_settings import NO_DEFAULTS
from ..net.model.pass_through import accepts_request, has_valid_ids
from ..stream.strict import parse, parse_object
from ..wire import get
from ..wire.protocol import Wire
from ..wire.streaming.encoder import framing_of

# The paths that official SDKs use, with their meaning.
#
# A path is recognised by its end, because every SDK has its own base URL, and clouds add their own prefixes.


class SdkRoute(Value, frozen=True):
    """The meaning of a path. `model` and `stream` are None if the body contains them."""

    action: Literal["generate", "models", "model"]
    wire: str
    model: str | None = None
    stream: bool | None = None


_MODEL_NAME = r"(?>.*/models/)(?P<model>.+)"
_GENERATE = (
    (re.compile(r".*/chat/completions"), "openai_chat"),
    (re.compile(r".*/responses"), "openai_responses"),
    (re.compile(r".*/messages"), "anthropic"),
    (re.compile(r".*/interactions"), "gemini_interactions"),
    (re.compile(rf"{_MODEL_NAME}:(?P<verb>generateContent|streamGenerateContent)"), "gemini"),
    (re.compile(r".*/api/chat"), "ollama"),
    (re.compile(r".*/v2/chat"), "cohere"),
)
_MODELS = re.compile(r".*/(?:models|api/tags)")
_MODEL = re.compile(_MODEL_NAME)


def find_route(method: str, path: str, headers: Mapping[str, str]) -> SdkRoute | None:
    """Return the meaning of a request, or None if no model can answer it.

    Some paths contain the model and the verb (`:streamGenerateContent`).
    """
    if method == "POST":
        for pattern, wire in _GENERATE:
            if found := pattern.fullmatch(path):
                groups = found.groupdict()
                verb = groups.get("verb")
                return SdkRoute(
                    "generate", wire, groups.get("model"), None if verb is None else verb.startswith("stream")
                )
    elif method == "GET":
        wire = guess_wire(path, headers)
        if _MODELS.fullmatch(path):
            return SdkRoute("models", wire)
        if (found := _MODEL.fullmatch(path)) is not None and ":" not in path:
            return SdkRoute("model", wire, found["model"])
    return None


def guess_wire(path: str, headers: Mapping[str, str]) -> str:
    """Choose the wire for a path that does not determine it, by the headers that the SDKs send."""
    if "anthropic-version" in headers or "/messages" in path:
        return "anthropic"
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers or "/v1beta" in path:
        return "gemini"
    if "/api/" in path:
        return "ollama"
    if "/v2/" in path:
        return "cohere"
    return "openai_responses" if "/responses" in path else "openai_chat"


# The state of the conversations of one transport: turns that an SDK cannot return in full, and stored responses.
#
# Both are limited in number and in bytes; the oldest entries are dropped.


_MAX_ENTRIES = 4096  # turns of one process; an agent's conversation has tens of them
_MAX_BYTES = 64 * 1024 * 1024  # as much as the gateway keeps of translated conversations
_MAX_SECONDS = 24 * 3600.0  # a day, as the records of calls (`records.DAY`)
_MAX_CHAIN = 1000  # responses in one conversation; the ids come from the client, and a cycle must end
_OWNER = ""  # a transport has one user


class ConversationMemory:
    """Turns with signatures, encrypted reasoning or parts of the provider's own, for requests on another wire."""

    def __init__(self) -> None:
        self._turns = InMemoryTurns(_MAX_ENTRIES, _MAX_BYTES, _MAX_SECONDS, monotonic)

    async def restore(self, request: Request, endpoint: Endpoint) -> Request:
        """Return the request with its stored turns in place of the SDK's copies."""
        if not self._turns.has_any:
            return request
        messages = express_items(request.messages, endpoint.wire.name)
        if messages is not request.messages:
            request = replace(request, messages=messages)
        known = await self._turns.load(_OWNER, find_turn_keys(request, by_text=True))
        return restore_turns(request, known, endpoint.turn_origin) if known else request

    async def save(self, parts: tuple[Part, ...], endpoint: Endpoint) -> None:
        """Save a turn if the SDK's copy will lack something."""
        turn = StoredTurn(parts)
        if not turn_is_incomplete(turn, same_wire=False):
            return
        bound = turn.bind(endpoint.model, endpoint.turn_origin)
        data = bound.to_json()
        if len(data) <= MAX_TURN_BYTES:
            await self._turns.save(_OWNER, turn_keys(bound), bound, data)


class _StoredResponse(Value, frozen=True):
    """The items of one response of OpenAI Responses, input and output, as JSON, and the response before it."""

    items: bytes
    previous: str | None


def new_answer_id(wire: str, document: Object) -> str:
    """Return the id of an answer that a later request may refer to; nothing if none can."""
    if wire == "openai_responses":
        return f"resp_{token_hex(24)}"
    return f"msg_{token_hex(12)}" if wire == "anthropic" and isinstance(document.get("thread"), dict) else ""


class ResponseChains:
    """Answers of models without a store of their own.

    `previous_response_id` of OpenAI, and `thread` of Anthropic, which its tool runner sends, continue a conversation.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _StoredResponse] = OrderedDict()
        self._used_bytes = 0

    def expand(self, document: Object) -> Object:
        """Return the request with the items of earlier responses; the same object if one of them is not stored here."""
        previous = _previous_id(document)
        chain = self._chain(previous)
        if not chain and (previous is not None or not isinstance(document.get("thread"), dict)):
            return document
        items = [item for entry in reversed(chain) for item in _parse_items(entry.items)]
        expanded = {name: value for name, value in document.items() if name not in ("previous_response_id", "thread")}
        return {**expanded, _items_field(document): [*items, *_input_items(document)]}

    def _chain(self, response_id: str | None) -> list[_StoredResponse]:
        """List the responses from the newest to the first; nothing if one is missing: no part may be left out."""
        chain: list[_StoredResponse] = []
        while response_id is not None:
            entry = self._entries.get(response_id)
            if entry is None or len(chain) == _MAX_CHAIN:
                return []
            chain.append(entry)
            response_id = entry.previous
        return chain

    def save(self, answer_id: str, document: Object, answer: Object) -> None:
        """Store the encoded answer to `document`, unless the request forbids it.

        The oldest answers are dropped above the limits.
        """
        if document.get("store") is False or not answer_id:
            return
        turn = answer["output"] if "output" in answer else [{"role": "assistant", "content": answer.get("content")}]
        items = to_bytes([*_input_items(document), *turn])
        self._entries[answer_id] = _StoredResponse(items, _previous_id(document))
        self._used_bytes += len(items)
        while len(self._entries) > _MAX_ENTRIES or self._used_bytes > _MAX_BYTES:
            self._used_bytes -= len(self._entries.popitem(last=False)[1].items)


def _previous_id(document: Object) -> str | None:
    """Return the id of the answer that a request continues."""
    thread = document.get("thread")
    previous = thread.get("previous_message_id") if isinstance(thread, dict) else document.get("previous_response_id")
    return previous if isinstance(previous, str) else None


def _items_field(document: Object) -> str:
    return "messages" if "messages" in document else "input"


def _input_items(document: Object) -> list[JSON]:
    """Return the input as a list of items; a string is one message of the user."""
    items = document.get(_items_field(document))
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    return list(items) if isinstance(items, list) else []


def _parse_items(data: bytes) -> list[JSON]:
    items = parse(data)
    return items if isinstance(items, list) else []


_SAME_WIRE_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")


class SdkRequest(Value, frozen=True):
    """An HTTP request of an SDK. `read_timeout` limits the wait for each piece of the answer, in seconds."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    read_timeout: float | None = None


class SdkCall:
    """A request for a model's answer, decoded on the wire of the SDK."""

    def __init__(
        self,
        request: SdkRequest,
        route: SdkRoute,
        chains: ResponseChains,
        find_client: Callable[[str], ModelClient],
    ) -> None:
        """Decode an SDK's request and find the client of its model.

        Raises `ProtocolError` without a model, and for a body that cannot be decoded, unless it is forwarded to the
        same wire unchanged.
        """
        self.wire = _codec(route.wire, request.headers)
        self.body = request.body
        self.original = parse_object(request.body)
        self.losses = Losses()
        self.headers = {name: request.headers[name] for name in _SAME_WIRE_HEADERS if name in request.headers}
        name = route.model if route.model is not None else self.original.get("model")
        if not isinstance(name, str):
            raise ProtocolError("the request names no model", pointer="/model")
        self.client = find_client(name)
        is_other_wire = self.client.endpoint.wire.name != self.wire.name
        self.answer_id = new_answer_id(route.wire, self.original) if is_other_wire else ""
        self.document = chains.expand(self.original) if self.answer_id else self.original
        decoded, decode_error = self._decode()
        self.stream = bool(decoded.stream) if route.stream is None else route.stream
        self.request = replace(decoded, model=name, stream=self.stream or None)
        if decode_error is not None and not self.is_forwarded:
            raise decode_error

    def _decode(self) -> tuple[Request, ToolwireError | None]:
        """Decode the document. One that is only forwarded need not be valid: the server will answer."""
        try:
            return self.wire.decode_request(self.document), None
        except ToolwireError as error:
            return Request(stream=True if self.document.get("stream") is True else None), error

    @property
    def is_forwarded(self) -> bool:
        """True if the endpoint accepts the body as it is."""
        endpoint, document = self.client.endpoint, self.document
        return (
            not self.client.emulates_calls
            and not endpoint.changes_body
            and endpoint.defaults is NO_DEFAULTS
            and accepts_request(
                endpoint,
                self.wire.name,
                document.__contains__,
                lambda: document.get("tool_choice"),
                lambda limit: len(self.request.tools) > limit,
            )
            and (endpoint.vendor.id is None or has_valid_ids(self.request, endpoint.wire.limits))
        )


class AnswerEncoding:
    """The encoding of one answer for the SDK."""

    def __init__(self, call: SdkCall, reporter: AnswerReporter) -> None:
        self.call = call
        self.recorder = TurnRecorder()
        self._reporter = reporter
        self._encoder = call.wire.stream_encoder(call.request)
        self._encoder.losses = call.losses
        self._adds_time = call.wire.capabilities.timestamps

    def headers(self) -> dict[str, str]:
        """Return the headers of the answer: its request id, and the number of losses so far."""
        request_id = f"req_{token_hex(12)}"
        return {
            "x-request-id": request_id,
            "request-id": request_id,
            "x-toolwire-losses": str(len(self.call.losses)),
        }

    def stream_headers(self) -> dict[str, str]:
        return {"content-type": framing_of(self.call.wire.name).media_type, **self.headers()}

    def encode_response(self, response: Response) -> Object:
        call = self.call
        if response.created is None and self._adds_time:
            response = replace(response, created=int(time()))
        response = self._reporter.report_response(response)
        return self.encode_document(replace(response, id=call.answer_id or response.id))

    def encode_document(self, response: Response) -> Object:
        """Encode a whole answer, and add its losses to the call."""
        document, losses = self.call.wire.encode_response(response, self.call.request)
        self.call.losses.extend(losses)
        return document

    def encode_turn(self, parts: tuple[Part, ...]) -> Object:
        """Encode the parts of a streamed answer as a document, without its losses, which the stream has reported."""
        return self.call.wire.encode_response(Response(self.call.answer_id, parts=parts), self.call.request).body

    def encode_event(self, event: Event) -> bytes:
        if isinstance(event, ResponseStart):
            created = int(time()) if event.created is None and self._adds_time else event.created
            event = replace(event, id=self.call.answer_id or event.id, created=created)
        if not isinstance(event, (ResponseEnd, StreamFault)):
            self.recorder.feed(event)
        return self._encoder.feed(self._reporter.report_event(event))


def _codec(name: str, headers: Mapping[str, str]) -> Wire:
    """Return the codec for the API version that the SDK names; the newest one if it is unknown."""
    codec = get(name)
    version = headers.get("anthropic-version", "") if codec.version else ""
    return get(f"{name}@{version}") if version in getattr(codec, "versions", {}) else codec
