"""Print results, resources and prompts of MCP servers, and save their media (`--output`).

Text is cut on a terminal, unless `--all` is given: a result may have any size. A pipe or file gets all of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line, neutralise_text
from .show import json_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..ir.parts import Media, ToolResult
    from ..mcp.protocol.content import Block

__all__ = ["PartPrinter", "add_output_option", "print_result"]

_MAX_SHOWN = 100_000  # characters on a terminal


def add_output_option(parser: Any) -> None:
    parser.add_argument(
        "--output", metavar="FILE", help="save images and other media; further ones to FILE with a number: out-2.png"
    )


class PartPrinter:
    """Prints parts in order. Media go to the file of `--output`, or are summarised in one line."""

    def __init__(self, output: str | None, *, show_all: bool) -> None:
        self._output = None if output is None else Path(output)
        self._is_cut = sys.stdout.isatty() and not show_all
        self._saved = 0

    def print_parts(self, parts: Iterable[Block]) -> None:
        from ..ir.parts import Media, Text

        for part in parts:
            if isinstance(part, Text):
                self.print_text(part.text)
            elif isinstance(part, Media):
                print(neutralise_line(self._handle_media(part)))
            else:
                print(neutralise_line(f"[{part.type}]"))

    def print_text(self, text: str) -> None:
        left = len(text) - _MAX_SHOWN if self._is_cut else 0
        if left > 0:
            text = text[:_MAX_SHOWN]
        text = neutralise_text(text)
        print(text, end="" if text.endswith("\n") else "\n")
        if left > 0:
            print(f"… {left:,} more characters; --all shows them")

    def finish(self) -> None:
        """Report that there was nothing to save."""
        if self._output is not None and not self._saved:
            print("--output: the answer has no media; nothing was saved", file=sys.stderr)

    def _handle_media(self, part: Media) -> str:
        """Save or describe one image, recording, file or link."""
        kind = part.media_type or part.kind
        if part.data is None:
            return f"[{kind}: {part.url or 'no data'}]"
        data = _decode(part.data)
        if data is None:
            return f"[{kind}: not valid base64]"
        if self._output is None:
            return f"[{kind}, {len(data):,} bytes; --output FILE saves it]"
        self._saved += 1
        file = self._output
        if self._saved > 1:
            file = file.with_name(f"{file.stem}-{self._saved}{file.suffix}")
        try:
            file.write_bytes(data)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
        return f"[{kind}, {len(data):,} bytes, saved as {file}]"


def print_result(result: ToolResult, printer: PartPrinter) -> None:
    """Print the parts of a result, then its structured content unless a part has the same value."""
    printer.print_parts(result.parts)
    if result.structured is not None and not _repeats(result):
        printer.print_text(json_text(result.structured))
    printer.finish()


def _repeats(result: ToolResult) -> bool:
    """Return True if the structured content is also the text, as the specification recommends."""
    from ..ir.errors import ToolwireError
    from ..stream.strict import parse

    value = result.structured
    wrapped = value.get("result") if type(value) is dict and list(value) == ["result"] else value
    if type(wrapped) is str and wrapped == result.text:
        return True
    try:
        return bool(parse(result.text) in (value, wrapped))
    except ToolwireError:
        return False


def _decode(data: str) -> bytes | None:
    from base64 import b64decode

    try:
        return b64decode(data, validate=True)
    except ValueError:
        return None
