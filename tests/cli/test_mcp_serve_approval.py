"""`toolwire mcp serve --approve`: the server that the command builds."""

import argparse
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from toolwire import ToolCall, open_store
from toolwire.cli.main import main
from toolwire.cli.mcp import serve as mcp_serve
from warm_command import WARM

TOOLS = '''
def pay(amount: int) -> str:
    """Pay an amount."""
    return "paid"
'''


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "paid"),
        (["--approve", "suspend"], "This call waits for approval: pay is a write tool."),
        (["--approve", "elicit"], "This call waits for approval: pay is a write tool."),
    ],
    ids=["without", "suspend", "elicit without a client that can ask"],
)
def test_calls_with_side_effects_need_approval(tmp_path, options, text):
    tools = tmp_path / "pay_tools.py"
    tools.write_text(TOOLS)
    parser = argparse.ArgumentParser()
    mcp_serve.add_to(parser.add_subparsers())
    arguments = parser.parse_args(["serve", str(tools), "--store", str(tmp_path / "runs.db"), *options])
    with (
        closing(open_store(arguments.store)) as store,
        closing(mcp_serve.make_server(arguments, mcp_serve.load_file(arguments), store)) as server,
    ):
        (result,) = server.runner.run_sync([ToolCall("c1", "pay", {"amount": 5})])
        assert result.text.startswith(text)


def test_calls_cannot_wait_in_a_store_of_one_process(tmp_path, capsys):
    tools = tmp_path / "pay_tools.py"
    tools.write_text(TOOLS)
    assert main(["mcp", "serve", str(tools), "--approve", "suspend", "--store", "memory:"]) == 2
    assert "needs a store that another process can open (add --store runs.db)" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"", b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'])
def test_server_ends_with_an_input_that_cannot_be_polled(tmp_path, content):
    tools, given = tmp_path / "pay_tools.py", tmp_path / "input"
    tools.write_text(TOOLS)
    given.write_bytes(content or b"")
    with (Path(os.devnull) if content is None else given).open("rb") as stdin:
        done = subprocess.run(
            [*WARM, "mcp", "serve", str(tools), "--store", str(tmp_path / "runs.db")],
            stdin=stdin,
            capture_output=True,
            check=False,
            timeout=300,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b'"id":1' in done.stdout) == bool(content)
