"""Folders of API specs: every shape, and problems that stay in their file."""

import json
import os

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.openapi import parse_document, read_operations
from toolwire.retrieve import ToolIndex, load_api_specs
from toolwire.retrieve import api_specs as module
from toolwire.retrieve.spec_tool import is_spec, spec_name, spec_tool

SEED = {
    "name": "get_weather",
    "signature": "get_weather(city: str, days: int = 3, *, unit: Literal['C', 'F'] = 'C') -> dict",
    "doc": "Get the weather",
}
ZOO = {
    "user_name": "someone",
    "api_name": "Zoom API - Users: listUsers",
    "api_call": "GET /users",
    "api_arguments": {
        "page": "[REQUIRED] integer: The page",
        "q": "string",
        "note": "Any text at all",
        "mode": ["a", "b"],
    },
    "functionality": "List the users of an account",
}
MCP = {
    "name": "read_file",
    "description": "Read a file",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
OPENAI = {
    "type": "function",
    "function": {"name": "send_mail", "description": "Send mail", "parameters": {"type": "object"}},
}
ANTHROPIC = {"name": "book_room", "description": "Book a room", "input_schema": {"type": "object"}}


def write(folder, **files):
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name.replace("__", ".")).write_bytes(data)


def test_every_shape_is_read(tmp_path):
    write(
        tmp_path,
        seed__json=[SEED],
        zoo__JSON=[ZOO],
        one__json=SEED | {"name": "single"},
        mcp__json={"tools": [MCP]},
        openai__json=[OPENAI],
        request__json={"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [OPENAI]},
        lines__jsonl=f"{json.dumps(ANTHROPIC)}\n\n{json.dumps(ZOO)}\n".encode(),
        readme__md=b"# not a spec",
    )
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper", more__json=[SEED])
    specs = load_api_specs(tmp_path)
    assert specs.problems == ()
    assert {file.name: [tool.name for tool in file.tools] for file in specs.files} == {
        "seed": ["get_weather"],
        "zoo": ["Zoom_API_Users_listUsers"],
        "one": ["single"],
        "mcp": ["read_file"],
        "openai": ["send_mail"],
        "request": ["send_mail"],
        "lines": ["book_room", "Zoom_API_Users_listUsers"],
        "deeper/more": ["get_weather"],
    }
    index = ToolIndex()
    for file in specs.files:
        index.add(file.tools, server=file.name)
    assert index.search("list the users of the account")[0].tool.name == "Zoom_API_Users_listUsers"


def test_signature_becomes_a_schema():
    assert spec_tool(SEED).input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "GET /users",
        "f(",
        "f(a=",
        "f(a): import os",
        "f(" + "(" * 3000,
        "f(" + "a" * 5000 + ")",
        "f(a)\nimport os\ndef g(b)",
    ],
)
def test_unreadable_signature_accepts_any_arguments(signature):
    assert spec_tool({"name": "f", "signature": signature}).input_schema == {"type": "object"}


def test_entry_of_the_api_zoo_becomes_a_tool():
    tool = spec_tool(ZOO)
    assert tool.effect == "read"
    assert tool.description == "Zoom API - Users: listUsers. List the users of an account"
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "page": {"type": "integer", "description": "The page"},
            "q": {"type": "string"},
            "note": {"description": "Any text at all"},
            "mode": {"enum": ["a", "b"]},
        },
        "required": ["page"],
    }
    assert tool.extra == {"api_spec": {"name": "Zoom API - Users: listUsers", "call": "GET /users"}}


def test_list_of_parameters_becomes_a_schema():
    parameters = [{"name": "city", "description": "The city", "required": True}, {"name": "days", "type": "integer"}, 3]
    spec = {"id": "x:1", "name": "w", "description": "Weather", "parameters": parameters}
    assert is_spec(spec)
    tool = spec_tool(spec)
    assert tool.extra == {"api_spec": {"name": "w", "id": "x:1"}}
    assert tool.description == "Weather"
    assert tool.input_schema == {
        "type": "object",
        "properties": {"city": {"description": "The city"}, "days": {"type": "integer"}},
        "required": ["city"],
    }


def test_one_file_is_read(tmp_path):
    write(tmp_path, a__json=[SEED], b__json=[SEED])
    (file,) = load_api_specs(tmp_path / "a.json").files
    assert (file.name, file.path, len(file.tools)) == ("a", "a.json", 1)


def test_names_are_valid_for_providers():
    assert spec_name("a.b-c_d") == "a.b-c_d"
    assert spec_name("Get /now/{id} - 天気") == "Get_now_id"
    assert spec_name("天気") != spec_name("予報")
    long = spec_name("x" * 500)
    assert len(long) == 64
    assert long != spec_name("x" * 501)


def test_bad_file_does_not_disable_the_others(tmp_path):
    write(
        tmp_path,
        good__json=[SEED],
        broken__json=b'[{"name": "f", ',
        binary__json=b"\xff\xfe\x00",
        deep__json=b"[" * 100_000,
        other__json={"hello": 1},
        number__json=b"3",
        empty__json=b"",
        some__json=[SEED, 7, {"name": 5, "doc": "x"}, {"api_name": "ok"}, {"name": "", "doc": ""}],
        lines__jsonl=b'{"name": "f", "doc": "d"}\nnot json\n[]\n',
    )
    specs = load_api_specs(tmp_path)
    assert {file.name: len(file.tools) for file in specs.files} == {"good": 1, "some": 2, "lines": 1}
    assert sorted(
        (problem.path, problem.pointer) for problem in specs.problems if problem.path in ("some.json", "lines.jsonl")
    ) == [
        ("lines.jsonl", "/1"),
        ("lines.jsonl", "/2"),
        ("some.json", "/1"),
        ("some.json", "/2/name"),
        ("some.json", "/4"),
    ]
    assert {problem.path for problem in specs.problems} == {
        "broken.json",
        "binary.json",
        "deep.json",
        "other.json",
        "number.json",
        "empty.json",
        "some.json",
        "lines.jsonl",
    }


def test_surplus_comma_is_read(tmp_path):
    write(tmp_path, a__json=b'[{"name": "f", "doc": "d",},]')
    assert [tool.name for tool in load_api_specs(tmp_path).tools] == ["f"]


def test_links_and_special_files_are_left_out(tmp_path):
    folder = tmp_path / "specs"
    folder.mkdir()
    write(tmp_path, secret__json=[SEED])
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    (folder / "loop").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.json")
    specs = load_api_specs(folder)
    assert specs.tools == ()
    assert [problem.path for problem in specs.problems] == ["link.json", "pipe.json"]


def test_sizes_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_SIZE", 1000)
    monkeypatch.setattr(module, "MAX_FILES", 2)
    write(tmp_path, a__json=[SEED] * 100, b__json=[SEED], c__json=[SEED], d__json=[SEED])
    specs = load_api_specs(tmp_path)
    assert [file.name for file in specs.files] == ["b"]
    assert [problem.path for problem in specs.problems] == ["a.json", "c.json"]


def test_missing_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        load_api_specs(tmp_path / "missing")


def test_equal_names_of_a_file_are_numbered(tmp_path):
    write(tmp_path, a__json=[SEED, SEED, SEED])
    assert [tool.name for tool in load_api_specs(tmp_path).tools] == ["get_weather", "get_weather_2", "get_weather_3"]


def test_reader_adds_openapi_documents(tmp_path):
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "paths": {
            "/pets": {
                "get": {
                    "operationId": "listPets",
                    "summary": "List all pets",
                    "responses": {"200": {"description": "ok"}},
                }
            }
        },
    }
    write(tmp_path, pets__json=document, seed__json=[SEED])

    def read_openapi(path, data):
        found = parse_document(data) if b'"openapi"' in data else None
        return None if found is None else read_operations(found).tools

    assert [tool.name for tool in load_api_specs(tmp_path, readers=[read_openapi]).tools] == ["listPets", "get_weather"]
    assert [problem.path for problem in load_api_specs(tmp_path).problems] == ["pets.json"]
