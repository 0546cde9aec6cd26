"""Runs recorded in trace files: their content, secrets, and replays."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields, replace

from toolwire import Agent, Message, ModelClient, Policy, StructuredOutput, Toolbox, ToolCall, ToolError, tool
from toolwire.cli.main import main
from toolwire.cli.trace.exchange import TimelineRow, draw_timeline
from toolwire.ir.errors import ConfigError
from toolwire.ir.losses import Loss
from toolwire.ir.parts import Refusal, Text
from toolwire.ir.request import Request
from toolwire.ir.response import Fault, Response, Stop, UpstreamError, Usage
from toolwire.ir.tools import Tool
from toolwire.net import Auxiliary, TraceObserver
from toolwire.run import Approved, Budget, Denied, Suspend, deny
from toolwire.run.calls.observe import (
    AgentOperation,
    ApprovalOperation,
    ModelOperation,
    OperationOutcome,
    ToolOperation,
)
from toolwire.run.traces.redact import environment_secrets
from toolwire.run.traces.sanitise import Sanitiser
from toolwire.testing import ReplayDifference, ScriptedModel, Upstream, load_run, load_trace, replay_run, says

CALLS = ToolCall("c1", "look", {"city": "Rome"}), ToolCall("c2", "look", {"city": "Oslo"})
BOOK = ToolCall("c3", "book", {"hotel": "Grand"})
ran = []


@tool(effect="read")
async def look(city: str) -> dict:
    """Look a city up."""
    ran.append(city)
    await asyncio.sleep(0)
    return {"city": city, "sky": "sun"}


@tool
async def book(hotel: str) -> str:
    """Book a hotel."""
    ran.append(hotel)
    return f"booked {hotel}"


def make_agent(script, *, tools=(look, book), **options):
    return Agent(ScriptedModel(script), list(tools), name="trip", system="Be brief.", **options)


def record(tmp_path, script=None, *, stream=False, **options):
    file = tmp_path / "run.jsonl"
    script = script or [says("Looking.", *CALLS), says(BOOK), says("Done.")]
    agent = make_agent(script, observers=[TraceObserver(file)], **options)

    async def consume():
        async for _ in agent.stream("Plan a trip."):
            pass

    if stream:
        asyncio.run(consume())
    else:
        agent.run_sync("Plan a trip.")
    ran.clear()
    return file


def events(file):
    return [json.loads(line) for line in file.read_text().splitlines()][1:]


def replay(file, agent=None, **options):
    return asyncio.run(replay_run(load_run(file), agent, **options))


@pytest.mark.finding("U15")
@pytest.mark.parametrize("stream", [False, True])
def test_recorded_run_is_replayed_without_running_tools(tmp_path, stream):
    file = record(tmp_path, stream=stream)
    answer = replay(file)
    assert (answer.text, answer.reason) == ("Done.", "")
    assert replay(file, make_agent([])).text == "Done."
    assert ran == []
    assert file.stat().st_mode & 0o077 == 0


def test_every_operation_is_recorded_once_below_its_parent(tmp_path):
    @tool(effect="read")
    async def ask_expert(question: str) -> str:
        """Ask another agent."""
        expert = Agent(ScriptedModel([says(CALLS[0]), says("Sunny.")]), [look], name="expert", observers=[observer])
        return (await expert.run(question)).text

    file = tmp_path / "run.jsonl"
    observer = TraceObserver(file)
    script = [says(ToolCall("c9", "ask_expert", {"question": "Rome?"})), says("Done.")]
    Agent(ScriptedModel(script), [ask_expert], name="trip", observers=[observer]).run_sync("Go.")
    trace = load_run(file)
    kinds = [(type(span.start).__name__, span.depth) for span in trace.spans]
    assert kinds == [
        ("RunStarted", 0),
        ("RequestSent", 1),
        ("CallStarted", 1),
        ("RunStarted", 2),
        ("RequestSent", 3),
        ("CallStarted", 3),
        ("RequestSent", 3),
        ("RequestSent", 1),
    ]
    assert (trace.spans[3].start.agent, trace.spans[3].start.call) == ("expert", "c9")
    assert [call.call.name for call in trace.calls()] == ["ask_expert"]
    assert all(span.end is not None and span.end.ms >= span.start.ms for span in trace.spans)
    agent = Agent(ScriptedModel([]), [ask_expert], name="trip")
    assert replay(file, agent, tools="read").text == "Done."  # the subagent would need a model


def test_messages_are_not_repeated_in_every_request(tmp_path):
    script = [says(ToolCall(f"c{number}", "look", {"city": "x" * 500})) for number in range(12)] + [says("Done.")]
    file = record(tmp_path, script, budget=Budget(iterations=20, same_call=50))
    assert file.read_text().count("x" * 500) <= 12 * 6
    assert len(load_run(file).turns()[-1].request["messages"]) == 2 + 2 * 12
    assert replay(file).text == "Done."


def test_losses_usage_cost_and_streams_are_recorded(tmp_path, capsys):
    file = tmp_path / "run.jsonl"

    async def run():
        async with Upstream(replace(says("Hi."), usage=Usage(3, 2))) as upstream:
            client = ModelClient("openai-chat/gpt-5.6", base_url=upstream.url, key="a-key")
            settings = {"top_k": 5}
            agent = Agent(client, settings=settings, price=lambda response: 0.25, observers=[TraceObserver(file)])
            async with client:
                async for _ in agent.stream("Hello"):
                    pass

    asyncio.run(run())
    (loss,) = [event["loss"] for event in events(file) if event["event"] == "loss"]
    assert loss["concept"] == "top_k"
    assert main(["trace", "show", str(file)]) == 0
    assert "top_k dropped" in capsys.readouterr().out
    response = next(event for event in events(file) if event["event"] == "response")
    assert response["cost"] == 0.25
    assert response["first_ms"] >= 0
    assert events(file)[-1]["cost"] == 0.25
    assert events(file)[-1]["usage"] == {"input": 3, "output": 2}


CANARIES = {
    "prompt": "Bearer canary-in-a-prompt-0123456789",
    "environment": "canary-in-the-environment",
    "result": "canary-in-a-result",
    "text": "canary-in-the-text-of-a-result",
    "argument": "canary-in-an-argument",
}


@pytest.mark.finding("U15")
def test_secrets_are_not_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", CANARIES["environment"])

    @tool(effect="read")
    def login(user: str, password: str) -> dict:
        """Log in."""
        return {"password": CANARIES["result"], "environment": dict(os.environ)}

    @tool(effect="read")
    def show() -> str:
        """Return JSON text."""
        return json.dumps({"nested": {"api_key": CANARIES["text"]}})

    @tool(effect="read")
    def fail() -> str:
        """Fail."""
        raise ToolError(f"the key {CANARIES['environment']} was refused")

    file = tmp_path / "run.jsonl"
    calls = (
        ToolCall("c1", "login", {"user": "ann", "password": CANARIES["argument"]}),
        ToolCall("c2", "show", {}),
        ToolCall("c3", "fail", {}),
    )
    agent = Agent(ScriptedModel([says(*calls), says("Done.")]), [login, show, fail], observers=[TraceObserver(file)])
    answer = agent.run_sync(f"Use this header: Authorization: {CANARIES['prompt']}")
    text = file.read_text()
    assert answer.results[0].structured["password"] == CANARIES["result"]
    assert [name for name, canary in CANARIES.items() if canary.removeprefix("Bearer ") in text] == []
    assert replay(file).text == "Done."
    assert replay(file, Agent(ScriptedModel([]), [login, show, fail])).text == "Done."


def with_texts(kind, text, **values):
    """Build a value with this text in all fields that are texts."""
    names = {field.name for field in fields(kind) if field.type is str}
    return kind(**{name: text for name in names if name not in values}, **values)


CANARY = "canary-in-an-event"
REQUEST = Request(CANARY, (Message("user", (Text(CANARY),)),), (Tool("look", CANARY),))
RESPONSE = with_texts(Response, CANARY, parts=(Text(CANARY),))
CALL = with_texts(ToolCall, CANARY, arguments={CANARY: [CANARY, {"number": 1234567890}]})
OUTCOME = with_texts(
    OperationOutcome,
    CANARY,
    response=RESPONSE,
    result=CALL.result({CANARY: CANARY}),
    arguments={CANARY: CANARY},
    losses=(with_texts(Loss, CANARY, action="dropped", severity="info", target=CANARY),),
)


@pytest.mark.parametrize("error", [None, RuntimeError(f"the key {CANARY}")])
@pytest.mark.parametrize("target", ["file", "folder"])
def test_no_event_contains_a_secret(tmp_path, error, target):
    place = {"file": tmp_path / "run.jsonl"} if target == "file" else {"folder": tmp_path}
    observer = TraceObserver(**place, secrets=[CANARY, "1234567890"])
    operations = [
        with_texts(AgentOperation, CANARY, request=REQUEST),
        with_texts(ModelOperation, CANARY, request=REQUEST),
        with_texts(ToolOperation, CANARY, call=CALL, effect="read"),
        with_texts(ApprovalOperation, CANARY, arguments={CANARY: CANARY}),
    ]
    ends = [observer.start(operation) for operation in operations]
    for end in reversed(ends):
        end(replace(OUTCOME, error=error))
    asyncio.run(observer.flush())
    (file,) = tmp_path.iterdir()
    recorded = load_run(file)
    kinds = {"run", "request", "call", "approval", "loss"}
    kinds |= {"error"} if error else {"end", "response", "result", "decision"}
    assert {event["event"] for event in events(file)} == kinds
    assert recorded.losses[0].detail == "[removed]"
    assert CANARY not in file.name + file.read_text()
    assert "1234567890" not in file.read_text()


@pytest.mark.parametrize("text", ["[" * 700 + "]" * 700, "name \udcff"])
def test_text_that_json_cannot_contain_or_nest_is_recorded(tmp_path, text, caplog):
    @tool(effect="read")
    def show() -> str:
        """Return the text."""
        return text

    file = tmp_path / "run.jsonl"
    model = ScriptedModel([says(ToolCall("c1", "show", {})), says("Done.")])
    Agent(model, [show], observers=[TraceObserver(file)]).run_sync(text)
    expected = ["run", "request", "response", "call", "result", "request", "response", "end"]
    assert [event["event"] for event in events(file)] == expected
    assert list(tmp_path.iterdir()) == [file]
    assert replay(file).text == "Done."
    assert caplog.records == []


def test_value_that_is_nested_too_deeply_is_removed(tmp_path):
    value = json.loads("[" * 300 + "]" * 300)

    @tool(effect="read")
    def show(value: list) -> dict:
        """Return the value."""
        return {"value": value}

    file = tmp_path / "run.jsonl"
    model = ScriptedModel([says(ToolCall("c1", "show", {"value": value})), says("Done.")])
    Agent(model, [show], observers=[TraceObserver(file)]).run_sync("Go.")
    assert "[removed]" in file.read_text()
    assert replay(file, Agent(ScriptedModel([]), [show])).text == "Done."


def test_run_id_cannot_choose_another_folder(tmp_path):
    observer = TraceObserver(folder=tmp_path / "runs")
    observer.start(AgentOperation("../../escaped", REQUEST))(OperationOutcome())
    asyncio.run(observer.flush())
    assert [file.parent.name for file in tmp_path.rglob("*escaped*")] == ["runs"]


def test_text_of_a_refusal_is_redacted_in_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", CANARIES["environment"])
    file = tmp_path / "run.jsonl"
    refusal = Refusal(f"I will not use {CANARIES['environment']} or sk-abcdefghijklmnop1234")
    model = ScriptedModel([Response(parts=(refusal,), stop=Stop("refusal"))])
    answer = Agent(model, [], output_type=City, observers=[TraceObserver(file)]).run_sync("Go.")
    assert CANARIES["environment"] in answer.reason
    assert events(file)[-1]["reason"].endswith("I will not use [removed] or [removed]")
    assert CANARIES["environment"] not in file.read_text()
    assert replay(file, Agent(model, [], output_type=City)).reason == events(file)[-1]["reason"]


def test_secrets_of_the_environment_are_found_by_name():
    environment = {"OPENAI_API_KEY": "a", "HF_TOKEN": "b", "DB_PASSWORD": "c", "MONKEY": "d", "PATH": "e", "key": "f"}
    assert environment_secrets(environment) == ["a", "b", "c", "f"]


def change(file, old, new, *, event, count=1):
    """Change the recording, as if the program had behaved differently when it was recorded."""
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        if json.loads(line).get("event") == event and old in line:
            lines[number] = line.replace(old, new)
            count -= 1
    assert count <= 0
    file.write_text("\n".join(lines) + "\n")


def test_changed_system_prompt_is_the_first_difference(tmp_path):
    file = record(tmp_path)
    agent = Agent(ScriptedModel([]), [look, book], system="Be verbose.")
    with pytest.raises(ReplayDifference) as found:
        replay(file, agent)
    difference = found.value.difference
    assert (difference.step, difference.pointer) == ("request 1", "/messages/0/parts/0/text")
    assert (difference.expected, difference.got) == ('"Be brief."', '"Be verbose."')


def test_changed_tool_is_a_difference(tmp_path):
    file = record(tmp_path)

    @tool(name="look", effect="read")
    async def other(city: str, country: str = "") -> str:
        """Look a city up."""

    with pytest.raises(ReplayDifference) as found:
        replay(file, make_agent([], tools=(other, book)))
    assert found.value.difference.pointer == "/tools/0/input_schema/properties/country"


def test_changed_result_of_a_read_tool_is_a_difference_only_if_it_runs(tmp_path):
    file = record(tmp_path)
    change(file, '"sky":"sun"', '"sky":"rain"', event="result", count=2)
    change(file, '"sky":"sun"', '"sky":"rain"', event="request")
    assert replay(file, make_agent([])).text == "Done."
    with pytest.raises(ReplayDifference) as found:
        replay(file, make_agent([]), tools="read")
    assert (found.value.difference.expected, found.value.difference.got) == ('"rain"', '"sun"')
    assert sorted(ran) == ["Oslo", "Rome"]  # but nothing was booked
    ran.clear()


def test_changed_tool_of_a_toolbox_is_a_difference_without_a_hint_about_agents(tmp_path):
    file = record(tmp_path)

    @tool(effect="read", name="look")
    async def changed(city: str) -> str:
        """Look a city up."""
        return "rain"

    with pytest.raises(ReplayDifference) as caught:
        replay(file, tools="read", box=Toolbox(changed))
    assert "hint" not in str(caught.value)


def test_policy_that_now_denies_a_call_is_a_difference(tmp_path):
    file = record(tmp_path)
    with pytest.raises(ReplayDifference) as found:
        replay(file, make_agent([], policy=Policy((deny("book"),))))
    assert found.value.difference.step == "request 3"


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        (True, "approved"),
        (False, "denied"),
        (Denied("too expensive"), "denied"),
        (Approved({"hotel": "Small"}), "approved"),
        (Suspend(), "suspended"),
    ],
    ids=str,
)
def test_approvals_are_recorded_and_decided_again_as_recorded(tmp_path, reply, decision):
    policy = Policy(approve=("write",))
    file = record(tmp_path, policy=policy, approve=lambda step: reply)
    (recorded,) = [event["decision"] for event in events(file) if event["event"] == "decision"]
    assert recorded == decision
    answer = replay(file, make_agent([], policy=policy))
    assert (answer.text == "Done.") is (decision != "suspended")
    assert bool(answer.reason) is (decision == "suspended")
    assert ran == []


def test_run_that_gave_up_is_replayed(tmp_path):
    script = [says(ToolCall(f"c{number}", "look", {"city": str(number)})) for number in range(5)]
    file = record(tmp_path, script, budget=Budget(iterations=3))
    assert "max iterations" in events(file)[-1]["reason"]
    assert replay(file) is None
    assert "max iterations" in replay(file, make_agent([], budget=Budget(iterations=3))).reason
    with pytest.raises(ReplayDifference) as found:
        replay(file, make_agent([], budget=Budget(iterations=2)))
    assert found.value.difference.step == "request 3"


def test_failed_request_is_recorded_and_replayed(tmp_path):
    class Failing:
        model = "failing"

        async def ask(self, request):
            raise UpstreamError(Fault("overloaded", "busy, key sk-0123456789abcdef"))

    file = tmp_path / "run.jsonl"
    agent = Agent(Failing(), [look], observers=[TraceObserver(file)])
    with pytest.raises(UpstreamError):
        agent.run_sync("Go.")
    ends = [event for event in events(file) if event["event"] == "error"]
    assert [end["type"] for end in ends] == ["UpstreamError", "UpstreamError"]
    assert "sk-0123456789abcdef" not in file.read_text()
    assert replay(file) is None


def test_wrong_arguments_and_unknown_tools_are_replayed_by_the_runtime(tmp_path):
    calls = ToolCall("c1", "look", {"town": "Rome"}), ToolCall("c2", "nothing", {})
    file = record(tmp_path, [says(*calls), says("Done.")])
    codes = [event["code"] for event in events(file) if event["event"] == "result"]
    assert sorted(codes) == ["invalid_arguments", "unknown_tool"]
    assert replay(file).text == "Done."
    assert replay(file, make_agent([])).text == "Done."


def test_each_run_of_an_observer_has_its_own_file(tmp_path):
    observer = TraceObserver(folder=tmp_path / "runs")
    single = TraceObserver(tmp_path / "run.jsonl")
    for _ in range(3):
        make_agent([says("Done.")], observers=[observer, single]).run_sync("Go.")
    files = [*(tmp_path / "runs").iterdir(), *tmp_path.glob("run*.jsonl")]
    assert len(files) == 6
    assert {load_run(file).turns()[0].response.text for file in files} == {"Done."}


def test_parallel_runs_do_not_mix(tmp_path):
    observer = TraceObserver(folder=tmp_path / "runs")

    async def run():
        agents = [make_agent([says(*CALLS), says(f"Done {number}.")], observers=[observer]) for number in range(4)]
        return await asyncio.gather(*(agent.run("Go.") for agent in agents))

    answers = asyncio.run(run())
    ran.clear()
    traces = {load_run(file).header.id: load_run(file) for file in (tmp_path / "runs").iterdir()}
    for answer in answers:
        assert traces[answer.run_id].turns()[-1].response.text == answer.text
        assert len(traces[answer.run_id].calls()) == 2


def test_disk_that_fails_does_not_fail_the_run(tmp_path, caplog):
    folder = tmp_path / "runs"
    agent = make_agent([says("Done.")], observers=[TraceObserver(folder=folder)])
    folder.rmdir()
    assert agent.run_sync("Go.").text == "Done."
    assert "an observer raised an exception" in caplog.text


def test_trace_of_a_killed_process_is_shown(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(
        """
import time
from toolwire import Agent, ToolCall, tool
from toolwire.net import Auxiliary, TraceObserver
from toolwire.testing import ScriptedModel, says

@tool(effect="read")
def wait() -> str:
    print("waiting", flush=True)
    time.sleep(60)

model = ScriptedModel([says(ToolCall("c1", "wait", {})), says("Done.")])
Agent(model, [wait], observers=[TraceObserver("run.jsonl")]).run_sync("Go.")
"""
    )
    process = subprocess.Popen([sys.executable, str(program)], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert main(["trace", "show", str(tmp_path / "run.jsonl")]) == 0
    out = capsys.readouterr().out
    assert "interrupted" in out
    assert "no end" in out


TOOLS = '''
import toolwire
from pathlib import Path
from typing import Any

@toolwire.tool(effect="read")
async def look(city: str) -> dict:
    """Look a city up."""
    return {"city": city, "sky": SKY}

@toolwire.tool
async def book(hotel: str) -> str:
    """Book a hotel."""
    Path("booked").touch()
    return f"booked {hotel}"

SKY = "sun"
agent = toolwire.Agent("openai/gpt-5.6", [look, book], name="trip", system="Be brief.")
'''


@pytest.mark.finding("U15")
def test_replay_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = str(record(tmp_path))
    Path("app.py").write_text(TOOLS)
    assert main(["trace", "replay", file]) == 0
    assert "identical: 3 requests, 3 calls" in capsys.readouterr().out
    assert main(["trace", "replay", file, "--tools", "app.py"]) == 0
    Path("app.py").write_text(TOOLS.replace('"sun"', '"snow"'))
    capsys.readouterr()
    assert main(["trace", "replay", file, "--tools", "app.py"]) == 1
    err = capsys.readouterr().err
    for text in ("request 2", "/messages/3/parts/0/structured/sky", 'recorded: "sun"', 'replayed: "snow"'):
        assert text in err
    assert main(["trace", "replay", file, "--tools", "app.py", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["difference"]["got"] == '"snow"'
    assert not Path("booked").exists()


def test_replay_command_with_an_agent(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.jsonl"
    script = [says(*CALLS), says(BOOK), says("Done.")]
    model = ScriptedModel(script)
    model.model = "openai/gpt-5.6"
    Agent(model, [look, book], name="trip", system="Be brief.", observers=[TraceObserver(file)]).run_sync("Go.")
    ran.clear()
    Path("app.py").write_text(TOOLS)
    assert main(["trace", "replay", str(file), "--agent", "app.py:agent", "--run-reads"]) == 0
    Path("app.py").write_text(TOOLS.replace("Be brief", "Be kind"))
    assert main(["trace", "replay", str(file), "--agent", "app.py:agent"]) == 1
    assert "/messages/0/parts/0/text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "gemini"], "are for recorded exchanges"),
        (["--run-reads"], "--run-reads needs --agent"),
        (["--agent", "nofile.py:agent"], "give a Python file that defines the agent"),
        (["--agent", "app.py"], "must be FILE.py:NAME"),
        (["--agent", "app.py:nothing"], "has no agent 'nothing'"),
        (["--agent", "app.py:agent", "--tools", "app.py"], "either --tools or --agent"),
    ],
)
def test_wrong_usage_of_replay(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(TOOLS)
    assert main(["trace", "replay", str(record(tmp_path)), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_is_not_an_exchange(tmp_path):
    with pytest.raises(ConfigError, match="trace of a run, not of an exchange"):
        load_trace(record(tmp_path))


def test_timeline_fits_eighty_columns_and_shows_no_control_characters(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    call = ToolCall("c1", "evil\x1b[31m\u202e" + "n" * 60, {"a": "\x1b]0;title\x07"})
    usage = says("Done.\x1b[2J")
    file = record(tmp_path, [says(call, *CALLS), usage], price=lambda response: 0.000123)
    assert main(["trace", "show", str(file)]) == 0
    out = capsys.readouterr().out
    timeline = out.split("\n\n")[1].splitlines()
    assert len(timeline) == 1 + 6
    assert max(map(len, timeline)) <= 80
    assert all("━" in line for line in timeline[1:])
    assert not {"\x1b", "\x07", "\u202e"} & set(out)


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_notes_of_a_timeline_are_whole_in_every_width(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    note = "outcome_unknown, 1200 in, 30 out"
    lines = draw_timeline([TimelineRow("pay_invoice (write)", 0, 10, note), TimelineRow("search", 10, 20, "ok")], 20)
    assert max(map(len, lines)) <= columns
    assert note in " ".join(" ".join(lines).split())


def test_usage_is_in_the_title(tmp_path, capsys):
    script = [replace(says(*CALLS), usage=Usage(100, 20)), replace(says("Done."), usage=Usage(150, 5))]
    assert main(["trace", "show", str(record(tmp_path, script))]) == 0
    shown = capsys.readouterr()
    title, _, headers, *_ = shown.out.splitlines()
    for text in ("run trip", "2 requests", "2 calls", "tokens 250 in, 25 out"):
        assert text in title
    assert headers.split()[0] == "operation"
    assert headers.split()[-2:] == ["duration", "note"]
    assert "--bodies shows the bodies" in " ".join(shown.err.split())


@dataclass
class City:
    name: str


def test_run_with_a_structured_output_is_replayed_in_its_native_form(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = tmp_path / "run.jsonl"

    async def run():
        async with Upstream(says('{"name": "Rome"}')) as upstream:
            client = ModelClient("openai-chat/gpt-5.6", base_url=upstream.url, key="a-key")
            agent = Agent(client, output_type=City, observers=[TraceObserver(file)])
            async with client:
                await agent.run("Which city?")
                return agent, upstream.requests

    agent, heard = asyncio.run(run())
    assert heard[0].request.output is not None
    assert replay(file, agent).output == City("Rome")
    file.write_text(file.read_text().replace('"request":{', '"request":{"model":"openai-chat/gpt-5.6",'))
    file.write_text(file.read_text().replace('"body":{"output"', '"body":{"model":"openai-chat/gpt-5.6","output"'))
    named = Agent("openai-chat/gpt-5.6", output_type=City)  # there is no key for it
    assert replay(file, named).output == City("Rome")
    with pytest.raises(ReplayDifference, match="/output"):
        replay(file, Agent("openai-chat/gpt-5.6"))


def test_final_answer_of_a_model_that_cannot_be_forced_is_replayed(tmp_path):
    """Ollama cannot require a call, so the recorded request has no tool choice."""
    file = tmp_path / "run.jsonl"

    async def run():
        async with Upstream(says(ToolCall("1", "final_answer", {"name": "Rome"}))) as upstream:
            client = ModelClient("ollama/qwen3", base_url=upstream.url)
            agent = Agent(client, output_type=StructuredOutput(City, mode="tool"), observers=[TraceObserver(file)])
            async with client:
                await agent.run("Which city?")
                return agent

    assert replay(file, asyncio.run(run())).output == City("Rome")


def test_auxiliary_model_is_replayed_from_the_recording(tmp_path):
    @tool(effect="read")
    async def read() -> str:
        """Read a long text."""
        return "long " * 2000

    def make(models, **options):
        model, auxiliary = (ScriptedModel(script) for script in models)
        settings = Auxiliary(auxiliary, summarise_above=1000)
        return Agent(model, [read], auxiliary=settings, **options)

    file = tmp_path / "run.jsonl"
    scripts = [[says(ToolCall("c1", "read", {})), says("Done.")], [says("A short summary.")]]
    make(scripts, observers=[TraceObserver(file)]).run_sync("Go.")
    trace = load_run(file)
    assert (len(trace.turns()), len(trace.turns("auxiliary"))) == (2, 1)
    assert "A short summary." in json.dumps(trace.turns()[1].request)
    assert replay(file, make([[], []])).text == "Done."
    with pytest.raises(ReplayDifference):
        replay(file, Agent(ScriptedModel([]), [read]))


@pytest.mark.parametrize("with_agent", [False, True])
def test_messages_are_sanitised_once_in_a_replay(tmp_path, monkeypatch, with_agent):
    turns = 60
    script = [*(says(ToolCall(f"c{number}", "look", {"city": f"{number}"})) for number in range(turns)), says("Done.")]
    budget = Budget(iterations=100, calls=None)
    file = record(tmp_path, script, budget=budget)
    sanitised = []
    original = Sanitiser.sanitise_text
    monkeypatch.setattr(Sanitiser, "sanitise_text", lambda self, value: sanitised.append(1) or original(self, value))
    assert replay(file, make_agent([], budget=budget) if with_agent else None).text == "Done."
    assert len(sanitised) <= 100 * turns
    change(file, '"city":"7"', '"city":"8"', event="response")
    with pytest.raises(ReplayDifference, match=r"request 9, /messages/\d+"):
        replay(file, make_agent([], budget=budget) if with_agent else None)


@pytest.mark.parametrize("command", ["show", "replay"])
@pytest.mark.parametrize(
    "line",
    [
        '{"event":"run","ms":0,"span":1,"request":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"event":"request","ms":1,"span":9,"parent":1,"base":1,"kept":1,"body":{"messages":7}}',
        '{"event":"request","ms":1,"span":9,"parent":1,"base":1,"kept":-5,"body":{"tools":"abc"}}',
    ],
)
def test_damaged_trace_is_reported_without_a_traceback(tmp_path, capsys, command, line):
    file = record(tmp_path)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:2], f"{line}\n", *lines[2:]]))
    status = main(["trace", command, str(file)])
    assert status == 2 or (command == "show" and status == 0)
    if status:
        assert capsys.readouterr().err.startswith("toolwire: ")


@pytest.mark.parametrize("stream", [False, True])
def test_subagent_without_observers_is_recorded_and_never_asked_in_a_replay(tmp_path, stream):
    inner_model = ScriptedModel([says(CALLS[0]), says("Sun.")])
    inner = Agent(inner_model, [look], name="inner")
    script = [says(ToolCall("c9", "inner", {"prompt": "Look."})), says("Done.")]
    file = record(tmp_path, script, tools=[inner.as_tool(description="Ask.")], stream=stream)
    kinds = [event["event"] for event in events(file)]
    assert kinds[:5] == ["run", "request", "response", "call", "run"]
    assert (kinds.count("request"), kinds.count("call"), kinds.count("end")) == (4, 2, 2)
    agent = make_agent([], tools=[inner.as_tool(description="Ask.")])
    assert replay(file, agent, tools="read").text == "Done."
    assert (len(inner_model.requests), ran) == (2, [])


def test_subagent_is_not_asked_in_the_replay_of_a_trace_without_its_run(tmp_path):
    @tool(effect="read")
    def inner(prompt: str) -> str:
        """Ask."""
        return "Sun."

    file = record(tmp_path, [says(ToolCall("c9", "inner", {"prompt": "Look."})), says("Done.")], tools=[inner])
    model = ScriptedModel([says("asked")])
    agent = make_agent([], tools=[Agent(model, [], name="inner").as_tool(description="Ask.")])
    assert replay(file, agent, tools="read").text == "Done."
    assert model.requests == []


@pytest.mark.parametrize("kind", ["agent", "thread", "stream", "client", "successor"])
def test_replayed_read_tool_cannot_ask_a_model_that_the_recording_lacks(tmp_path, kind):
    @tool(effect="read", name="inner")
    def recorded(prompt: str) -> str:
        """Ask."""
        return "Sun."

    file = record(tmp_path, [says(ToolCall("c9", "inner", {"prompt": "Look."})), says("Done.")], tools=[recorded])
    model = ScriptedModel([says("asked")])
    other = Agent(model, [], name="other")

    @tool(effect="read", name="inner")
    async def inner(prompt: str) -> Any:
        """Ask."""
        if kind == "agent":
            return (await other.run(prompt)).text
        if kind == "thread":
            return await asyncio.to_thread(lambda: other.run_sync(prompt).text)
        if kind == "stream":
            return [item async for item in other.stream(prompt)][-1].text
        if kind == "client":
            async with ModelClient("openai/gpt-5.6", base_url="http://127.0.0.1:9/v1", key="k", retries=0) as client:
                return (await client.ask(Request("", (Message("user", (Text(prompt),)),)))).text
        return other

    with pytest.raises(ReplayDifference, match=r"a request to (scripted|gpt-5\.6)"):
        replay(file, make_agent([], tools=[inner]), tools="read")
    assert model.requests == []


def test_requests_and_calls_after_a_transfer_are_recorded(tmp_path):
    successor = Agent(ScriptedModel([says(CALLS[0]), says("Sun.")]), [look], name="successor")

    @tool(effect="pure")
    def hand_over() -> Agent:
        """Transfer the conversation."""
        return successor

    file = record(tmp_path, [says(ToolCall("c9", "hand_over", {}))], tools=[hand_over])
    expected = ["run", *["request", "response", "call", "result"] * 2, "request", "response", "end"]
    assert [event["event"] for event in events(file)] == expected


def test_shortened_results_and_the_tools_that_read_them_are_replayed(tmp_path):
    @tool(effect="read")
    async def read() -> str:
        """Read a long text."""
        return "a line of text\n" * 20_000

    def read_rest(request):
        text = request.messages[-1].parts[0].text
        output_id = re.search(r'read_output\(id="([^"]+)"', text)[1]
        return says(ToolCall("c2", "read_output", {"id": output_id, "offset": 200_000}))

    file = tmp_path / "run.jsonl"
    model = ScriptedModel([says(ToolCall("c1", "read", {})), read_rest, says("Done.")])
    Agent(model, [read], observers=[TraceObserver(file)]).run_sync("Go.")
    assert [event for event in events(file) if event["event"] == "result" and "code" in event] == []
    assert replay(file).text == "Done."
    assert replay(file, Agent(ScriptedModel([]), [read])).text == "Done."


def test_folder_instead_of_a_file_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(ConfigError, match=r"name a file in it, or use TraceObserver\(folder="):
        TraceObserver(tmp_path)
