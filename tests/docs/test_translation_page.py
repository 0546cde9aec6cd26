"""docs/translation.md agrees with the code: the translated documents are decoded again and compared with the outcomes."""

import sys
from itertools import permutations
from typing import get_args

import pytest

from places import ROOT
from toolwire.ir import Params
from toolwire.ir.errors import ToolwireError
from toolwire.ir.pointer import resolve
from toolwire.ir.tools import ChoiceMode
from toolwire.wire import get

DOCS = ROOT / "docs"
WIRES = (
    "anthropic",
    "bedrock",
    "cohere",
    "gemini",
    "gemini_interactions",
    "ollama",
    "openai_chat",
    "openai_responses",
)
PAIRS = [pytest.param(*pair, id="-".join(pair)) for pair in permutations(WIRES, 2)]


@pytest.fixture(scope="module")
def table():
    """Return the generator of the page."""
    sys.path.insert(0, str(DOCS))
    try:
        import translation_table
    finally:
        sys.path.remove(str(DOCS))
    return translation_table


@pytest.fixture(scope="module")
def outcomes(table):
    return list(table.outcomes())


def select(outcomes, source, target, kind):
    found = [o for o in outcomes if (o.source, o.target) == (source, target)]
    assert len(found) >= 35, "a page without statements proves nothing"
    return [o for o in found if o.kind == kind]


def read_target(outcome, body):
    return outcome.statement.read(get(outcome.target).decode_request(body))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_carried_statement_reads_the_same_on_the_target(outcomes, source, target):
    carried = select(outcomes, source, target, "carried")
    assert carried
    for outcome in carried:
        name = outcome.statement.name
        if target in outcome.statement.implied:  # it has no field there, so nothing contradicts it
            assert read_target(outcome, outcome.body) == read_target(outcome, outcome.plain), name
            continue
        stated = outcome.statement.read(get(source).decode_request(outcome.document))
        assert read_target(outcome, outcome.body) == stated, name
        assert outcome.body != outcome.plain, name


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_lost_statement_is_absent_and_reported_at_its_location(outcomes, source, target):
    lost = select(outcomes, source, target, "lost")
    assert lost
    for outcome in lost:
        name = outcome.statement.name
        assert read_target(outcome, outcome.body) == read_target(outcome, outcome.plain), name
        reports = [loss for loss in outcome.losses if loss.action in ("dropped", "weakened")]
        assert reports, name
        for loss in reports:
            assert loss.path, f"{name}: {loss}"
            resolve(outcome.document, loss.path)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_rewritten_statement_is_reported_with_pointers_into_both_documents(outcomes, source, target):
    for outcome in select(outcomes, source, target, "rewritten"):
        name = outcome.statement.name
        assert outcome.losses, name
        assert outcome.body != outcome.plain or any(loss.action == "moved" for loss in outcome.losses), name
        for loss in outcome.losses:
            resolve(outcome.document, loss.path)
            if loss.target is not None:
                resolve(outcome.body, loss.target)


def test_refused_statement_names_its_location(table, outcomes):
    refused = [outcome for outcome in outcomes if outcome.kind == "refused"]
    assert refused
    for outcome in refused:
        with pytest.raises(ToolwireError) as caught:
            table.toolwire.translate(
                outcome.document, source=outcome.source, target=outcome.target, model=table.MODELS[outcome.target]
            )
        assert caught.value.hint
        resolve(outcome.document, caught.value.pointer)


def test_every_parameter_and_tool_choice_has_a_statement(table):
    stated = {statement.name for statement in table.STATEMENTS}
    assert len(stated) == len(table.STATEMENTS) >= 60
    assert {f"params.{name}" for name in Params.__struct_fields__} <= stated
    assert {f"choice {mode}" for mode in get_args(ChoiceMode)} <= stated


def test_page_shows_every_outcome(table, outcomes):
    """The symbols of the page are read back and compared with the outcomes."""
    shown = {}
    for section in (DOCS / "translation.md").read_text(encoding="utf-8").split("\n## To ")[1:]:
        target, _, text = section.partition("\n")
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
        sources = rows[0][1 : len(WIRES)]
        for row in rows[2:]:
            for source, symbol in zip(sources, row[1 : len(WIRES)], strict=True):
                if symbol in table.SYMBOLS.values():
                    shown[row[0], source, target] = symbol
    assert shown == {(o.statement.name, o.source, o.target): table.SYMBOLS[o.kind] for o in outcomes}
