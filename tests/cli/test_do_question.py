"""The command that a person confirms is the command that is shown."""

from toolwire.cli.do.execution import letter_notes, show_action


def test_control_characters_are_shown_and_not_executed(capsys):
    show_action("rm x\x1b[2K\rls", ["program: /tmp/\x1b[8m"], as_json=False, asks=True)
    out, err = capsys.readouterr()
    assert "\x1b[2K" not in out + err
    assert "\x1b[8m" not in err
    assert out == "rm x\\x1b[2K\\rls\n"
    assert "rm x\\x1b[2K\\rls" in err  # standard output is no terminal here


def test_json_without_a_question_shows_nothing(capsys):
    show_action("ls", ["effect: reads"], as_json=True, asks=False)
    assert capsys.readouterr() == ("", "")


def test_letters_that_mislead_are_reported():
    assert letter_notes("ls caf\u00e9") == []
    assert "right-to-left" in letter_notes("rm \u05d0/b/1 -x")[0]
    assert "full-width" in letter_notes("rm \uff41")[0]
