"""The `mcpServers` that every client keeps."""

import pytest

from tables import every_case
from toolwire.ir.errors import ConfigError
from toolwire.mcp.client import McpServers, ServerSpec
from toolwire.mcp.client.config import read_config, target_spec


def one(entry, **environment):
    (spec,) = read_config({"mcpServers": {"s": entry}}, environment)
    return spec


def test_command_and_url_entries_are_read():
    assert one({"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}}) == ServerSpec(
        "s", command="npx", args=("-y", "x"), env={"A": "1"}
    )
    assert one({"type": "http", "url": "https://x.example/", "headers": {"K": "v"}}).headers == {"K": "v"}
    assert one({"command": ["npx", "-y", "x"]}).args == ("-y", "x")


def test_toolwire_specific_settings_are_read():
    spec = one(
        {"command": "x", "trusted": True, "timeout": 5, "protocol": "2025-06-18", "tools": ["a"], "resources": True}
    )
    assert (spec.trusted, spec.timeout, spec.protocol, spec.tools, spec.resources) == (
        True,
        5.0,
        "2025-06-18",
        ("a",),
        True,
    )


def test_environment_variables_are_expanded():
    entry = {"url": "https://x.example/${P:-v1}", "headers": {"Authorization": "Bearer ${T}"}}
    spec = one(entry, T="secret")
    assert (spec.url, spec.headers["Authorization"]) == ("https://x.example/v1", "Bearer secret")
    with pytest.raises(ConfigError, match=r"environment variable T is not set at /mcpServers/s"):
        one(entry)


def test_disabled_server_is_skipped():
    assert read_config({"mcpServers": {"s": {"command": "x", "disabled": True}}}, {}) == ()


@every_case(
    ("document", "words"),
    [
        ([], "no mcpServers"),
        ({"servers": {}}, "no mcpServers"),
        ({"mcpServers": {"s": "npx"}}, "expected an object, got a string at /mcpServers/s"),
        ({"mcpServers": {"s": {}}}, "must have either a command or a url"),
        ({"mcpServers": {"s": {"command": "x", "url": "https://x.example"}}}, "or a url, not both"),
        ({"mcpServers": {"s": {"command": "x", "args": "y"}}}, "array of strings at /mcpServers/s/args"),
        ({"mcpServers": {"s": {"command": "x", "env": {"A": 1}}}}, "object of strings at /mcpServers/s/env"),
        ({"mcpServers": {"s": {"command": "x", "timeout": "1"}}}, "expected int or float, got a string"),
        ({"mcpServers": {"s": {"command": "x", "timeout": -1}}}, "must be positive"),
        ({"mcpServers": {"s": {"command": "x", "protocol": "2099-01-01"}}}, "unknown MCP version"),
        ({"mcpServers": {"s": {"url": "ftp://x"}}}, "must be an HTTP URL"),
        ({"mcpServers": {"s": {"url": "http://x.example"}}}, "is not encrypted"),
    ],
)
def test_invalid_entry_error_has_its_location(document, words):
    with pytest.raises(ConfigError, match=words):
        read_config(document, {})


def test_config_file_is_read_or_rejected_with_a_reason(tmp_path):
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"s": {"command": "x"}}}', encoding="utf-8")
    assert list(McpServers.from_config(file).clients) == ["s"]
    with pytest.raises(ConfigError, match="cannot read"):
        McpServers.from_config(tmp_path / "nothing.json")
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        McpServers.from_config(str(file))


def test_duplicate_server_name_is_rejected():
    with pytest.raises(ConfigError, match="duplicate server name"):
        McpServers([ServerSpec("a", command="x"), ServerSpec("a", command="y")])


def test_target_is_a_url_or_a_command_line():
    assert target_spec("a", "http://localhost:8000/mcp", {"x": "y"}) == ServerSpec(
        "a", url="http://localhost:8000/mcp", headers={"x": "y"}
    )
    assert target_spec("a", "npx -y 'my server' .") == ServerSpec("a", command="npx", args=("-y", "my server", "."))


@pytest.mark.parametrize("target", ["", '"open'])
def test_unusable_target_is_refused(target):
    with pytest.raises(ConfigError):
        target_spec("a", target)
