"""Errors of an MCP server name its command or origin, its exit code and the fix, and no secret."""

import sys

import pytest

from toolwire.cli.main import main
from toolwire.mcp.client import stdio
from waiting import SAFETY


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("http://127.0.0.1:9/mcp/secret-token?key=secret", ["server (http://127.0.0.1:9) cannot", "check its URL"]),
        (
            f"{sys.executable} -c 'print(1)' secret",
            [f"server ({sys.executable}) has ended with exit code 0", "(run the"],
        ),
        (
            f"{sys.executable} -c 'import sys; sys.exit(\"no licence\")'",
            ["with exit code 1; its standard error: no licence"],
        ),
    ],
)
def test_error_names_the_server_and_the_fix(target, parts, capsys, monkeypatch):
    monkeypatch.setattr(stdio, "_EXIT_GRACE", SAFETY)
    assert main(["tools", "list", target]) == 2
    err = capsys.readouterr().err
    for part in parts:
        assert part in err
    assert "secret" not in err
