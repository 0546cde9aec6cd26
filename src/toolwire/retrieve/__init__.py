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
    from .index import IndexChange, IndexedTool, SearchHit, ToolIndex
    from .minilm import MiniLm, open_minilm
    from .retriever import IndexRetriever
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "encoder": ("Encoder",),
            "index": ("IndexChange", "IndexedTool", "SearchHit", "ToolIndex"),
            "minilm": ("MiniLm", "open_minilm"),
            "retriever": ("IndexRetriever",),
        },
    )

__all__ = ["Encoder", "IndexChange", "IndexRetriever", "IndexedTool", "MiniLm", "SearchHit", "ToolIndex", "open_minilm"]
