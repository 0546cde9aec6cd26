"""`toolwire mcp serve --approve`: the server that the command builds."""

import argparse

import pytest

from toolwire import ToolCall
from toolwire.cli import mcp_serve

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
    server = mcp_serve.make_server(arguments)
    (result,) = server.runner.run_sync([ToolCall("c1", "pay", {"amount": 5})])
    assert result.text.startswith(text)
    server.close()
