"""Paths are checked in the form in which the tool receives them."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, FilePath

from toolwire import ToolCall, tool
from toolwire.ir.errors import ConfigError
from toolwire.ir.tools import Tool
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.tools.isolation import disk_jail
from toolwire.net.tools.runner import Runner
from toolwire.run.calls.context import Transient
from toolwire.run.calls.pending import Deny
from toolwire.run.calls.policy import Policy, at_most, path_jail
from toolwire.run.calls.steps import approval_hash
from toolwire.run.tools.toolbox import Entry
from toolwire.run.values.results import NOTES_KEY, result_code

JAILS = pytest.mark.parametrize("jail", [path_jail, disk_jail])
tool_got: list[Any] = []


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A directory that may be read, in one that may not; the tool works in a third one, which holds secrets."""
    tool_got.clear()
    root, work = tmp_path / "files", tmp_path / "work"
    for folder in (root, work, root / "notes"):
        folder.mkdir()
    (root / "a.txt").write_text("fine")
    (root / ".env").write_text("harmless")
    (work / ".env").write_text("SECRET")
    (work / "a.txt").write_text("SECRET")
    (root / "out").symlink_to(work)
    (root / "in").symlink_to(root / "notes")
    (root / "notes" / "b.txt").write_text("a note")
    monkeypatch.chdir(work)
    return root


def run(function, policy, *, effect="read", calls=1, **arguments):
    return asyncio.run(run_async(function, policy, effect=effect, calls=calls, arguments=arguments))


async def run_async(function, policy, *, arguments, effect="read", calls=1, options=None, run_id=""):
    source = function if isinstance(function, Entry) else tool(effect=effect)(function)
    name = source.tool.name if isinstance(source, Entry) else source.name
    runner = Runner(source, policy=policy, **(options or {}))
    asked = [ToolCall(str(number), name, arguments) for number in range(calls)]
    results = await runner.run(asked, run_id=run_id)
    return results[0] if calls == 1 else results


def read_text(path: str) -> str:
    """Read a file."""
    tool_got.append(path)
    return Path(path).read_text()


@pytest.mark.finding("Z5")
@JAILS
@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".env", "harmless"),
        ("a.txt", "fine"),
        ("./a.txt", "fine"),
        ("notes/../a.txt", "fine"),
        ("notes/b.txt", "a note"),
        ("{root}/a.txt", "fine"),
        ("{root}/notes/../a.txt", "fine"),
    ],
)
def test_a_relative_path_is_read_below_the_root(jail, path, text, files):
    result = run(read_text, Policy(checks=(jail("path", str(files)),)), path=path.format(root=files))
    assert (result.is_error, result.text) == (False, text)
    assert tool_got[0].startswith(f"{files}/") and ".." not in tool_got[0]


@pytest.mark.finding("Z5")
@JAILS
@pytest.mark.parametrize(
    "path",
    [
        "../work/.env",
        "notes/../../work/.env",
        "{work}/.env",
        "{root}/../work/.env",
        "{root}-other/a.txt",
        "~/.ssh/id_rsa",
        "~root/.bashrc",
        ".env\x00.txt",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "s3://bucket/key",
        "C:/Windows/win.ini",
        "c:a.txt",
        "..\\work\\.env",
        "notes\\b.txt",
        "\\\\server\\share",
        "//{work}/.env",
        "a" * 5000,
    ],
)
def test_path_outside_the_root_is_denied(jail, path, files):
    path = path.format(root=files, work=files.parent / "work")
    result = run(read_text, Policy(checks=(jail("path", str(files)),)), path=path)
    assert result_code(result) == "denied"
    assert "path must stay below" in result.text
    assert tool_got == []


@pytest.mark.finding("Z5")
def test_symlinks_are_resolved_before_the_tool_receives_the_path(files):
    policy = Policy(checks=(disk_jail("path", str(files)),))
    assert result_code(run(read_text, policy, path="out/.env")) == "denied"
    assert result_code(run(read_text, policy, path="out/../files/out/a.txt")) == "denied"
    assert run(read_text, policy, path="in/b.txt").text == "a note"
    assert tool_got == [str(files / "notes" / "b.txt")]
    assert result_code(run(read_text, policy, path="\ud800")) == "denied"


@pytest.mark.finding("Z5")
def test_a_root_may_itself_be_a_link(files, tmp_path):
    (tmp_path / "alias").symlink_to(files)
    policy = Policy(checks=(disk_jail("path", str(tmp_path / "alias")),))
    for path in ("a.txt", str(tmp_path / "alias" / "a.txt"), str(files / "a.txt")):
        assert run(read_text, policy, path=path).text == "fine"


@pytest.mark.finding("Z5")
def test_relative_root_is_resolved_at_configuration_time(files, monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="must be absolute"):
        path_jail("path", "files")
    with pytest.raises(ConfigError, match="must be absolute"):
        path_jail("path", "C:\\files")
    monkeypatch.chdir(tmp_path)
    policy = Policy(checks=(disk_jail("path", "files"),))
    monkeypatch.chdir(tmp_path / "work")
    assert run(read_text, policy, path="a.txt").text == "fine"


def of_path_type(path: Path) -> str:
    """Read a file."""
    tool_got.append(path)
    return path.read_text()


def of_file_type(path: FilePath) -> str:
    """Read a file that has to exist."""
    tool_got.append(path)
    return path.read_text()


def of_many(path: list[Path]) -> str:
    """Read files."""
    tool_got.extend(path)
    return " ".join(one.read_text() for one in path)


def of_two(path: tuple[str, str]) -> str:
    """Read files."""
    tool_got.extend(path)
    return " ".join(Path(one).read_text() for one in path)


def with_default(path: str = ".env") -> str:
    """Read a file."""
    tool_got.append(path)
    return Path(path).read_text()


def with_path_default(path: Path = Path("a.txt")) -> str:
    """Read a file."""
    tool_got.append(path)
    return path.read_text()


def with_list_default(path: tuple[Path, ...] = (Path("a.txt"), Path(".env"))) -> str:
    """Read files."""
    tool_got.extend(path)
    return " ".join(one.read_text() for one in path)


@pytest.mark.finding("Z5")
@JAILS
@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (of_path_type, {"path": "a.txt"}, "fine"),
        (of_file_type, {"path": "notes/b.txt"}, "a note"),
        (of_many, {"path": ["a.txt", "{root}/.env"]}, "fine harmless"),
        (of_many, {"path": []}, ""),
        (of_two, {"path": ["a.txt", ".env"]}, "fine harmless"),
        (with_default, {}, "harmless"),
        (with_path_default, {}, "fine"),
        (with_list_default, {}, "fine harmless"),
    ],
)
def test_every_type_of_path_argument_is_rewritten(jail, function, arguments, text, files):
    arguments = {
        name: [one.format(root=files) for one in value] if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    result = run(function, Policy(checks=(jail("path", str(files)),)), **arguments)
    assert (result.is_error, result.text) == (False, text)
    assert all(str(path).startswith(f"{files}/") for path in tool_got)


class Source(BaseModel):
    path: Path
    also: list[str] = []


class Plan(BaseModel):
    sources: list[Source] = [Source(path=Path(".env"))]


def nested(plan: Plan) -> str:
    """Read files."""
    tool_got.extend(source.path for source in plan.sources)
    return " ".join(source.path.read_text() for source in plan.sources)


@pytest.mark.finding("Z5")
@JAILS
def test_a_pointer_reaches_paths_inside_an_argument(jail, files):
    policy = Policy(checks=(jail("/plan/sources/path", str(files)), jail("/plan/sources/also", str(files))))
    good = {"sources": [{"path": "a.txt", "also": ["x"]}, {"path": "notes/b.txt"}]}
    assert run(nested, policy, plan=good).text == "fine a note"
    assert [str(path) for path in tool_got] == [f"{files}/a.txt", f"{files}/notes/b.txt"]
    for bad in (
        {"sources": [{"path": "a.txt"}, {"path": "../work/.env"}]},
        {"sources": [{"path": "a.txt", "also": ["../x"]}]},
        {},  # a default of the model, relative to the working directory, which JSON cannot change
    ):
        assert result_code(run(nested, policy, plan=bad)) == "denied"
    assert len(tool_got) == 2


def optional_path(path: str | None = None) -> str:
    """List the working directory unless a path is given."""
    tool_got.append(path)
    return "listed"


def of_bytes(path: bytes) -> str:
    """Read a file."""
    tool_got.append(path)
    return "read"


def of_named_file(path: Literal[".env", "a.txt"]) -> str:
    """Read one of two files."""
    tool_got.append(path)
    return Path(path).read_text()


def of_short_name(path: Annotated[str, AfterValidator(lambda path: Path(path).name)]) -> str:
    """Read a file by its name."""
    tool_got.append(path)
    return Path(path).read_text()


def of_parent(path: Annotated[str, AfterValidator(lambda path: path + "/../../work/.env")]) -> str:
    """Read another file."""
    tool_got.append(path)
    return Path(path).read_text()


@pytest.mark.finding("Z5")
@JAILS
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (optional_path, {}),
        (optional_path, {"path": None}),
        (of_bytes, {"path": "a.txt"}),
        (of_named_file, {"path": ".env"}),
        (of_short_name, {"path": "a.txt"}),
        (of_parent, {"path": "notes"}),
    ],
)
def test_path_that_cannot_be_made_absolute_is_denied(jail, function, arguments, files):
    result = run(function, Policy(checks=(jail("path", str(files)),)), **arguments)
    assert result_code(result) == "denied"
    assert "path" in result.text and tool_got == []


@pytest.mark.finding("Z5")
@JAILS
def test_a_validator_that_keeps_the_path_inside_is_respected(jail, files):
    def with_suffix(path: Annotated[str, AfterValidator(lambda path: f"{path}.txt")]) -> str:
        """Read a text file."""
        return Path(path).read_text()

    assert run(with_suffix, Policy(checks=(jail("path", str(files)),)), path="a").text == "fine"


@pytest.mark.finding("Z5")
@JAILS
def test_a_jail_inside_of_another_check_denies_relative_paths(jail, files):
    inner = jail("path", str(files))
    policy = Policy(checks=(lambda pending: inner(pending) if pending.call.name == "read_text" else None,))
    assert result_code(run(read_text, policy, path=".env")) == "denied"
    assert run(read_text, policy, path=str(files / ".env")).text == "harmless"


@pytest.mark.finding("Z5")
def test_a_remote_tool_receives_the_absolute_path(files):
    async def function(**arguments):
        tool_got.append(arguments)
        return "done"

    schema = {"type": "object", "properties": {"path": {"type": "string", "default": "."}, "mode": {"type": "string"}}}
    entry = Entry(Tool("remote", "Read.", schema, effect="read"), function)
    policy = Policy(checks=(path_jail("path", "/files"),))
    run(entry, policy, path="a.txt", mode="r")
    run(entry, policy)
    assert tool_got == [{"path": "/files/a.txt", "mode": "r"}, {"path": "/files"}]


@pytest.mark.finding("Z5")
@JAILS
def test_approval_request_contains_the_absolute_path(jail, files):
    steps = []
    policy = Policy(checks=(jail("path", str(files)),), approve=("read",))
    options = {"approve": lambda step: steps.append(step) or True}
    result = asyncio.run(run_async(read_text, policy, arguments={"path": ".env"}, options=options))
    absolute = {"path": str(files / ".env")}
    assert result.text == "harmless"
    assert [(step.arguments, step.hash) for step in steps] == [
        (absolute, approval_hash(Entry(tool(effect="read")(read_text), read_text), absolute))
    ]
    assert result.extra[NOTES_KEY]["repaired"] == [f"path: made absolute below {files}"]


@pytest.mark.finding("Z5")
def test_symlink_created_during_approval_is_denied(files):
    def approve(step):
        (files / "a.txt").unlink()
        (files / "a.txt").symlink_to(files.parent / "work" / ".env")
        return True

    policy = Policy(checks=(disk_jail("path", str(files)),), approve=("read",))
    result = asyncio.run(run_async(read_text, policy, arguments={"path": "a.txt"}, options={"approve": approve}))
    assert result_code(result) == "denied"
    assert tool_got == []


@pytest.mark.finding("Z5")
def test_symlink_created_between_attempts_prevents_the_retry(files):
    def flaky(path: str) -> str:
        """Fail, and let a link appear."""
        tool_got.append(path)
        Path(path).unlink()
        Path(path).symlink_to(files.parent / "work" / ".env")
        raise Transient("busy", retry_after=0.0)

    policy = Policy(checks=(disk_jail("path", str(files)),))
    result = run(flaky, policy, path="a.txt")
    assert result.is_error and "busy" in result.text
    assert tool_got == [str(files / "a.txt")]


@pytest.mark.finding("Z5")
def test_retry_receives_the_original_arguments():
    def eat(amounts: list[int]) -> str:
        """Change the arguments, and fail."""
        tool_got.append(list(amounts))
        amounts.append(5000)
        if len(tool_got) == 1:
            raise Transient("busy", retry_after=0.0)
        return "eaten"

    assert run(eat, Policy(checks=(at_most("amounts", 100),)), amounts=[1, 2]).text == "eaten"
    assert tool_got == [[1, 2], [1, 2]]


@pytest.mark.finding("Z5")
def test_call_that_mutated_an_untyped_list_is_retried_with_its_arguments():
    def eat(amounts: list) -> str:
        """Change the arguments, and fail."""
        tool_got.append(list(amounts))
        amounts.append(5000)
        raise Transient("busy", retry_after=0.0)

    assert "busy" in run(eat, Policy(checks=(at_most("amounts", 100),)), amounts=[1, 2]).text
    assert tool_got == [[1, 2]] * 3


@pytest.mark.finding("Z5")
def test_idempotency_key_does_not_depend_on_the_symlink_target(files):
    def append(path: str) -> str:
        """Append to a file."""
        tool_got.append(path)
        return "appended"

    store, policy = MemoryStore(), Policy(checks=(disk_jail("path", str(files)),))

    def once():
        more = {"arguments": {"path": "in/b.txt"}, "effect": "write", "options": {"store": store}, "run_id": "r1"}
        return asyncio.run(run_async(append, policy, **more))

    first = once()
    (files / "in").unlink()
    (files / "in").symlink_to(files)
    second = once()
    assert (first.text, second.text) == ("appended", "appended")
    assert second.extra[NOTES_KEY]["replayed"] is True
    assert tool_got == [str(files / "notes" / "b.txt")]


@pytest.mark.finding("Z5")
def test_rewrite_must_return_a_call_or_a_denial():
    class Odd:
        def rewrite(self, pending):
            return {"path": "/etc/passwd"}

        def __call__(self, pending):
            return None

    class Own:
        def rewrite(self, pending):
            return Deny("not today")

        def __call__(self, pending):
            return None

    assert "rewrite returned" in run(read_text, Policy(checks=(Odd(),)), path="a").text
    assert "not today" in run(read_text, Policy(checks=(Own(),)), path="a").text
    assert tool_got == []


def count_disk_lookups(monkeypatch, files, paths):
    """How often a call with these paths looks at the disk."""
    count, original = 0, os.lstat

    def counted(*arguments, **options):
        nonlocal count
        count += 1
        return original(*arguments, **options)

    policy = Policy(checks=(disk_jail("path", str(files)),))
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", counted)
        result = run(of_many_names, policy, path=paths)
    return count, result_code(result)


def of_many_names(path: list[str]) -> str:
    """Count files."""
    return str(len(path))


@pytest.mark.finding("Z5")
def test_disk_lookups_are_linear_in_the_paths_and_limited(monkeypatch, files):
    few, more, most = (count_disk_lookups(monkeypatch, files, ["x/y/z"] * count) for count in (10, 100, 1000))
    assert {few[1], more[1], most[1]} == {"ok"}
    assert few[0] > 0 and more[0] <= 11 * few[0] and most[0] <= 11 * more[0]
    assert count_disk_lookups(monkeypatch, files, ["x"] * 1001) == (0, "denied")
    assert count_disk_lookups(monkeypatch, files, ["x/" * 2000] * 20) == (0, "denied")
    assert count_disk_lookups(monkeypatch, files, ["x/" * 1_000_000]) == (0, "denied")


@pytest.mark.finding("Z5")
@JAILS
def test_finished_call_is_replayed_when_its_arguments_no_longer_validate(jail, files):
    """`FilePath` wants a file that exists, and the first call has removed it."""

    def remove(path: FilePath) -> str:
        """Remove a file."""
        tool_got.append(path)
        path.unlink()
        return "removed"

    store, checks = MemoryStore(), (jail("path", str(files)),)
    more = {"arguments": {"path": "a.txt"}, "effect": "write", "options": {"store": store}, "run_id": "r1"}
    first, second = (asyncio.run(run_async(remove, Policy(checks=checks), **more)) for _ in range(2))
    assert (first.text, second.text, second.extra[NOTES_KEY]["replayed"]) == ("removed", "removed", True)
    other = asyncio.run(run_async(remove, Policy(checks=checks), **{**more, "arguments": {"path": "none.txt"}}))
    assert result_code(other) == "invalid_arguments"
    again = asyncio.run(run_async(remove, None, **{**more, "arguments": {"path": "none.txt"}}))
    assert result_code(again) == "invalid_arguments"  # the claim was given back
    assert len(tool_got) == 1
