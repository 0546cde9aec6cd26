"""An Ollama server with one model, written after server/routes.go, prompt.go and sched.go of ollama/ollama at fb3076099.

A request with another context than the loaded one loads the model again. A prompt that is longer than the context is cut:
the system messages and the last message stay. With `truncate: false`, such a prompt is refused.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from shapes import ModelAnswer, provider_answer
from toolwire.ir.request import Request
from toolwire.testing.upstream import RawReply, Upstream
from toolwire.wire import get

BYTES_PER_TOKEN = 4


class Loaded(NamedTuple):
    num_ctx: int
    is_automatic: bool
    shift: bool


class Prompt(NamedTuple):
    """The prompt of one request, as the model gets it."""

    num_ctx: int
    tokens: int
    is_whole: bool
    request: Request


class OllamaServer(Upstream):
    """`default` is the context of a request without `num_ctx`, `memory` the largest that can be loaded.

    `knows_truncate`: False for a server before 0.12.4, which ignores `truncate` and `shift`. `reports`: False for one
    without /api/show and /api/ps.
    """

    def __init__(
        self,
        answer: Callable[[Request], ModelAnswer] = lambda request: ModelAnswer("Hello."),
        *,
        model: str = "qwen3:8b",
        length: int = 40_960,
        default: int = 4_096,
        modelfile: int | None = None,
        memory: int | None = None,
        knows_truncate: bool = True,
        reports: bool = True,
        port: int = 0,
    ) -> None:
        super().__init__()
        self.loads: list[int] = []  # the contexts with which the model was loaded
        self.prompts: list[Prompt] = []
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.loaded: Loaded | None = None
        self._model_answer = answer
        self._model = model
        self._length = length
        self._default = default
        self._modelfile = modelfile
        self._memory = memory
        self._knows_truncate = knows_truncate
        self._reports = reports
        self._port = port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        return self

    async def _answer(self, path: str, headers: dict[str, str], body: bytes, writer: Any) -> bool:
        self.paths.append(path)
        reply = self._route(path, json.loads(body or b"{}"))
        await self._send(self._make_answer(reply, self._parse_request(path, headers, body)), None, writer)
        return True

    def _route(self, path: str, body: dict[str, Any]) -> RawReply:
        if path == "/api/show" and self._reports:
            return self._show(body)
        if path == "/api/ps" and self._reports:
            return _json({"models": [] if self.loaded is None else [self._describe(self.loaded)]})
        return self._chat(body) if path == "/api/chat" else _json({"error": "not found"}, 404)

    def _show(self, body: dict[str, Any]) -> RawReply:
        if body["model"] != self._model:
            return _json({"error": f"model '{body['model']}' not found"}, 404)
        parameters = 'stop                           "<|im_end|>"\ntemperature                    0.6'
        if self._modelfile is not None:
            parameters += f"\nnum_ctx                        {self._modelfile}"
        info = {"general.architecture": "qwen3", "qwen3.context_length": self._length, "qwen3.block_count": 36}
        return _json({"parameters": parameters, "model_info": info, "capabilities": ["completion", "tools"]})

    def _describe(self, loaded: Loaded) -> dict[str, Any]:
        return {"name": self._model, "model": self._model, "size": 1, "context_length": loaded.num_ctx}

    def _chat(self, body: dict[str, Any]) -> RawReply:
        self.bodies.append(body)
        options, shift = body.get("options") or {}, bool(body.get("shift", True)) or not self._knows_truncate
        is_automatic = "num_ctx" not in options and self._modelfile is None
        wanted = Loaded(
            min(options.get("num_ctx", self._modelfile or self._default), self._length), is_automatic, shift
        )
        if self._memory is not None and wanted.num_ctx > self._memory and self.loaded != wanted:
            self.loaded = None
            return _json({"error": "model requires more system memory (9.1 GiB) than is available (5.2 GiB)"}, 500)
        if self._needs_load(wanted):
            self.loads.append(wanted.num_ctx)
            self.loaded = wanted
        return self._complete(body, body.get("truncate", True) or not self._knows_truncate)

    def _needs_load(self, wanted: Loaded) -> bool:
        loaded = self.loaded
        if loaded is None or loaded.shift != wanted.shift:
            return True
        return loaded.num_ctx != wanted.num_ctx and not (loaded.is_automatic and wanted.is_automatic)

    def _complete(self, body: dict[str, Any], truncate: bool) -> RawReply:
        assert self.loaded is not None
        limit, messages = self.loaded.num_ctx, body["messages"]
        whole_tokens = self._count(messages, body)
        if truncate:
            messages = self._cut(messages, body, limit)
        tokens = self._count(messages, body)
        if not truncate and tokens >= limit:
            return _json({"error": _too_long(tokens, limit)}, 400)
        request = get("ollama").decode_request({**body, "messages": messages})
        self.prompts.append(Prompt(limit, tokens, tokens == whole_tokens and tokens < limit, request))
        return provider_answer("ollama", self._model_answer(request), stream=body.get("stream", True))

    def _cut(self, messages: list[dict[str, Any]], body: dict[str, Any], limit: int) -> list[dict[str, Any]]:
        """Drop messages from the front until the prompt fits, except for system messages and the last message."""
        for start in range(len(messages)):
            kept = [message for message in messages[:start] if message["role"] == "system"] + messages[start:]
            if self._count(kept, body) <= limit:
                break
        return kept

    def _count(self, messages: list[dict[str, Any]], body: dict[str, Any]) -> int:
        texts = [json.dumps(tool, ensure_ascii=False) for tool in body.get("tools") or ()]
        for message in messages:
            calls = json.dumps(message.get("tool_calls") or "", ensure_ascii=False)
            texts.append(f"<|im_start|>{message['role']}\n{message.get('content', '')}{calls}<|im_end|>\n")
        return len("".join(texts).encode()) // BYTES_PER_TOKEN


def _too_long(tokens: int, limit: int) -> str:
    return f"request ({tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"


def _json(document: dict[str, Any], status: int = 200) -> RawReply:
    return RawReply(json.dumps(document).encode(), status, {"content-type": "application/json"})
