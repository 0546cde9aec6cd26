"""Check properties of several calls of a server: concurrency, and effects applied once.

The state of a server is compared by the files of the temporary folder; its memory cannot be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...ir.pointer import Object
from ...ir.tools import Tool
from .judge import CallFault, FindingList
from .sandbox import ToolSandbox
from .server_target import ServerTarget
from .settings import CallOutcome, ToolTestSettings
from .state import files_state

__all__ = ["ServerProperties"]

_MAX_DIFFERENT = 4


class ServerProperties:
    """Checks one tool of a server with calls that are known to return."""

    def __init__(
        self, tool: Tool, target: ServerTarget, sandbox: ToolSandbox, settings: ToolTestSettings, found: FindingList
    ) -> None:
        self.calls = 0
        self._tool, self._target, self._sandbox = tool, target, sandbox
        self._settings, self._found = settings, found

    def check(self, returned: Sequence[Object]) -> None:
        """Run the checks that apply to the effect of the tool."""
        small = [arguments for arguments in returned if len(repr(arguments)) < 500]
        if not small:
            return
        if self._tool.effect in ("pure", "read"):
            self._compare_different(small[:: max(1, len(small) // _MAX_DIFFERENT)][:_MAX_DIFFERENT])
        else:
            self._compare_identical(small[0])
            if self._tool.effect == "idempotent":
                self._check_effect_once(small[0])

    def _compare_different(self, calls: Sequence[Object]) -> None:
        """Compare concurrent calls with the same calls one after the other, if these have stable results."""
        number = self._settings.concurrency
        batch = (list(calls) * number)[:number]
        self._ensure_started()
        serial = self._serial(batch)
        if serial != self._serial(batch) or not self._target.is_running:
            return
        together = self._concurrent(batch)
        for arguments, expected, result in zip(batch, serial, together, strict=True):
            if expected != result:
                self._target.start()
                if self._serial(batch) == serial:
                    self._report_race(arguments, "a call has another result while others run at the same time")
                return

    def _compare_identical(self, arguments: Object) -> None:
        """Compare identical calls, which have the same results and leave the same files in any order."""
        batch = [arguments] * self._settings.concurrency
        outcomes = []
        for make in (self._serial, self._concurrent, self._serial):
            self._target.start()
            results = Counter(make(batch))
            outcomes.append((results, self._files()))
            if not self._target.is_running or (len(outcomes) == 2 and outcomes[0] == outcomes[1]):
                return
        serial, together, again = outcomes
        if serial[0] == again[0] != together[0]:
            self._report_race(arguments, f"{len(batch)} identical concurrent calls have other results than in a row")
        elif serial[1] == again[1] != together[1]:
            self._report_race(arguments, f"{len(batch)} identical concurrent calls leave other files than in a row")

    def _check_effect_once(self, arguments: Object) -> None:
        """Call a tool with `idempotentHint` twice: the second call must not change a file."""
        self._target.start()
        states = []
        for _ in range(2):
            if self._serial([arguments])[0][0] != "returned":
                return
            states.append(self._files())
        if states[0] != states[1]:
            message = "a second call with the same arguments changes files, although the tool has idempotentHint"
            self._found.add(CallFault("double-effect", "", message), arguments)

    def _ensure_started(self) -> None:
        if not self._target.is_running:
            self._target.start()

    def _files(self) -> dict[str, str]:
        sandbox = self._sandbox
        return files_state([str(sandbox.work), str(sandbox.home), str(sandbox.temp)])

    def _serial(self, batch: list[Object]) -> list[tuple[str, str]]:
        self.calls += len(batch)
        return _results(self._target.call_serially(self._tool.name, batch))

    def _concurrent(self, batch: list[Object]) -> list[tuple[str, str]]:
        self.calls += len(batch)
        return _results(self._target.call_concurrently(self._tool.name, batch))

    def _report_race(self, arguments: Object, message: str) -> None:
        self._found.add(CallFault("race", "", message), arguments)


def _results(outcomes: list[CallOutcome]) -> list[tuple[str, str]]:
    return [(outcome.status, outcome.digest) for outcome in outcomes]
