"""Amazon Bedrock Converse and ConverseStream.

POST /model/{model}/converse[-stream]. The model is in the path. Streams are messages of Amazon's binary event stream. A content
block is an object with one member, which names its kind.
"""

from __future__ import annotations

import re

from ...ir.losses import Losses
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.tools import Tool
from ..codec import WireCodec
from ..protocol import Capabilities, Limits, StreamDecoder, StreamEncoder
from .documents import DETECTION, locator
from .fault import SIGNATURES, decode_error, encode_error
from .media import NAME, PROVIDER
from .request import decode_request, encode_request
from .response import decode_response, encode_response
from .tools import read_tools, write_tools

__all__ = ["CODEC"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]")  # characters that could be syntax in a path, such as the slash of an ARN


def _path(model: str, *, stream: bool) -> str:
    return f"/model/{_UNSAFE.sub(_percent, model)}/{'converse-stream' if stream else 'converse'}"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import ConverseStreamDecoder

    return ConverseStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import ConverseStreamEncoder

    return ConverseStreamEncoder(request)


def _decode_tools(declarations: list[JSON]) -> tuple[Tool, ...]:
    return read_tools({"tools": declarations})


def _encode_tools(tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
    losses = Losses()
    return write_tools(tools, losses), losses


CODEC = WireCodec(
    name=NAME,
    provider=PROVIDER,
    dialect="bedrock",
    conversation="messages",
    terminal=rb'"stopReason": ?"',
    detection=DETECTION,
    # patterns and bounds: botocore 1.44.5, bedrock-runtime
    limits=Limits(
        name=r"[a-zA-Z0-9_-]+",
        name_length=64,
        id=r"[a-zA-Z0-9_.:-]+",
        id_length=64,
        min_output=1,
        min_budget=1024,  # Claude's
        cache_marks=4,  # https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
        cache_minimum=1024,  # of most models; the rows have others
        ranges={"temperature": (0, 1), "top_p": (0, 1)},
        signatures=SIGNATURES,
    ),
    capabilities=Capabilities(
        choices=frozenset({"auto", "required", "none", "tool"}),
        media=frozenset({"image", "audio", "video", "file"}),
        assistant_media=frozenset({"image"}),
        result_media=frozenset({"image", "video", "file"}),
        result_error=True,
        result_structured=True,
        strict=True,
        cache=frozenset({"part", "tool", "call", "result"}),
        cache_ttls=("5m", "1h"),
        object_arguments=True,
        developer=False,
        system_anywhere=False,
        system_after_user=True,
        declared_history=True,
        unique_names=True,
        one_message_a_turn=True,
        starts_with_user=True,
        blank_text=False,
        model_in_path=True,
        efforts=("low", "medium", "high", "xhigh", "max"),
        budgets=True,
        effort_and_budget=True,
        adaptive=True,
        forced_with_budget=False,
        output_descriptions=True,
        json_mode=False,
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
