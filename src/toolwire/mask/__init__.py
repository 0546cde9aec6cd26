"""Constrained decoding: masks of the tokens that keep a model's output valid (extra `mask`).

tokenizer = MaskTokenizer.from_folder("model")
mask = JSONSchemaMask(schema, tokenizer)            # compiled once; mask.residual is left to the validator
state = mask.start(max_tokens=200)                  # one output
state.allowed(); state.accept(token)                # bit mask of the next token; the token that was chosen
state.finish()                                      # the text, or UnfinishedOutput
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .masks import BatchMask, GrammarMask, JSONSchemaMask, Mask, RegexMask
    from .processor import MaskProcessor
    from .state import MaskState, UnfinishedOutput
    from .tokenizer import MaskTokenizer
    from .tool_mask import ToolMask
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "masks": ("BatchMask", "GrammarMask", "JSONSchemaMask", "Mask", "RegexMask"),
            "processor": ("MaskProcessor",),
            "state": ("MaskState", "UnfinishedOutput"),
            "tokenizer": ("MaskTokenizer",),
            "tool_mask": ("ToolMask",),
        },
        extras={
            "llguidance": "mask",
            "numpy": "mask",
            "tokenizers": "mask",
            "xgrammar": "xgrammar",
            "torch": "learn",
            "transformers": "learn",
        },
    )

__all__ = [
    "BatchMask",
    "GrammarMask",
    "JSONSchemaMask",
    "Mask",
    "MaskProcessor",
    "MaskState",
    "MaskTokenizer",
    "RegexMask",
    "ToolMask",
    "UnfinishedOutput",
]
