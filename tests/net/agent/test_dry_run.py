"""A dry run calls no function of a tool, claims no key and requests no approval, in programs, agents and on the command line."""

import asyncio
import contextlib
import io
import json
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from doc_blocks import close_event_loop, closing_stores
from dry_run_counter import Counts, install
from places import ROOT
from run_program import run_program
from scripted_answers import SCENARIOS
from toolwire import Agent, Policy, Runner, ToolCall, open_store, tool
from toolwire.run import Toolbox, plan_of
from toolwire.testing import ScriptedModel, Upstream, says
from warm_command import WARM

PYTHON_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    pytest.param(
        page, id=page.name, marks=[pytest.mark.full] if page.name == "local.md" else []
    )  # a real model is slow
    for page in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
    if re.search(r"\b(?:Runner|Agent)\(", page.read_text(encoding="utf-8"))
    and page.name != "durable.md"  # its programs wait for runs that a worker in another process executes
]


def refuse(*_: object) -> bool:
    raise AssertionError("a dry run asked for approval")


def tools(called: list[str]):
    @tool(effect="read")
    async def look(path: str) -> str:
        """Look."""
        called.append("look")
        return path

    @tool(resource="disk", preview=lambda path: f"would delete {path}")
    def delete(path: str) -> str:
        """Delete."""
        called.append("delete")
        return path

    return look, delete


CALLS = [ToolCall("1", "look", {"path": "a"}), ToolCall("2", "delete", {"path": "a"})]


def verdicts(results):
    return [(plan.tool, plan.verdict, plan.effect, plan.resource, plan.preview) for plan in map(plan_of, results)]


@pytest.mark.finding("X9")
@pytest.mark.parametrize("per_call", [False, True])
def test_dry_run_returns_plans_and_claims_nothing(per_call):
    called, store = [], open_store("memory:")
    policy = Policy(approve=("write",))
    runner = Runner(*tools(called), store=store, policy=policy, approve=refuse, dry_run=not per_call)
    options = {"dry_run": True} if per_call else {}
    expected = [
        ("look", "would_run", "read", None, None),
        ("delete", "needs_approval", "write", "disk", "would delete a"),
    ]
    assert verdicts(runner.run_sync(CALLS, **options)) == expected
    assert verdicts(runner.run_sync(CALLS[:1], **options)) == expected[:1]
    assert (called, store.records()) == ([], [])


@pytest.mark.finding("X9")
def test_recorded_call_is_planned_as_replayed():
    called, store = [], open_store("memory:")
    runner = Runner(*tools(called), store=store)
    runner.run_sync(CALLS[1:], keys={"2": "k"})
    (result,) = runner.run_sync(CALLS[1:], keys={"2": "k"}, dry_run=True)
    assert plan_of(result).verdict == "replayed"
    (result,) = runner.run_sync(CALLS[1:], keys={"2": "another"}, dry_run=True)
    assert plan_of(result).verdict == "would_run"
    assert called == ["delete"]


@pytest.mark.finding("X9")
def test_cached_call_is_planned_as_replayed():
    called = []
    look, _ = tools(called)
    runner = Runner(Toolbox(look).with_options(cache=60))
    verdicts_in_order = []
    for dry in (True, False, True):
        (result,) = runner.run_sync(CALLS[:1], dry_run=dry)
        verdicts_in_order.append(plan_of(result).verdict if dry else result.text)
    assert (verdicts_in_order, called) == (["would_run", "a", "replayed"], ["look"])


@pytest.mark.finding("X9")
def test_one_dry_run_does_not_affect_the_other_runs_of_a_runner():
    called = []
    runner = Runner(*tools(called))
    for dry in (True, False, True):
        runner.run_sync(CALLS[:1], run_id="r", dry_run=dry)
    assert called == ["look"]


@pytest.mark.finding("X9")
def test_runner_for_other_tools_is_a_dry_run_too():
    called = []
    look, delete = tools(called)
    (result,) = Runner(look, dry_run=True).with_tools(delete).run_sync(CALLS[1:])
    assert (plan_of(result).verdict, called) == ("would_run", [])


@pytest.mark.finding("X9")
def test_model_receives_the_plan():
    called, model = [], ScriptedModel([says(*CALLS), says("Done.")])
    answer = Agent(model, Runner(*tools(called), dry_run=True)).run_sync("Clean up.")
    assert (answer.text, called) == ("Done.", [])
    texts = [part.text for part in answer.messages[-2].parts]
    assert texts[0].startswith("Dry run: look was not executed. It would run.")
    assert "preview: would delete a" in texts[1]


@pytest.mark.finding("X9")
def test_preview_of_each_kind_of_function_is_called():
    async def preview(path: str) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"path": path}

    def broken(path: str) -> str:
        raise OSError(path)

    for function, expected in ((preview, {"path": "a"}), (broken, None), (lambda: 1, None)):
        runner = Runner(tool(preview=function)(lambda_free_delete), dry_run=True)
        (result,) = runner.run_sync([ToolCall("1", "lambda_free_delete", {"path": "a"})])
        plan = plan_of(result)
        assert (plan.verdict, plan.preview, bool(plan.preview_error)) == ("would_run", expected, expected is None)


def lambda_free_delete(path: str) -> str:
    """Delete."""
    raise AssertionError("a dry run called the function")


@pytest.mark.finding("X9")
@pytest.mark.parametrize("page", PAGES)
def test_examples_of_the_documentation_call_no_function_in_a_dry_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts, names = Counts(), {"__name__": "docs"}
    install(monkeypatch.setattr, counts)
    with closing_stores():
        for text in PYTHON_BLOCK.findall(page.read_text(encoding="utf-8")):
            # The blocks expect results of tools, so some of them fail.
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
                exec(compile(text, str(page), "exec"), names)
            close_event_loop()  # before the next block replaces it
    assert counts.invoked == []
    assert counts.planned or page.name not in ("running.md", "agents.md")


@pytest.mark.finding("X9")
def test_trip_planner_calls_no_function_in_a_dry_run(monkeypatch):
    counts = Counts()
    install(monkeypatch.setattr, counts)
    plan = runpy.run_path(str(ROOT / "examples/trip_planner.py"))["plan"]
    with contextlib.redirect_stdout(io.StringIO()):
        plan(max_parallel=16)
    assert counts.invoked == []
    assert len(counts.planned) >= 3


@pytest.mark.finding("X9")
@pytest.mark.one_in(4)
@pytest.mark.parametrize(("task", "peer"), sorted(SCENARIOS))
def test_compared_programs_call_no_function_in_a_dry_run(task, peer, tmp_path, monkeypatch):
    report = tmp_path / "report"
    (tmp_path / "sitecustomize.py").write_text(
        f"import dry_run_counter\ndry_run_counter.install_in_this_process({str(report)!r})\n"
    )
    source = Path(sys.modules["toolwire"].__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'tests' / 'support'}:{source}")
    asyncio.run(run_program(task, peer, ours=True))
    counts = [json.loads(line) for line in report.read_text().splitlines()]
    assert counts
    assert all(invoked == [] for invoked, _ in counts)


TOOLS = '''
import pathlib, toolwire

@toolwire.tool(effect="read")
def get_weather(city: str) -> str:
    """The weather."""
    pathlib.Path("called").touch()
    return "sun"

@toolwire.tool(resource="outbox", preview=lambda to: f"one mail to {to}")
def send_mail(to: str) -> str:
    """Send a mail."""
    pathlib.Path("called").touch()
    return "sent"
'''
SCRIPT = [
    says(ToolCall("c1", "get_weather", {"city": "Paris"}), ToolCall("c2", "send_mail", {"to": "ann"})),
    says("All done."),
]


def toolwire_run(folder: Path, *arguments: str):
    (folder / "tools.py").write_text(TOOLS)

    async def run():
        async with Upstream(*SCRIPT) as upstream:
            process = await asyncio.create_subprocess_exec(
                *(*WARM, "run", "Write to Ann.", "-t", "tools.py", "--dry-run", *arguments),
                *("-m", "vllm/any", "--base-url", upstream.url, "--store", "calls.db"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env={**os.environ, "COLUMNS": "200"},
            )
            out, err = await process.communicate()
            return process.returncode, out.decode(), err.decode()

    return asyncio.run(run())


@pytest.mark.finding("X9")
def test_command_prints_the_plan_as_a_table(tmp_path):
    code, out, err = toolwire_run(tmp_path)
    assert code == 0, err
    lines = out.splitlines()
    assert "dry run: nothing was executed" in lines
    rows = [re.split(r"\s{2,}", line) for line in lines]
    assert ["get_weather", "would run", "read", "-", '{"city":"Paris"}'] in rows
    assert ["send_mail", "needs approval", "write", "outbox", "one mail to ann; send_mail is a write tool"] in rows
    assert not (tmp_path / "called").exists()


@pytest.mark.finding("X9")
def test_command_prints_the_plan_as_json(tmp_path):
    code, out, err = toolwire_run(tmp_path, "--json", "--yes")
    assert code == 0, err
    document = json.loads(out.splitlines()[-1])
    assert document["text"] == "All done."
    assert [(plan["tool"], plan["verdict"], plan["preview"]) for plan in document["plan"]] == [
        ("get_weather", "would_run", None),
        ("send_mail", "would_run", "one mail to ann"),
    ]
    with contextlib.closing(open_store(str(tmp_path / "calls.db"))) as store:
        assert store.records() == []
    assert not (tmp_path / "called").exists()
