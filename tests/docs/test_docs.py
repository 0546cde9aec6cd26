"""Check the docs: every code block runs and prints the output on the page (doc_blocks.py), and every link has a target."""

import re
import subprocess
import sys

import pytest

from doc_blocks import FENCE, check_output, run_page
from places import ROOT
from tables import every_case

TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.md"))
FASTMCP = ROOT / "docs/migrate/fastmcp.md"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/operations/*.md"),
        *TUTORIALS,
        FASTMCP,
        ROOT / "bench/README.md",
    ]
)
# They start many processes, ask a model, index a catalogue or train: 4 to 20 seconds of CPU each. All others take 24 together.
_EXPENSIVE = "durable fine-tuning local migrate/fastmcp retrieval testing-tools toolkengpt tutorials/first-agent tutorials/gateway tutorials/mcp tutorials/openapi tutorials/testing"
EXPENSIVE = [ROOT / "docs" / f"{name}.md" for name in _EXPENSIVE.split()]
GUIDES = sorted({*ROOT.glob("docs/migrate/*.md")} - {FASTMCP})  # test_migration_guides.py runs their code
CLIENTS = re.compile(r"^```python\n.*?\b(ModelClient|Upstream)\(", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(#[\w-]+)?\)")


def page_id(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.full] if page in EXPENSIVE else []) for page in PAGES],
    ids=page_id,
)
def test_code_blocks_run_and_print_the_documented_output(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize(
    ("output", "expected"),
    [("b\n", "a\n"), ("a\n", ""), ("", "a\n"), ("ab\nc\n", "a…\n"), ("a\nc\n", "a\n…\nb\n")],
)
def test_another_output_than_that_of_the_page_fails(output, expected):
    with pytest.raises(AssertionError, match="differs"):
        check_output(output, expected, "toolwire")


@pytest.mark.parametrize(("output", "expected"), [("id 7f\n", "id …\n"), ("a\nb\nc\n", "a\n…\nc\n"), ("a\n", "a\n…\n")])
def test_ellipsis_matches_variable_output(output, expected):
    check_output(output, expected, "toolwire")


@pytest.mark.finding("NU6")
@every_case("page", PAGES, ids=page_id)
def test_page_accesses_no_text_of_a_part_of_unknown_type(page):
    """A part may have no text, so type checkers refuse it; a message has `text` and `results`."""
    assert re.findall(r"messages\[[^]]*\]\.parts\[[^]]*\]\.\w+", page.read_text(encoding="utf-8")) == []


@every_case("page", [page for page in PAGES if page.parent.name != "site"], ids=page_id)
def test_extra_of_clients_is_named_before_their_first_program(page):
    text = page.read_text(encoding="utf-8")
    program = next((block for block in FENCE.finditer(text) if CLIENTS.search(block[0])), None)
    assert program is None or re.search(r"\.\[[\w,]*(net|gateway|dev)", text[: program.start()])


@every_case("page", TUTORIALS, ids=page_id)
def test_tutorial_has_numbered_steps(page):
    steps = re.findall(r"^## (\d+)\. ", page.read_text(encoding="utf-8"), re.MULTILINE)
    if page.name != "README.md":
        assert steps == [str(number + 1) for number in range(len(steps))]
        assert 3 <= len(steps) <= 9


@every_case("page", [*PAGES, *GUIDES, ROOT / "docs/rules/README.md"], ids=page_id)
def test_relative_links_resolve(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            linked = page.parent / target
            assert linked.exists(), target
            assert not anchor or anchor.removeprefix("#") in anchors(linked), target + anchor


def anchors(page):
    """Return the anchors of the headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_generated_files_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@every_case("page", [*TUTORIALS, ROOT / "README.md", ROOT / "docs/testing-tools.md"], ids=page_id)
def test_text_before_a_file_names_it(page):
    """GitHub does not render the title of a code block, so a reader needs the name in the text."""
    text = page.read_text(encoding="utf-8")
    end = 0
    for block in FENCE.finditer(text):
        title = block[2]
        prose = text[end : block.start()].rpartition("\n## ")[2]
        assert not title or f"`{title}`" in prose, f"{title}: write “Save this as `{title}`:” before the block"
        end = block.end()
