"""Keys for clients: the file has the hash, nobody has the key, and whatever else is in the file stays as it is."""

import json
import tomllib

import pytest

from toolwire.cli.main import main
from toolwire.gateway.keys import ClientKeys
from toolwire.gateway.settings_file import load_settings

FILE = """\
# our gateway
[server]   # where it listens
port = 4141

[upstreams.one]
base_url = "http://localhost:1/v1"

# the tests
[keys.ci]
hash = "{}"  # in the vault
models = [
  "small", # cheap
]

# people
[keys."a.b@c"]
hash = "{}"
""".format("1" * 64, "2" * 64)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toolwire.toml"
    path.write_text(FILE)
    return path


def keys(*arguments):
    return main(["serve", "keys", *arguments])


def test_the_key_is_shown_once_and_only_its_hash_is_kept(file, capsys):
    assert keys("new", "ann") == 0
    key = capsys.readouterr().out.strip()
    assert len(key) > 40
    assert key not in file.read_text()
    assert ClientKeys(load_settings(file).keys).identify({"x-api-key": key}, {}).name == "ann"


def test_config_option_is_accepted_before_and_after_the_command(tmp_path):
    for number, arguments in enumerate(
        (["--config", "{}", "keys", "new", "a"], ["keys", "new", "a", "--config", "{}"])
    ):
        path = tmp_path / f"{number}.toml"
        assert main(["serve", *(one.format(path) for one in arguments)]) == 0
        assert "a" in load_settings(path).keys


def test_new_keys_differ(file, capsys):
    keys("new", "ann")
    keys("new", "bob")
    first, second = capsys.readouterr().out.split()
    assert first != second


def test_limits_and_models_are_stored(file):
    assert keys("new", "x", "--models", "gpt-*", "größe \U0001f600", "--requests-per-minute", "5", "--tokens-per-minute", "6",
                "--tokens-per-day", "7") == 0  # fmt: skip
    row = load_settings(file).keys["x"]
    assert row.models == ("gpt-*", "größe \U0001f600")
    assert (row.requests_per_minute, row.tokens_per_minute, row.tokens_per_day) == (5, 6, 7)


@pytest.mark.parametrize("name", ["ann", "b.c@d-e_f"])
@pytest.mark.parametrize("text", [FILE, FILE.rstrip("\n"), FILE.replace("\n", "\r\n"), "", "# nothing\n"])
def test_other_content_of_the_file_is_kept(file, text, name):
    file.write_bytes(text.encode())
    assert keys("new", name) == 0
    assert file.read_bytes().startswith(text.encode())
    assert keys("revoke", name) == 0
    assert file.read_bytes().rstrip() == text.encode().rstrip()


def test_missing_file_is_created_with_owner_only_permissions(tmp_path, capsys):
    path = tmp_path / "new.toml"
    assert keys("new", "ann", "--config", str(path)) == 0
    assert set(tomllib.loads(path.read_text())["keys"]) == {"ann"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_permissions_and_links_are_kept(file, tmp_path):
    file.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    assert keys("new", "ann", "--config", str(link)) == 0
    assert link.is_symlink()
    assert "ann" in load_settings(file).keys
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.toml", "toolwire.toml"]


def test_revoking_removes_the_table_and_keeps_other_comments(file, capsys):
    assert keys("revoke", "ci") == 0
    assert file.read_text() == FILE.replace(FILE[FILE.index("[keys.ci]") : FILE.index("\n# people")], "")
    assert keys("revoke", "a.b@c") == 0
    assert "it was the last key" in capsys.readouterr().err
    assert load_settings(file).keys == {}


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (FILE, ["new", "ci"], "already"),
        (FILE, ["new", "no spaces"], "invalid key name"),
        (FILE, ["new", ""], "invalid key name"),
        (FILE, ["new", "x", "--requests-per-minute", "0"], "[keys.x] requests_per_minute: must be at least 1, got 0"),
        (FILE, ["revoke", "nobody"], "existing keys: ci, a.b@c"),
        (FILE, ["new", "x", "--config", "litellm.yaml"], "cannot be stored in litellm.yaml"),
        (FILE, ["new", "x", "--config", "/does/not/exist/toolwire.toml"], "cannot write"),
        (FILE, ["list", "--config", "nowhere.toml"], "cannot read"),
        ("[serve]\n", ["new", "x"], "did you mean 'server'"),
        ("[server\n", ["new", "x"], "not valid TOML"),
        (f'keys = {{a = {{hash = "{"1" * 64}"}}}}\n', ["new", "x"], "a separate table"),
        (f'keys.a.hash = "{"1" * 64}"\n', ["revoke", "a"], "a separate table"),
    ],
)
def test_failed_command_does_not_change_the_file(file, capsys, text, arguments, words):
    file.write_text(text)
    assert keys(*arguments) == 2
    assert words in capsys.readouterr().err
    assert file.read_text() == text


def test_list_prints_keys_and_limits(file, capsys):
    keys("new", "ann", "--tokens-per-day", "1000000")
    capsys.readouterr()
    assert keys("list") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["ci", "small"],
        ["a.b@c", "*"],
        ["ann", "*", "1,000,000"],
    ]
    assert keys("list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ci"]["models"] == ["small"]
    file.write_text("")
    assert keys("list") == 0
    assert capsys.readouterr().out == "no keys\n"
