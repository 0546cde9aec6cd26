"""Draw the pictures of the docs into docs/pictures: real commands, one call in six formats, and diagrams of flows.

The commands run in this process, on a terminal of 80 columns, with their inputs from this file: nothing depends on the machine, the time or the
version. `make docs` writes the files, and a test draws them again and compares.
"""

import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from call_picture import draw_call
from diagrams import DIAGRAMS, draw_diagram
from terminal_picture import draw_terminal

from toolwire import __version__
from toolwire.cli.main import main as run_toolwire

__all__ = ["PICTURES", "pictures"]

PICTURES = Path(__file__).with_name("pictures")
_TOOLS = [
    {
        "name": "files.search",
        "description": "Search files.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
            "oneOf": [{"required": ["query"]}, {"required": ["limit"]}],
        },
    }
]
_REQUEST = {
    "model": "claude-sonnet-5",
    "max_tokens": 64,
    "top_k": 5,
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
}
_FILES: dict[str, Any] = {"tools.json": _TOOLS, "request.json": _REQUEST}
COMMANDS = {
    "convert": ("Translate a request, and see what is lost", "convert request.json --to openai_chat"),
    "audit": ("Find the problems of tools before a provider does", "audit tools.json"),
    "model": ("What a model accepts", "models show claude-sonnet-5"),
}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def pictures() -> dict[Path, str]:
    """Return the text of each picture."""
    drawn = {"one-call": draw_call(), **{name: draw_diagram(diagram) for name, diagram in DIAGRAMS.items()}}
    for name, (title, command) in COMMANDS.items():
        drawn[name] = draw_terminal(_run(command), title, f"toolwire {command}")
    return {PICTURES / f"{name}.svg": text for name, text in drawn.items()}


def _run(command: str) -> str:
    """Return the output of a command on a terminal: standard output, then standard error."""
    out, errors = _Terminal(), _Terminal()
    with _folder(), mock.patch.dict(os.environ, {"COLUMNS": "80", "TERM": "xterm-256color"}):
        os.environ.pop("NO_COLOR", None)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            run_toolwire(command.split())
    text = "\n".join(part.rstrip() for part in (out.getvalue(), errors.getvalue()) if part.strip())
    return re.sub(rf"\b{re.escape(__version__)}\b", "X.Y.Z", text)


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for file, content in _FILES.items():
            Path(file).write_text(json.dumps(content), encoding="utf-8")
        yield
