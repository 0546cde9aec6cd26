"""Run the programs of examples/compare against scripted models: ours always, the peers' if their environment exists.

`make test-peers` creates the environments, in .peers or the folder that TOOLWIRE_PEERS names.
"""

import asyncio
import os

import pytest

import count_statements
from run_program import interpreter, program_path, run_program
from scripted_answers import SCENARIOS
from toolwire.ir import Text, ToolResult

PAIRS = sorted(SCENARIOS)


def check(task, peer, *, ours):
    """Check the exit status, the printed texts and their order, and the tool results and prompts that the model received."""
    scenario = SCENARIOS[task, peer]
    outcome = asyncio.run(run_program(task, peer, ours=ours))
    assert outcome.status == 0, outcome.output
    end = 0
    for text in scenario.output:
        assert text in outcome.output[end:], f"no {text!r} after character {end} of:\n{outcome.output}"
        end = outcome.output.index(text, end) + len(text)
    parts = [part for request in outcome.requests for message in request.messages for part in message.parts]
    results = [part.text for part in parts if isinstance(part, ToolResult)]
    for text in scenario.results:
        assert any(text in result for result in results), (text, results)
    prompts = [part.text for part in parts if isinstance(part, Text)]
    for text in scenario.prompts:
        assert any(text in prompt for prompt in prompts), (text, prompts)
    assert len(outcome.requests) == len(scenario.answers)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("task", "peer"), PAIRS)
def test_program_with_toolwire(task, peer):
    check(task, peer, ours=True)


@pytest.mark.full
@pytest.mark.parametrize(("task", "peer"), PAIRS)
def test_program_of_the_peer(task, peer):
    python = interpreter(peer, ours=False)
    if not python.exists():
        assert "TOOLWIRE_PEERS" not in os.environ, f"{python} does not exist"
        pytest.skip("`make test-peers` creates the environments of the peers")
    check(task, peer, ours=False)


def test_every_task_has_both_programs_for_both_peers():
    assert {(task, peer) for task in count_statements.TASKS for peer in count_statements.PEERS} == set(PAIRS)
    for task, peer in PAIRS:
        assert program_path(task, peer, ours=True).exists()
        assert program_path(task, peer, ours=False).exists()


def test_programs_of_peers_name_their_source_and_licence():
    for task, peer in PAIRS:
        first_line = program_path(task, peer, ours=False).read_text(encoding="utf-8").partition("\n")[0]
        assert first_line.startswith("# Source: https://github.com/")
        assert "MIT" in first_line


def test_statements_are_counted_without_imports_and_docstrings():
    source = """
'''A module.'''
import os

def name(upper):
    '''Return a name.'''
    if upper:
        return os.name.upper()
    return (os.name,
            2)

if __name__ == "__main__":
    print(name(True))
"""
    assert count_statements.size(source) == (5, 15)


def test_table_of_the_page_is_up_to_date():
    """`python examples/compare/count_statements.py --write` updates it."""
    assert count_statements.PAGE.read_text(encoding="utf-8") == count_statements.page()
