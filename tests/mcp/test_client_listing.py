"""Tools that a server declares, each read for itself."""

import logging

import pytest

from toolwire.mcp.client.listing import read_tools


@pytest.mark.finding("Z2")
@pytest.mark.parametrize("pattern", ["^(?!.*secret)", "(", "(a{1000}){1000}"])
def test_tool_with_an_unsupported_pattern_stays_usable_and_is_logged(pattern, caplog):
    schema = {"type": "object", "properties": {"path": {"type": "string", "pattern": pattern}}}
    with caplog.at_level(logging.WARNING, "toolwire.mcp"):
        tools, problems = read_tools([{"name": "open", "inputSchema": schema}], "files", trusted=False)
    assert list(tools) == ["open"] and problems == []
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "tool open: 1 patterns are not checked; the first: /properties/path/pattern: "
    )
