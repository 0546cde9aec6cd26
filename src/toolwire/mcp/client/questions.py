"""Questions that a server may ask its client while it serves a call: to the user, to the model, or for the directories.

Each is answered by a function of yours. Without the function the client does not declare the capability, and a server
that asks anyway gets an error.

    Handlers(elicit=ask_user, sample=ask_model, roots=lambda: [{"uri": "file:///work"}])
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...run.results import error_text
from ..protocol.errors import INTERNAL_ERROR, RpcError, unknown_method
from ..protocol.rpc import Failure, Result, RpcRequest, failure_from

__all__ = ["Handlers", "accept_defaults", "fill_defaults"]

Handler: TypeAlias = Callable[[Object], "Object | Awaitable[Object]"]
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

    async def answer(self, method: str, params: Object) -> Object:
        """Return the answer to one question. Raise RpcError if there is no handler for it."""
        if method == "ping":
            return {}
        if method == "roots/list" and self.roots is not None:
            return {"roots": self.roots()}
        handler = getattr(self, _METHODS.get(method, ""), None)
        if handler is None:
            raise unknown_method(method)
        answer: Any = handler(params)
        answer = await answer if inspect.isawaitable(answer) else answer
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
