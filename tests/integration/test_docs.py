"""The docs are true: every code block runs and prints what the page says, every link leads somewhere.

```python      runs; the blocks of a page share their names. A ```text block right behind it is what it prints.
```python PATH the same, and an excerpt of that file.
```console     each line that starts with `$ toolwire` runs; what follows is what it prints (standard error behind).
```json NAME   a file of that name, for the blocks behind it; ```toml NAME the same.
```sh          `make` targets and the like; the targets must exist.
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
def test_code_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}
    printed = None
    for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            assert not title or text in (ROOT / title).read_text(encoding="utf-8"), f"{title} says something else"
            printed = run_python(text, names, page)
        elif language == "text" and printed is not None:
            assert printed == text
            printed = None
        elif language == "console":
            run_console(text)
        elif language == "json" and title:
            Path(title).write_text(json.dumps(json.loads(text)), encoding="utf-8")
        elif language == "toml" and title:
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
def test_links(page):
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_generated_files_are_fresh():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_first_screen_has_the_claim_and_twelve_lines():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "Write a tool once; call it from any model, over any wire." in text.partition("```")[0]
    first = next(block for language, _, block in FENCE.findall(text) if language == "python")
    assert len([line for line in first.splitlines() if line.strip()]) == 12
