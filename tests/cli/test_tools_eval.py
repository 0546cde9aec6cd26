"""`toolwire tools eval`: measures per method and group, the chart, exit codes, errors with the line of the queries."""

import json
import xml.etree.ElementTree as ET

import pytest

from toolwire.cli.main import main
from toolwire.cli.terminal.bar_chart import Bar, BarGroup, draw_bar, draw_bars, render_svg
from toolwire.retrieve.minilm import open_minilm

TOOLS = [
    {"name": "get_weather", "description": "Return the weather of a city.", "parameters": {"type": "object"}},
    {"name": "send_mail", "description": "Send a mail to a person.", "parameters": {"type": "object"}},
]
QUERIES = [
    {"query": "send a mail to Anna", "gold": ["send_mail"], "group": "exact"},
    {"query": "is it raining outside?", "gold": "get_weather", "corpus": "vague"},
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), "utf-8")
    write_queries(tmp_path, QUERIES)
    return tmp_path


def write_queries(folder, queries):
    (folder / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in queries), "utf-8")


def test_words_only_measures_one_method(folder, capsys):
    assert main(["tools", "eval", "tools.json", "queries.jsonl", "--words-only", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["all"]["methods"] == {"search": {"R@1": 50, "R@5": 50, "R@10": 50, "NDCG@10": 50}}
    assert document["groups"]["exact"]["methods"]["search"]["R@1"] == 100
    assert document["groups"]["vague"]["methods"]["search"]["R@10"] == 0


def test_every_method_is_compared_with_an_interval(folder, capsys):
    open_minilm()  # the weights are installed
    assert main(["tools", "eval", "tools.json", "queries.jsonl", "--seed", "3", "--rounds", "200"]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.partition("all queries: 2 queries")[2].splitlines()]
    assert [line[0] for line in lines[3:7]] == ["words", "meaning", "ranks", "search"]
    assert lines[3][1:5] == ["50.0"] * 4
    assert lines[3][5] == "+50.0"
    assert "exact: 1 query" in out
    assert "█" in out


def test_workers_print_the_same(folder, capsys):
    outputs = []
    for workers in ("1", "2"):
        assert (
            main(["tools", "eval", "tools.json", "queries.jsonl", "--words-only", "--json", "--workers", workers]) == 0
        )
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    with pytest.raises(SystemExit):
        main(["tools", "eval", "tools.json", "queries.jsonl", "--workers", "0"])


def test_fail_under_sets_the_exit_code(folder, capsys):
    command = ["tools", "eval", "tools.json", "queries.jsonl", "--words-only"]
    assert main([*command, "--fail-under", "50"]) == 0
    assert main([*command, "--fail-under", "50.1"]) == 1
    for value in ("101", "-1", "nan", "x"):
        with pytest.raises(SystemExit):
            main([*command, "--fail-under", value])


def test_gold_outside_of_the_index_is_reported(folder, capsys):
    write_queries(folder, [{"query": "mail", "gold": ["send_mail", "fly\u001b"]}])
    assert main(["tools", "eval", "tools.json", "queries.jsonl", "--words-only", "--json"]) == 0
    captured = capsys.readouterr()
    assert "1 gold tool not in the index, counted as not found: fly\\x1b" in captured.err
    assert json.loads(captured.out)["all"]["methods"]["search"]["R@10"] == 50


def test_gold_without_a_tool_of_the_index_is_refused(folder, capsys):
    write_queries(folder, [{"query": "mail", "gold": ["sendMail"]}])
    assert main(["tools", "eval", "tools.json", "queries.jsonl", "--words-only"]) == 2
    assert "none of the gold tools is in the index (the index has names such as get_weather" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "queries.jsonl, line 2: "),
        ('{"query": "a"}', "line 2 has no query with gold tools"),
        ('{"query": "a", "gold": []}', "line 2 has no query with gold tools"),
        ('{"query": 1, "gold": ["a"]}', "line 2 has no query with gold tools"),
        ('{"query": "a", "gold": [1]}', "line 2 has no query with gold tools"),
        ("[]", "line 2 has no query with gold tools"),
    ],
)
def test_wrong_line_is_named(folder, capsys, line, message):
    (folder / "queries.jsonl").write_text(f"{json.dumps(QUERIES[0])}\n{line}\n", "utf-8")
    assert main(["tools", "eval", "tools.json", "queries.jsonl", "--words-only"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert '{"query": "find a pet", "gold": ["find_pet"]}' in error


def test_empty_queries_and_a_wrong_plot_are_refused(folder, capsys):
    command = ["tools", "eval", "tools.json", "queries.jsonl", "--words-only"]
    assert main([*command, "--plot", "plot.png"]) == 2
    assert main([*command, "--plot", "no/plot.svg"]) == 2
    assert "there is no folder no" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--seed", "-1"])
    write_queries(folder, [])
    assert main(command) == 2
    assert "queries.jsonl has no queries" in capsys.readouterr().err


def test_plot_is_a_valid_picture(folder, capsys):
    assert main(["tools", "eval", "tools.json", "queries.jsonl", "--words-only", "--plot", "recall.svg"]) == 0
    root = ET.parse(folder / "recall.svg").getroot()
    widths = [float(one.attrib["width"]) for one in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == [460.0, 0.0, 230.0]  # exact, vague, all queries


def test_bars_are_drawn_in_eighths():
    assert draw_bar(1, 1, 4) == "████"
    assert draw_bar(0.5, 1, 3) == "█▌"
    assert draw_bar(0, 1, 4) == ""
    assert draw_bar(5, 1, 2) == "██"
    assert draw_bar(1, 0, 2) == ""


def test_chart_escapes_labels():
    groups = [BarGroup("a & b", [Bar("<x>\u001b", 1.0, "1")])]
    assert "\x1b" not in "\n".join(draw_bars(groups, 1))
    picture = render_svg("title <t>", groups, 1)
    assert "<x>" not in picture
    assert ET.fromstring(picture).tag.endswith("svg")
