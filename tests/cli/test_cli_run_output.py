"""The output of `toolwire run`: JSON events, structured answers, attachments, notes."""

import asyncio
import json
import sys

import pytest
from test_cli_run import DONE, MAIL, WEATHER, toolwire_run

from toolwire import Media, Text, ToolCall
from toolwire.cli.main import main
from toolwire.ir.response import Fault, Response, Stop, Usage
from toolwire.testing import Upstream, says

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
}


def events_of(out):
    return [json.loads(line) for line in out.splitlines()]


def test_json_events_have_their_documented_shapes(tmp_path):
    answer = Response(parts=(Text("It is sunny."),), stop=Stop("stop"), usage=Usage(input=9, output=3))
    options = ("Weather?", "--store", "none", "--json", "--price", "1000000/0")
    code, out, err, _ = toolwire_run(tmp_path, [WEATHER, answer], *options)
    assert (code, err) == (0, "")
    events = events_of(out)
    text = "".join(event["text"] for event in events if event["type"] == "text")
    assert text == "Looking. It is sunny."
    assert {"type": "call_start", "id": "c1", "name": "get_weather"} in events
    deltas = [event for event in events if event["type"] == "call_delta"]
    assert {event["id"] for event in deltas} == {"c1"}
    assert json.loads("".join(event["text"] for event in deltas)) == {"city": "Paris"}
    call = {"type": "call", "id": "c1", "name": "get_weather", "arguments": {"city": "Paris"}, "state": "complete"}
    result = {"type": "result", "call_id": "c1", "name": "get_weather", "text": "sun in Paris", "is_error": False}
    assert call in events and {**result, "code": "ok"} in events
    assert {"type": "usage", "input": 9, "output": 3} in events
    last = events[-1]
    assert (last["type"], last["text"], last["finished"], last["reason"]) == ("answer", "It is sunny.", True, "")
    assert (last["usage"], last["cost"], last["pending"]) == ({"input": 9, "output": 3}, 9.0, [])
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user", "assistant"]


def test_json_events_contain_the_question_about_a_call(tmp_path):
    code, out, err, _ = toolwire_run(tmp_path, [MAIL, DONE], "Mail Ann.", "--store", "none", "--json")
    assert code == 0, err
    events = events_of(out)
    (question,) = [event for event in events if event["type"] == "approval"]
    assert (question["tool"], question["effect"], question["arguments"]) == ("send_mail", "write", {"to": "ann"})
    assert [event["code"] for event in events if event["type"] == "result"] == ["needs_approval"]


def test_error_is_the_last_json_event(tmp_path):
    script = [Fault("invalid_request", "too long", 400)]
    code, out, err, _ = toolwire_run(tmp_path, script, "Hi.", "--store", "none", "--json")
    assert code == 2
    assert "too long" in err
    assert events_of(out)[-1]["type"] == "error"
    assert "too long" in events_of(out)[-1]["message"]


@pytest.mark.parametrize("as_events", [False, True])
def test_output_schema_prints_only_the_value(tmp_path, as_events):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    final = says(ToolCall("c2", "final_answer", {"city": "Oslo", "people": 717710}))
    options = ("Largest city?", "--store", "none", "--output-schema", str(schema), *(["--json"] if as_events else []))
    code, out, err, heard = toolwire_run(tmp_path, [WEATHER, final], *options)
    assert code == 0, err
    value = events_of(out)[-1]["output"] if as_events else json.loads(out)
    assert value == {"city": "Oslo", "people": 717710}
    assert "final_answer" in [tool.name for tool in heard[0].request.tools]


def test_answer_that_does_not_match_the_schema_exits_with_1(tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    script = [says(ToolCall(f"c{number}", "final_answer", {"city": 1})) for number in range(3)]
    code, out, err, _ = toolwire_run(tmp_path, script, "x", "--store", "none", "--output-schema", str(schema))
    assert (code, out) == (1, "")
    assert "no answer: " in err


def test_attached_files_follow_the_prompt(tmp_path):
    picture, notes = tmp_path / "cat.png", tmp_path / "notes.txt"
    picture.write_bytes(b"\x89PNG")
    notes.write_text("A note.")
    options = ("What is this?", "--attach", str(picture), "--attach", str(notes), "--system", "Be brief.")
    code, _, err, heard = toolwire_run(tmp_path, [DONE], *options, "--store", "none")
    assert code == 0, err
    system, prompt = heard[0].request.messages
    assert system.text == "Be brief."
    assert [type(part) for part in prompt.parts] == [Text, Media, Text]


def test_closed_pipe_ends_the_run_without_a_traceback(tmp_path):
    async def run():
        async with Upstream(says("word " * 20_000), delta=1000) as upstream:
            line = f"{sys.executable} -m toolwire run Hi. -m vllm/any --base-url {upstream.url} --store none --json | head -n 1"
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_shell(line, stdout=pipe, stderr=pipe)
            out, err = await asyncio.wait_for(process.communicate(), 300)
            return out.decode(), err.decode()

    out, err = asyncio.run(run())
    assert len(out.splitlines()) == 1
    assert err == ""


def test_prompt_is_read_from_standard_input_without_an_argument(tmp_path):
    code, out, err, heard = toolwire_run(tmp_path, [DONE], "--store", "none", stdin="From a pipe.")
    assert (code, out) == (0, "All done.\n"), err
    assert heard[0].request.messages[0].text == "From a pipe."


@pytest.mark.parametrize("text", ["[1", '{"type": 3}', "[]"])
def test_invalid_output_schema_is_wrong_usage(tmp_path, text):
    schema = tmp_path / "schema.json"
    schema.write_text(text)
    code, out, err, heard = toolwire_run(tmp_path, [DONE], "x", "--store", "none", "--output-schema", str(schema))
    assert (code, out, heard) == (2, "", [])
    assert f"{schema} is not a JSON Schema" in err


def test_invalid_utf_8_in_a_prompt_is_replaced(tmp_path):
    code, _, err, heard = toolwire_run(tmp_path, [DONE], "-", "--store", "none", stdin=b"caf\xe9")
    assert code == 0, err
    assert heard[0].request.messages[0].text == "caf\ufffd"


def test_quiet_prints_the_answer_only(tmp_path):
    code, out, err, _ = toolwire_run(tmp_path, [WEATHER, DONE], "Weather?", "--store", "none", "--quiet")
    assert (code, out, err) == (0, "Looking. \nAll done.\n", "")


def test_truncated_answer_is_reported(tmp_path):
    answer = Response(parts=(Text("It is"),), stop=Stop("length"))
    code, out, err, _ = toolwire_run(tmp_path, [answer], "Weather?", "--store", "none")
    assert (code, out) == (0, "It is\n")
    assert "the answer ended at the token limit of the model" in err


def test_tools_of_several_sources_are_offered_together(tmp_path):
    more = tmp_path / "more.py"
    more.write_text('def look(place: str) -> str:\n    """Look."""\n    return place\n')
    code, _, err, heard = toolwire_run(tmp_path, [DONE], "Look.", "--store", "none", "-t", str(more))
    assert code == 0, err
    assert {tool.name for tool in heard[0].request.tools} == {"get_weather", "send_mail", "look"}


def test_same_source_twice_is_wrong_usage(tmp_path):
    tools = str(tmp_path / "tools.py")
    code, _, err, heard = toolwire_run(tmp_path, [DONE], "Look.", "--store", "none", "-t", tools)
    assert (code, heard) == (2, [])
    assert "two tools have the name 'get_weather'" in err


def test_unknown_usage_and_cost_are_null(tmp_path):
    code, out, err, _ = toolwire_run(tmp_path, [DONE], "Hi.", "--store", "none", "--json")
    assert code == 0, err
    last = events_of(out)[-1]
    assert (last["usage"], last["cost"]) == (None, None)


def test_empty_answer_is_reported(tmp_path):
    code, out, err, _ = toolwire_run(tmp_path, [says("")], "Hi.", "--store", "none")
    assert (code, out) == (0, "")
    assert "the answer is empty" in err


@pytest.mark.parametrize(
    "options", [("--price", "abc"), ("--attach", "/nothing/here"), ("--output-schema", "/nothing/here")]
)
def test_wrong_usage_is_reported_before_the_note_about_the_model(options, capsys):
    assert main(["run", "hi", "-m", "local/smollm2", "--store", "none", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
