"""Connect the retriever of an agent with its tools and runs. Separate because most agents have no retriever."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..ir.tools import Tool
from ..run.observe import Retriever, ToolSearcher
from ..run.search_tools import SEARCH_TOOLS, ToolSearch, add_search_tool
from ..run.session import Session
from .runner import Runner

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["RetrievingAgent", "first_tools", "make_tool_search", "prepare_retriever", "run_in_retriever_thread"]

_THREADS = 16
_RetrieverResult = TypeVar("_RetrieverResult")


class RetrievingAgent(Protocol):
    """The parts of an `Agent` that its search for tools uses."""

    runner: Runner
    retriever: Retriever | None


def prepare_retriever(retriever: Retriever, runner: Runner) -> None:
    """Add `search_tools` if the retriever can search.

    A retriever with a method `check_tools` checks its settings, unless the tools of the agent may change.
    """
    check = getattr(retriever, "check_tools", None)
    if check is not None and not runner.box.is_live:
        check(runner.box.tools)
    if isinstance(retriever, ToolSearcher):
        add_search_tool(runner.box)


def first_tools(agent: RetrievingAgent, tools: tuple[Tool, ...], offered: Sequence[str] = ()) -> tuple[Tool, ...]:
    """Return the tools that a run offers from the start; with a retriever, those of the conversation so far."""
    if agent.retriever is None:
        return tools
    known = {tool.name: tool for tool in tools}
    if isinstance(agent.retriever, ToolSearcher):
        known[SEARCH_TOOLS] = add_search_tool(agent.runner.box)
    return tuple(known[name] for name in offered if name in known)


def make_tool_search(agent: RetrievingAgent, session: Session) -> ToolSearch | None:
    """Return the search for the tools of an agent; None for a run that cannot offer others."""
    box, retriever = agent.runner.box, agent.retriever
    if retriever is None or session.state.has_fixed_tools or not isinstance(retriever, ToolSearcher):
        return None
    return ToolSearch(retriever, lambda: box.filter_available(box.tools))


async def run_in_retriever_thread(function: Callable[[], _RetrieverResult]) -> _RetrieverResult:
    """Run a function in a thread for retrievers.

    Runs wait there while another one encodes its tools. In the threads of the event loop they would block file access,
    DNS and the tools of all other runs.
    """
    return await asyncio.get_running_loop().run_in_executor(_open_threads(), copy_context().run, function)


@cache
def _open_threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=_open_threads.cache_clear)  # a forked process has no threads
    return ThreadPoolExecutor(_THREADS, "toolwire-retriever")
