"""OpenAI Chat Completions, also used by many compatible servers.

POST /v1/chat/completions; server-sent events of `data:` only, ended by `[DONE]`. Arguments are JSON text.
"""

from __future__ import annotations

from functools import partial

from ...ir.pointer import JSON, Object
from ...ir.request import Request
from .. import openai_fault
from ..codec import CompletionEndpoint, LogprobForm, WireCodec, fixed_path, read_tokens, tools_decoder, tools_encoder
from ..openai_fault import SAMPLING_RANGES, SIGNATURES
from ..protocol import Capabilities, Limits, StreamDecoder, StreamEncoder
from .content import NAME
from .documents import DETECTION, locator
from .hosted import HOSTED
from .request import SETTINGS, decode_request, encode_request
from .response import decode_response, encode_response
from .summary import summarise
from .tools import read_tool, write_tool

__all__ = ["CODEC"]


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import ChatStreamDecoder

    return ChatStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import ChatStreamEncoder

    return ChatStreamEncoder(request)


def _completions() -> CompletionEndpoint:
    from .completions import COMPLETIONS

    return COMPLETIONS


def _read_logprobs(value: JSON) -> list[Object] | None:
    """Read the tokens of the content. The tokens of a refusal have no counterpart on other wires."""
    return None if type(value) is not dict or value.get("refusal") else read_tokens(value.get("content"))


def _write_logprobs(tokens: list[Object]) -> JSON:
    return {"content": [*tokens], "refusal": None}


CODEC = WireCodec(
    name=NAME,
    provider="openai",
    dialect="openai",
    conversation="messages",
    terminal=rb'"finish_reason": ?"',
    detection=DETECTION,
    logprobs=LogprobForm(f"{NAME}/choice", "stop", _read_logprobs, _write_logprobs),
    limits=Limits(
        name=r"[a-zA-Z0-9_-]+",
        name_length=64,
        id=r"[a-zA-Z0-9_-]+",
        id_length=40,
        tools=128,
        stops=4,
        min_output=1,
        ranges={**SAMPLING_RANGES, "n": (1, 128)},
        signatures=SIGNATURES,
    ),
    capabilities=Capabilities(
        timestamps=True,
        hosted_wire=NAME,
        adjacent_results=True,
        choices=frozenset({"auto", "required", "none", "tool", "allowed"}),
        media=frozenset({"image", "audio", "file"}),
        freeform=True,
        refusals=True,
        system_only=True,
        strict=True,
        efforts=("minimal", "low", "medium", "high", "xhigh", "max"),
        parallel=True,
        counts_on_request=True,
        cache=frozenset({"part"}),
        cache_ttls=("30m", "12h"),
        ordered=False,
        output_descriptions=True,
        json_mention="messages",
    ),
    path=fixed_path("/chat/completions"),
    decode_request=decode_request,
    encode_request=encode_request,
    encode_onto=encode_request,
    settings=SETTINGS,
    decode_response=decode_response,
    summarise=summarise,
    encode_response=encode_response,
    read_error=partial(openai_fault.decode_error, NAME),
    encode_error=partial(openai_fault.encode_error, NAME),
    stream_decoder=_stream_decoder,
    stream_encoder=_stream_encoder,
    decode_tools=tools_decoder(read_tool),
    encode_tools=tools_encoder(write_tool),
    locator=locator,
    completions=_completions,
    hosted=HOSTED,
)
