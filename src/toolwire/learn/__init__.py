"""Teach open models to call tools: training data, fine-tuning, Toolformer, ToolkenGPT, evaluation (extra `learn`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .bfcl.answers import ClientAnswers, LocalAnswers
    from .bfcl.entries import BFCL_CATEGORIES, BFCLEntry, read_bfcl
    from .bfcl.evaluation import AnswerSource, BFCLReport, CategoryScore, evaluate_bfcl, select_entries
    from .bfcl.judgement import BFCLAnswer, CheckResult, EvaluatedAnswer, check_calls
    from .call_quality import CallQuality
    from .chat_rendering import TrainingRow, TrainingSegment, encode_segments, render_segments, text_segments
    from .example_export import (
        ExampleExport,
        ExportReport,
        ExportSettings,
        LossCount,
        SpecifiedExample,
        add_specifications,
    )
    from .example_files import RejectedExample, read_examples, write_examples
    from .example_selection import ExampleFinding, check_example
    from .example_sources import collect_examples
    from .examples import Example, make_example
    from .gguf_files import write_gguf
    from .language_model import LanguageModel, find_model, open_model
    from .run_folder import run_shards
    from .toolformer.candidates import propose_insertion_points, sample_calls
    from .toolformer.corpus import AugmentedText, CorpusText, InlineCall, corpus_rows, format_call, read_texts
    from .toolformer.filters import CallLosses, is_kept, loss_reduction_filter, weighted_nll
    from .toolformer.inference import TextWithCall, generate_with_calls
    from .toolformer.mining import MinedCall, MiningSettings, mine_toolformer_data
    from .toolformer.mining_tool import (
        MiningTool,
        calculator_tool,
        calendar_tool,
        convert_tool,
        qa_tool,
        search_tool,
        translate_tool,
    )
    from .toolken.decoding import ToolkenCall, ToolkenOutput, generate_with_toolkens
    from .toolken.demonstrations import (
        Demonstration,
        MarkedCall,
        demonstration_of_query,
        demonstrations_of_examples,
        demonstrations_of_mined,
        read_demonstrations,
    )
    from .toolken.fitting import ToolkenFit, add_toolkens, collect_states, fit_toolkens, split_demonstrations
    from .toolken.head import ToolkenHead
    from .toolken.training import ToolkenScore, ToolkenSettings, calibrate_bias, measure_toolkens, sweep_bias
    from .training import TrainSettings
    from .tuning import TuneReport, TuneSettings, tune
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "bfcl.judgement": ("BFCLAnswer", "CheckResult", "EvaluatedAnswer", "check_calls"),
            "bfcl.answers": ("ClientAnswers", "LocalAnswers"),
            "bfcl.entries": ("BFCLEntry", "BFCL_CATEGORIES", "read_bfcl"),
            "bfcl.evaluation": ("AnswerSource", "BFCLReport", "CategoryScore", "evaluate_bfcl", "select_entries"),
            "call_quality": ("CallQuality",),
            "chat_rendering": ("TrainingRow", "TrainingSegment", "encode_segments", "render_segments", "text_segments"),
            "example_selection": ("ExampleFinding", "check_example"),
            "example_export": (
                "ExampleExport",
                "ExportReport",
                "ExportSettings",
                "LossCount",
                "SpecifiedExample",
                "add_specifications",
            ),
            "example_files": ("RejectedExample", "read_examples", "write_examples"),
            "example_sources": ("collect_examples",),
            "examples": ("Example", "make_example"),
            "gguf_files": ("write_gguf",),
            "language_model": ("LanguageModel", "find_model", "open_model"),
            "run_folder": ("run_shards",),
            "toolformer.corpus": (
                "AugmentedText",
                "CorpusText",
                "InlineCall",
                "corpus_rows",
                "format_call",
                "read_texts",
            ),
            "toolformer.filters": ("CallLosses", "is_kept", "loss_reduction_filter", "weighted_nll"),
            "toolformer.inference": ("TextWithCall", "generate_with_calls"),
            "toolformer.mining": ("MinedCall", "MiningSettings", "mine_toolformer_data"),
            "toolformer.mining_tool": (
                "MiningTool",
                "calculator_tool",
                "calendar_tool",
                "convert_tool",
                "qa_tool",
                "search_tool",
                "translate_tool",
            ),
            "toolformer.candidates": ("propose_insertion_points", "sample_calls"),
            "toolken.decoding": ("ToolkenCall", "ToolkenOutput", "generate_with_toolkens"),
            "toolken.demonstrations": (
                "Demonstration",
                "MarkedCall",
                "demonstration_of_query",
                "demonstrations_of_examples",
                "demonstrations_of_mined",
                "read_demonstrations",
            ),
            "toolken.fitting": ("ToolkenFit", "add_toolkens", "collect_states", "fit_toolkens", "split_demonstrations"),
            "toolken.head": ("ToolkenHead",),
            "toolken.training": ("ToolkenScore", "ToolkenSettings", "calibrate_bias", "measure_toolkens", "sweep_bias"),
            "training": ("TrainSettings",),
            "tuning": ("TuneReport", "TuneSettings", "tune"),
        },
        extras=dict.fromkeys(("gguf", "matplotlib", "numpy", "peft", "safetensors", "torch", "transformers"), "learn"),
    )

__all__ = [
    "AnswerSource",
    "AugmentedText",
    "BFCLAnswer",
    "BFCLEntry",
    "BFCLReport",
    "BFCL_CATEGORIES",
    "CallLosses",
    "CallQuality",
    "CategoryScore",
    "CheckResult",
    "ClientAnswers",
    "CorpusText",
    "Demonstration",
    "EvaluatedAnswer",
    "Example",
    "ExampleExport",
    "ExampleFinding",
    "ExportReport",
    "ExportSettings",
    "InlineCall",
    "LanguageModel",
    "LocalAnswers",
    "LossCount",
    "MarkedCall",
    "MinedCall",
    "MiningSettings",
    "MiningTool",
    "RejectedExample",
    "SpecifiedExample",
    "TextWithCall",
    "ToolkenCall",
    "ToolkenFit",
    "ToolkenHead",
    "ToolkenOutput",
    "ToolkenScore",
    "ToolkenSettings",
    "TrainSettings",
    "TrainingRow",
    "TrainingSegment",
    "TuneReport",
    "TuneSettings",
    "add_specifications",
    "add_toolkens",
    "calculator_tool",
    "calendar_tool",
    "calibrate_bias",
    "check_calls",
    "check_example",
    "collect_examples",
    "collect_states",
    "convert_tool",
    "corpus_rows",
    "demonstration_of_query",
    "demonstrations_of_examples",
    "demonstrations_of_mined",
    "encode_segments",
    "evaluate_bfcl",
    "find_model",
    "fit_toolkens",
    "format_call",
    "generate_with_calls",
    "generate_with_toolkens",
    "is_kept",
    "loss_reduction_filter",
    "make_example",
    "measure_toolkens",
    "mine_toolformer_data",
    "open_model",
    "propose_insertion_points",
    "qa_tool",
    "read_bfcl",
    "read_demonstrations",
    "read_examples",
    "read_texts",
    "render_segments",
    "run_shards",
    "sample_calls",
    "search_tool",
    "select_entries",
    "split_demonstrations",
    "sweep_bias",
    "text_segments",
    "translate_tool",
    "tune",
    "weighted_nll",
    "write_examples",
    "write_gguf",
]
