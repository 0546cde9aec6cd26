"""Run the program of a migration guide (docs/migrate) against a scripted provider and print its output: no key, no network.

python examples/compare/run_guide.py litellm toolwire
python examples/compare/run_guide.py litellm peer        # needs `make test-peers` once

The ```python blocks of a page are our programs, the ```py blocks those of the peer. Each runs with names of its own, as a copy of the block does.
"""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from tempfile import TemporaryDirectory

from guide_answers import ANSWERS
from run_program import PEERS, ROOT
from toolwire.testing import Upstream

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUN_EACH = 'import runpy, sys\nfor name in sys.argv[1:]: runpy.run_path(name, run_name="__main__")'


def blocks(guide: str, language: str) -> list[str]:
    """Return the blocks of a page in a language: `python` (ours), `py` (the peer's) or `text` (the output of both)."""
    page = ROOT / "docs/migrate" / f"{guide}.md"
    return [text for name, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def guide_interpreter(guide: str, *, ours: bool) -> Path:
    return Path(sys.executable) if ours else PEERS / guide / "bin" / "python"


async def run_guide(guide: str, *, ours: bool) -> tuple[int, str, int]:
    """Run the programs of a page in one process.

    Return the exit status, the standard output (after a failure with standard error), and the number of answers of the
    provider that the programs did not use.
    """
    with TemporaryDirectory() as folder:
        names: list[str] = []
        for number, text in enumerate(blocks(guide, "python" if ours else "py")):
            names.append(f"task{number}.py")
            Path(folder, names[-1]).write_text(text, encoding="utf-8")
        async with Upstream(*ANSWERS[guide]) as upstream:
            process = await asyncio.create_subprocess_exec(
                str(guide_interpreter(guide, ours=ours)), "-c", _RUN_EACH, *names,
                stdout=PIPE, stderr=PIPE, cwd=folder, env=_environment(upstream.url),
            )  # fmt: skip
            output, errors = await process.communicate()
            printed = output + errors if process.returncode else output
            return process.returncode or 0, printed.decode(), len(upstream.script)


def _environment(url: str) -> dict[str, str]:
    """Direct all SDKs to the scripted provider."""
    kept = ("HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PYTHONUTF8": "1",
        "OPENAI_API_KEY": "key-of-the-test",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "ANTHROPIC_API_KEY": "key-of-the-test",
        "ANTHROPIC_BASE_URL": url,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise LiteLLM downloads it
    }


if __name__ == "__main__":
    status, printed, _ = asyncio.run(run_guide(sys.argv[1], ours=sys.argv[2] == "toolwire"))
    print(printed, end="")
    sys.exit(status)
