"""Anthropic Messages, API versions 2023-06-01 and 2026-10-21.

POST /v1/messages. Streams are named server-sent events, ended by `message_stop`. Arguments are JSON objects, and the
content of a turn is one ordered list of blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.losses import Losses
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault
from ...ir.tools import Tool
from ..fields import decode_list
from ..protocol import Capabilities, Encoded, EncodedFault, Limits, StreamDecoder, StreamEncoder, Wire
from . import fault, request
from .blocks import NAME, PROVIDER
from .limits import SIGNATURES
from .locations import DETECTION, locator
from .response import decode_response, encode_response
from .tools import read_discovered_tools, read_tool, write_tool

__all__ = ["CODEC", "Anthropic"]


class Anthropic:
    name = NAME
    provider = PROVIDER
    dialect = "anthropic"
    terminal = rb'"type": ?"message_stop"'
    conversation = "messages"
    detection = DETECTION
    limits = Limits(
        name=r"[a-zA-Z0-9_-]+",
        name_length=128,
        id=r"[a-zA-Z0-9_-]+",
        id_length=128,
        max_tokens=request.DEFAULT_MAX_TOKENS,
        min_budget=1024,
        signatures=SIGNATURES,
    )

    def __init__(self, version: str, system_anywhere: bool) -> None:
        self.version = version
        self.versions: dict[str, Wire] = {}
        self.headers = {"anthropic-version": version}
        self.capabilities = Capabilities(
            choices=frozenset({"auto", "required", "none", "tool"}),
            media=frozenset({"image", "file"}),
            result_media=frozenset({"image", "file"}),
            result_error=True,
            strict=True,
            parallel=True,
            examples=True,
            cache=frozenset({"part", "tool", "call", "result"}),
            cache_ttls=("5m", "1h"),
            object_arguments=True,
            system_anywhere=system_anywhere,
            declared_history=True,
            developer=False,
            unique_names=True,
            one_message_a_turn=True,
            efforts=("low", "medium", "high", "xhigh", "max"),
            budgets=True,
            effort_and_budget=True,
            adaptive=True,
            forced_with_budget=False,
        )

    decode_request = staticmethod(request.decode_request)
    decode_response = staticmethod(decode_response)
    encode_response = staticmethod(encode_response)
    locator = staticmethod(locator)

    def path(self, model: str, *, stream: bool) -> str:
        return "/v1/messages"

    def encode_request(self, canonical: Request) -> Encoded:
        return request.encode_request(canonical, self.version)

    def decode_error(self, status: int | None, body: JSON, headers: Mapping[str, str] | None = None) -> Fault:
        return fault.decode_error(status, body, headers, self.limits.signatures)

    def encode_error(self, value: Fault) -> EncodedFault:
        return fault.encode_error(value)

    def stream_decoder(self) -> StreamDecoder:
        from .stream_decoder import MessagesStreamDecoder

        return MessagesStreamDecoder()

    def stream_encoder(self, canonical: Request | None = None) -> StreamEncoder:
        from .stream_encoder import MessagesStreamEncoder

        return MessagesStreamEncoder(canonical)

    def decode_tools(self, declarations: list[JSON]) -> tuple[Tool, ...]:
        return tuple(decode_list({"tools": declarations}, "tools", read_tool))

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
        losses = Losses()
        written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(tools)]
        return [tool for tool in written if tool is not None], losses

    def list_tools(self, body: JSON) -> tuple[Tool, ...]:
        return read_discovered_tools(body)


_OLD = Anthropic("2023-06-01", system_anywhere=False)
_NEW = Anthropic("2026-10-21", system_anywhere=True)
_OLD.versions = _NEW.versions = {_OLD.version: _OLD, _NEW.version: _NEW}

CODEC: Wire = _NEW
