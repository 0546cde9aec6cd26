"""Ollama's raw completion endpoint.

POST /api/generate with `"raw": true`: the `prompt` is used as it is, without the template of the model. An answer, or a
line of a stream, has a `response` in place of a message, so it is rewritten and read by the functions of /api/chat.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.events import Event
from ...ir.parts import Text
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.response import Response
from ..codec import CompletionEndpoint
from ..protocol import Encoded
from .request import encode_request
from .response import decode_response
from .stream_decoder import OllamaStreamDecoder


def _encode_prompt(request: Request, kept_tokens: Sequence[str]) -> Encoded:
    """Encode a request of one message as a raw prompt.

    Without `"think": false`, the server removes the reasoning of models that are known to think. It has no field for
    special tokens that it should keep.
    """
    del kept_tokens
    body, losses = encode_request(request)
    del body["messages"]
    text = "".join(part.text for part in request.messages[0].parts if isinstance(part, Text))
    return Encoded({**body, "prompt": text, "raw": True, "think": False}, losses)


def _decode_text(body: Object) -> Response:
    return decode_response(_as_chat(body))


class GenerateStreamDecoder(OllamaStreamDecoder):
    """Decoder of /api/generate streams: lines like /api/chat, with a `response` in each."""

    text_fields = frozenset({"response"})

    def _read_line(self, line: Object, events: list[Event]) -> None:
        super()._read_line(_as_chat(line), events)


def _as_chat(document: Object) -> Object:
    """Rewrite the text of an answer as a message. The tokens of the conversation (`context`) are of no use to a client."""
    if "response" not in document:
        return document
    kept = {name: value for name, value in document.items() if name not in ("response", "context")}
    return {**kept, "message": {"role": "assistant", "content": document["response"]}}


COMPLETIONS = CompletionEndpoint(
    path="/api/generate",
    encode_request=_encode_prompt,
    decode_response=_decode_text,
    stream_decoder=GenerateStreamDecoder,
)
