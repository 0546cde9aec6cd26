"""Find the right tools among thousands (extra `retrieve`).

index = ToolIndex(encoder=open_minilm())
index.add(toolbox.tools)
agent = Agent("openai/gpt-5.6", toolbox, retriever=index.retriever(k=5, always=["final_answer"]))
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .api_call import call as call
    from .api_call import call_async as call_async
    from .api_specs import ApiSpecError as ApiSpecError
    from .api_specs import ApiSpecs as ApiSpecs
    from .api_specs import SpecFile as SpecFile
    from .api_specs import load_api_specs as load_api_specs
    from .entry_table import IndexedTool as IndexedTool
    from .index import IndexChange as IndexChange
    from .index import ToolIndex as ToolIndex
    from .index_file import read_index_info as read_index_info
    from .minilm import MiniLm as MiniLm
    from .minilm import open_minilm as open_minilm
    from .model_encoder import ModelEncoder as ModelEncoder
    from .postgres_index import PostgresIndex as PostgresIndex
    from .qdrant_index import QdrantIndex as QdrantIndex
    from .ranking import Reranker as Reranker
    from .ranking import SearchHit as SearchHit
    from .reranker import TokenReranker as TokenReranker
    from .reranker import open_reranker as open_reranker
    from .retriever import IndexRetriever as IndexRetriever
    from .section_file import IndexFileError as IndexFileError
    from .section_file import IndexInfo as IndexInfo
    from .section_file import is_index_file as is_index_file
    from .vectors import Encoder as Encoder
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "api_call": "call call_async",
            "api_specs": "ApiSpecError ApiSpecs SpecFile load_api_specs",
            "entry_table": "IndexedTool",
            "index": "IndexChange ToolIndex",
            "index_file": "read_index_info",
            "minilm": "MiniLm open_minilm",
            "model_encoder": "ModelEncoder",
            "postgres_index": "PostgresIndex",
            "qdrant_index": "QdrantIndex",
            "ranking": "Reranker SearchHit",
            "reranker": "TokenReranker open_reranker",
            "retriever": "IndexRetriever",
            "section_file": "IndexFileError IndexInfo is_index_file",
            "vectors": "Encoder",
        },
        extras={"numpy": "retrieve"},
    )
