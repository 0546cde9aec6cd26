"""One log record per request: method, tool, client, session, status and duration.

    POST 200 tools/call get_weather client="claude-code 2.1" session=3fa2b1c9 12.3 ms
    stdio tools/call get_weather client="inspector 1.0" 4.1 ms, tool error

The logger is `toolwire.mcp.requests`, the level INFO. Arguments are not logged unless the server is made with
`log_arguments=True`; then secrets are removed from them. A session id is a credential, so a hash of it is logged.
Everything else comes from the client: it is cut, and control characters are escaped.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256

from ...ir.pointer import JSON, Object
from ...ir.terminal import neutralise_line
from ...ir.text import dumps, shorten
from ...run.traces.redact import Redactor, environment_secrets
from ...run.traces.sanitise import Sanitiser
from ..protocol.meta import CLIENT_INFO
from ..protocol.rpc import Failure, Result, RpcMessage, RpcRequest

_log = logging.getLogger("toolwire.mcp.requests")
_MAX_TEXT = 100  # characters of a name; a line of the log stays readable, whatever the client sends
_MAX_ARGUMENTS = 500  # characters of the arguments in a log line


class RequestRecord:
    """Collects the fields of one request. `log` writes them."""

    __slots__ = ("_answer", "_arguments", "_client", "_name", "_session", "_started", "_with_arguments")

    def __init__(self, *, with_arguments: bool = False) -> None:
        self._started = time.monotonic()
        self._with_arguments = with_arguments
        self._name = ""
        self._client = ""
        self._session = ""
        self._arguments: Object | None = None
        self._answer: RpcMessage | None = None

    @staticmethod
    def is_enabled() -> bool:
        return _log.isEnabledFor(logging.INFO)

    def add_message(self, message: RpcMessage) -> None:
        """Add the method, the tool, prompt or resource that it names, and the client.

        The arguments only if configured. Nothing is added if it would not be logged.
        """
        if not self.is_enabled():
            return
        if isinstance(message, (Result, Failure)):
            self._name = "answer"
            return
        params, meta = message.params, message.params.get("_meta")
        self.add_client(params.get("clientInfo") or (meta.get(CLIENT_INFO) if type(meta) is dict else None))
        target = params.get("name", params.get("uri"))
        self._name = f"{_cut(message.method)} {_cut(target)}".rstrip()
        arguments = params.get("arguments")
        if self._with_arguments and type(arguments) is dict:
            self._arguments = arguments

    def add_client(self, client: JSON) -> None:
        """Add the name and version of the client, as it describes itself, unless they are known."""
        if type(client) is dict and client and not self._client:
            self._client = f"{_cut(client.get('name'))} {_cut(client.get('version'))}".strip()

    def add_session(self, session_id: str) -> None:
        self._session = sha256(session_id.encode()).hexdigest()[:8]

    def add_answer(self, answer: RpcMessage) -> None:
        self._answer = answer

    def log(self, transport: str) -> None:
        """Write the record. `transport`: `stdio`, or the HTTP method and status."""
        fields = [transport, self._name]
        if self._client:
            fields.append(f'client="{self._client}"')
        if self._session:
            fields.append(f"session={self._session}")
        if self._arguments is not None:
            fields.append(f"arguments={_shown_arguments(self._arguments)}")
        fields.append(f"{1000 * (time.monotonic() - self._started):.1f} ms{_problem(self._answer)}")
        _log.info("%s", neutralise_line(" ".join(filter(None, fields))))

    def watch(self, request: RpcRequest, emit: Callable[[RpcMessage], None]) -> Callable[[RpcMessage], None]:
        """Return an `emit` that logs the answer to the request when it is written, for stdio."""

        def emit_and_log(message: RpcMessage) -> None:
            emit(message)
            if isinstance(message, (Result, Failure)) and message.id == request.id:
                self.add_answer(message)
                self.log("stdio")

        return emit_and_log


def _cut(value: object) -> str:
    return shorten(value, _MAX_TEXT) if type(value) is str else ""


def _problem(answer: RpcMessage | None) -> str:
    """Return the suffix for an answer that is an error."""
    if isinstance(answer, Failure):
        return f", error {answer.code}: {_cut(answer.message)}"
    is_tool_error = isinstance(answer, Result) and answer.result.get("isError") is True
    return ", tool error" if is_tool_error else ""


@lru_cache(1)
def _sanitiser() -> Sanitiser:
    return Sanitiser(Redactor(environment_secrets(os.environ)), shorten_media=True)


def _shown_arguments(arguments: Object) -> str:
    return shorten(dumps(_sanitiser().sanitise_document(arguments)), _MAX_ARGUMENTS)
