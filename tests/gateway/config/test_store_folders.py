"""Files of the settings in folders that do not exist: an error at the start, and in `toolwire serve check`."""

import asyncio
import json
import logging

import pytest

from toolwire.cli.main import main
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.state.database import SqliteLink, StateDatabase
from toolwire.gateway.state.opening import open_state
from toolwire.ir.errors import ConfigError, StoreError

MESSAGE = "the folder data does not exist"
UPSTREAM = '[upstreams.up]\nbase_url = "http://localhost:1/v1"\n'


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("state", {"url": "data/x.db"}),
        ("state", {"url": "sqlite:///data/x.db"}),
        ("state", {"url_env": "ADDRESS"}),
        ("state", {"usage": "data/x.db"}),
        ("state", {"usage_env": "ADDRESS"}),
        ("responses", {"store": "data/x.db"}),
        ("responses", {"store": "sqlite:///data/x.db"}),
        ("responses", {"store_env": "ADDRESS"}),
    ],
)
def test_state_in_a_missing_folder_is_an_error_at_the_start(tmp_path, section, settings):
    document = parse_settings({section: settings})
    name = next(iter(settings)).removesuffix("_env")
    with pytest.raises(ConfigError) as error:
        open_state(document, {"ADDRESS": "data/x.db"})
    assert str(error.value) == f"[{section}] {name}: {MESSAGE} (create it, or change the path)"
    (tmp_path / "data").mkdir()
    state = open_state(document, {"ADDRESS": "data/x.db"})
    asyncio.run(state.aclose())


def test_check_lists_all_files_in_missing_folders(tmp_path, capsys):
    (tmp_path / "toolwire.toml").write_text(
        f'{UPSTREAM}[state]\nurl = "data/x.db"\nusage = "data/u.db"\n[responses]\nstore = "data/r.db"\n'
        '[log]\nfile = "data/log"\n[tools."*"]\nfiles = ["toolwire.toml"]\nstore = "data/runs.db"\n'
    )
    assert main(["serve", "check", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert {row["problem"] for row in problems} == {MESSAGE}
    assert [row["location"] for row in problems] == [
        "[state] url",
        "[state] usage",
        "[responses] store",
        "[log] file",
        '[tools."*"] store',
    ]


def test_addresses_of_servers_have_no_folder(tmp_path, capsys):
    (tmp_path / "toolwire.toml").write_text(
        f'{UPSTREAM}[state]\nurl = "redis://localhost:1/data/x"\nusage = "postgresql://me@localhost:1/data/x"\n'
        '[responses]\nstore = "memory:"\n'
    )
    assert main(["serve", "check"]) == 0


def test_log_of_an_unusable_state_names_the_file_once(tmp_path, caplog):
    file = tmp_path / "gone" / "x.db"
    database = StateDatabase(SqliteLink(str(file), ()))

    async def use():
        with pytest.raises(StoreError):
            await database.transact(lambda execute: execute("SELECT 1", ()))
        await database.aclose()

    with caplog.at_level(logging.ERROR, "toolwire.gateway"):
        asyncio.run(use())
    [line] = caplog.messages
    assert line.startswith(f"the shared state is unavailable: SQLite, {file}: No such file or directory (")
    assert line.count(str(file)) == 1
