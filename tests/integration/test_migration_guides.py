"""The programs of docs/migrate print what the pages show: ours always, the peers' if their environment exists.

```python blocks are ours, ```py blocks those of the peer. The blocks of a page are one program, which runs in a process of
its own against a scripted provider. Both print the ```text blocks of the page.
"""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from migration_answers import ANSWERS

from doc_blocks import FENCE
from run_program import PEERS
from toolwire.testing import Upstream

FOLDER = Path(__file__).parents[2] / "docs/migrate"


def blocks(guide: str, language: str) -> list[str]:
    return [text for name, _, text in FENCE.findall((FOLDER / f"{guide}.md").read_text("utf-8")) if name == language]


async def run_blocks(guide: str, language: str, python: Path, folder: Path) -> tuple[str, int]:
    """Run the program of a page; return its output and the number of answers that were not used."""
    program = folder / "program.py"
    program.write_text("\n".join(blocks(guide, language)), encoding="utf-8")
    async with Upstream(*ANSWERS[guide]) as upstream:
        kept = {name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
        environment = {
            **kept,
            "PYTHONUTF8": "1",
            "OPENAI_API_KEY": "key-of-the-test",
            "OPENAI_BASE_URL": f"{upstream.url}/v1",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "ANTHROPIC_API_KEY": "key-of-the-test",
            "ANTHROPIC_BASE_URL": upstream.url,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it is downloaded
        }
        process = await asyncio.create_subprocess_exec(
            str(python), str(program), stdout=PIPE, stderr=PIPE, cwd=folder, env=environment
        )
        async with asyncio.timeout(120):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()[-3000:]
        return output.decode(), len(upstream.script)


@pytest.mark.parametrize("guide", sorted(ANSWERS))
def test_program_with_toolwire_prints_the_texts_of_the_page(guide, tmp_path):
    output, unused = asyncio.run(run_blocks(guide, "python", Path(sys.executable), tmp_path))
    assert output == "".join(blocks(guide, "text"))
    assert unused == 0


@pytest.mark.full
@pytest.mark.parametrize("guide", sorted(ANSWERS))
def test_program_of_the_peer_prints_the_texts_of_the_page(guide, tmp_path):
    python = PEERS / guide / "bin/python"
    if not python.exists():
        assert "TOOLWIRE_PEERS" not in os.environ, f"{python} does not exist"
        pytest.skip("`make test-peers` creates the environments of the peers")
    output, unused = asyncio.run(run_blocks(guide, "py", python, tmp_path))
    assert output == "".join(blocks(guide, "text"))
    assert unused == 0


def test_every_guide_has_a_program_and_each_task_has_both_sides():
    assert {page.stem for page in FOLDER.glob("*.md")} - {"README"} == set(ANSWERS)
    for guide in ANSWERS:
        tasks = re.split(r"^## ", (FOLDER / f"{guide}.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
        shown = [[name for name, _, _ in FENCE.findall(task)] for task in tasks]
        assert sum(languages == ["py", "python", "text"] for languages in shown) >= 6
        assert all(languages in (["py", "python", "text"], ["sh"], []) for languages in shown)
