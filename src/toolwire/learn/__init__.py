"""Teach open models to call tools: training data, fine-tuning, Toolformer, ToolkenGPT, evaluation (extra `learn`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .bfcl.checker import CheckResult, check_calls
    from .bfcl.entries import BFCL_CATEGORIES, BFCLEntry, read_bfcl
    from .example_checks import ExampleFinding, check_example
    from .example_export import ExampleExport, ExportReport, ExportSettings, LossCount
    from .example_files import RejectedExample, read_examples, write_examples
    from .example_sources import collect_examples
    from .examples import Example, make_example
    from .gguf_files import write_gguf
    from .language_model import LanguageModel, open_model
    from .model_files import find_model
    from .specifications import SpecifiedExample, add_specifications
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "example_checks": ("ExampleFinding", "check_example"),
            "example_export": ("ExampleExport", "ExportReport", "ExportSettings", "LossCount"),
            "example_files": ("RejectedExample", "read_examples", "write_examples"),
            "example_sources": ("collect_examples",),
            "examples": ("Example", "make_example"),
            "language_model": ("LanguageModel", "open_model"),
            "specifications": ("SpecifiedExample", "add_specifications"),
            "bfcl.checker": (
                "CheckResult",
                "check_calls",
            ),
            "bfcl.entries": (
                "BFCLEntry",
                "BFCL_CATEGORIES",
                "read_bfcl",
            ),
            "gguf_files": ("write_gguf",),
            "model_files": ("find_model",),
        },
        packages=("formats",),
        extras=dict.fromkeys(("gguf", "matplotlib", "numpy", "peft", "safetensors", "torch", "transformers"), "learn"),
    )

__all__ = [
    "BFCLEntry",
    "BFCL_CATEGORIES",
    "CheckResult",
    "Example",
    "ExampleExport",
    "ExampleFinding",
    "ExportReport",
    "ExportSettings",
    "LanguageModel",
    "LossCount",
    "RejectedExample",
    "SpecifiedExample",
    "add_specifications",
    "check_calls",
    "check_example",
    "collect_examples",
    "find_model",
    "make_example",
    "open_model",
    "read_bfcl",
    "read_examples",
    "write_examples",
    "write_gguf",
]
