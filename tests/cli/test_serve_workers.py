"""`toolwire serve --workers`: the settings that several workers need."""

import pytest

from toolwire.cli.main import main
from toolwire.gateway.config.parsing import parse_settings
from toolwire.ir.errors import ConfigError

UPSTREAM = '[upstreams.a]\nbase_url = "http://127.0.0.1:9/v1"\nwire = "openai_chat"\n'


def start(folder, monkeypatch, text, *options):
    monkeypatch.chdir(folder)
    (folder / "toolwire.toml").write_text(UPSTREAM + text)
    return main(["serve", *options])


def test_several_workers_need_a_shared_state(tmp_path, monkeypatch, capsys):
    assert start(tmp_path, monkeypatch, "", "--workers", "2") == 2
    error = capsys.readouterr().err
    assert "2 workers need a state" in error
    assert "set url in [state]" in error


def test_workers_in_the_settings_need_a_shared_state():
    with pytest.raises(ConfigError, match=r"\[server\] workers: several workers need a state"):
        parse_settings({"server": {"workers": 2}})
    assert parse_settings({"server": {"workers": 2}, "state": {"url": "state.db"}}).server.workers == 2
    assert parse_settings({"server": {"workers": 2}, "state": {"url_env": "STATE"}}).server.workers == 2


@pytest.mark.parametrize("number", ["0", "-1"])
def test_number_of_workers_must_be_positive(tmp_path, monkeypatch, capsys, number):
    assert start(tmp_path, monkeypatch, "", "--workers", number) == 2
    assert f"workers must be at least 1, got {number}" in capsys.readouterr().err


def test_published_tools_need_one_worker(tmp_path, monkeypatch, capsys):
    text = '[state]\nurl = "state.db"\n[tools."*"]\nfiles = ["tools.py"]\npublish = true\n'
    assert start(tmp_path, monkeypatch, text, "--workers", "2") == 2
    assert "publish needs one worker" in capsys.readouterr().err
