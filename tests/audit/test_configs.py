"""Lists of MCP servers: read, never started, and no secret is repeated."""

import json

import pytest

from tables import every_case
from toolwire.audit.config_rules import audit_config, find_servers, find_unpinned
from toolwire.cli.main import main

SECRET = "q7Wz19LmKp"


def audit(entry, name="s"):
    return audit_config(find_servers({"mcpServers": {name: entry}}), "mcp.json")


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"command": "s", "env": {"API_KEY": SECRET}}, "/env/API_KEY"),
        ({"command": "s", "env": {"DATABASE_URL": f"postgres://me:{SECRET}@db/x"}}, "/env/DATABASE_URL"),
        ({"command": "s", "env": {"GH": "ghp_" + SECRET * 3}}, "/env/GH"),
        ({"url": "https://h/", "headers": {"Authorization": f"Bearer {SECRET}"}}, "/headers/Authorization"),
        ({"url": f"https://h/?api_key={SECRET}"}, "/url"),
        ({"command": "s", "args": ["--token", SECRET]}, "/args/1"),
        ({"command": "s", "args": [f"--api-key={SECRET}"]}, "/args/0"),
        ({"command": "docker", "args": ["run", "-e", f"MY_TOKEN={SECRET}", "img:1"]}, "/args/2"),
        ({"command": "npx", "args": ["r@1.0.0", "--header", f"Authorization: Bearer {SECRET}"]}, "/args/2"),
        ({"command": "s", "args": [f"postgresql://me:{SECRET}@db/x"]}, "/args/0"),
        ({"command": ["s", "--password", SECRET]}, "/command/2"),
    ],
)
def test_secret_is_found_and_not_printed(entry, path, tmp_path, capsys):
    assert [(one.rule, one.path) for one in audit(entry)] == [("TW091", f"/mcpServers/s{path}")]
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"s": entry}}), encoding="utf-8")
    for form in ("table", "json", "sarif", "markdown", "html"):
        assert main(["audit", str(file), "--format", form]) == 1
    out, err = capsys.readouterr()
    assert "TW091" in out and SECRET not in out + err


@every_case(
    "entry",
    [
        {"command": "s", "env": {"API_KEY": "${API_KEY}", "TOKEN": "<your token>", "AUTH_TOKEN": "your-token-here"}},
        {
            "command": "s",
            "env": {"TOKEN_LIMIT": "4000", "MAX_TOKENS": "100", "KEYBOARD": "qwertz", "USE_TOKEN": "true"},
        },
        {"command": "s", "env": {"GOOGLE_CREDENTIALS": "/home/me/key.json"}},
        {"command": "s", "args": ["--token", "$TOKEN", "--key-file", "key.pem"]},
        {"command": "s", "args": ["--token", "--verbose"]},
        {"url": "https://h/", "headers": {"Authorization": "Bearer ${input:token}", "Accept": "text/event-stream"}},
        {"url": "http://127.0.0.1:8080/mcp"},
        {"url": "http://[::1]/mcp"},
        {"url": "http://app.localhost/mcp"},
        {"url": "http://[broken"},
    ],
)
def test_harmless_entry_has_no_findings(entry):
    assert audit(entry) == ()


def test_unencrypted_url_is_found():
    assert [one.rule for one in audit({"url": "http://10.0.0.7/mcp"})] == ["TW093"]
    assert [one.path for one in audit({"command": "npx", "args": ["mcp-remote@1.0.0", "http://h.de"]})] == [
        "/mcpServers/s/args/1"
    ]


def test_long_or_illegal_server_name_is_found():
    assert [one.rule for one in audit({"command": "s"}, "a" * 26)] == ["TW090"]
    assert [one.rule for one in audit({"command": "s"}, "my server")] == ["TW090"]
    assert audit({"command": "s"}, "a" * 25) == ()


@every_case(
    ("line", "package"),
    [
        ("npx -y pkg", "pkg"),
        ("npx -y @a/pkg@latest", "@a/pkg@latest"),
        ("npx -y pkg@^1.2.0", "pkg@^1.2.0"),
        ("npx -y @a/pkg@1.2.3 --flag", None),
        ("npx --package=pkg run", "pkg"),
        ("npx -p pkg@1.2.3 run", None),
        ("npx ./server.js", None),
        ("/usr/local/bin/npx pkg", "pkg"),
        ("cmd /c npx -y pkg", "pkg"),
        ("npx.cmd -y pkg", "pkg"),
        ("bunx pkg", "pkg"),
        ("pnpm dlx pkg@2.0.0", None),
        ("pnpx -w pkg", "pkg"),
        ("npx -w web pkg", "pkg"),
        ("uvx -w rich pkg", "pkg"),
        ("uvx pkg", "pkg"),
        ("uvx pkg==1.2", None),
        ("uvx pkg@1.2.3", None),
        ("uvx --python 3.12 pkg", "pkg"),
        ("uvx --from git+https://h/r tool", "git+https://h/r"),
        ("uvx --from git+https://h/r@0123456789ab tool", None),
        ("uv tool run pkg", "pkg"),
        ("uv run server.py", None),
        ("pipx run pkg==1.0", None),
        ("docker run -i --rm -e TOKEN image", "image"),
        ("docker run -i --rm image:1.4", None),
        ("docker run host:5000/image", "host:5000/image"),
        ("docker run image:latest", "image:latest"),
        ("docker run image@sha256:00", None),
        ("node server.js", None),
        ("npx", None),
    ],
)
def test_unpinned_package_is_recognised(line, package):
    assert find_unpinned(line.split()) == package


def test_ignore_entry_suppresses_the_named_rule():
    entry = {"command": "npx", "args": ["-y", "pkg"]}
    assert audit(entry)
    assert audit({**entry, "x-toolwire-ignore": ["TW092"]}) == ()


def test_server_configuration_is_recognised():
    assert find_servers({"mcpServers": {}}) == []
    assert len(find_servers({"servers": {"a": {"command": "x"}, "b": {"url": "https://h"}}})) == 2
    for other in ({"servers": {}}, {"servers": {"a": {"name": "x"}}}, {"tools": []}, [], None):
        assert find_servers(other) is None
    assert audit({"command": 7, "args": "x", "env": [], "url": None}) == ()


def test_audit_of_a_configuration_explains_how_to_audit_the_tools(tmp_path, capsys):
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"s": {"command": "s"}}}', encoding="utf-8")
    assert main(["audit", str(file)]) == 0
    assert "toolwire audit URL" in capsys.readouterr().err
    main(["audit", str(file), "--format", "json"])
    assert "toolwire audit URL" in json.loads(capsys.readouterr().out)["notes"][0]
    main(["audit", str(file), "--format", "sarif"])
    assert "toolwire audit URL" in capsys.readouterr().err
