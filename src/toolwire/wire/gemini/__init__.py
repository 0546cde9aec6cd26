"""Gemini generateContent.

POST /v1beta/models/{model}:generateContent. Streams are server-sent events of whole response objects, or one JSON
array. Only the finish reason marks the end. Both spellings of protobuf JSON are read.
"""

from __future__ import annotations

import re
from math import inf

from ...ir.losses import Losses
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.tools import Tool
from ..codec import WireCodec
from ..protocol import Capabilities, Limits, StreamDecoder, StreamEncoder
from .documents import DETECTION, locator
from .fault import SIGNATURES, decode_error, encode_error
from .field_names import NAME
from .hosted import HOSTED
from .parts import PROVIDER
from .request import decode_request, encode_request
from .response import LOGPROBS, decode_response, encode_response
from .tools import read_tools, write_tools

__all__ = ["CODEC"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]")  # characters that could be syntax in a path


def _path(model: str, *, stream: bool) -> str:
    name = _UNSAFE.sub(_percent, model.removeprefix("models/"))
    return f"/v1beta/models/{name}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import GeminiStreamDecoder

    return GeminiStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import GeminiStreamEncoder

    return GeminiStreamEncoder(request)


def _decode_tools(declarations: list[JSON]) -> tuple[Tool, ...]:
    bare = type(declarations) is list and any(type(entry) is dict and "name" in entry for entry in declarations)
    if bare:
        declarations = [{"functionDeclarations": declarations}]
    return read_tools({"tools": declarations})


def _encode_tools(tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
    losses = Losses()
    return write_tools(tools, losses), losses


CODEC = WireCodec(
    name=NAME,
    provider=PROVIDER,
    dialect="gemini_json_schema",
    conversation="contents",
    terminal=rb'"(?:finishReason|finish_reason|blockReason)": ?"',
    detection=DETECTION,
    logprobs=LOGPROBS,
    hosted=HOSTED,
    limits=Limits(
        name=r"[a-zA-Z_][a-zA-Z0-9_.:-]*",
        name_length=128,
        id=r"[\x21-\x7e]+",
        id_length=128,
        tools=512,
        stops=5,
        min_output=1,
        # https://ai.google.dev/api/generate-content#generationconfig (2026)
        ranges={"temperature": (0, 2), "top_p": (0, 1), "top_k": (1, inf), "n": (1, 8), "top_logprobs": (0, 20)},
        signatures=SIGNATURES,
    ),
    capabilities=Capabilities(
        counts_tool_input=True,
        hosted=HOSTED.kinds,
        hosted_wire=NAME,
        choices=frozenset({"auto", "required", "none", "tool", "allowed", "validated"}),
        media=frozenset({"image", "audio", "video", "file"}),
        assistant_media=frozenset({"image", "audio", "video", "file"}),
        result_media=frozenset({"image", "audio", "video", "file"}),
        named_results=True,
        result_error=True,
        result_structured=True,
        object_arguments=True,
        developer=False,
        system_anywhere=False,
        unique_names=True,
        one_message_a_turn=True,
        lone_results=True,
        model_in_path=True,
        starts_with_user=True,
        efforts=("minimal", "low", "medium", "high"),
        budgets=True,
        adaptive=True,
        # The documented value that makes the API skip the signature check, for calls that another model made. It is
        # sent literally: the API rejects its base64 (langchain-google#1972).
        unsigned_call="skip_thought_signature_validator",
    ),
    path=_path,
    decode_request=decode_request,
    encode_request=encode_request,
    encode_onto=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
    read_error=decode_error,
    encode_error=encode_error,
    stream_decoder=_stream_decoder,
    stream_encoder=_stream_encoder,
    decode_tools=_decode_tools,
    encode_tools=_encode_tools,
    locator=locator,
)
