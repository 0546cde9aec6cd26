"""Check the arguments of an agent when it is made: an error of the program should not appear inside a run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from ...ir.errors import ConfigError
from ...run.calls.policy import Policy
from ...run.session.compaction import Compaction
from ...run.session.state import Budget

_VALUES = {"budget": Budget, "policy": Policy, "compaction": Compaction}
_METHODS = {"model": "ask", "retriever": "choose"}


# Names of the same parameter in other agent libraries: OpenAI Agents, PydanticAI, LangChain, Google ADK.
_OTHER_NAMES = {
    **dict.fromkeys(("instructions", "instruction", "system_prompt", "prompt"), "system"),
    "toolsets": "tools",
    **dict.fromkeys(("result_type", "response_format", "output_schema"), "output_type"),
    "model_settings": "settings",
    **dict.fromkeys(("handoffs", "sub_agents"), "transfers"),
    **dict.fromkeys(("max_turns", "max_iterations", "usage_limits"), "budget"),
    "checkpointer": "store",
}


def refuse_unknown(kind: type, unknown: Iterable[str]) -> None:
    """Raise ConfigError for the first argument that a class does not take, with the name of the right parameter."""
    for name in unknown:
        known = list(inspect.signature(kind).parameters)
        close = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, known, 1)), "")
        hint = f"use {close}=…" if close in known else f"use {', '.join(known[:-1])}"
        raise ConfigError(f"{kind.__name__} has no parameter {name!r}", hint=hint)


def check_agent_arguments(**arguments: Any) -> None:
    """Raise ConfigError for an argument of the wrong type."""
    for name, kind in _VALUES.items():
        value = arguments[name]
        if value is not None and not isinstance(value, kind):
            raise ConfigError(f"{name} must be a {kind.__name__}, got {value!r}", hint=f"pass {kind.__name__}(…)")
    for name, method in _METHODS.items():
        value = arguments[name]
        if value is not None and not isinstance(value, str) and not callable(getattr(value, method, None)):
            hint = "use index.retriever(k=5)" if callable(getattr(value, "retriever", None)) else ""
            raise ConfigError(f"{name} needs a method {method}, got {value!r}", hint=hint)
    if arguments["price"] is not None and not callable(arguments["price"]):
        raise ConfigError(f"price must be a function of a response, got {arguments['price']!r}")
    if arguments["cache"] not in (None, "auto"):
        raise ConfigError(f'cache must be "auto" or None, got {arguments["cache"]!r}')
    for observer in arguments["observers"]:
        if not callable(getattr(observer, "start", None)):
            raise ConfigError(f"an observer needs a method start(operation), got {observer!r}")
    check_store(arguments["store"])
    check_approver(arguments["approve"])


def check_store(store: object) -> None:
    """Raise ConfigError for a value that is no store, such as its address."""
    if store is not None and not hasattr(store, "claim"):
        raise ConfigError(f"store must be a store, got {store!r}", hint=f"pass open_store({store!r})")


def check_approver(approve: object) -> None:
    """Raise ConfigError for a value that is neither a function nor "suspend"."""
    if approve not in (None, "suspend") and not callable(approve):
        raise ConfigError(f'approve must be a function or "suspend", got {approve!r}')


def takes_no_argument(function: object) -> bool:
    """Return True for a function without parameters, and False if its signature is not known."""
    try:
        return not inspect.signature(function).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
