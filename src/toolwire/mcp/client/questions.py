"""Questions that a server may ask its client while it serves a call: to the user, to the model, or for the directories.

Each is answered by a function of yours, plain or async. Without the function the client does not declare the
capability, and a server that asks anyway gets an error.

    Handlers(elicit=ask_user, sample=ask_model, roots=lambda: [{"uri": "file:///work"}])
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...net.threads import ThreadPool, call_in_thread
from ...run.values.results import error_text
from ..protocol.errors import INTERNAL_ERROR, RpcError, unknown_method
from ..protocol.rpc import Failure, Result, RpcRequest, failure_from

__all__ = ["Handlers", "QuestionResponder", "accept_defaults", "fill_defaults"]

Handler: TypeAlias = Callable[[Object], "Object | Awaitable[Object]"]
_MAX_THREADS = 8
_METHODS = {"elicitation/create": "elicit", "sampling/createMessage": "sample"}


class Handlers(Value, frozen=True):
    """`elicit(params)` returns {"action": "accept", "content": …}, `sample(params)` a message, `roots()` a list."""

    elicit: Handler | None = None
    sample: Handler | None = None
    roots: Callable[[], list[Object]] | None = None

    @property
    def capabilities(self) -> Object:
        offered = (("elicitation", self.elicit), ("sampling", self.sample), ("roots", self.roots))
        return {name: {} for name, handler in offered if handler is not None}


class QuestionResponder:
    """Answers the questions of one server with the handlers.

    A handler that is not async runs in a thread, so that a person who thinks, or a slow model, does not stop the event
    loop. Questions to the user have one thread, because two of them on one terminal would be mixed.
    """

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._user_thread = ThreadPool(1)
        self._threads = ThreadPool(_MAX_THREADS)

    async def answer(self, method: str, params: Object) -> Object:
        """Return the answer to one question. Raise RpcError if there is no handler for it."""
        if method == "ping":
            return {}
        if method == "roots/list" and self._handlers.roots is not None:
            return {"roots": await call_in_thread(self._threads, self._handlers.roots)}
        handler: Handler | None = getattr(self._handlers, _METHODS.get(method, ""), None)
        if handler is None:
            raise unknown_method(method)
        threads = self._user_thread if method == "elicitation/create" else self._threads
        answer = await _call_handler(handler, params, threads)
        return fill_defaults(answer, params.get("requestedSchema")) if method == "elicitation/create" else answer

    async def reply(self, request: RpcRequest) -> Result | Failure:
        """Answer a request by the server. An exception of the handler becomes an error answer."""
        try:
            return Result(request.id, await self.answer(request.method, request.params))
        except RpcError as error:
            return failure_from(error, request.id)
        except Exception as error:  # noqa: BLE001  # the author's own function
            return Failure(request.id, INTERNAL_ERROR, error_text(error))

    async def answer_all(self, requests: Object) -> Object:
        """Answer the requests in an `InputRequired` result, by the server's names."""
        out: Object = {}
        for name, question in requests.items():
            if type(question) is not dict or type(question.get("method")) is not str:
                raise ProtocolError("the question has no method").within("inputRequests", name)
            params = question.get("params")
            out[name] = await self.answer(question["method"], params if type(params) is dict else {})
        return out


async def _call_handler(handler: Handler, params: Object, threads: ThreadPool) -> Object:
    """Call an async handler on the event loop, and any other one in a thread."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # the method, of an object with an async one
    answer: Any
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        answer = handler(params)
        answer = await answer
    else:
        answer = await call_in_thread(threads, handler, params)
    if type(answer) is not dict:
        raise TypeError(f"the handler must return a dict, got {type(answer).__name__}")
    return answer


def fill_defaults(answer: Object, schema: JSON) -> Object:
    """Complete an accepted form with the defaults of the fields that were left empty."""
    if answer.get("action") != "accept" or type(schema) is not dict or type(schema.get("properties")) is not dict:
        return answer
    content = answer.get("content") or {}
    defaults = {
        name: field["default"]
        for name, field in schema["properties"].items()
        if type(field) is dict and "default" in field
    }
    return {**answer, "content": {**defaults, **content}}


def accept_defaults(params: Object) -> Object:
    """Accept the server's defaults: an `elicit` for programs without a user."""
    return fill_defaults({"action": "accept", "content": {}}, params.get("requestedSchema"))
