"""The temporary folder of tested tools."""

import tempfile

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.testing.tool_tests.sandbox import ToolSandbox


def test_folder_is_removed_if_a_file_cannot_be_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot copy"):
        ToolSandbox([str(tmp_path / "missing.txt")])
    assert list(tmp_path.iterdir()) == []
