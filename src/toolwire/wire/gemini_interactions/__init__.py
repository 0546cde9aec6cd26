"""Gemini Interactions.

POST /v1beta/interactions. A conversation is a list of steps, also in answers, and the API stores it unless `store` is
false. Streams are server-sent events with numbered steps; arguments of a call arrive in fragments. Unions are open: steps,
contents, tools and events of unknown kinds are kept.

Source: google-genai 3.3.0, _gaos/types/interactions.
"""

from __future__ import annotations

from ...ir.request import Request
from ..codec import WireCodec, fixed_path, tools_decoder, tools_encoder
from ..protocol import Capabilities, Limits, StreamDecoder, StreamEncoder
from .content import NAME, PROVIDER
from .documents import DETECTION, locator
from .fault import decode_error, encode_error
from .hosted import HOSTED
from .request import LEVELS, decode_request, encode_request
from .response import decode_response, encode_response
from .tools import read_tool, write_tool

__all__ = ["CODEC"]


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import InteractionsStreamDecoder

    return InteractionsStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import InteractionsStreamEncoder

    return InteractionsStreamEncoder(request)


_MEDIA = frozenset({"image", "audio", "video", "file"})

CODEC = WireCodec(
    name=NAME,
    provider=PROVIDER,
    dialect="gemini_json_schema",
    conversation="input",
    terminal=rb'"event_type": ?"interaction\.completed?"',
    # Without it, a server may answer in the form of an earlier revision.
    headers={"api-revision": "2026-05-20"},
    detection=DETECTION,
    hosted=HOSTED,
    limits=Limits(
        # The declarations and the models are those of generateContent (google-genai 3.3.0, types.py, FunctionDeclaration).
        name=r"[a-zA-Z_][a-zA-Z0-9_.:-]*",
        name_length=128,
        id=r"[\x21-\x7e]+",
        id_length=128,
        tools=512,
        stops=5,
        min_output=1,
        ranges={"temperature": (0, 2), "top_p": (0, 1)},
    ),
    capabilities=Capabilities(
        counts_tool_input=True,
        hosted=HOSTED.kinds,
        hosted_wire=NAME,
        timestamps=True,
        choices=frozenset({"auto", "required", "none", "tool", "allowed", "validated"}),
        media=_MEDIA,
        assistant_media=_MEDIA,
        result_media=_MEDIA,
        named_results=True,
        result_error=True,
        result_structured=True,
        object_arguments=True,
        developer=False,
        system_anywhere=False,
        unique_names=True,
        starts_with_user=True,
        efforts=LEVELS,
        adaptive=True,
    ),
    path=fixed_path("/v1beta/interactions"),
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
)
