"""OpenAI Chat Completions, also used by many compatible servers.

POST /v1/chat/completions; server-sent events of `data:` only, ended by `[DONE]`. Arguments are JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...ir.errors import ConfigError
from ...ir.losses import Losses
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault
from ...ir.tools import Tool
from .. import openai_fault
from ..fields import decode_list
from ..openai_limits import SIGNATURES
from ..protocol import Capabilities, EncodedFault, Limits, StreamDecoder, StreamEncoder, Wire
from .content import NAME
from .locations import DETECTION, locator
from .request import decode_request, encode_request
from .response import decode_response, encode_response
from .tools import read_tool, write_tool

__all__ = ["CODEC", "OpenAIChat"]


class OpenAIChat:
    name = NAME
    version: ClassVar[str | None] = None
    provider = "openai"
    dialect = "openai"
    terminal = rb'"finish_reason": ?"'
    headers: ClassVar[Mapping[str, str]] = {}
    conversation = "messages"
    detection = DETECTION
    limits = Limits(
        name=r"[a-zA-Z0-9_-]+",
        name_length=64,
        id=r"[a-zA-Z0-9_-]+",
        id_length=40,
        tools=128,
        stops=4,
        signatures=SIGNATURES,
    )
    capabilities = Capabilities(
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
    )
    decode_request = staticmethod(decode_request)
    encode_request = staticmethod(encode_request)
    decode_response = staticmethod(decode_response)
    encode_response = staticmethod(encode_response)
    locator = staticmethod(locator)

    def path(self, model: str, *, stream: bool) -> str:
        return "/chat/completions"

    def decode_error(self, status: int | None, body: JSON, headers: Mapping[str, str] | None = None) -> Fault:
        return openai_fault.decode_error(NAME, status, body, headers, self.limits.signatures)

    def encode_error(self, fault: Fault) -> EncodedFault:
        return openai_fault.encode_error(NAME, fault)

    def stream_decoder(self) -> StreamDecoder:
        from .stream_decoder import ChatStreamDecoder

        return ChatStreamDecoder()

    def stream_encoder(self, request: Request | None = None) -> StreamEncoder:
        from .stream_encoder import ChatStreamEncoder

        return ChatStreamEncoder(request)

    def decode_tools(self, declarations: list[JSON]) -> tuple[Tool, ...]:
        return tuple(decode_list({"tools": declarations}, "tools", read_tool))

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
        losses = Losses()
        written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(tools)]
        return [tool for tool in written if tool is not None], losses

    def list_tools(self, body: JSON) -> tuple[Tool, ...]:
        raise ConfigError(f"{NAME} has no discovery reply", hint="read the tools of a request from its `tools`")


CODEC: Wire = OpenAIChat()
