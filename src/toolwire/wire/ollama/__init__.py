"""Ollama's native protocol.

POST /api/chat. A stream has one JSON object per line, the last with `"done": true`, and streaming is the default.
Arguments are JSON objects, images bare base64. (Ollama also serves OpenAI Chat under /v1, with fewer fields.)
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
from ..fields import decode_list
from ..protocol import Capabilities, EncodedFault, Limits, StreamDecoder, StreamEncoder, Wire
from . import fault as faults
from .content import NAME
from .locations import DETECTION, locator
from .request import decode_request, encode_request
from .response import decode_response, encode_response
from .tools import read_tool, write_tool

__all__ = ["CODEC", "Ollama"]

_IMAGE = frozenset({"image"})


class Ollama:
    name = NAME
    version: ClassVar[str | None] = None
    provider = "ollama"
    dialect = "ollama"
    terminal = rb'"done": ?true'
    headers: ClassVar[Mapping[str, str]] = {}
    conversation = "messages"
    detection = DETECTION
    # the server has no rule; such names survive the chat templates of models
    limits = Limits(name=r"[a-zA-Z0-9_.-]+", name_length=128, id=r"[\x21-\x7e]+", id_length=128)
    capabilities = Capabilities(
        choices=frozenset({"auto", "none"}),
        media=_IMAGE,
        assistant_media=_IMAGE,
        result_media=_IMAGE,
        named_results=True,
        object_arguments=True,
        ordered=False,
        developer=False,
        system_only=True,
        efforts=("low", "medium", "high", "max"),
        adaptive=True,
    )
    decode_request = staticmethod(decode_request)
    encode_request = staticmethod(encode_request)
    decode_response = staticmethod(decode_response)
    encode_response = staticmethod(encode_response)
    locator = staticmethod(locator)

    def path(self, model: str, *, stream: bool) -> str:
        return "/api/chat"

    def decode_error(self, status: int | None, body: JSON, headers: Mapping[str, str] | None = None) -> Fault:
        return faults.decode_error(status, body, headers)

    def encode_error(self, fault: Fault) -> EncodedFault:
        return faults.encode_error(fault)

    def stream_decoder(self) -> StreamDecoder:
        from .stream_decoder import OllamaStreamDecoder

        return OllamaStreamDecoder()

    def stream_encoder(self, request: Request | None = None) -> StreamEncoder:
        from .stream_encoder import OllamaStreamEncoder

        return OllamaStreamEncoder(request)

    def decode_tools(self, declarations: list[JSON]) -> tuple[Tool, ...]:
        return tuple(decode_list({"tools": declarations}, "tools", read_tool))

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
        losses = Losses()
        written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(tools)]
        return [tool for tool in written if tool is not None], losses

    def list_tools(self, body: JSON) -> tuple[Tool, ...]:
        raise ConfigError(f"{NAME} has no discovery reply", hint="read the tools of a request from its `tools`")


CODEC: Wire = Ollama()
