"""`make release` refuses faulty distributions, and uploads nothing. Building takes a minute, so only its checks run here."""

import importlib.util
import tarfile
import tomllib
import zipfile

import pytest

from places import ROOT

SOURCE_FILES = ("README.md", "LICENSE", "Makefile", "CHANGELOG.md", "docs/README.md", "tests/support/doc_blocks.py")


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "deploy/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def distributions(folder, release, *, wheel_files=(), source_files=SOURCE_FILES):
    wheel, source = folder / "a.whl", folder / "a.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (*release.REQUIRED, "toolwire-0.1.0.dist-info/METADATA", *wheel_files):
            archive.writestr(name, "")
    with tarfile.open(source, "w:gz") as archive:
        for name in source_files:
            archive.addfile(tarfile.TarInfo(f"toolwire-0.1.0/{name}"))
    return wheel, source


def test_complete_distributions_are_accepted(release, tmp_path):
    release.check_contents(*distributions(tmp_path, release))


@pytest.mark.parametrize("name", ["tests/test_x.py", "toolwire/__pycache__/x.pyc", "docs/README.md"])
def test_wheel_with_other_files_is_refused(release, tmp_path, name):
    with pytest.raises(SystemExit, match="should not contain"):
        release.check_contents(*distributions(tmp_path, release, wheel_files=(name,)))


def test_source_distribution_without_docs_is_refused(release, tmp_path):
    with pytest.raises(SystemExit, match=r"lacks \['docs/README.md'\]"):
        files = [name for name in SOURCE_FILES if name != "docs/README.md"]
        release.check_contents(*distributions(tmp_path, release, source_files=files))


def test_version_of_the_package_is_that_of_the_project(release):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert release.check_version() == project["version"]


def test_extras_of_the_readme_exist(release):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = release.readme_extras().split(",")
    assert "gateway" in extras
    assert set(extras) <= set(project["optional-dependencies"])


def test_failing_command_ends_the_release(release):
    with pytest.raises(SystemExit, match="exit code 1"):
        release.run("false")


def test_nothing_is_uploaded(release, monkeypatch, tmp_path, capsys):
    commands = []
    monkeypatch.setattr(release, "run", lambda *command, folder=None: commands.append([str(word) for word in command]))
    monkeypatch.setattr(release, "DIST", ROOT / "dist-of-the-test")
    monkeypatch.setattr(release, "check_contents", lambda *_: None)
    monkeypatch.setattr(release, "try_readme", lambda *_: None)
    release.main()
    assert [command[2] for command in commands] == ["build", "twine"]
    assert "upload" not in [word for command in commands for word in command]
    assert "twine upload dist-of-the-test/toolwire-" in capsys.readouterr().out
