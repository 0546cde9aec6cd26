"""`toolwire run`, as a user types it, against a scripted provider."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from places import ROOT, TESTS
from toolwire import Response, Text, ToolCall
from toolwire.cli.main import main
from toolwire.ir.response import Stop
from toolwire.testing import Upstream, says
from toolwire.testing.upstream import RawReply
from warm_command import WARM

TOOLS = '''
import toolwire

@toolwire.tool(effect="read")
def get_weather(city: str) -> str:
    """The weather."""
    return f"sun in {city}"

@toolwire.tool
def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"
'''
WEATHER = says("Looking. ", ToolCall("c1", "get_weather", {"city": "Paris"}))
MAIL = says(ToolCall("c1", "send_mail", {"to": "ann"}))
DONE = says("All done.")


def toolwire_run(tmp_path: Path, script, *arguments: str, stdin: str | bytes = ""):
    """The command in a process of its own, the provider in this one."""
    tools = tmp_path / "tools.py"
    tools.write_text(TOOLS)

    async def run():
        async with Upstream(*script) as upstream:
            process = await asyncio.create_subprocess_exec(
                *(*WARM, "run", *arguments),
                *("-t", str(tools), "-m", "vllm/any", "--base-url", upstream.url),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate(stdin if isinstance(stdin, bytes) else stdin.encode())
            return process.returncode, out.decode(), err.decode(), upstream.requests

    return asyncio.run(run())


def test_run_prints_the_answer_and_writes_the_trace(tmp_path):
    trace = tmp_path / "trace.jsonl"
    code, out, err, heard = toolwire_run(
        tmp_path, [WEATHER, DONE], "Weather?", "--store", "none", "--trace", str(trace)
    )
    assert code == 0, err
    assert out == "Looking. \nAll done.\n"
    assert '→ get_weather {"city":"Paris"}' in err
    assert "✓ get_weather sun in Paris" in err
    assert [tool.name for tool in heard[0].request.tools] == ["get_weather", "send_mail"]
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert (lines[0]["toolwire_trace"], lines[0]["kind"]) == (2, "run")
    events = [line["event"] for line in lines[1:]]
    assert events[:2] + events[5:] == ["run", "request", "request", "response", "end"]
    # a read may start before its response has ended
    assert [event for event in events[2:5] if event != "response"] == ["call", "result"]


@pytest.mark.finding("U15")
def test_trace_of_a_run_can_be_shown(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    toolwire_run(tmp_path, [WEATHER, DONE], "Weather?", "--store", "none", "--trace", str(trace))
    assert main(["trace", "show", str(trace)]) == 0
    out = capsys.readouterr().out
    for text in ("2 requests", "1 call", "get_weather (read)", '{"city":"Paris"}', "sun in Paris", "All done."):
        assert text in out
    assert main(["trace", "show", str(trace), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["depth"] for row in document["timeline"]] == [0, 1, 1, 1]


def test_trace_in_a_folder_that_does_not_exist_is_an_error(tmp_path):
    code, _, err, heard = toolwire_run(tmp_path, [DONE], "Hi.", "--trace", str(tmp_path / "none" / "trace.jsonl"))
    assert (code, heard) == (2, [])
    assert "cannot write" in err


def test_json_output_contains_the_answer_and_messages(tmp_path):
    code, out, err, _ = toolwire_run(tmp_path, [WEATHER, DONE], "-", "--json", "--store", "none", stdin="Weather?")
    assert code == 0, err
    answer = json.loads(out.splitlines()[-1])
    assert (answer["type"], answer["text"], answer["finished"]) == ("answer", "All done.", True)
    assert answer["messages"][0]["parts"][0]["text"] == "Weather?"


def test_write_call_is_denied_without_a_terminal(tmp_path):
    code, _, err, heard = toolwire_run(tmp_path, [MAIL, DONE], "Mail Ann.", "--store", "none")
    assert code == 0
    assert "✗ send_mail" in err
    assert "(use --yes or --suspend)" in err
    (told,) = heard[1].request.messages[-1].parts
    assert "This call needs approval" in told.text


def test_yes_option_approves_the_write_call(tmp_path):
    store = str(tmp_path / "runs.db")
    code, _, err, _ = toolwire_run(tmp_path, [MAIL, DONE], "Mail Ann.", "--yes", "--store", store)
    assert code == 0, err
    assert "✓ send_mail sent to ann" in err

    from toolwire.cli.main import main

    assert main(["run", "--list", "--store", store]) == 0


def test_max_iterations_stops_the_run(tmp_path):
    script = [says(ToolCall(f"c{n}", "get_weather", {"city": f"city {n}"})) for n in range(4)]
    code, _, err, _ = toolwire_run(tmp_path, script, "Go.", "--max-iterations", "2", "--store", "none")
    assert code == 1
    assert "max iterations reached (2)" in err


def test_text_option_runs_calls_of_a_model_without_tool_calling(tmp_path):
    said = Response(
        parts=(Text('<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'),),
        stop=Stop("stop"),
    )
    code, _, err, heard = toolwire_run(tmp_path, [said, DONE], "Weather?", "--text", "hermes", "--store", "none")
    assert code == 0, err
    assert "✓ get_weather sun in Rome" in err
    assert not heard[0].request.tools


def test_via_option_sends_one_prompt_to_the_completion_endpoint(tmp_path):
    texts = ['<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>', "All done."]
    script = []
    for text in texts:
        end = {"index": 0, "text": text, "finish_reason": "stop"}
        chunk = b"data: " + json.dumps({"id": "c", "model": "m", "choices": [end]}).encode() + b"\n\n"
        script.append(RawReply(chunk + b"data: [DONE]\n\n", headers={"content-type": "text/event-stream"}))
    options = ("--text", "hermes", "--via", "completions", "--template", "chatml", "--store", "none")
    code, out, err, heard = toolwire_run(tmp_path, script, "Weather?", *options)
    assert code == 0, err
    assert "✓ get_weather sun in Rome" in err and out.endswith("All done.\n")
    assert [one.path for one in heard] == ["/v1/completions"] * 2
    assert json.loads(heard[1].body)["prompt"].endswith("</tool_response><|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "x", "-t", "{tools}", "-m", "vllm/x", "--via", "completions"], "need a text format"),
        (["run", "x", "-m", "vllm/x", "--text", "react", "--via", "completions"], "set template to one of"),
        (["run", "{tools}", "-m", "openai/x"], "the prompt is a file"),
        (["run", " ", "-m", "openai/x"], "the prompt is empty"),
        (["run", "x", "-m", "vllm/x", "--trace", "{tools}/x"], "cannot write"),
        (["run", "x", "-t", "nope.py", "-m", "openai/x"], "cannot read nope.py"),
        (["run", "x", "-m", "opnai/x"], "openai"),
        (["run", "x", "-m", "vllm/x", "--key-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE is not set"),
        (["run", "--resolve", "k"], "requires an outcome"),
        (["run", "x", "-t", "{broken}", "-m", "vllm/x"], "cannot load"),
        (["run", "x", "-m", "vllm/x", "--price", "cheap"], "invalid price"),
        (["run", "x", "-m", "vllm/x", "--attach", "nope.png"], "cannot read nope.png"),
        (["run", "x", "-m", "vllm/x", "--output-schema", "nope.json"], "cannot read nope.json"),
        (["run", "x", "-m", "vllm/x", "--api-url", "https://a.example"], "needs an OpenAPI document"),
    ],
)
def test_wrong_usage(arguments, told, tmp_path, capsys, monkeypatch):
    from toolwire.cli.main import main

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    tools, broken = tmp_path / "tools.py", tmp_path / "broken.py"
    tools.write_text(TOOLS)
    broken.write_text("import nothing_of_that_name")
    assert main([one.format(tools=tools, broken=broken) for one in arguments]) == 2
    assert told in capsys.readouterr().err


def test_unknown_records_can_be_resolved_or_forgotten(tmp_path, capsys):
    from toolwire.cli.main import main
    from toolwire.net.stores import open_store
    from toolwire.run.values.records import Claim

    url = str(tmp_path / "runs.db")
    store = open_store(url)
    store.claim(Claim("k1", "pay", "f", "t1"))
    store.complete("k1", "t1", "{}", 60.0, "unknown")
    store.claim(Claim("k2", "pay", "f", "t2"))
    store.complete("k2", "t2", "{}", 60.0, "unknown")
    store.close()
    assert main(["run", "--list", "--store", url]) == 0
    assert "unknown" in capsys.readouterr().out
    assert main(["run", "--resolve", "k1", "--result", '"paid"', "--store", url]) == 0
    assert main(["run", "--resolve", "k2", "--forget", "--store", url]) == 0
    assert main(["run", "--resolve", "k3", "--forget", "--store", url]) == 1
    assert main(["run", "--list", "--json", "--store", url]) == 0
    (left,) = json.loads(capsys.readouterr().out)
    assert (left["key"], left["state"]) == ("k1", "done")


def test_mcp_server_tools_are_used_and_failed_servers_are_skipped(tmp_path):
    served = tmp_path / "served.py"
    served.write_text('''
import toolwire

@toolwire.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b
''')
    server = {
        "command": sys.executable,
        "args": ["-m", "toolwire", "mcp", "serve", str(served), "--store", "memory:"],
        "env": {"PYTHONPATH": str(ROOT / "src")},
        "trusted": True,
    }
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"sums": server, "gone": {"command": "no-such-command"}}}))
    script = [says(ToolCall("c1", "add", {"a": 1, "b": 2})), DONE]
    code, out, err, _ = toolwire_run(tmp_path, script, "Add.", "--store", "none", "--yes", "-t", str(config))
    assert (code, out) == (0, "All done.\n"), err
    assert "skipped: gone: cannot start gone" in err
    assert "✓ add 3" in err


@pytest.mark.finding("U2")
def test_mcp_list_change_during_listing_is_picked_up(tmp_path):
    announcing = TESTS / "mcp_client" / "announcing.py"
    env = {"EFFECTS": str(tmp_path / "listed")}
    server = {"command": sys.executable, "args": [str(announcing), "during"], "env": env}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"s": server}}))
    script = [says(ToolCall("c1", "sort", {})), DONE]
    code, _, err, heard = toolwire_run(tmp_path, script, "Sort.", "--store", "none", "--yes", "-t", str(config))
    assert code == 0, err
    assert {"echo", "add", "sort"} < {tool.name for tool in heard[0].request.tools}
    assert "✓ sort sort" in err
