"""Find the right tools among thousands (extra `retrieve`).

index = ToolIndex(encoder=open_minilm())
index.add(toolbox.tools)
agent = Agent("openai/gpt-5.6", toolbox, retriever=index.retriever(k=5, always=["final_answer"]))
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .api_call import call, call_async
    from .api_specs import ApiSpecError, ApiSpecs, SpecFile, load_api_specs
    from .entry_table import IndexedTool
    from .index import IndexChange, ToolIndex
    from .index_file import read_index_info
    from .minilm import MiniLm, open_minilm
    from .postgres_index import PostgresIndex
    from .qdrant_index import QdrantIndex
    from .ranking import Reranker, SearchHit
    from .retriever import IndexRetriever
    from .section_file import IndexFileError, IndexInfo, is_index_file
    from .vectors import Encoder
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "api_call": ("call", "call_async"),
            "api_specs": ("ApiSpecError", "ApiSpecs", "SpecFile", "load_api_specs"),
            "vectors": ("Encoder",),
            "entry_table": ("IndexedTool",),
            "index": ("IndexChange", "ToolIndex"),
            "index_file": ("read_index_info",),
            "minilm": ("MiniLm", "open_minilm"),
            "postgres_index": ("PostgresIndex",),
            "qdrant_index": ("QdrantIndex",),
            "ranking": ("Reranker", "SearchHit"),
            "retriever": ("IndexRetriever",),
            "section_file": ("IndexFileError", "IndexInfo", "is_index_file"),
        },
        extras={"numpy": "retrieve"},
    )


__all__ = [
    "ApiSpecError",
    "ApiSpecs",
    "Encoder",
    "IndexChange",
    "IndexFileError",
    "IndexInfo",
    "IndexRetriever",
    "IndexedTool",
    "MiniLm",
    "PostgresIndex",
    "QdrantIndex",
    "Reranker",
    "SearchHit",
    "SpecFile",
    "ToolIndex",
    "call",
    "call_async",
    "is_index_file",
    "load_api_specs",
    "open_minilm",
    "read_index_info",
]
