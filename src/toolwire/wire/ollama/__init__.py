"""Ollama's native protocol.

POST /api/chat. A stream has one JSON object per line, the last with `"done": true`, and streaming is the default.
Arguments are JSON objects, images bare base64. (Ollama also serves OpenAI Chat under /v1, with fewer fields.)
"""

from __future__ import annotations

from ...ir.request import Request
from ..codec import CompletionEndpoint, LogprobForm, WireCodec, fixed_path, read_tokens, tools_decoder, tools_encoder
from ..protocol import Capabilities, Limits, StreamDecoder, StreamEncoder
from .documents import DETECTION, locator
from .fault import decode_error, encode_error
from .messages import NAME
from .request import decode_request, encode_request, read_tool, write_tool
from .response import decode_response, encode_response

__all__ = ["CODEC"]

_IMAGE = frozenset({"image"})


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import OllamaStreamDecoder

    return OllamaStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import OllamaStreamEncoder

    return OllamaStreamEncoder(request)


def _completions() -> CompletionEndpoint:
    from .generate import COMPLETIONS

    return COMPLETIONS


CODEC = WireCodec(
    name=NAME,
    provider="ollama",
    dialect="ollama",
    conversation="messages",
    terminal=rb'"done": ?true',
    detection=DETECTION,
    logprobs=LogprobForm(NAME, "response", read_tokens, lambda tokens: [*tokens]),
    # the server has no rule; such names survive the chat templates of models
    limits=Limits(name=r"[a-zA-Z0-9_.-]+", name_length=128, id=r"[\x21-\x7e]+", id_length=128),
    capabilities=Capabilities(
        timestamps=True,
        adjacent_results=True,
        choices=frozenset({"auto", "none"}),
        choice_by_schema="declared",  # `format` (server/routes.go)
        media=_IMAGE,
        assistant_media=_IMAGE,
        result_media=_IMAGE,
        named_results=True,
        object_arguments=True,
        ordered=False,
        developer=False,
        system_only=True,
        efforts=("low", "medium", "high", "max"),
        adaptive=True,
    ),
    path=fixed_path("/api/chat"),
    decode_request=decode_request,
    encode_request=encode_request,
    encode_onto=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
    read_error=decode_error,
    encode_error=encode_error,
    stream_decoder=_stream_decoder,
    stream_encoder=_stream_encoder,
    decode_tools=tools_decoder(read_tool),
    encode_tools=tools_encoder(write_tool),
    locator=locator,
    completions=_completions,
)
