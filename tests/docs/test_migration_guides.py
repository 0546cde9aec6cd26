"""The programs of docs/migrate print the texts of their pages: ours always, the peers' if their environment exists."""

import asyncio
import builtins
import os
import re
import symtable
from typing import get_args

import pytest

from doc_blocks import FENCE
from guide_answers import ANSWERS
from run_guide import blocks, guide_interpreter, run_guide
from run_program import ROOT
from toolwire.ir.response import FaultKind
from toolwire.wire.models.litellm import PROVIDERS
from toolwire.wire.models.vendors import names

FOLDER = ROOT / "docs/migrate"


def undefined_names(text):
    """Return the global names that a program uses and does not define."""
    table = symtable.symtable(text, "task.py", "exec")
    defined = {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
    tables, used = [table], set()
    for scope in tables:  # grows
        tables += scope.get_children()
        used |= {name.get_name() for name in scope.get_symbols() if name.is_referenced() and name.is_global()}
        used |= {name.get_name() for name in table.get_symbols() if name.is_referenced()}
    return used - defined - set(dir(builtins)) - {"__name__"}


def check(guide, *, ours):
    status, output, unused = asyncio.run(run_guide(guide, ours=ours))
    assert status == 0, output
    assert output == "".join(blocks(guide, "text"))
    assert unused == 0


@pytest.mark.parametrize("guide", sorted(ANSWERS))
def test_program_with_toolwire_prints_the_texts_of_the_page(guide):
    check(guide, ours=True)


def test_each_block_of_a_guide_imports_its_names():
    for guide in ANSWERS:
        for text in [*blocks(guide, "py"), *blocks(guide, "python")]:
            undefined = undefined_names(text)
            assert not undefined, (guide, undefined)


@pytest.mark.full
@pytest.mark.parametrize("guide", sorted(ANSWERS))
def test_program_of_the_peer_prints_the_texts_of_the_page(guide):
    python = guide_interpreter(guide, ours=False)
    if not python.exists():
        assert "TOOLWIRE_PEERS" not in os.environ, f"{python} does not exist"
        pytest.skip("`make test-peers` creates the environments of the peers")
    check(guide, ours=False)


def test_every_guide_has_a_program_and_each_task_has_both_sides():
    pages = {page.stem for page in FOLDER.glob("*.md")} - {
        "README",
        "fastmcp",
    }  # test_docs.py runs the latter: no model
    assert pages == set(ANSWERS)
    for guide in ANSWERS:
        tasks = re.split(r"^## ", (FOLDER / f"{guide}.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
        shown = [[name for name, _, _ in FENCE.findall(task)] for task in tasks]
        assert sum(languages == ["py", "python", "text"] for languages in shown) >= 6
        assert all(languages in (["py", "python", "text"], ["sh"], []) for languages in shown)


def test_page_lists_the_prefixes_of_litellm_and_the_kinds_of_errors():
    text = (FOLDER / "litellm.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)/…` \| (.*) \|$", text, re.MULTILINE))
    renamed = {prefix: row for prefix, row in PROVIDERS.items() if prefix not in names()}
    assert rows.keys() == {prefix for prefix, row in renamed.items() if row.provider is not None}
    for prefix, row in renamed.items():
        if row.provider is None:
            assert f"`{prefix}/…`" in text
            continue
        ours, variables = rows[prefix].split(" | ")
        assert f"`{row.provider}/…`" in ours
        assert set(re.findall(r"\w*_\w+", variables)) == {*row.key_variables, *filter(None, [row.base_variable])}
    kinds = re.findall(r"^\| `(\w+)` \| \d", (ROOT / "docs/clients.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(kinds) == sorted(get_args(FaultKind))
