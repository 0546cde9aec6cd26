"""Read the examples of the API reference from api_examples.md: a section per page, whose heading is the path of the name."""

import re
from pathlib import Path

__all__ = ["EXAMPLES", "examples"]

EXAMPLES = Path(__file__).with_suffix(".md")


def examples() -> dict[str, str]:
    """Return the code blocks of each example as Markdown of the site, by the path of the name."""
    sections = re.split(r"^## (\S+)\n", EXAMPLES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {path: _site_blocks(text) for path, text in zip(sections[::2], sections[1::2], strict=True)}


def _site_blocks(text: str) -> str:
    """Omit the conditions of the tests (`needs numpy`), and separate a block from its output."""
    return re.sub(r"^```(\w+).*$", r"\n```\1", text, flags=re.MULTILINE).strip()
