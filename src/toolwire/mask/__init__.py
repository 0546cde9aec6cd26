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
    from .growth import TokenLimitError as TokenLimitError
    from .masks import BatchMask as BatchMask
    from .masks import GrammarMask as GrammarMask
    from .masks import JSONSchemaMask as JSONSchemaMask
    from .masks import Mask as Mask
    from .masks import RegexMask as RegexMask
    from .processor import MaskProcessor as MaskProcessor
    from .state import MaskState as MaskState
    from .state import UnfinishedOutput as UnfinishedOutput
    from .tokenizer import MaskTokenizer as MaskTokenizer
    from .tool_mask import ToolMask as ToolMask
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "growth": "TokenLimitError",
            "masks": "BatchMask GrammarMask JSONSchemaMask Mask RegexMask",
            "processor": "MaskProcessor",
            "state": "MaskState UnfinishedOutput",
            "tokenizer": "MaskTokenizer",
            "tool_mask": "ToolMask",
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
