"""The behaviour that a toolbox has in every framework: one suite, and a driver per framework.

A driver runs the framework's own loop with a fake model. The model makes the calls of a script: a list of turns, each a
text or a list of `Call`. Subclass `FrameworkContract` and set `driver`.
"""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolwire
from random_schemas import documents
from toolwire import Policy, Toolbox, ToolError
from toolwire.ir import ConfigError, Tool
from toolwire.run import CallContext, Entry, current_call, deny
from toolwire.schema import validator
from waiting import SAFETY


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Outcome:
    """The end of a run. `results`: what the model reads, by call id. `asked`: the calls for which approval was asked."""

    text: str | None = None
    results: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    schemas: dict[str, Any] = field(default_factory=dict)


class Ledger:
    """A toolbox and the effects of its tools."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.contexts: list[CallContext] = []
        self.events: list[str] = []

        @toolwire.tool(effect="read")
        def get_weather(city: str, days: int = 1) -> str:
            """Get the weather."""
            self.contexts.append(current_call())
            return f"sun in {city} for {days} days"

        @toolwire.tool
        def pay(amount: int) -> dict[str, int]:
            """Pay an amount."""
            self.contexts.append(current_call())
            self.paid.append(amount)
            return {"paid": amount}

        @toolwire.tool(approve="money leaves the account")
        async def transfer(amount: int) -> str:
            """Transfer an amount."""
            self.paid.append(amount)
            return f"transferred {amount}"

        @toolwire.tool(effect="read")
        def find_order(order: int) -> str:
            """Find an order."""
            raise ToolError(f"There is no order {order}; the last one is 7.")

        @toolwire.tool(effect="read", output_limit=100)
        async def read_log() -> str:
            """Read the log."""
            return "x" * 5000

        @toolwire.tool
        async def write_first(text: str) -> str:
            """Write slowly."""
            self.events.append(f"begin {text}")
            await asyncio.sleep(0.05)
            self.events.append(f"end {text}")
            return text

        self.box = Toolbox(get_weather, pay, transfer, find_order, read_log, write_first)


class Driver:
    """Runs the loop of a framework, each time in a conversation of its own.

    `decide` returns True or False for the id of a call that needs approval.
    """

    def convert(self, tools: Any, **options: Any) -> Any:
        raise NotImplementedError

    def convert_back(self, converted: Any, **options: Any) -> Toolbox:
        raise NotImplementedError

    async def run(self, converted: Any, script: list[Any], *, deps: Any = None, decide: Any = None) -> Outcome:
        raise NotImplementedError

    async def call_twice(self, converted: Any, call: Call) -> None:
        """Make the same call, with the same id, twice in one run or conversation, as after a crash of the loop."""
        raise NotImplementedError


class FrameworkContract:
    driver: Driver
    context_is_deps = True  # the dependencies of a run are any object, not the framework's own context
    changes_schemas = False  # the framework rewrites the schema that a tool declares

    def run(self, tools, script, *, deps=None, decide=None, **options):
        return asyncio.run(self.driver.run(self.driver.convert(tools, **options), script, deps=deps, decide=decide))

    def test_loop_runs_the_tools_and_the_model_reads_their_results(self):
        ledger = Ledger()
        turn = [Call("c1", "get_weather", {"city": "Rome", "days": 2}), Call("c2", "pay", {"amount": 5})]
        outcome = self.run(ledger.box, [turn, "Done."])
        assert outcome.text == "Done."
        assert outcome.results["c1"] == "sun in Rome for 2 days"
        assert json.loads(outcome.results["c2"]) == {"paid": 5}
        assert ledger.paid == [5]
        assert {context.call_id for context in ledger.contexts} == {"c1", "c2"}

    def test_model_sees_the_declared_schemas(self):
        ledger = Ledger()
        schemas = self.run(ledger.box, ["Nothing to do."]).schemas
        assert schemas == {
            tool.name: tool.input_schema or {"type": "object", "properties": {}} for tool in ledger.box.tools
        }

    def test_functions_and_modules_are_accepted(self):
        module = ModuleType("weather_module")

        def get_wind(city: str) -> str:
            """Get the wind."""
            return f"no wind in {city}"

        get_wind.__module__ = "weather_module"
        module.get_wind = get_wind
        sys.modules["weather_module"] = module
        try:
            for source in (get_wind, module, [get_wind], Toolbox(get_wind)):
                outcome = self.run(source, [[Call("c1", "get_wind", {"city": "Rome"})], "Done."])
                assert outcome.results["c1"] == "no wind in Rome"
        finally:
            del sys.modules["weather_module"]

    def test_arguments_are_repaired_or_refused_before_the_function_runs(self):
        ledger = Ledger()
        turns = [[Call("c1", "get_weather", {"city": "Rome", "days": "2"})], [Call("c2", "pay", {"sum": 5})], "Done."]
        outcome = self.run(ledger.box, turns)
        assert outcome.results["c1"] == "sun in Rome for 2 days"
        assert "'amount' is missing" in outcome.results["c2"]
        assert ledger.paid == []

    def test_error_of_a_tool_reaches_the_model(self):
        outcome = self.run(Ledger().box, [[Call("c1", "find_order", {"order": 9})], "Done."])
        assert "There is no order 9; the last one is 7." in outcome.results["c1"]
        assert outcome.text == "Done."

    def test_policy_denies_a_call(self):
        ledger = Ledger()
        turns = [[Call("c1", "pay", {"amount": 5})], "Done."]
        outcome = self.run(ledger.box, turns, policy=Policy(checks=(deny("pay"),)))
        assert "Not allowed" in outcome.results["c1"]
        assert ledger.paid == []

    def test_long_result_is_shortened(self):
        outcome = self.run(Ledger().box, [[Call("c1", "read_log", {})], "Done."])
        assert "characters omitted" in outcome.results["c1"]
        assert len(outcome.results["c1"]) < 400

    def test_framework_is_asked_for_approval_and_the_call_runs_once(self):
        ledger, paid_when_asked = Ledger(), []

        def decide(call_id):
            paid_when_asked.append(list(ledger.paid))
            return True

        turns = [[Call("c1", "transfer", {"amount": 5}), Call("c2", "get_weather", {"city": "Rome"})], "Done."]
        outcome = self.run(ledger.box, turns, decide=decide)
        assert (outcome.asked, paid_when_asked) == (["c1"], [[]])
        assert outcome.results["c1"] == "transferred 5"
        assert outcome.results["c2"] == "sun in Rome for 1 days"
        assert ledger.paid == [5]

    def test_denied_call_does_not_run(self):
        ledger = Ledger()
        outcome = self.run(ledger.box, [[Call("c1", "transfer", {"amount": 5})], "Done."], decide=lambda _: False)
        assert outcome.asked == ["c1"]
        assert outcome.text == "Done."
        assert ledger.paid == []

    def test_invalid_call_is_refused_without_a_question(self):
        ledger = Ledger()
        outcome = self.run(ledger.box, [[Call("c1", "transfer", {})], "Done."], decide=lambda _: True)
        assert outcome.asked == []
        assert "'amount' is missing" in outcome.results["c1"]

    def test_policy_asks_for_approval_with_the_mechanism_of_the_framework(self):
        ledger = Ledger()
        turns = [[Call("c1", "pay", {"amount": 5})], "Done."]
        outcome = self.run(ledger.box, turns, decide=lambda _: True, policy=Policy(approve=("write",)))
        assert outcome.asked == ["c1"]
        assert ledger.paid == [5]

    def test_approver_of_the_program_replaces_that_of_the_framework(self):
        ledger = Ledger()
        turns = [[Call("c1", "transfer", {"amount": 5})], "Done."]
        outcome = self.run(ledger.box, turns, approve=lambda step: step.arguments["amount"] < 10)
        assert outcome.asked == []
        assert outcome.results["c1"] == "transferred 5"

    def test_repeated_call_id_has_one_effect(self):
        ledger = Ledger()
        converted = self.driver.convert(ledger.box)
        asyncio.run(self.driver.call_twice(converted, Call("c1", "pay", {"amount": 5})))
        assert ledger.paid == [5]

    def test_same_call_id_in_another_conversation_is_another_call(self):
        """Some models use ids such as call_0 in every conversation."""
        ledger = Ledger()
        converted = self.driver.convert(ledger.box)
        for _ in range(2):
            asyncio.run(self.driver.run(converted, [[Call("call_0", "pay", {"amount": 5})], "Done."]))
        assert ledger.paid == [5, 5]

    def test_identical_calls_with_different_ids_both_run(self):
        ledger = Ledger()
        self.run(ledger.box, [[Call("c1", "pay", {"amount": 5})], [Call("c2", "pay", {"amount": 5})], "Done."])
        assert ledger.paid == [5, 5]

    def test_key_option_of_the_tool_is_respected(self):
        paid = []

        @toolwire.tool(key=lambda arguments: f"invoice-{arguments['invoice']}")
        def settle(invoice: int) -> str:
            """Settle an invoice."""
            paid.append((invoice, current_call().idempotency_key))
            return "settled"

        self.run(settle, [[Call("c1", "settle", {"invoice": 1})], [Call("c2", "settle", {"invoice": 1})], "Done."])
        assert paid == [(1, "invoice-1")]

    def test_writes_of_a_turn_keep_their_order(self):
        ledger = Ledger()
        self.run(ledger.box, [[Call(f"c{n}", "write_first", {"text": str(n)}) for n in range(3)], "Done."])
        assert ledger.events == [f"{step} {n}" for n in range(3) for step in ("begin", "end")]

    def test_dependencies_reach_the_context_of_the_call(self):
        ledger, deps = Ledger(), {"user": "ann"}
        self.run(ledger.box, [[Call("c1", "get_weather", {"city": "Rome"})], "Done."], deps=deps)
        assert len(ledger.contexts) == 1
        if self.context_is_deps:
            assert ledger.contexts[0].deps is deps
        else:
            assert ledger.contexts[0].deps is not None

    def test_cancelling_the_loop_cancels_the_tool(self):
        reached = []

        @toolwire.tool(effect="read")
        async def wait_forever() -> str:
            """Wait."""
            reached.append("started")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                reached.append("cancelled")
                raise
            return "never"

        async def main():
            converted = self.driver.convert(wait_forever)
            work = asyncio.create_task(self.driver.run(converted, [[Call("c1", "wait_forever", {})], "Done."]))
            while not reached and not work.done():
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.wait([work])
            while len(reached) < 2:
                await asyncio.sleep(0.001)

        asyncio.run(asyncio.wait_for(main(), SAFETY))
        assert reached == ["started", "cancelled"]

    def test_toolbox_comes_back_unchanged(self):
        box = Ledger().box
        back = self.driver.convert_back(self.driver.convert(box))
        assert [entry.name for entry in back] == [entry.name for entry in box]
        assert all(one is other for one, other in zip(back, box, strict=True))

    def test_unknown_name_in_effects_is_an_error(self):
        with pytest.raises(ConfigError, match="unknown tool 'nothing'"):
            self.driver.convert_back(self.driver.convert(Ledger().box), effects={"nothing": "read"})

    def test_runner_is_not_accepted(self):
        with pytest.raises(ConfigError, match="Runner"):
            self.driver.convert(toolwire.Runner(Ledger().box))

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(documents(), st.data())
    def test_random_schemas_and_arguments_pass_unchanged(self, schema, data):
        """The schema that the model sees is ours, and the arguments of a valid call arrive unchanged."""
        values = st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), st.lists, max_leaves=3
        )
        names = st.sampled_from(
            ["a", "b", "c d", "value", "key", "self", "config", "context", "runtime", "ctx", "args"]
        )
        arguments = data.draw(st.dictionaries(names, values, max_size=4))
        received = []

        async def take(**given):
            received.append(given)
            return "taken"

        entry = Entry(Tool("take", "Take.", schema, effect="read"), take)
        outcome = self.run(entry, [[Call("c1", "take", arguments)], "Done."])
        if not self.changes_schemas:
            assert outcome.schemas == {"take": schema}
        try:
            is_valid = not list(validator(schema).problems(arguments))
        except toolwire.ir.SchemaError:
            return  # every call reports the schema
        if is_valid:
            assert received == [arguments]
            assert outcome.results["c1"] == "taken"
