"""The command that a person confirms is the command that is shown."""

import asyncio

import pytest

from do_fixtures import StartedPrograms, load_fixture_commands, make_arguments, make_candidates
from toolwire import Response, ToolCall
from toolwire.cli.do.command import run_request
from toolwire.cli.do.execution import letter_notes, show_action

started = StartedPrograms()


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


class FixedModel:
    """A model that always calls the first offered function, with this margin."""

    def __init__(self, margin):
        self.margin = margin

    async def ask(self, request):
        call = ToolCall("c1", request.tools[0].name, {})
        return Response("r1", "m", (call,), "tool_calls", extra={"openai_chat": {"margin": self.margin}})


def answer(model, margin):
    candidates = make_candidates(load_fixture_commands())

    async def ask():
        with started.recorded() as programs:
            arguments = make_arguments(model=model, yes=True)
            return await run_request(FixedModel(margin), "list the files", candidates, arguments), programs

    return asyncio.run(ask())


def test_no_margin_of_the_local_model_runs_a_command():
    """No margin was chosen for what it means today: `--yes` shows the command only."""
    outcome, programs = answer("local/smollm2", 16.0)
    assert (outcome.kind, programs) == ("refused", [])
    assert "it only proposes" in outcome.message


@pytest.mark.parametrize("margin", ["x", None, [], 99.0])
def test_margin_of_a_remote_server_has_no_meaning(margin):
    outcome, _ = answer("openai/gpt-5.6", margin)
    assert "it only proposes" not in outcome.message
