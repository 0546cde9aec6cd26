"""The command line, as a user types it."""

import io
import json
import re
import subprocess
import sys

import pytest

import toolwire
from toolwire.cli.main import main
from toolwire.wire import names

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 1}
TOOL = {"name": "f", "description": "d", "inputSchema": {"type": "object"}}


@pytest.fixture
def file(tmp_path):
    def write(content, name="in.json"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return str(path)

    return write


def test_one_target_prints_the_body_alone(file, capsys):
    assert main(["convert", file(REQUEST), "--to", "anthropic"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["messages"] == REQUEST["messages"]
    assert "/temperature" in captured.err
    assert "openai_chat request" in captured.err


def test_convert_to_all_targets_prints_titles(file, capsys):
    assert main(["convert", file(REQUEST), "--to", "all"]) == 0
    out = capsys.readouterr().out
    assert [title in out for title in ("anthropic", "gemini", "openai_responses")] == [True] * 3


def test_tools_are_converted_to_every_target(file, capsys):
    assert main(["convert", file(TOOL), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["source"], document["kind"]) == ("mcp", "tools")
    assert set(document["targets"]) == set(names())


def test_strict_rejects_a_lossy_conversion(file, capsys):
    assert main(["convert", file(REQUEST), "--to", "anthropic", "--strict"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "warning" in captured.err
    assert main(["convert", file(REQUEST), "--to", "openai_responses", "--strict"]) == 0


def test_json_output_lists_losses(file, capsys):
    assert main(["convert", file(REQUEST), "--to", "anthropic", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    losses = document["targets"]["anthropic"]["losses"]
    assert {"path", "concept", "action", "severity", "detail"} == set(losses[0]) - {"target"}
    assert "/max_tokens" in [loss.get("target") for loss in losses]


def test_convert_reads_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(REQUEST).encode())))
    assert main(["convert", "-", "--to", "gemini"]) == 0
    assert "contents" in capsys.readouterr().out


def test_convert_reads_a_stream(file, capsys):
    data = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    assert main(["convert", file(data, "s.sse"), "--to", "anthropic"]) == 0
    assert "event: message_stop" in capsys.readouterr().out
    assert (
        main(["convert", file(data[:60], "cut.sse"), "--from", "openai_chat", "--kind", "stream", "--to", "anthropic"])
        == 2
    )
    assert "the stream stopped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["convert", "/nowhere/at/all.json"], "cannot read"),
        (["convert", "{empty}", "--to", "gemini"], "empty"),
        (["convert", "{broken}", "--to", "gemini"], "duplicate key"),
        (["convert", "{unknown}", "--to", "gemini"], "no known wire"),
        (["convert", "{request}", "--to", "openapi"], "did you mean"),
        (["convert", "{request}", "--to", "mcp"], "MCP has only tools"),
        (["formats", "anthropc"], "unknown wire"),
    ],
)
def test_bad_usage_exits_with_code_two_and_a_one_line_error(arguments, words, file, capsys):
    files = {"{empty}": b"", "{broken}": b'{"a": 1, "a": 2}', "{unknown}": {"x": 1}, "{request}": REQUEST}
    arguments = [file(files[a]) if a in files else a for a in arguments]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["demo", "convert", "parse", "formats"])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert "example" in capsys.readouterr().out


def test_formats_lists_wires_and_limits(capsys):
    assert main(["formats"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("anthropic", "gemini", "openai_chat", "openai_responses", "2023-06-01"))
    assert main(["formats", "gemini", "--json"]) == 0
    (gemini,) = json.loads(capsys.readouterr().out)["wires"]
    assert gemini["limits"]["tools"] == 512


def test_formats_explains_the_capabilities_of_a_model(capsys, tmp_path):
    assert main(["formats", "claude-opus-5-5"]) == 0
    shown = capsys.readouterr().out
    assert "forced_choice" in shown
    assert main(["formats", "openai-chat/gpt-4o", "--json"]) == 0
    [model] = json.loads(capsys.readouterr().out)["models"]
    assert (model["wires"], model["vendors"]) == (["openai_chat"], ["openai-chat"])
    assert model["capabilities"]["thinking"]["value"] is False
    assert main(["formats", "ollama/my-claude-clone"]) == 0
    assert "capabilities unknown.\nOnly the limits of its wire" in capsys.readouterr().out
    file = tmp_path / "models.json"
    row = {"models": ["house"], "capabilities": {"media": []}, "source": "our server", "date": "2026-11-16"}
    file.write_text(json.dumps([row]))
    assert main(["formats", "house", "--wire", "openai_chat", "--capabilities", str(file)]) == 0
    assert re.search(r"media +\[1] +none\n\n\[1] 2026-11-16  our server", capsys.readouterr().out)


@pytest.mark.finding("CA7")
def test_models_show_prints_each_fact_with_its_source_and_date(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["models", "show", "moonshotai/Kimi-K2.5"]) == 0
    shown = capsys.readouterr().out
    everywhere, moonshot = re.split(r"at\s+every\s+vendor", shown)[2], shown.split("on openai_chat at moonshot")[1]
    window = re.search(r"window +\[(\d+)] +262,144", everywhere)
    assert window
    assert re.search(rf"^\[{window[1]}] 2026-11-16\s+https://", shown, re.MULTILINE)
    assert re.search(r"forced_choice_when_thinking +\[\d+] +no", moonshot)
    tables, _, sources = shown.partition("\n[1] ")
    assert max(map(len, tables.splitlines())) <= 80
    assert sources


@pytest.mark.finding("CA7")
def test_models_show_prints_the_facts_at_one_provider(capsys):
    assert main(["models", "show", "deepseek/deepseek-v4-pro", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    [group] = shown["facts"]
    assert (shown["model"], group["wires"], group["vendors"]) == (
        "deepseek/deepseek-v4-pro",
        ["openai_chat"],
        ["deepseek"],
    )
    facts = group["capabilities"]
    assert facts["forced_choice_when_thinking"]["value"] is False
    assert facts["window"]["value"] == 1_000_000
    assert all(fact["source"] and fact["date"] for fact in facts.values())
    assert main(["models", "show", "deepseek-v4-pro", "--wire", "ollama", "--json"]) == 0
    [group] = json.loads(capsys.readouterr().out)["facts"]
    assert set(group["capabilities"]) == {"media", "parallel_calls"}


@pytest.mark.finding("CA7")
def test_models_show_reports_an_unknown_model(capsys, tmp_path):
    assert main(["models", "show", "kimi-k25"]) == 1
    shown = capsys.readouterr().out
    assert "capabilities unknown" in shown
    assert "nothing else is dropped or changed" in shown
    assert "kimi-k2.5" in shown
    assert main(["models", "show", "house", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"model": "house", "facts": []}
    file = tmp_path / "models.json"
    row = {"models": ["house"], "capabilities": {"window": 8192}, "source": "our server", "date": "2026-11-16"}
    file.write_text(json.dumps([row]))
    assert main(["models", "show", "house", "--capabilities", str(file)]) == 0
    assert "8,192" in capsys.readouterr().out
    assert main(["models", "show", "\x1b[31mred"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_rules_for_every_model_of_a_wire_are_shown_for_that_wire_only(capsys, tmp_path):
    """Bedrock has rules for models without a row; they do not make a name known, but a user's own row does."""
    assert main(["models", "show", "house-7b", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["facts"] == []
    assert main(["models", "show", "house-7b", "--wire", "bedrock", "--json"]) == 0
    [group] = json.loads(capsys.readouterr().out)["facts"]
    assert group["capabilities"]["cache_marks"]["value"] is False
    file = tmp_path / "models.json"
    row = {"models": ["*"], "capabilities": {"window": 8192}, "source": "our server", "date": "2026-11-16"}
    file.write_text(json.dumps([row]))
    assert main(["models", "show", "house-7b", "--capabilities", str(file)]) == 0
    assert "8,192" in capsys.readouterr().out


@pytest.mark.finding("CA7")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["show"], "show needs the name of a model"),
        (["openai", "gpt-5"], "toolwire models show gpt-5"),
        (["--wire", "gemini"], "toolwire models show MODEL"),
    ],
)
def test_models_explains_a_missing_or_superfluous_name(given, expected, capsys):
    assert main(["models", *given]) == 2
    assert expected in capsys.readouterr().err


def test_formats_lists_the_text_formats(capsys):
    assert main(["formats", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["text"]
    assert [form["name"] for form in listed] == toolwire.text.names()
    assert main(["formats", "hermes"]) == 0
    shown = capsys.readouterr().out
    assert '<tool_call>\n{"name": "get_weather"' in shown
    assert "reasoning: <think> … </think>" in shown


def test_formats_names_the_text_format_of_a_model(capsys):
    assert main(["formats", "Qwen/Qwen3-8B"]) == 0
    assert "calls in text: hermes" in capsys.readouterr().out


def test_chat_template_selects_the_format(tmp_path, capsys):
    template = tmp_path / "chat_template.jinja"
    template.write_text("{{ '<tool_call>\\n<function=' + name + '>' }}{{ '<parameter=' + key + '>' }}")
    assert main(["formats", "--template", str(template)]) == 0
    assert capsys.readouterr().out.startswith("qwen3_xml: ")
    text = tmp_path / "answer.txt"
    text.write_text(QWEN)
    assert main(["parse", str(text), "--template", str(template), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "qwen3_xml"
    template.write_text("{{ messages }}")
    assert main(["parse", str(text), "--template", str(template)]) == 2
    assert "no known text format in the template" in capsys.readouterr().err
    assert main(["formats", "hermes", "--template", str(template)]) == 2
    assert "got both the name 'hermes' and --template" in capsys.readouterr().err


@pytest.mark.parametrize("several", [False, True])
def test_tokenizer_config_selects_the_format(tmp_path, capsys, several):
    source = '{{ \'<tool_call>\\n{"name": "\' + name + \'", "arguments": \' }}'
    config = tmp_path / "tokenizer_config.json"
    named = [{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use", "template": source}]
    config.write_text(json.dumps({"chat_template": named if several else source}))
    assert main(["formats", "--template", str(config)]) == 0
    assert capsys.readouterr().out.startswith("hermes: ")


QWEN = "Sure.\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"


def test_parse_detects_the_format_and_prints_the_calls(tmp_path, capsys):
    text, tools = tmp_path / "answer.txt", tmp_path / "tools.json"
    text.write_text(QWEN)
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools.write_text(json.dumps([{"name": "f", "inputSchema": schema}]))
    assert main(["parse", str(text), "--stream-sizes", "1,3,7"]) == 0
    out, err = capsys.readouterr()
    assert '{"a":1}' in out
    assert "qwen3_xml" in err
    assert "same result in chunks of 1,3,7" in err
    assert main(["parse", str(text), "--tools", str(tools), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "qwen3_xml"
    assert (told["parts"][1]["arguments"], told["mismatches"]) == ({"a": "1"}, [])
    schema["required"] = ["b"]
    tools.write_text(json.dumps([{"name": "f", "inputSchema": schema}]))
    assert main(["parse", str(text), "--tools", str(tools)]) == 1
    assert re.search("mismatch f /.*: .*b", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 1, "malformed"),
        (["--format", "hermse"], 2, "did you mean 'hermes'"),
        (["--model", "nobody-knows-it"], 2, "no known format"),
        (["--stream-sizes", "0"], 2, "must be positive integers"),
        (["--tools", "/does/not/exist.json"], 2, "cannot read"),
    ],
)
def test_parse_reports_errors(arguments, code, told, tmp_path, capsys):
    text = tmp_path / "answer.txt"
    text.write_text("<tool_call>{name: 1}</tool_call>")
    assert main(["parse", str(text), *arguments]) == code
    assert told in capsys.readouterr().err


def test_parse_prints_the_spans_of_a_call(tmp_path, capsys):
    text = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    (tmp_path / "answer.txt").write_text(text, encoding="utf-8")
    assert main(["parse", str(tmp_path / "answer.txt"), "--spans", "--stream-sizes", "1,3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {span["kind"]: text[span["start"] : span["end"]] for span in document["spans"]}
    assert found == {"call": text, "name": "add", "arguments": '{"a": 1}'}
    assert main(["parse", str(tmp_path / "answer.txt"), "--spans"]) == 0
    assert "arguments     0     40   48" in capsys.readouterr().out


def test_parse_rejects_empty_input(tmp_path, capsys):
    (tmp_path / "empty.txt").write_text(" \n")
    assert main(["parse", str(tmp_path / "empty.txt")]) == 2
    assert "the input is empty" in capsys.readouterr().err


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_wide_terminal_shows_columns_and_colours(file, monkeypatch):
    screen = _Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "300")  # a column per target has at least 36
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["convert", file(REQUEST), "--to", "all"]) == 0
    first = screen.getvalue().splitlines()[0]
    assert all(name in first for name in ("anthropic", "gemini", "openai_responses"))
    assert "\x1b[" in first
    monkeypatch.setenv("NO_COLOR", "1")
    screen.truncate(0)
    assert main(["convert", file(REQUEST), "--to", "all"]) == 0
    assert "\x1b[" not in screen.getvalue()


def test_convert_fails_when_every_target_rejects_the_input(file, capsys):
    empty = file({"model": "claude-m", "max_tokens": 5, "messages": []})
    assert main(["convert", empty]) == 2
    assert capsys.readouterr().err.count("rejected") == len(names()) - 1


def test_control_characters_are_escaped_in_messages(file, capsys):
    body = {**REQUEST, "\u001b[31mevil\n\u0007": 1}
    assert main(["convert", file(body), "--to", "anthropic"]) == 0
    err = capsys.readouterr().err
    assert "\u001b" not in err and "\u0007" not in err and "\\x1b[31mevil" in err


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("{python} -m toolwire formats > /dev/full", 2),
        ("{python} -m toolwire convert {file} --to gemini <&- >&-", 0),
        ("{python} -m toolwire convert <&-", 2),
        ("{python} -m toolwire run hello -m vllm/x --base-url http://127.0.0.1:1 <&-", 2),
        ("{python} -m toolwire chat -m vllm/x --base-url http://127.0.0.1:1 <&-", 0),
        ("PYTHONIOENCODING=ascii {python} -m toolwire formats", 0),
        ("{python} -m toolwire convert {file} | head -c 1", 0),
    ],
)
def test_unusual_environment_gives_no_traceback(file, command, code):
    line = command.format(python=sys.executable, file=file({**REQUEST, "user": "\U0001f600"}))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, errors="replace", check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.parametrize(
    "verb",
    [
        "run",
        "chat",
        "runs list",
        "runs approve",
        "runs resume",
        "trace record",
        "trace show",
        "trace replay",
        "mcp serve",
    ],
)
def test_help_has_a_description_examples_and_exit_codes(verb, capsys):
    with pytest.raises(SystemExit):
        main([*verb.split(), "--help"])
    shown = capsys.readouterr().out
    assert f"  toolwire {verb}" in shown
    assert "exit codes: 0" in shown
    assert "\n\n" in shown.partition("positional arguments:")[0].partition("options:")[0].rstrip()
