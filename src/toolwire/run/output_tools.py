"""The tools with which a model reads and searches the outputs of its own run that were too long for a result.

They are offered only in runs that have such an output. Separate because the texts themselves need no tools.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.pointer import Object
from ..ir.tools import Tool
from .context import CallContext
from .failures import ToolError
from .options import Options
from .output import LIMIT, READ_OUTPUT, SEARCH_OUTPUT, StoredOutputs
from .toolbox import Entry

__all__ = ["output_entries"]

_MAX_READ = 32_768
_ID: Object = {"type": "string", "description": "the id in the notice of the shortened result"}
_OFFSET: Object = {"type": "integer", "minimum": 0, "default": 0, "description": "position of the first character"}
_READ = Tool(
    READ_OUTPUT,
    "Read a part of a tool result that was too long and has been shortened.",
    {
        "type": "object",
        "properties": {
            "id": _ID,
            "offset": _OFFSET,
            "limit": {"type": "integer", "minimum": 1, "maximum": _MAX_READ, "default": 8192},
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    effect="pure",
)
_SEARCH = Tool(
    SEARCH_OUTPUT,
    "Find text in a tool result that was too long and has been shortened. Returns positions and the text around them.",
    {
        "type": "object",
        "properties": {
            "id": _ID,
            "pattern": {"type": "string", "minLength": 1, "maxLength": 200, "description": "literal text, no regex"},
            "offset": _OFFSET,
        },
        "required": ["id", "pattern"],
        "additionalProperties": False,
    },
    effect="pure",
)
_MAX_MATCHES = 20


def output_entries(outputs: StoredOutputs) -> list[Entry]:
    """Return the two tools. They read the outputs of the run that calls them, and of no other."""

    async def read_output(id: str, context: CallContext, offset: int = 0, limit: int = 8192) -> str:  # noqa: A002
        size = outputs.size(context.run_id, id)
        text = outputs.read(context.run_id, id, offset, min(limit, _MAX_READ))
        if size is None or text is None:
            raise _not_stored(id)
        return f"{text}\n\n[characters {offset:,} to {min(size, offset + len(text)):,} of {size:,}]"

    def search_output(id: str, pattern: str, context: CallContext, offset: int = 0) -> Object:  # noqa: A002
        """Run in a thread: the search may read many megabytes."""
        matches = outputs.search(context.run_id, id, pattern, start=offset, limit=_MAX_MATCHES + 1)
        if matches is None:
            raise _not_stored(id)
        shown = [{"offset": match.offset, "text": match.text} for match in matches[:_MAX_MATCHES]]
        return {"matches": shown, "more": len(matches) > _MAX_MATCHES}

    options = Options(timeout=30.0, retries=0, output_limit=LIMIT)
    return [Entry(replace(_READ), read_output, options), Entry(replace(_SEARCH), search_output, options)]


def _not_stored(output_id: str) -> ToolError:
    return ToolError(f"No output has the id {output_id!r} in this run, or it is no longer stored. Call the tool again.")
