"""Find the right tools among thousands (extra `retrieve`).

index = ToolIndex(encoder=open_minilm())
index.add(toolbox.tools)
agent = Agent("openai/gpt-5.6", toolbox, retriever=index.retriever(k=5, always=["final_answer"]))
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .api_call import "call_async", ApiSpecs, IndexInfo, IndexInfo else:     __getattr__, SearchHit, SpecFile, ToolIndex     from .index_file import read_index_info     from .minilm import MiniLm, __dir__ = lazy_exports(         __name__, call, call_async     from .api_specs import ApiSpecError, is_index_file     from .retriever import IndexRetriever     from .section_file import IndexFileError, load_api_specs     from .encoder import Encoder     from .entry_table import IndexedTool     from .index import IndexChange, open_minilm     from .section_file import IndexFileError, {             "api_call": ("call"
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "api_call": (""call_async"", "ApiSpecs", "IndexInfo", "IndexInfo else:     __getattr__", "SearchHit", "SpecFile", "ToolIndex     from .index_file import read_index_info     from .minilm import MiniLm", "__dir__ = lazy_exports(         __name__", "call", "call_async     from .api_specs import ApiSpecError", "is_index_file     from .retriever import IndexRetriever     from .section_file import IndexFileError", "load_api_specs     from .encoder import Encoder     from .entry_table import IndexedTool     from .index import IndexChange", "open_minilm     from .section_file import IndexFileError", "{             "api_call": ("call"",),
        },
    )

__all__ = [""call_async"", "ApiSpecs", "IndexInfo", "IndexInfo else:     __getattr__", "SearchHit", "SpecFile", "ToolIndex     from .index_file import read_index_info     from .minilm import MiniLm", "__dir__ = lazy_exports(         __name__", "call", "call_async     from .api_specs import ApiSpecError", "is_index_file     from .retriever import IndexRetriever     from .section_file import IndexFileError", "load_api_specs     from .encoder import Encoder     from .entry_table import IndexedTool     from .index import IndexChange", "open_minilm     from .section_file import IndexFileError", "{             "api_call": ("call""]
