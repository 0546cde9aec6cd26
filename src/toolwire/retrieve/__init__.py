"""Find the right tools among thousands (extra `retrieve`).

index = ToolIndex(encoder=open_minilm())
index.add(toolbox.tools)
agent = Agent("openai/gpt-5.6", toolbox, retriever=index.retriever(k=5, always=["final_answer"]))
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .encoder import Encoder
    from .entry_table import IndexedTool
    from .index import IndexChange, SearchHit, ToolIndex
    from .index_file import read_index_info
    from .minilm import MiniLm, open_minilm
    from .section_file import IndexFileError, IndexInfo
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "encoder": ("Encoder",),
            "entry_table": ("IndexedTool",),
            "index": ("IndexChange", "SearchHit", "ToolIndex"),
            "index_file": ("read_index_info",),
            "minilm": ("MiniLm", "open_minilm"),
            "section_file": ("IndexFileError", "IndexInfo"),
        },
    )

__all__ = [
    "Encoder",
    "IndexChange",
    "IndexFileError",
    "IndexInfo",
    "IndexedTool",
    "MiniLm",
    "SearchHit",
    "ToolIndex",
    "open_minilm",
    "read_index_info",
]
