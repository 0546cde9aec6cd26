"""The history file, attachments and approvals of a chat, without a terminal."""

import stat
from pathlib import Path

import pytest

import toolwire
from toolwire.cli.agent.chat import ChatInput, find_attachments
from toolwire.cli.terminal import input as line_editor
from toolwire.cli.terminal import input as live_approval
from toolwire.cli.terminal.input import ApprovalPrompt, LineHistory
from toolwire.run import Approved, Denied, Toolbox
from toolwire.run.calls.steps import Approve

readline = pytest.importorskip("readline")


@pytest.fixture(autouse=True)
def no_history():
    readline.clear_history()
    yield
    readline.clear_history()
    readline.set_auto_history(True)


def entries():
    return [readline.get_history_item(number + 1) for number in range(readline.get_current_history_length())]


def test_history_keeps_entries_of_several_lines(tmp_path):
    history = LineHistory(tmp_path / "history")
    texts = ["one", "two\nlines", r"back\slash \n", "tab\there"]
    for text in [*texts, texts[-1], "  "]:
        history.add(text)
    readline.clear_history()
    LineHistory(tmp_path / "history").load()
    assert entries() == texts


def test_history_of_another_session_is_kept(tmp_path):
    path = tmp_path / "history"
    first, second = LineHistory(path), LineHistory(path)
    first.add("one")
    second.add("two")
    first.add("three")
    assert path.read_text() == "one\ntwo\nthree\n"


def test_long_history_is_shortened(tmp_path):
    path = tmp_path / "history"
    path.write_text("".join(f"line {number}\n" for number in range(5000)))
    path.chmod(0o644)
    LineHistory(path).load()
    assert entries()[0] == "line 4000"
    assert len(path.read_text().splitlines()) == 1000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_huge_entry_is_not_stored(tmp_path):
    LineHistory(tmp_path / "history").add("x" * 20_000)
    assert not (tmp_path / "history").exists()


def test_unreadable_history_is_ignored(tmp_path):
    LineHistory(tmp_path).load()
    LineHistory(tmp_path).add("one")
    (tmp_path / "history").write_bytes(b"\xff\xfe\n")
    LineHistory(tmp_path / "history").load()


def test_existing_files_are_attached(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cat.png", "a b.txt", "me"):
        (tmp_path / name).touch()
    text = 'Compare @cat.png, (@cat.png) and @"a b.txt" with me@example.com, @nobody and @cat.png.'
    assert find_attachments(text) == [Path("cat.png"), Path("a b.txt")]
    assert find_attachments(f"@{'x' * 5000} @\0 @ @.") == []


def test_text_that_may_be_pasted_attaches_no_hidden_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ssh").mkdir()
    for name in (".env", ".ssh/key", "cat.png"):
        (tmp_path / name).touch()
    assert find_attachments(f"@.env @.ssh/key @{tmp_path}/.ssh/key @./cat.png") == [Path("cat.png")]
    assert find_attachments("one\n@cat.png") == []


def test_completion_of_commands_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.txt").touch()
    (tmp_path / ".hidden").touch()
    read_from = ChatInput(["/tools", "/undo", "/usage"])
    assert read_from._complete("/u", "/u") == ["/undo ", "/usage "]
    assert read_from._complete("/save f", "f") == ["folder/"]
    assert read_from._complete("See @folder/f", "@folder/f") == ["@folder/file.txt"]
    assert read_from._complete("/save ", "") == ["folder/"]
    assert read_from._complete("plain te", "te") == []
    assert read_from._complete("/save /no/such/", "/no/such/") == []


def make_step(arguments=None):
    return Approve("send", {"to": "ann"} if arguments is None else arguments, "send is a write tool", "hash")


def make_box(description):
    @toolwire.tool(name="send", description=description)
    def send(to: str) -> str:
        return to

    return Toolbox(send)


@pytest.fixture
def typed(monkeypatch):
    """Lines that a person types."""
    lines = []

    def edit_line(prompt, text=""):
        if not lines:
            raise EOFError
        line = lines.pop(0)
        return line(text) if callable(line) else line

    monkeypatch.setattr(live_approval, "edit_line", edit_line)
    monkeypatch.setattr(live_approval, "discard_typed_input", lambda: None)
    monkeypatch.setattr(live_approval, "has_terminal", lambda: True)
    return lines


def test_always_ends_when_the_definition_of_the_tool_changes(typed):
    boxes = [make_box("Send a mail.")]
    prompt = ApprovalPrompt(lambda: boxes[-1])
    typed += ["always"]
    assert prompt.ask(make_step()) is True
    assert prompt.ask(make_step({"to": "bob"})) is True
    boxes.append(make_box("Send a mail. Also to everybody."))
    typed += ["n"]
    assert prompt.ask(make_step()) == Denied("")


@pytest.mark.parametrize(
    ("lines", "reply"),
    [
        (["y"], True),
        (["n"], Denied("")),
        ([""], Denied("")),
        (["no too late"], Denied("too late")),
        (["wait until noon"], Denied("wait until noon")),
        ([], Denied("")),
        (["e", lambda text: text.replace("ann", "bob")], Approved({"to": "bob"})),
        (["e", "not json", "e", "[]", "e", "", "y"], True),
        (["s", "y"], True),
    ],
)
def test_replies_of_a_person(typed, lines, reply):
    typed += lines
    assert ApprovalPrompt().ask(make_step()) == reply


def test_invisible_characters_are_shown_and_survive_editing(typed, capsys):
    arguments = {"to": "ann\u200b\u202e\x1b"}
    typed += ["e", lambda text: text]
    assert ApprovalPrompt().ask(make_step(arguments)) == Approved(arguments)
    err = capsys.readouterr().err
    assert "\u200b" not in err and "\u202e" not in err and "\x1b" not in err
    assert r"\u200b" in err


def test_long_arguments_are_shortened(typed, capsys):
    typed += ["y"]
    ApprovalPrompt().ask(make_step({"text": "x" * 100_000}))
    err = capsys.readouterr().err
    assert len(err) < 3000
    assert "more characters: [s]how" in err


def test_state_folder_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = line_editor.state_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
