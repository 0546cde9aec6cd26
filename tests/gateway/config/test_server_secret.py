"""The secret of a gateway: of the settings, of a file that is made once, or in memory."""

import asyncio
import logging
import os
import stat
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from toolwire.cli.serve.command import load_secret
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.credentials import configured_secrets, load_file_secret, read_secret
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.config.settings import ServerRow
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.gateway.settings_file import find_environment_problems
from toolwire.ir.errors import ConfigError

pytestmark = pytest.mark.finding("CA1")
SECRET = "0123456789abcdef0123456789abcdef"
needs_permissions = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def secret_file(folder):
    return folder / "toolwire.toml.secret"


def test_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    secret = load_file_secret(tmp_path / "toolwire.toml")
    assert len(secret) == 64
    assert load_file_secret(tmp_path / "toolwire.toml") == secret
    assert stat.S_IMODE(secret_file(tmp_path).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["toolwire.toml.secret"]


def test_file_gets_the_secret_that_is_in_use(tmp_path):
    """Workers that reload at once write the secret that they share."""
    assert load_file_secret(tmp_path / "toolwire.toml", SECRET) == SECRET
    assert load_file_secret(tmp_path / "toolwire.toml", SECRET[::-1]) == SECRET


def test_processes_that_start_at_once_use_the_same_secret(tmp_path):
    barrier = Barrier(8)

    def start(_):
        barrier.wait()
        return load_file_secret(tmp_path / "toolwire.toml")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_loser_of_a_race_reads_the_file_of_the_winner(tmp_path, monkeypatch):
    def link(_, path):
        path.write_text(SECRET)
        raise FileExistsError

    monkeypatch.setattr(os, "link", link)
    assert load_file_secret(tmp_path / "toolwire.toml") == SECRET
    assert [path.name for path in tmp_path.iterdir()] == ["toolwire.toml.secret"]


@pytest.mark.parametrize("content", ["", "\n", "short", SECRET[:31]])
def test_incomplete_file_is_refused(tmp_path, content):
    secret_file(tmp_path).write_text(content)
    with pytest.raises(ConfigError, match="no secret") as caught:
        load_file_secret(tmp_path / "toolwire.toml")
    assert "delete the file" in caught.value.hint
    assert content.strip() not in caught.value.message or not content.strip()


def test_symbolic_link_folder_and_pipe_are_refused(tmp_path):
    target = tmp_path / "target"
    target.write_text(SECRET)
    secret_file(tmp_path).symlink_to(target)
    with pytest.raises(ConfigError):
        load_file_secret(tmp_path / "toolwire.toml")
    secret_file(tmp_path).unlink()
    secret_file(tmp_path).mkdir()
    with pytest.raises(ConfigError):
        load_file_secret(tmp_path / "toolwire.toml")
    secret_file(tmp_path).rmdir()
    os.mkfifo(secret_file(tmp_path))
    with pytest.raises(ConfigError):
        load_file_secret(tmp_path / "toolwire.toml")


def test_file_that_others_can_read_is_reported(tmp_path, caplog):
    secret_file(tmp_path).write_text(SECRET)
    secret_file(tmp_path).chmod(0o644)
    assert read_secret(secret_file(tmp_path)) == SECRET
    assert "chmod 600" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(95, "Operation not supported")])
def test_without_write_access_the_secret_is_in_memory(tmp_path, monkeypatch, caplog, error):
    def link(*_):
        raise error

    monkeypatch.setattr(os, "link", link)
    with caplog.at_level(logging.WARNING):
        first, second = (load_file_secret(tmp_path / "toolwire.toml") for _ in range(2))
    assert first != second
    assert caplog.text.count("set [server] secret") == 2
    assert first not in caplog.text
    assert list(tmp_path.iterdir()) == []


@needs_permissions
def test_read_only_folder(tmp_path, caplog):
    tmp_path.chmod(0o500)
    assert load_file_secret(tmp_path / "toolwire.toml") != load_file_secret(tmp_path / "toolwire.toml")
    assert "secret is in memory" in caplog.text


def test_missing_folder_is_no_error(tmp_path, caplog):
    assert load_file_secret(tmp_path / "missing" / "toolwire.toml")
    assert "secret is in memory" in caplog.text


def test_secrets_of_the_settings():
    row = ServerRow(secret_env="NOW", previous_secret=SECRET)
    assert configured_secrets(row, {"NOW": "n" * 32}) == ["n" * 32, SECRET]
    assert configured_secrets(ServerRow(), {}) == []


@pytest.mark.parametrize(
    "server",
    [
        {"secret": "short"},
        {"secret": SECRET, "previous_secret": "short"},
        {"secret_env": "MISSING"},
        {"secret": SECRET, "secret_env": "NOW"},
        {"previous_secret": SECRET},
    ],
)
def test_wrong_secrets_are_errors_at_the_start_and_in_the_check(server):
    settings = parse_settings(
        {"server": server, "upstreams": {"a": {"wire": "openai_chat", "base_url": "http://localhost"}}}
    )
    environment = {"NOW": "n" * 32}
    with pytest.raises(ConfigError) as caught:
        Gateway(settings, environment=environment)
    assert "short" not in caught.value.message.replace("too short", "")
    assert SECRET not in str(caught.value)
    (problem,) = find_environment_problems(settings, environment)
    assert problem.path == ("server", "secret")


def test_secrets_are_redacted_in_logs():
    settings = parse_settings({"server": {"secret": SECRET, "previous_secret_env": "BEFORE"}})
    telemetry = open_telemetry(settings, {"BEFORE": "b" * 40}, lines=False)
    assert SECRET not in telemetry.redactor(f"the secret is {SECRET}")
    assert "b" * 40 not in telemetry.redactor("the secret is " + "b" * 40)
    asyncio.run(telemetry.aclose())


def test_new_secret_file_is_announced_once(tmp_path, capsys):
    arguments = Namespace(config=tmp_path / "toolwire.toml")
    settings = parse_settings({"upstreams": {"up": {"provider": "ollama"}}})
    secret = load_secret(arguments, settings)
    assert f"created {secret_file(tmp_path)}" in capsys.readouterr().err.replace("\n", " ")
    assert load_secret(arguments, settings) == secret
    assert not capsys.readouterr().err
