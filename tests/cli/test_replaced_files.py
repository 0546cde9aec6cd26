"""Files that commands write are replaced in one step, and keep their mode, links and devices."""

import errno
import os
from pathlib import Path

import pytest

from toolwire.cli.main import main
from toolwire.cli.sources.documents import replace_file
from toolwire.ir.errors import ConfigError

TOOLS = 'def look(at: str) -> str:\n    """Look at a thing."""\n    return at\n'


@pytest.mark.parametrize("option", ["--lock", "--write-baseline"])
def test_full_disk_leaves_the_old_file(option, tmp_path, monkeypatch, capsys):
    def fail(_):
        raise OSError(28, "No space left on device")

    (tmp_path / "tools.py").write_text(TOOLS)
    file = tmp_path / "known.json"
    command = ["audit", str(tmp_path / "tools.py"), option, str(file)]
    assert main(command) == 0
    before = file.read_bytes()
    (tmp_path / "tools.py").write_text(TOOLS.replace("look", "see"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert main(command) == 2
    assert f"cannot write {file}: No space left on device" in capsys.readouterr().err.replace("\n  ", " ")
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["known.json", "tools.py"]


def test_interrupt_leaves_the_old_file(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    file = tmp_path / "a"
    file.write_text("old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(file, "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_content_of_a_private_file_is_private_while_it_is_written(tmp_path, monkeypatch):
    file, modes, sync = tmp_path / ("n" * 250), [], os.fsync
    file.write_text("old")
    file.chmod(0o600)
    monkeypatch.setattr(os, "fsync", lambda number: modes.append(os.fstat(number).st_mode & 0o777) or sync(number))
    replace_file(file, "new", mode=0o666)
    assert (modes, file.read_text()) == ([0o600], "new")


def test_file_that_cannot_be_renamed_is_written_directly(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    file = tmp_path / "mounted"
    file.write_text("old")
    monkeypatch.setattr(Path, "replace", refuse)
    replace_file(file, "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mounted", "new")]
    write, failures = Path.write_bytes, [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    def write_half(path, data):
        write(path, data[:2])
        if failures:
            raise failures.pop()
        write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(ConfigError, match="No space left"):
        replace_file(file, "newer")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mounted", "new")]


def test_modes_and_links_are_kept(tmp_path):
    file, link, shared, private = (tmp_path / name for name in ("file", "link", "shared", "private"))
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    replace_file(link, b"new")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "new", 0o640)
    mask = os.umask(0o027)
    try:
        replace_file(shared, "a", mode=0o666)
        replace_file(private, "a")
    finally:
        os.umask(mask)
    assert [path.stat().st_mode & 0o777 for path in (shared, private)] == [0o640, 0o600]


def test_pipe_is_written_and_not_replaced(tmp_path):
    reader, writer = os.pipe()
    replace_file(f"/dev/fd/{writer}", "text")
    os.close(writer)
    with os.fdopen(reader) as file:
        assert file.read() == "text"
    replace_file("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["absent/file", "file/below", ""])
def test_file_that_cannot_be_written_is_named(name, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write"):
        replace_file(tmp_path / name, "text")
