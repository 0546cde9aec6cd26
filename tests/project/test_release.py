"""`make release` refuses faulty distributions, and uploads nothing. Building takes a minute, so only its checks run here."""

import importlib.util
import re
import sys
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
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "deploy"))
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
    monkeypatch.setattr(release, "run", lambda *command, **_: commands.append([str(word) for word in command]))
    monkeypatch.setattr(release, "DIST", ROOT / "dist-of-the-test")
    monkeypatch.setattr(release, "git", lambda *_: "")
    for step in ("build_twice", "check_contents", "try_wheel"):
        monkeypatch.setattr(release, step, lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["release.py"])
    release.main()
    assert [command[2] for command in commands] == ["twine"]
    assert "upload" not in [word for command in commands for word in command]
    assert "twine upload dist-of-the-test/toolwire-" in capsys.readouterr().out


@pytest.mark.finding("SE13")
def test_uncommitted_changes_are_refused(release, monkeypatch):
    monkeypatch.setattr(release, "git", lambda *_: " M README.md")
    monkeypatch.setattr(sys, "argv", ["release.py"])
    with pytest.raises(SystemExit, match="built from a commit"):
        release.main()


@pytest.mark.finding("SE13")
def test_builds_that_differ_are_refused(release, tmp_path, capsys):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.whl").write_text("same")
    release.compare(tmp_path / "first", tmp_path / "second")
    first, second, name = capsys.readouterr().out.split()
    assert first == second and len(first) == 64 and name == "a.whl"
    (tmp_path / "second" / "a.whl").write_text("other")
    with pytest.raises(SystemExit, match="differ"):
        release.compare(tmp_path / "first", tmp_path / "second")


@pytest.mark.finding("SE13")
def test_publication_is_recorded_once(release, monkeypatch, tmp_path):
    """It is a value of the source that the hints read, so the published wheel has it."""
    flag = tmp_path / "_extras.py"
    flag.write_text(
        (ROOT / "src/toolwire/_extras.py").read_text("utf-8").replace("PUBLISHED = True", "PUBLISHED = False")
    )
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "FLAG", flag)
    with pytest.raises(SystemExit, match="commit it and repeat"):
        release.set_published()
    assert "\nPUBLISHED = True\n" in flag.read_text("utf-8")
    release.set_published()


@pytest.mark.finding("SE13")
def test_build_backend_and_its_dependencies_are_pinned_with_hashes():
    """`make release` installs them in an empty environment with --require-hashes, which fails if one is missing."""
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert requirements[0].startswith("hatchling==")
    lock = (ROOT / "deploy/build.lock").read_text("utf-8")
    locked = re.findall(r"^(\S+==\S+) \\\n    --hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE)
    assert sorted(locked) == sorted(requirements), "run `make lock`"
