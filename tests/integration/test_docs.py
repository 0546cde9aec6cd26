"""Check the docs: every code block runs and prints the output on the page, and every link has a target.

```python      runs; the blocks of a page share their names. A ```text block directly after it is its output.
```python PATH the same, and an excerpt of that file.
```console     each line that starts with `$ toolwire` runs; its output follows (standard output, then standard error).
```json NAME   a file of that name, for the blocks after it; ```jsonl NAME and ```toml NAME the same.
```sh          `make` targets and other commands; the targets must exist.
"""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "bench/README.md"])
FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(#[\w-]+)?\)")


@pytest.mark.one_in(11)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run_and_print_the_documented_output(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}
    printed = None
    for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            assert not title or text in (ROOT / title).read_text(encoding="utf-8"), (
                f"{title} does not contain this block"
            )
            printed = run_python(text, names, page)
        elif language == "text" and printed is not None:
            assert printed == text
            printed = None
        elif language == "console":
            run_console(text)
        elif language == "json" and title:
            Path(title).write_text(json.dumps(json.loads(text)), encoding="utf-8")
        elif language in ("jsonl", "toml") and title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "sh":
            check_targets(text)


def run_python(text, names, page):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, str(page), "exec"), names)
    return out.getvalue()


def run_console(text):
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        arguments = shlex.split(command)
        assert arguments[0] == "toolwire", command
        environment = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run(
            [sys.executable, "-m", *arguments], capture_output=True, text=True, check=False, env=environment
        )
        assert done.stdout + done.stderr == expected, command


def check_targets(text):
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) <= known


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/rules/README.md"], ids=lambda page: page.name)
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


def test_readme_starts_with_the_claim_and_three_short_quickstarts():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "Write a tool once; call it from any model, over any wire." in text.partition("\n## ")[0]
    section = text.partition("## Quickstarts")[2].partition("\n## ")[0]
    quickstarts = section.split("\n**")[1:]
    assert len(quickstarts) == 3
    for quickstart in quickstarts:
        code = [block for language, _, block in FENCE.findall(quickstart) if language != "text"]
        assert 0 < sum(bool(line.strip()) for block in code for line in block.splitlines()) < 10
