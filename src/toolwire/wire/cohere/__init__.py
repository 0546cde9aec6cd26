"""Cohere's chat protocol, version 2.

POST /v2/chat; server-sent events with names, ended by `message-end`. Arguments are JSON text, and the text before calls
has a field of its own. Source: cohere 7.3.1.
"""

from __future__ import annotations

from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ..codec import LogprobForm, WireCodec, fixed_path, tools_decoder, tools_encoder
from ..protocol import Capabilities, Limits, StreamDecoder, StreamEncoder
from .content import NAME
from .documents import DETECTION, locator
from .fault import decode_error, encode_error
from .hosted import HOSTED
from .request import decode_request, encode_request, read_tool, write_tool
from .response import decode_response, encode_response

__all__ = ["CODEC"]


def _stream_decoder() -> StreamDecoder:
    from .stream_decoder import CohereStreamDecoder

    return CohereStreamDecoder()


def _stream_encoder(request: Request | None = None) -> StreamEncoder:
    from .stream_encoder import CohereStreamEncoder

    return CohereStreamEncoder(request)


def _read_logprobs(value: JSON) -> list[Object] | None:
    """Read the tokens, or return None: the text of an item with several tokens cannot be divided."""
    if type(value) is not list or not value:
        return None
    tokens: list[Object] = []
    for item in value:
        if type(item) is not dict or type(item.get("text")) is not str or type(item.get("logprobs")) is not list:
            return None
        if len(item["logprobs"]) != 1 or type(item["logprobs"][0]) not in (int, float):
            return None
        text: str = item["text"]
        own_bytes = [*text.encode("utf-8", "surrogatepass")]
        tokens.append({"token": text, "logprob": item["logprobs"][0], "bytes": own_bytes, "top_logprobs": []})
    return tokens


def _write_logprobs(tokens: list[Object]) -> JSON:
    """Write one item for each token. The ids of tokens are another provider's, so there are none."""
    return [{"text": token["token"], "token_ids": [], "logprobs": [token["logprob"]]} for token in tokens]


CODEC = WireCodec(
    name=NAME,
    provider="cohere",
    dialect="cohere",
    conversation="messages",
    terminal=rb'"type": ?"message-end"',
    detection=DETECTION,
    logprobs=LogprobForm(NAME, "response", _read_logprobs, _write_logprobs, omitted="token_ids"),
    # cohere 7.3.1, v2/client.py: the ranges of the parameters and the number of stop sequences. It has no rule for
    # names and ids; Cohere's own ids are the name of the tool and 13 further characters.
    limits=Limits(
        name=r"[a-zA-Z0-9_-]+",
        name_length=64,
        id=r"[a-zA-Z0-9_-]+",
        id_length=128,
        stops=5,
        min_output=1,
        ranges={
            "top_p": (0.01, 0.99),
            "top_k": (0, 500),
            "frequency_penalty": (0, 1),
            "presence_penalty": (0, 1),
        },
    ),
    capabilities=Capabilities(
        hosted_wire=NAME,
        adjacent_results=True,
        choices=frozenset({"auto", "required", "none"}),
        media=frozenset({"image"}),
        strict=True,
        ordered=False,
        developer=False,
        budgets=True,
        adaptive=True,
        output_with_tools=False,  # "not supported in combination with `documents` or `tools`" (types/response_format_v2.py)
        json_mention="messages",
    ),
    path=fixed_path("/v2/chat"),
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
    hosted=HOSTED,
)
