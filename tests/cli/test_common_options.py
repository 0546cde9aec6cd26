"""Options that several commands have are declared once: same names, same default."""

import argparse

import pytest

from toolwire.cli.main import _make_parser, main
from toolwire.cli.terminal.options import DEFAULT_MODEL


def commands(parser, words=()):
    """Yield the words of each command with its parser."""
    yield " ".join(words), parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, nested in action.choices.items():
                yield from commands(nested, (*words, name))


@pytest.mark.finding("NU7")
def test_model_and_config_are_spelt_alike_in_every_command():
    models, configs = {}, set()
    for name, parser in commands(_make_parser([])):
        for action in parser._actions:
            if "--model" in action.option_strings:
                assert action.option_strings == ["-m", "--model"], name
                models[name] = action.default
            if "--config" in action.option_strings:
                assert action.metavar == "FILE"
                configs.add(name)
    assert {name for name, default in models.items() if default == DEFAULT_MODEL} == {"run", "chat", "do", "worker"}
    assert {default for default in models.values() if default != DEFAULT_MODEL} == {None}
    serving = {f"serve {name}" for name in ("init", "check", "keys new", "keys list", "keys revoke", "usage", "client")}
    assert {"serve", "with", "trace record", "doctor", *serving} <= configs


@pytest.mark.finding("NU7")
def test_check_takes_the_settings_as_every_other_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.toml").write_text('[models]\nx = {upstream = "none"}\n')
    for arguments in (
        ["check", "other.toml"],
        ["check", "--config", "other.toml"],
        ["--config", "other.toml", "check"],
    ):
        assert main(["serve", *arguments]) == 1
        assert "other.toml" in capsys.readouterr().out
