"""Ask the user of an MCP client to approve a call, by elicitation.

The answer is bound to the question: its key contains the hash of the tool, its definition and the arguments. Elicitation
trusts the client to ask its user. For clients that are not trusted, use `approve="suspend"`: then the operator of the
server decides, with `toolwire runs approve`.
"""

from __future__ import annotations

from typing import Literal

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.text import dumps
from ...net.tools.steps import Approver, ApproverThread
from ...net.tools.stored_approvals import StoredApprovals
from ...run.calls.steps import ApprovalReply, Approve, Denied
from ...run.values.records import Store
from .request_context import request_context_var

__all__ = ["ElicitApproval", "make_approver"]

_MAX_ARGUMENTS = 4_000  # characters; a person cannot check more
_SCHEMA: Object = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Run this call"}},
    "required": ["approve"],
}


class ElicitApproval:
    """An approver for the tools of an MCP server. `otherwise` decides if the client cannot ask its user."""

    def __init__(self, otherwise: Approver | None = None) -> None:
        self._otherwise = ApproverThread(otherwise)

    async def __call__(self, step: Approve) -> ApprovalReply:
        exchange = request_context_var.get()
        arguments = dumps(step.arguments)
        if exchange is None or not exchange.can_elicit or len(arguments) > _MAX_ARGUMENTS:
            return await self._otherwise.ask(step)
        message = f"{step.tool}({arguments}): {step.why}. Approve this call."
        answer = await exchange.elicit(message, _SCHEMA, key=f"approve-{step.hash}")
        content = answer.get("content")
        if answer.get("action") == "accept" and isinstance(content, dict) and content.get("approve") is True:
            return True
        return Denied("the user declined")


def make_approver(approve: Approver | Literal["elicit", "suspend"] | None, store: Store | None) -> Approver | None:
    """Return the approver of a server. A client that cannot elicit gets a stored question, if there is a store."""
    if approve == "suspend" and store is None:
        raise ConfigError(
            'approve="suspend" needs a store', hint="pass store=open_store(…), which another process opens"
        )
    stored = None if store is None else StoredApprovals(store.runs)
    if approve == "elicit":
        return ElicitApproval(stored)
    return stored if approve == "suspend" else approve
