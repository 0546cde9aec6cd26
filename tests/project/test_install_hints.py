"""No hint or page installs toolwire from an index that does not have it, and hints fit how it was installed."""

import json
import re
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest

from places import ROOT
from toolwire import _extras

FROM_AN_INDEX = re.compile(
    r"""toolwire\[[\w,{}]+\](?!\s*@)|\b(?:pip3?|pipx|uv|poetry)\s+(?:pip\s+)?(?:install|add|run|tool)\b(?:\s+-\S+)*\s+['"]?toolwire\b|\buvx\s+toolwire\b"""
)
REQUIREMENTS = """Metadata-Version: 2.4
Name: toolwire
Version: 9.9
Requires-Dist: msgspec<0.23,>=0.20
Provides-Extra: gateway
Requires-Dist: pyyaml<7,>=6; extra == 'gateway'
Requires-Dist: uvloop<0.24,>=0.21; (sys_platform != 'win32') and extra == 'gateway'
Provides-Extra: net
Requires-Dist: httptools<0.10,>=0.6.3; extra == 'net'
"""


def written_files():
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "docs/**/*.py",
        "examples/**/*",
        "deploy/**/*",
        "bench/**/*.md",
        "src/**/*.py",
    ):
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix != ".pyc" and path.name != "lock.py":  # resolves our own extras
                yield path


@pytest.mark.finding("NU2")
def test_nothing_installs_toolwire_from_an_index():
    found = []
    for path in written_files():
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in FROM_AN_INDEX.finditer(text)]
    assert found == [] or _extras.PUBLISHED


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'toolwire[net]'",
        "pip install toolwire",
        "pip install -U toolwire",
        "uv add toolwire",
        "uvx toolwire",
        "`toolwire[a,b]`",
    ],
)
def test_scan_recognises_installation_from_an_index(line):
    assert FROM_AN_INDEX.search(line)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs toolwire from a URL (None: from an index, "": not at all)."""

    def install(url, **info):
        folder = tmp_path / "toolwire-9.9.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(REQUIREMENTS, encoding="utf-8")
        if url is not None:
            (folder / "direct_url.json").write_text(json.dumps({"url": url, **info}), encoding="utf-8")
        monkeypatch.setattr("importlib.metadata.distribution", lambda _: PathDistribution(folder))
        return _extras.install_command

    return install


@pytest.mark.finding("NU2")
def test_checkout_is_installed_again_with_the_extra(installed, tmp_path):
    checkout = tmp_path / "my code"
    checkout.mkdir()
    command = installed(checkout.as_uri(), dir_info={"editable": True})
    assert command("gateway") == f"pip install -e '{checkout}[gateway]'"
    assert command() == f"pip install -e '{checkout}'"


@pytest.mark.finding("NU2")
def test_wheel_file_is_installed_again_with_the_extra(installed, tmp_path):
    wheel = tmp_path / "toolwire-9.9-py3-none-any.whl"
    wheel.touch()
    assert installed(wheel.as_uri(), archive_info={})("net") == f"pip install '{wheel}[net]'"


@pytest.mark.finding("NU2")
@pytest.mark.parametrize(
    ("url", "info"),
    [
        (None, {}),
        ("file:///no/such/folder", {"dir_info": {}}),
        ("https://example.com/toolwire.git", {"vcs_info": {"vcs": "git", "commit_id": "1"}}),
        ("https://[", {}),
    ],
)
def test_packages_of_the_extra_are_named_where_the_source_is_gone(installed, url, info):
    command = installed(url, **info)
    assert command("net") == "pip install 'httptools<0.10,>=0.6.3'"
    assert command("gateway") == """pip install 'pyyaml<7,>=6' 'uvloop<0.24,>=0.21; (sys_platform != "win32")'"""


@pytest.mark.finding("SE13")
def test_published_package_is_named_where_the_source_is_gone(installed, monkeypatch):
    monkeypatch.setattr(_extras, "PUBLISHED", True)
    command = installed(None)
    assert command("net") == "pip install 'toolwire[net]'"
    assert command() == "pip install toolwire"


@pytest.mark.finding("NU2")
def test_source_tree_that_is_not_installed_is_named(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    assert _extras.install_command("net") == f"pip install -e '{ROOT}[net]'"
    monkeypatch.setattr(_extras, "_ROOT", Path("/no/such/folder"))
    assert _extras.install_command("net") == "install the packages of the extra 'net' in toolwire's pyproject.toml"
