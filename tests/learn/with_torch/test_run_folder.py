"""A run continues only with the same inputs, and an interrupted write loses at most its own row."""

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.learn.run_folder import RunFolder


def test_run_continues_with_equal_settings(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text("{}\n")
    folder = RunFolder.create(tmp_path / "run", {"seed": 1}, [data])
    folder.append("log.jsonl", [{"step": 1}, {"step": 2}])
    again = RunFolder.create(tmp_path / "run", {"seed": 1}, [data], resume=True)
    assert list(again.rows("log.jsonl")) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize(("settings", "text"), [({"seed": 2}, "{}\n"), ({"seed": 1}, "{} \n")])
def test_run_with_other_inputs_is_refused(tmp_path, settings, text):
    data = tmp_path / "data.jsonl"
    data.write_text("{}\n")
    RunFolder.create(tmp_path / "run", {"seed": 1}, [data])
    data.write_text(text)
    with pytest.raises(ConfigError, match="a run with other"):
        RunFolder.create(tmp_path / "run", settings, [data], resume=True)


def test_existing_run_is_not_overwritten(tmp_path):
    RunFolder.create(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="already contains a run"):
        RunFolder.create(tmp_path / "run", {})


def test_folder_can_be_used_after_a_failed_preparation(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {"model": "wrong"})
    with pytest.raises(ValueError, match="wrong"), folder.preparing():
        raise ValueError("wrong")
    RunFolder.create(tmp_path / "run", {"model": "right"})


def test_failed_preparation_keeps_the_results_of_a_run(tmp_path):
    RunFolder.create(tmp_path / "run", {}).write_json("result.json", 1)
    folder = RunFolder.create(tmp_path / "run", {}, resume=True)
    with pytest.raises(ValueError, match="wrong"), folder.preparing():
        raise ValueError("wrong")
    assert RunFolder.create(tmp_path / "run", {}, resume=True).read_json("result.json") == 1


def test_interrupted_row_is_removed(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {})
    folder.append("log.jsonl", [1])
    with (folder.path / "log.jsonl").open("ab") as file:
        file.write(b'{"step": ')
    assert list(folder.rows("log.jsonl")) == [1]
    folder.append("log.jsonl", [2])
    assert list(folder.rows("log.jsonl")) == [1, 2]


def test_unreadable_input_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.jsonl"):
        RunFolder.create(tmp_path / "run", {}, [tmp_path / "missing.jsonl"])


def test_damaged_row_is_named(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {})
    (folder.path / "log.jsonl").write_bytes(b'{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(ConfigError, match=r"log\.jsonl, line 2 is damaged"):
        list(folder.rows("log.jsonl"))


@pytest.mark.parametrize("content", [b"[]", b'{"settings": 3, "inputs": {}}', b"[" * 100_000, b"\xff"])
def test_file_that_is_no_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"manifest"):
        RunFolder.create(tmp_path, {}, resume=True)


def test_run_killed_while_it_wrote_its_manifest_begins_again(tmp_path):
    (tmp_path / "manifest.json.part").write_bytes(b'{"sett')
    assert RunFolder.create(tmp_path, {"seed": 1}).manifest["settings"] == {"seed": 1}
