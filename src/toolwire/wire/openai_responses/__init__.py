"""OpenAI Responses.

POST /v1/responses; named server-sent events with sequence numbers, ended by a final response. A conversation is a flat
list of items; a call has an item id and a separate id for its result.
"""

from __future__ import annotations

from functools import partial

from ...ir.losses import Losses
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.tools import Tool
from .. import openai_fault
from ..codec import LogprobForm, WireCodec, fixed_path, read_tokens
from ..openai_fault import SAMPLING_RANGES, SIGNATURES
from ..protocol import Capabilities, Limits, StreamDecoder, StreamEncoder
from .content import NAME
from .documents import DETECTION, locator
from .hosted import HOSTED
from .items import is_own_message
from .request import SETTINGS, decode_request, encode_request
from .response import decode_response, encode_response
from .tool_search import SEARCH
from .tools import read_discovered_tools, read_tools, write_tools
from .typed_tools import TYPED

__all__ = ["CODEC"]


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import ResponsesStreamDecoder

    return ResponsesStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import ResponsesStreamEncoder

    return ResponsesStreamEncoder(request)


def _decode_tools(declarations: list[JSON]) -> tuple[Tool, ...]:
    return read_tools({"tools": declarations})


def _encode_tools(tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
    losses = Losses()
    return write_tools(tools, losses), losses


CODEC = WireCodec(
    name=NAME,
    provider="openai",
    dialect="openai",
    conversation="input",
    terminal=rb'"type": ?"response\.(?:completed|incomplete|failed)"',
    detection=DETECTION,
    logprobs=LogprobForm(NAME, "text", read_tokens, lambda tokens: [*tokens]),
    limits=Limits(
        name=r"[a-zA-Z0-9_-]+",
        name_length=128,
        id=r"[a-zA-Z0-9_-]+",
        id_length=64,
        min_output=16,  # "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16"
        ranges=SAMPLING_RANGES,
        signatures=SIGNATURES,
    ),
    capabilities=Capabilities(
        timestamps=True,
        lone_reasoning=False,
        choices=frozenset({"auto", "required", "none", "tool", "allowed"}),
        media=frozenset({"image", "file"}),
        result_media=frozenset({"image", "file"}),
        freeform=True,
        deferred=True,
        search_calls=True,
        search_wire=NAME,
        hosted=HOSTED.kinds,
        hosted_wire=NAME,
        forces_hosted=True,
        refusals=True,
        namespaces=True,
        strict=True,
        efforts=("minimal", "low", "medium", "high", "xhigh", "max"),
        parallel=True,
        cache=frozenset({"part"}),
        cache_ttls=("30m", "12h"),
        output_descriptions=True,
        json_mention="input",
    ),
    path=fixed_path("/responses"),
    decode_request=decode_request,
    encode_request=encode_request,
    encode_onto=encode_request,
    settings=SETTINGS,
    is_own_message=is_own_message,
    decode_response=decode_response,
    encode_response=encode_response,
    read_error=partial(openai_fault.decode_error, NAME),
    encode_error=partial(openai_fault.encode_error, NAME),
    stream_decoder=_stream_decoder,
    stream_encoder=_stream_encoder,
    decode_tools=_decode_tools,
    encode_tools=_encode_tools,
    locator=locator,
    read_discovery=read_discovered_tools,
    search=SEARCH,
    typed=TYPED,
    hosted=HOSTED,
)
