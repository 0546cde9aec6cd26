"""The auxiliary model of an agent: it summarises long results and replaced turns, and repairs malformed calls.

agent = Agent("openai/gpt-5.6", tools, auxiliary="openai/gpt-5.6-mini")
agent = Agent("openai/gpt-5.6", tools, auxiliary=Auxiliary("openai/gpt-5.6-mini", summarise_above=8_000, repair=False))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from logging import getLogger

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.request import Message, Request
from ...ir.response import Response
from ...ir.value import Value
from ...run.calls.observe import Observation, Observer, OperationOutcome
from ...run.session.auxiliary import (
    is_suggestion,
    make_conversation_summary_request,
    make_repair_request,
    make_result_summary_request,
    note_repair,
    repairing_model,
    summarise_result,
    take_repaired_call,
)
from ...run.session.compaction import Compaction, CompactionPlan
from ...run.session.loop import Session
from ...run.session.state import RunTools
from ...run.values.outputs import how_to_read, replace_duplicate
from ...run.values.results import NOTES_KEY, annotate, result_code, result_note
from ...run.values.waiting import waiting_call
from ..model.interface import Model, check_request, model_operation
from ..tools.runner import Runner
from .model_requests import collect_losses

_log = getLogger("toolwire.net")


class Auxiliary(Value, frozen=True):
    """An auxiliary model and its tasks.

    `summarise_above`: results with more characters are summarised; None for no summaries. `deduplicate` replaces results
    that the conversation already contains; it needs no request. `repair` repairs calls with invalid arguments.
    `max_requests` limits the requests of one run, `max_input` the characters of one request, `max_summary` those of a
    summary.
    """

    model: Model | str
    summarise_above: int | None = 16_000  # about 4,000 tokens: a summary of less costs a request and saves little
    deduplicate: bool = True
    repair: bool = True
    max_requests: int = 8  # a run has 16 iterations by default, so half of its turns may need one
    max_input: int = 100_000  # about 25,000 tokens, within the context of small models
    max_summary: int = 4_000  # about 1,000 tokens, a quarter of the shortest summarised result

    def __post_init__(self) -> None:
        for name in ("summarise_above", "max_requests", "max_input", "max_summary"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")


class AuxiliaryModel:
    """The auxiliary model of one agent. A client for a model's name is made on first use."""

    def __init__(self, auxiliary: Auxiliary | Model | str, make_client: Callable[[str], Model]) -> None:
        self.settings = auxiliary if isinstance(auxiliary, Auxiliary) else Auxiliary(auxiliary)
        self._make_client = make_client
        self._client: Model | None = None

    @property
    def model(self) -> Model:
        model = self.settings.model
        if not isinstance(model, str):
            return model
        if self._client is None:
            self._client = self._make_client(model)
        return self._client

    @property
    def name(self) -> str:
        model = self.settings.model
        return model if isinstance(model, str) else str(getattr(model, "name", "auxiliary"))

    async def aclose(self) -> None:
        close = getattr(self._client, "aclose", None)
        if close is not None:
            await close()


class AuxiliaryWork:
    """The work of the auxiliary model in one run. A failed request changes nothing: the run continues without it.

    `is_compacted`: a compaction may remove the result to which a duplicate refers.
    """

    def __init__(
        self,
        auxiliary: AuxiliaryModel,
        session: Session,
        runner: Runner,
        observers: Sequence[Observer],
        *,
        is_compacted: bool = False,
    ) -> None:
        self._is_compacted = is_compacted
        self._auxiliary = auxiliary
        self._settings = auxiliary.settings
        self._session = session
        self._runner = runner
        self._observers = observers

    async def improve_results(
        self,
        step: RunTools,
        results: Sequence[ToolResult],
        run_again: Callable[[ToolCall], Awaitable[ToolResult]],
    ) -> list[ToolResult]:
        """Repair and repeat calls with invalid arguments, replace duplicates, and summarise long results.

        `run_again` runs a repaired call. Results from an earlier attempt at the turn have been improved then, and are passed back.
        """
        improved: list[ToolResult] = []
        known = step.results or (None,) * len(step.calls)
        for call, result, earlier_result in zip(step.calls, results, known, strict=True):
            if earlier_result is not None or result_code(result) == "suspended":
                improved.append(result)
                continue
            if step.results and repairing_model(call) is not None and waiting_call(result) is None:
                result = note_repair(result, call)  # the repaired call waited for approval
            elif self._settings.repair and result_note(result, "edited") is None:
                # A person's arguments are not repaired. Nor does a call run before an earlier one that waits for approval.
                if all(result_code(other) != "suspended" for other in improved):
                    result = await self._repair(call, result, run_again)
            if self._settings.deduplicate:
                result = self._replace_duplicate(call, result, improved)
            limit = self._settings.summarise_above
            if limit is not None and not result.is_error and len(result.text) > limit:
                result = await self._summarise(call, result)
            improved.append(result)
        return improved

    def _replace_duplicate(self, call: ToolCall, result: ToolResult, improved: Sequence[ToolResult]) -> ToolResult:
        """Replace a result that the conversation contains already by a reference to the earlier one.

        A compaction may remove the earlier result: then its text is stored first, or else nothing is replaced.
        """
        shortened = replace_duplicate(call, result, self._messages(improved))
        if shortened is result or not self._is_compacted:
            return shortened
        output_id = self._runner.store_output(self._session.state.run_id, result.text)
        if output_id is None:
            return result
        notice = f"{shortened.text}\n[If the earlier result is removed, its characters stay stored; {how_to_read(output_id)}]"
        return annotate(replace(shortened, parts=(Text(notice),)), output=output_id)

    async def summarise_spans(self, plan: CompactionPlan, compaction: Compaction) -> list[str]:
        """Ask for a summary of each replaced span, and return the texts, empty where a request fails."""
        summaries = []
        for span in plan.spans:
            request = make_conversation_summary_request(
                span.messages, max_input=self._settings.max_input, max_summary=compaction.max_summary
            )
            response = await self._ask(request)
            summaries.append("" if response is None else response.text.strip())
        return summaries

    def _messages(self, results: Sequence[ToolResult]) -> Sequence[Message]:
        """Return the conversation as the model will see it, up to the results so far."""
        return (*self._session.sent_request.messages, Message("user", tuple(results)))

    async def _repair(
        self, call: ToolCall, result: ToolResult, run_again: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Ask for a repair of a call with invalid arguments, run it through all gates, and return its result.

        A call with effects is refused there, with a suggestion. If it waits for approval, it replaces the call in the
        session. Without a valid repair, return `result`.
        """
        entry = self._runner.box.find(call.name)
        if result_code(result) != "invalid_arguments" or entry is None or repairing_model(call) is not None:
            return result
        request = make_repair_request(call, entry.tool, result.text, max_input=self._settings.max_input)
        response = await self._ask(request)
        repaired = None if response is None else take_repaired_call(call, response, self._auxiliary.name)
        if repaired is None:
            return result
        repeated = await run_again(repaired)
        if result_code(repeated) == "invalid_arguments":
            return repeated if is_suggestion(repeated) else result
        if waiting_call(repeated) is not None:
            self._session.replace_call(repaired)  # the approval is for the repaired arguments
            return repeated
        return note_repair(repeated, repaired)

    async def _summarise(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Ask for a summary of a result and return it, or the result itself if there is no shorter summary.

        The text is stored, and the id in the notes reads it.
        """
        settings, text = self._settings, result.text
        request = make_result_summary_request(
            call, text, max_input=settings.max_input, max_summary=settings.max_summary
        )
        response = await self._ask(request)
        summary = "" if response is None else response.text
        if summarise_result(result, summary, max_summary=settings.max_summary) is result:
            return result
        known: str | None = result.extra.get(NOTES_KEY, {}).get("output")
        output_id = known or self._runner.store_output(self._session.state.run_id, text)
        if output_id is None:
            return summarise_result(result, summary, max_summary=settings.max_summary)
        instruction = f"; {how_to_read(output_id)}"
        summarised = summarise_result(result, summary, max_summary=settings.max_summary, instruction=instruction)
        return annotate(summarised, output=output_id)

    async def _ask(self, request: Request) -> Response | None:
        """Send one request, count its usage in the run, and return the response.

        Return None if the limits of the run do not allow it, or if it fails, which is logged.
        """
        if not self._session.begin_auxiliary_request(self._settings.max_requests):
            return None
        session = self._session
        try:
            model, run_id = self._auxiliary.model, session.state.run_id
            check_request(model)
            operation = model_operation(model, request, run_id, purpose="auxiliary")
            with collect_losses(session), Observation(self._observers, operation) as observation:
                async with asyncio.timeout(session.remaining_seconds):
                    response = await model.ask(request)
                observation.outcome = OperationOutcome(response, cost=session.price(response))
        except Exception as error:  # noqa: BLE001  # a user-defined model may raise anything, and the run does not need it
            _log.warning("the auxiliary model %s failed: %s", self._auxiliary.name, error)
            return None
        session.add_auxiliary_response(response)
        return None if response.fault is not None else response
