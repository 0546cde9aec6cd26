"""Run the program of a migration guide (docs/migrate) against a scripted provider and print its output: no key, no network.

python examples/compare/run_guide.py litellm toolwire
python examples/compare/run_guide.py litellm peer        # needs `make test-peers` once

The ```python blocks of a page are our program, the ```py blocks that of the peer.
"""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from tempfile import TemporaryDirectory

from guide_answers import ANSWERS
from run_program import PEERS, ROOT
from toolwire.testing import Upstream

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: str, language: str) -> list[str]:
    """Return the blocks of a page in a language: `python` (ours), `py` (the peer's) or `text` (the output of both)."""
    page = ROOT / "docs/migrate" / f"{guide}.md"
    return [text for name, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def guide_interpreter(guide: str, *, ours: bool) -> Path:
    return Path(sys.executable) if ours else PEERS / guide / "bin" / "python"


async def run_guide(guide: str, *, ours: bool) -> tuple[int, str, int]:
    """Run a program; return its exit status, its output, and the number of answers of the provider that it did not use."""
    with TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text("\n".join(blocks(guide, "python" if ours else "py")), encoding="utf-8")
        async with Upstream(*ANSWERS[guide]) as upstream:
            process = await asyncio.create_subprocess_exec(
                str(guide_interpreter(guide, ours=ours)), str(program),
                stdout=PIPE, stderr=STDOUT, cwd=folder, env=_environment(upstream.url),
            )  # fmt: skip
            output, _ = await process.communicate()
            return process.returncode or 0, output.decode(), len(upstream.script)


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
