"""Teach open models to call tools: training data, fine-tuning, Toolformer, ToolkenGPT, evaluation (extra `learn`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .bfcl.checker import CheckResult, check_calls
    from .bfcl.entries import BFCLEntry, BFCL_CATEGORIES, read_bfcl
    from .example_files import RejectedExample, read_examples, write_examples
    from .examples import Example, make_example
    from .gguf_files import write_gguf
    from .language_model import LanguageModel, open_model
    from .model_files import find_model
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "bfcl.checker": (
                "CheckResult",
                "check_calls",
            ),
            "bfcl.entries": (
                "BFCLEntry",
                "BFCL_CATEGORIES",
                "read_bfcl",
            ),
            "example_files": (
                "RejectedExample",
                "read_examples",
                "write_examples",
            ),
            "examples": (
                "Example",
                "make_example",
            ),
            "gguf_files": ("write_gguf",),
            "language_model": (
                "LanguageModel",
                "open_model",
            ),
            "model_files": ("find_model",),
        },
        extras=dict.fromkeys(("gguf", "matplotlib", "numpy", "peft", "safetensors", "torch", "transformers"), "learn"),
    )

__all__ = [
    "BFCLEntry",
    "BFCL_CATEGORIES",
    "CheckResult",
    "Example",
    "LanguageModel",
    "RejectedExample",
    "check_calls",
    "find_model",
    "make_example",
    "open_model",
    "read_bfcl",
    "read_examples",
    "write_examples",
    "write_gguf",
]
