"""Anthropic Messages, API versions 2023-06-01 and 2026-10-21.

POST /v1/messages. Streams are named server-sent events, ended by `message_stop`. Arguments are JSON objects, and the
content of a turn is one ordered list of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from msgspec.structs import replace

from ...ir.request import Request
from ..codec import ConversationItems, SettingsCodec, WireCodec, fixed_path, tools_decoder, tools_encoder
from ..protocol import Capabilities, Encoded, Limits, StreamDecoder, StreamEncoder
from .blocks import PROVIDER
from .documents import DETECTION, locator
from .fault import SIGNATURES, decode_error, encode_error
from .hosted import HOSTED
from .request import (
    DEFAULT_MAX_TOKENS,
    decode_messages,
    decode_request,
    decode_settings,
    encode_request,
    encode_settings,
)
from .response import decode_response, encode_response
from .tools import NAME, SEARCH, TYPED, decode_tools, read_discovered_tools, read_tool, write_tool

__all__ = ["CODEC"]


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import MessagesStreamDecoder

    return MessagesStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import MessagesStreamEncoder

    return MessagesStreamEncoder(request)


def _request_encoder(version: str) -> Callable[[Request], Encoded]:
    # A closure: a partial with a keyword argument made encoding 3 % slower.
    def encode(request: Request) -> Encoded:
        return encode_request(request, version)

    return encode


def _onto_encoder(version: str) -> Callable[[Request, ConversationItems], Encoded]:
    def encode_onto(request: Request, items: ConversationItems) -> Encoded:
        return encode_request(request, version, items)

    return encode_onto


def _settings_codec(version: str) -> SettingsCodec:
    return SettingsCodec(
        apart=frozenset({"system", "messages", "tools"}),
        decode_messages=decode_messages,
        decode_tools=decode_tools,
        decode_settings=decode_settings,
        encode_settings=partial(encode_settings, version=version),
    )


_OLD_VERSION, _NEW_VERSION = "2023-06-01", "2026-10-21"

_OLD = WireCodec(
    name=NAME,
    provider=PROVIDER,
    dialect="anthropic",
    conversation="messages",
    terminal=rb'"stop_reason": ?"',
    detection=DETECTION,
    limits=Limits(
        name=r"[a-zA-Z0-9_-]+",
        name_length=128,
        id=r"[a-zA-Z0-9_-]+",
        id_length=128,
        max_tokens=DEFAULT_MAX_TOKENS,
        min_budget=1024,
        cache_marks=4,
        cache_minimum=1024,  # of models without a row; the rows have 512 to 4,096
        # "temperature: range: 0..1"; the bounds and the length of `user_id`: anthropic 2.8.0, MessageCreateParams
        ranges={"temperature": (0, 1), "top_p": (0, 1), "top_k": (0, inf)},
        user_length=256,
        signatures=SIGNATURES,
    ),
    capabilities=Capabilities(
        choices=frozenset({"auto", "required", "none", "tool"}),
        media=frozenset({"image", "file"}),
        result_media=frozenset({"image", "file"}),
        result_error=True,
        strict=True,
        parallel=True,
        examples=True,
        cache=frozenset({"part", "tool", "call", "result", "request"}),
        cache_ttls=("5m", "1h"),
        object_arguments=True,
        deferred=True,
        search_wire=NAME,
        hosted=HOSTED.kinds,
        hosted_wire=NAME,
        forces_hosted=True,
        system_anywhere=False,
        declared_history=True,
        developer=False,
        unique_names=True,
        one_message_a_turn=True,
        starts_with_user=True,
        blank_text=False,
        efforts=("low", "medium", "high", "xhigh", "max"),
        budgets=True,
        effort_and_budget=True,
        adaptive=True,
        forced_with_budget=False,
        prefill_with_thinking=False,
        json_mode=False,
    ),
    path=fixed_path("/v1/messages"),
    decode_request=decode_request,
    encode_request=_request_encoder(_OLD_VERSION),
    encode_onto=_onto_encoder(_OLD_VERSION),
    settings=_settings_codec(_OLD_VERSION),
    decode_response=decode_response,
    encode_response=encode_response,
    read_error=decode_error,
    encode_error=encode_error,
    stream_decoder=_stream_decoder,
    stream_encoder=_stream_encoder,
    decode_tools=tools_decoder(read_tool),
    encode_tools=tools_encoder(write_tool),
    locator=locator,
    read_discovery=read_discovered_tools,
    search=SEARCH,
    typed=TYPED,
    hosted=HOSTED,
    version=_OLD_VERSION,
    headers={"anthropic-version": _OLD_VERSION},
)

CODEC = replace(
    _OLD,
    capabilities=replace(_OLD.capabilities, system_after_user=True),
    encode_request=_request_encoder(_NEW_VERSION),
    encode_onto=_onto_encoder(_NEW_VERSION),
    settings=_settings_codec(_NEW_VERSION),
    version=_NEW_VERSION,
    headers={"anthropic-version": _NEW_VERSION},
    older=(_OLD,),
)
