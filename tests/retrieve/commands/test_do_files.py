"""Hostile files: man pages that block or cost too much, and caches of somebody else."""

import gzip
import os
import sys

import msgspec
import pytest

from do_fixtures import VECTORS, render
from toolwire.retrieve.commands.catalogue import _FORMAT, Catalogue, Roots, _Cache, _FileRecord, find_roots
from toolwire.retrieve.commands.command import CommandOption, Operand, SystemCommand
from toolwire.retrieve.commands.command_index import CommandIndex
from toolwire.retrieve.commands.command_tool import RefusedCall, make_command_line
from toolwire.retrieve.commands.machine import MAX_FILE, open_private_folder, read_manual, read_page, read_summaries
from toolwire.retrieve.commands.manuals import read_bash_completion

if sys.platform == "win32":
    pytest.skip("files of POSIX systems", allow_module_level=True)

PAGE = VECTORS / "man" / "man1" / "ls.1"


@pytest.fixture
def man(tmp_path):
    (tmp_path / "man" / "man1").mkdir(parents=True)
    return tmp_path / "man"


def load(man, cache=None):
    roots = Roots((str(man),))
    return Catalogue(roots, cache=cache, find_program=lambda name: None if "-" in name else f"/usr/bin/{name}").load()


@pytest.mark.parametrize("name", ["ls.1", "ls.1.gz"])
def test_pipe_and_device_are_no_pages(name, man):
    os.mkfifo(man / "man1" / name)
    (man / "man1" / "cat.1").symlink_to("/dev/zero")
    assert load(man) == []
    with pytest.raises(ValueError, match="not a regular file"):
        read_page(man / "man1" / name)


def test_compressed_page_of_a_terabyte_is_not_read(man):
    page = man / "man1" / "ls.1.gz"
    page.write_bytes(gzip.compress(b""))
    os.truncate(page, 1 << 40)
    assert load(man) == []


def test_compressed_page_ends_with_its_first_member(man):
    page = man / "man1" / "ls.1.gz"
    page.write_bytes(gzip.compress(PAGE.read_bytes()) + b"\0" * (MAX_FILE // 2))
    assert [command.name for command in load(man)] == ["ls"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("git-zz.1", ".TH x 1\n" + "\n" * 900_000),
        ("ls.1", ".TH ls 1\n.SH NAME\nls \\- x\n.SH SYNOPSIS\n.B ls\n" + ("-a" * 1_900 + "\n") * 200),
        ("ls.1", ".TH ls 1\n.SH NAME\nls \\- x\n.SH SYNOPSIS\n.B ls\n" + ("\x02" * 3_900 + "\n") * 200),
        ("ls.1", ".TH ls 1\n.SH NAME\nls \\- x\n.SH SYNOPSIS\n.B ls {\n" + "|" * 900_000),
    ],
)
def test_page_with_a_pathological_text_is_read_in_linear_time(name, text, man):
    """Each of these took more than 25 seconds; a run of the tests would not end."""
    (man / "man1" / name).write_text(text)
    assert len(load(man)) <= 1


def test_pages_beside_a_decompression_bomb_are_read(man):
    (man / "man1" / "ls.1").write_bytes(PAGE.read_bytes())
    (man / "man1" / "cat.1.gz").write_bytes(gzip.compress(bytes(3 * MAX_FILE)))
    assert [command.name for command in load(man)] == ["ls"]


def test_slow_page_does_not_hide_the_others(man, tmp_path, monkeypatch):
    for name in ("ls", "cp", "mv", "rm", "cat"):
        (man / "man1" / f"{name}.1").write_text(PAGE.read_text().replace("ls", name))
    read, batches = read_summaries, []

    def read_slowly(program, pages):
        batches.append(len(pages))
        if man / "man1" / "cp.1" in pages:
            raise TimeoutError
        return read(program, pages)

    monkeypatch.setattr("toolwire.retrieve.commands.catalogue.read_summaries", read_slowly)
    assert sorted(command.name for command in load(man, tmp_path / "cache")) == ["cat", "ls", "mv", "rm"]
    batches.clear()
    assert len(load(man, tmp_path / "cache")) == 4
    assert batches == []  # the slow page is recorded


def test_page_that_takes_too_long_is_not_read_again(man, tmp_path, monkeypatch):
    (man / "man1" / "ls.1").write_bytes(PAGE.read_bytes())
    calls = []

    def render_slowly(*_):
        calls.append(1)
        raise TimeoutError

    monkeypatch.setattr("toolwire.retrieve.commands.catalogue.render_page", render_slowly)
    assert [load(man, tmp_path / "cache") for _ in range(2)] == [[], []]
    assert len(calls) == 1


def test_page_includes_no_file(man, tmp_path):
    (tmp_path / "secret").write_text("hunter2\n")
    requests = [
        ".so {}",
        ". mso {}",
        "'so {}",
        ".do so {}",
        ".nx {}",
        ".ds s so\n.\\*s {}",
        ".als m mso\n.m {}",
        ".trf {}",
    ]
    head = ".TH ls 1\n.SH NAME\nls \\- x\n.SH OPTIONS\n"
    options = "".join(f".TP\n-{'abcdefgh'[n]}\ntext\n{one}\n" for n, one in enumerate(requests))
    for before in ("", ".als m mso\n.m {}\n"):
        page = (before + head + options).replace("{}", str(tmp_path / "secret"))
        text = render(page)
        assert "text" in text
        assert "hunter2" not in text


def test_link_to_a_page_stays_in_its_man_path(man, tmp_path):
    (man / "man1" / "gls.1").write_bytes(gzip.compress(PAGE.read_bytes()))
    (man / "man1" / "gls.1").rename(man / "man1" / "gls.1.gz")
    (man / "man1" / "ls.1").write_text(".so man1/gls.1\n")
    assert read_manual(man / "man1" / "ls.1") == PAGE.read_bytes()
    (tmp_path / "outside.1").write_bytes(PAGE.read_bytes())
    (man / "man1" / "loop.1").symlink_to(tmp_path / "outside.1")
    for name in ("../outside.1", str(tmp_path / "outside.1"), "man1/loop.1", "/dev/zero", "man1"):
        (man / "man1" / "ls.1").write_text(f".so {name}\n")
        assert read_manual(man / "man1" / "ls.1") == b""


def test_completion_of_line_breaks_is_read_in_linear_time():
    assert read_bash_completion("\n" * 19_000, "frob") == []


def test_reading_stops_at_the_time_limit(man, monkeypatch):
    (man / "man1" / "ls.1").write_bytes(PAGE.read_bytes())
    monkeypatch.setattr("toolwire.retrieve.commands.catalogue.MAX_SECONDS", -1.0)
    assert load(man) == []


def test_options_of_many_subcommands_are_bounded(man):
    options = "".join(f".TP\n\\-\\-option{number}\ntext\n" for number in range(390))
    commands = "".join(f".TP\ncommand{number}\ntext\n" for number in range(80))
    (man / "man1" / "ls.1").write_text(f".TH ls 1\n.SH NAME\nls \\- x\n.SH OPTIONS\n{options}.SH COMMANDS\n{commands}")
    found = load(man)
    assert len(found) == 81
    assert sum(len(command.options) for command in found[1:]) <= 8_000


def write_cache(cache, man, *commands):
    """Write a cache that contains these commands for the page of `ls`."""
    status = (man / "man1" / "ls.1").stat()
    record = _FileRecord(status.st_size, status.st_mtime_ns, None, commands)
    data = msgspec.json.encode(_Cache(_FORMAT, os.environ.get("PATH", ""), {str(man / "man1" / "ls.1"): record}))
    (file,) = cache.glob("commands-*.json")
    file.write_bytes(data)
    return file


@pytest.fixture
def cached(man, tmp_path):
    (man / "man1" / "ls.1").write_bytes(PAGE.read_bytes())
    load(man, tmp_path / "cache")
    return tmp_path / "cache"


PLANTED = SystemCommand(("ls",), "planted")


def test_own_cache_is_used(man, cached):
    write_cache(cached, man, PLANTED)
    assert [command.summary for command in load(man, cached)] == ["planted"]
    assert cached.stat().st_mode & 0o777 == 0o700


def plant_shared(file):
    file.chmod(0o666)


def plant_link(file):
    file.rename(file.with_suffix(".other"))
    file.symlink_to(file.with_suffix(".other"))


def plant_second_name(file):
    os.link(file, file.with_suffix(".other"))


def plant_foreign(file):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, 1234, 1234)


def plant_pipe(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("plant", [plant_shared, plant_link, plant_second_name, plant_foreign, plant_pipe])
def test_cache_of_somebody_else_is_rebuilt(plant, man, cached):
    plant(write_cache(cached, man, PLANTED))
    assert [command.summary for command in load(man, cached)] == ["show the names of files in directories"]


@pytest.mark.parametrize(
    "data", [b'{"format":4,"program_path":"\xff\xfe","files":{}}', b'{"x":' + b"[" * 100_000, b"", b"[]"]
)
def test_damaged_cache_is_rebuilt(data, man, cached):
    (file,) = cached.glob("commands-*.json")
    file.write_bytes(data)
    assert [command.name for command in load(man, cached)] == ["ls"]


@pytest.mark.parametrize(
    "command",
    [
        SystemCommand(()),
        SystemCommand(("touch", "/tmp/x\x1b[2K\rls")),
        SystemCommand(("ls",), options=(CommandOption(()),)),
        SystemCommand(("ls",), options=(CommandOption(("--x\x1b[8m hidden",)),)),
        SystemCommand(("ls",), operands=(Operand("x\n"),)),
        SystemCommand(("ls",), operands=(Operand("x", prefix="-o"),)),
    ],
)
def test_cached_command_with_unusual_names_is_rebuilt(command, man, cached):
    write_cache(cached, man, command)
    assert [command.summary for command in load(man, cached)] == ["show the names of files in directories"]


def test_cache_does_not_follow_a_link_to_a_file_or_folder(man, tmp_path):
    (man / "man1" / "ls.1").write_bytes(PAGE.read_bytes())
    (tmp_path / "target").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "target")
    assert len(load(man, tmp_path / "cache")) == 1
    assert not open_private_folder(tmp_path / "cache")
    CommandIndex([PLANTED], cache=tmp_path / "cache")
    assert list((tmp_path / "target").iterdir()) == []


def test_word_of_a_command_that_cannot_be_seen_is_refused():
    for command in (
        SystemCommand(("touch", "x\x1b[2K\rls -l")),
        SystemCommand(("ls",), options=(CommandOption(("--x\x1b[8m",)),)),
    ):
        arguments = {name: True for name in ("x_8m",) if command.options}
        with pytest.raises(RefusedCall, match="cannot be seen"):
            make_command_line(command, arguments)


@pytest.mark.parametrize("value", ["a" + " " * 300 + "b", "x" * 1_500])
def test_command_that_hides_its_beginning_is_refused(value):
    with pytest.raises(RefusedCall):
        make_command_line(SystemCommand(("rm",), operands=(Operand("file"),)), {"file": value})


def test_first_command_of_a_tool_name_is_found():
    first, second = SystemCommand(("frob", "log"), "show the history"), SystemCommand(("frob-log",), "show the history")
    assert CommandIndex([first, second]).find("frob_log") == first


def test_pages_of_the_system_precede_those_beside_a_folder_of_the_path(tmp_path):
    (tmp_path / "share" / "man").mkdir(parents=True)
    folders = find_roots({"PATH": str(tmp_path / "bin")}).man
    assert folders[-1] == str((tmp_path / "share" / "man").resolve())
