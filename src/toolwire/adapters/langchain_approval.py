"""Ask for approval with interrupts of LangGraph, and find the decision of a call among the decisions of its task.

A `ToolNode` runs several calls in one task, and LangGraph numbers the decisions of a task in the order in which its calls
ask. That order differs between executions: a call that has its result does not ask again. A decision is therefore for a
call only if it names the call, or if it answers the question of the call.

LangGraph keeps a plain decision, `Command(resume=…)` without the id of an interrupt, and returns it again if the graph
continues without a new one. A question after a plain decision is therefore not answered by a plain one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ..ir.value import Value
from ..run.calls.steps import ApprovalReply, Approved, Denied
from ..run.values.waiting import WaitingCall

_lock = threading.Lock()  # a ToolNode runs its calls in threads


class LastQuestion(Value, frozen=True):
    """The last question of a task: the call, and the number of decisions that the task had before.

    `needs_id`: a plain decision does not answer it.
    """

    call_id: str
    number: int
    needs_id: bool


def find_question(config: Any) -> LastQuestion | None:
    """Read the last question of the task from the checkpoint; None if there is none."""
    saver, query, task = _checkpoint_query(config)
    return None if saver is None else _read_question(saver.get_tuple(query), task)


async def find_question_async(config: Any) -> LastQuestion | None:
    saver, query, task = _checkpoint_query(config)
    return None if saver is None else _read_question(await saver.aget_tuple(query), task)


def _checkpoint_query(config: Any) -> tuple[Any, Any, Any]:
    """Return the checkpointer of the graph, the config of its checkpoint, and the id of the task."""
    values = (config or {}).get("configurable") or {}
    saver, graph = values.get("__pregel_checkpointer"), str(values.get("checkpoint_ns") or "").rpartition("|")[0]
    checkpoint = (values.get("checkpoint_map") or {}).get(graph)
    if checkpoint is None or not hasattr(saver, "get_tuple"):
        return None, None, None
    query = {"thread_id": values.get("thread_id"), "checkpoint_ns": graph, "checkpoint_id": checkpoint}
    return saver, {"configurable": query}, values.get("__pregel_task_id")


def _read_question(saved: Any, task: Any) -> LastQuestion | None:
    """Return the question of the task's last interrupt, or None unless it is a single question of toolwire."""
    writes = getattr(saved, "pending_writes", None) or ()
    found = [value for owner, channel, value in writes if owner == task and channel == "__interrupt__"]
    if not found or len(found[-1]) != 1:
        return None
    request = getattr(found[-1][0], "value", None)
    fields: Mapping[str, Any] = request if isinstance(request, Mapping) else {}
    call_id, number = fields.get("tool_call_id"), fields.get("question_number")
    if not isinstance(call_id, str) or not isinstance(number, int):
        return None
    return LastQuestion(call_id, number, fields.get("needs_id") is not False)


def ask(question: WaitingCall, last: LastQuestion | None, config: Any) -> ApprovalReply:
    """Return the decision for this call, or interrupt the graph to get it; other decisions are left to other calls.

    Outside of a graph the call is denied.
    """
    scratchpad = ((config or {}).get("configurable") or {}).get("__pregel_scratchpad")
    decisions = getattr(scratchpad, "resume", None)
    if scratchpad is None or not isinstance(decisions, list):  # outside of a graph
        return False
    with _lock:
        for number, decision in enumerate(decisions):
            if _is_own(decision, number, question, last):
                return _read_decision(decision, question)
        while True:  # LangGraph returns the known decisions first, then a plain one, then it interrupts
            number = len(decisions)
            if not _interrupt(question, number, needs_id=scratchpad.get_null_resume(False) is not None):
                return False
            if len(decisions) > number and _is_own(decisions[number], number, question, last, is_plain=True):
                return _read_decision(decisions[number], question)


def _interrupt(question: WaitingCall, number: int, *, needs_id: bool) -> bool:
    """Call `interrupt`, which appends a decision to the task. Return False if the graph cannot be interrupted."""
    request = {
        "action_requests": [{"name": question.tool, "args": question.arguments, "description": question.why}],
        "review_configs": [{"action_name": question.tool, "allowed_decisions": ["approve", "edit", "reject"]}],
        "tool_call_id": question.call_id,
        "question_number": number,
        "needs_id": needs_id,
    }
    try:
        from langgraph.types import interrupt

        interrupt(request)
    except (ImportError, RuntimeError, KeyError):
        return False
    return True


def _is_own(
    reply: Any, number: int, question: WaitingCall, last: LastQuestion | None, *, is_plain: bool = False
) -> bool:
    fields = _decision_fields(reply)
    if "tool_call_id" in fields:
        return bool(fields["tool_call_id"] == question.call_id)
    if last is None or (is_plain and last.needs_id):
        return False
    return last.call_id == question.call_id and last.number == number


def _single_decision(reply: Any) -> Any:
    decisions = reply.get("decisions") if isinstance(reply, Mapping) else None
    return decisions[0] if isinstance(decisions, list) and len(decisions) == 1 else reply


def _decision_fields(reply: Any) -> Mapping[str, Any]:
    decision = _single_decision(reply)
    return decision if isinstance(decision, Mapping) else {}


def _read_decision(reply: Any, question: WaitingCall) -> ApprovalReply:
    """Read a decision of the human-in-the-loop middleware, or True."""
    fields = _decision_fields(reply)
    if _single_decision(reply) is True or fields.get("type") == "approve":
        return True
    edited = fields.get("edited_action")
    if fields.get("type") == "edit" and isinstance(edited, Mapping) and edited.get("name") == question.tool:
        return Approved(dict(edited.get("args") or {}))
    return Denied(str(fields.get("message") or ""))
