"""Execute sampled calls through the runtime, with its time limits. A call without a usable result has a reason."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall, ToolResult
from ...ir.value import Value
from ...net.tools.runner import Runner
from ...run.values.results import result_code
from .call_text import parse_call
from .mining_tool import MiningTool

__all__ = ["CallExecutor", "ExecutedCall"]

_MAX_CALLS = 256  # calls of one run
_MAX_CACHED = 100_000


class ExecutedCall(Value, frozen=True):
    """The result of a call, or the reason why there is none."""

    result: str | None = None
    reason: str = ""


class CallExecutor:
    """Runs calls written as text. The result of an identical call is reused. Close it, or use it in a `with` block."""

    def __init__(self, tools: Sequence[MiningTool]) -> None:
        """Raise ConfigError for a tool with side effects: a model makes thousands of calls without approval."""
        for one in tools:
            if one.tool.effect not in ("pure", "read"):
                raise ConfigError(
                    f"the tool {one.name!r} has side effects (effect {one.tool.effect!r}), and sampled calls run unattended",
                    hint='use a tool with effect="pure" or effect="read"',
                )
        self._tools = [one.tool for one in tools]
        self._runner = Runner(*self._tools, keeps_outputs=False)
        self._known: dict[tuple[str, str | None], ExecutedCall] = {}

    def execute(self, calls: Sequence[tuple[str, str | None]]) -> list[ExecutedCall]:
        """Execute calls, each with the date of its text (or None), and return their results in the same order."""
        if len(self._known) > _MAX_CACHED:
            self._known.clear()
        missing = [key for key in dict.fromkeys(calls) if key not in self._known]
        for date in dict.fromkeys(date for _, date in missing):
            self._run([text for text, its_date in missing if its_date == date], date)
        return [self._known[key] for key in calls]

    def close(self) -> None:
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, texts: Sequence[str], date: str | None) -> None:
        parsed: list[tuple[str, ToolCall]] = []
        for text in texts:
            call = parse_call(text, self._tools)
            if call is None:
                self._known[text, date] = ExecutedCall(reason="not a call")
            else:
                parsed.append((text, call))
        for first in range(0, len(parsed), _MAX_CALLS):
            part = parsed[first : first + _MAX_CALLS]
            calls = [
                ToolCall(f"call{number}", call.name, call.arguments) for number, (_, call) in enumerate(part, first)
            ]
            results = self._runner.run_sync(calls, deps={"date": date})
            for (text, _), result in zip(part, results, strict=True):
                self._known[text, date] = _outcome(result)


def _outcome(result: ToolResult) -> ExecutedCall:
    if result.is_error:
        code = result_code(result)
        return ExecutedCall(reason=result.text[:80] if code == "failed" else code.replace("_", " "))
    text = " ".join(result.text.split())
    return ExecutedCall(text) if text else ExecutedCall(reason="empty result")
