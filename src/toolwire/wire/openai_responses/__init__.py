"""OpenAI Responses.

POST /v1/responses; named server-sent events with sequence numbers, ended by a final response. A conversation is a flat
list of items; a call has an item id and a separate id for its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...ir.losses import Losses
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault
from ...ir.tools import Tool
from .. import openai_fault
from ..openai_limits import SIGNATURES
from ..protocol import Capabilities, EncodedFault, Limits, StreamDecoder, StreamEncoder, Wire
from .content import NAME
from .locations import DETECTION, locator
from .request import decode_request, encode_request
from .response import decode_response, encode_response
from .tools import read_discovered_tools, read_tools, write_tools

__all__ = ["CODEC", "OpenAIResponses"]


class OpenAIResponses:
    name = NAME
    version: ClassVar[str | None] = None
    provider = "openai"
    dialect = "openai"
    terminal = rb'"type": ?"response\.(?:completed|incomplete|failed)"'
    headers: ClassVar[Mapping[str, str]] = {}
    conversation = "input"
    detection = DETECTION
    limits = Limits(name=r"[a-zA-Z0-9_-]+", name_length=128, id=r"[a-zA-Z0-9_-]+", id_length=64, signatures=SIGNATURES)
    capabilities = Capabilities(
        lone_reasoning=False,
        choices=frozenset({"auto", "required", "none", "tool", "allowed"}),
        media=frozenset({"image", "file"}),
        result_media=frozenset({"image", "file"}),
        freeform=True,
        refusals=True,
        namespaces=True,
        strict=True,
        efforts=("minimal", "low", "medium", "high", "xhigh", "max"),
        parallel=True,
        cache=frozenset({"part"}),
        cache_ttls=("30m", "12h"),
    )
    decode_request = staticmethod(decode_request)
    encode_request = staticmethod(encode_request)
    decode_response = staticmethod(decode_response)
    encode_response = staticmethod(encode_response)
    locator = staticmethod(locator)

    def path(self, model: str, *, stream: bool) -> str:
        return "/responses"

    def decode_error(self, status: int | None, body: JSON, headers: Mapping[str, str] | None = None) -> Fault:
        return openai_fault.decode_error(NAME, status, body, headers, self.limits.signatures)

    def encode_error(self, fault: Fault) -> EncodedFault:
        return openai_fault.encode_error(NAME, fault)

    def stream_decoder(self) -> StreamDecoder:
        from .stream_decoder import ResponsesStreamDecoder

        return ResponsesStreamDecoder()

    def stream_encoder(self, request: Request | None = None) -> StreamEncoder:
        from .stream_encoder import ResponsesStreamEncoder

        return ResponsesStreamEncoder(request)

    def decode_tools(self, declarations: list[JSON]) -> tuple[Tool, ...]:
        return read_tools({"tools": declarations})

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
        losses = Losses()
        return write_tools(tools, losses), losses

    def list_tools(self, body: JSON) -> tuple[Tool, ...]:
        return read_discovered_tools(body)


CODEC: Wire = OpenAIResponses()
