"""Teach open models to call tools: training data, fine-tuning, Toolformer, ToolkenGPT, evaluation (extra `learn`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .bfcl.answers import ClientAnswers as ClientAnswers
    from .bfcl.answers import LocalAnswers as LocalAnswers
    from .bfcl.entries import BFCL_CATEGORIES as BFCL_CATEGORIES
    from .bfcl.entries import BFCLEntry as BFCLEntry
    from .bfcl.entries import read_bfcl as read_bfcl
    from .bfcl.evaluation import AnswerSource as AnswerSource
    from .bfcl.evaluation import BFCLReport as BFCLReport
    from .bfcl.evaluation import CategoryScore as CategoryScore
    from .bfcl.evaluation import evaluate_bfcl as evaluate_bfcl
    from .bfcl.evaluation import select_entries as select_entries
    from .bfcl.judgement import BFCLAnswer as BFCLAnswer
    from .bfcl.judgement import CheckResult as CheckResult
    from .bfcl.judgement import EvaluatedAnswer as EvaluatedAnswer
    from .bfcl.judgement import check_calls as check_calls
    from .bfcl.judgement import check_conversation as check_conversation
    from .call_quality import CallQuality as CallQuality
    from .chat_rendering import TrainingRow as TrainingRow
    from .chat_rendering import TrainingSegment as TrainingSegment
    from .chat_rendering import encode_segments as encode_segments
    from .chat_rendering import render_segments as render_segments
    from .chat_rendering import text_segments as text_segments
    from .example_export import ExampleExport as ExampleExport
    from .example_export import ExportReport as ExportReport
    from .example_export import ExportSettings as ExportSettings
    from .example_export import LossCount as LossCount
    from .example_export import SpecifiedExample as SpecifiedExample
    from .example_export import add_specifications as add_specifications
    from .example_files import RejectedExample as RejectedExample
    from .example_files import read_examples as read_examples
    from .example_files import write_examples as write_examples
    from .example_selection import ExampleFinding as ExampleFinding
    from .example_selection import check_example as check_example
    from .example_sources import collect_examples as collect_examples
    from .examples import Example as Example
    from .examples import make_example as make_example
    from .gguf_files import write_gguf as write_gguf
    from .language_model import LanguageModel as LanguageModel
    from .language_model import find_model as find_model
    from .language_model import open_model as open_model
    from .run_folder import run_shards as run_shards
    from .submit.prices import CostEstimate as CostEstimate
    from .submit.service import TuningJob as TuningJob
    from .submit.service_api import RefusedTrainingFile as RefusedTrainingFile
    from .submit.services import open_tuning_service as open_tuning_service
    from .submit.submission import CostExceeded as CostExceeded
    from .submit.submission import CostQuestion as CostQuestion
    from .submit.submission import Submission as Submission
    from .submit.submission import SubmitReport as SubmitReport
    from .submit.submission import SubmitSettings as SubmitSettings
    from .submit.submission import TuningJobFailed as TuningJobFailed
    from .submit.submission import UnknownCreation as UnknownCreation
    from .toolformer.candidates import propose_insertion_points as propose_insertion_points
    from .toolformer.corpus import AugmentedText as AugmentedText
    from .toolformer.corpus import CorpusText as CorpusText
    from .toolformer.corpus import InlineCall as InlineCall
    from .toolformer.corpus import corpus_rows as corpus_rows
    from .toolformer.corpus import format_call as format_call
    from .toolformer.corpus import read_texts as read_texts
    from .toolformer.filters import CallLosses as CallLosses
    from .toolformer.filters import is_kept as is_kept
    from .toolformer.filters import loss_reduction_filter as loss_reduction_filter
    from .toolformer.filters import weighted_nll as weighted_nll
    from .toolformer.inference import TextWithCall as TextWithCall
    from .toolformer.inference import generate_with_calls as generate_with_calls
    from .toolformer.mining import MinedCall as MinedCall
    from .toolformer.mining import MiningSettings as MiningSettings
    from .toolformer.mining import mine_toolformer_data as mine_toolformer_data
    from .toolformer.mining_tool import MiningTool as MiningTool
    from .toolformer.mining_tool import calculator_tool as calculator_tool
    from .toolformer.mining_tool import calendar_tool as calendar_tool
    from .toolformer.mining_tool import convert_tool as convert_tool
    from .toolformer.mining_tool import qa_tool as qa_tool
    from .toolformer.mining_tool import search_tool as search_tool
    from .toolformer.mining_tool import translate_tool as translate_tool
    from .toolformer.sampling import sample_calls as sample_calls
    from .toolken.decoding import ToolkenCall as ToolkenCall
    from .toolken.decoding import ToolkenOutput as ToolkenOutput
    from .toolken.decoding import generate_with_toolkens as generate_with_toolkens
    from .toolken.demonstrations import Demonstration as Demonstration
    from .toolken.demonstrations import MarkedCall as MarkedCall
    from .toolken.demonstrations import demonstration_of_query as demonstration_of_query
    from .toolken.demonstrations import demonstrations_of_examples as demonstrations_of_examples
    from .toolken.demonstrations import demonstrations_of_mined as demonstrations_of_mined
    from .toolken.demonstrations import read_demonstrations as read_demonstrations
    from .toolken.fitting import ToolkenFit as ToolkenFit
    from .toolken.fitting import add_toolkens as add_toolkens
    from .toolken.fitting import collect_states as collect_states
    from .toolken.fitting import fit_toolkens as fit_toolkens
    from .toolken.fitting import split_demonstrations as split_demonstrations
    from .toolken.head import ToolkenHead as ToolkenHead
    from .toolken.training import ToolkenScore as ToolkenScore
    from .toolken.training import ToolkenSettings as ToolkenSettings
    from .toolken.training import calibrate_bias as calibrate_bias
    from .toolken.training import measure_toolkens as measure_toolkens
    from .toolken.training import sweep_bias as sweep_bias
    from .training import TrainSettings as TrainSettings
    from .tuning import TuneReport as TuneReport
    from .tuning import TuneSettings as TuneSettings
    from .tuning import tune as tune
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "bfcl.answers": "ClientAnswers LocalAnswers",
            "bfcl.entries": "BFCL_CATEGORIES BFCLEntry read_bfcl",
            "bfcl.evaluation": "AnswerSource BFCLReport CategoryScore evaluate_bfcl select_entries",
            "bfcl.judgement": "BFCLAnswer CheckResult EvaluatedAnswer check_calls check_conversation",
            "call_quality": "CallQuality",
            "chat_rendering": "TrainingRow TrainingSegment encode_segments render_segments text_segments",
            "example_export": "ExampleExport ExportReport ExportSettings LossCount SpecifiedExample add_specifications",
            "example_files": "RejectedExample read_examples write_examples",
            "example_selection": "ExampleFinding check_example",
            "example_sources": "collect_examples",
            "examples": "Example make_example",
            "gguf_files": "write_gguf",
            "language_model": "LanguageModel find_model open_model",
            "run_folder": "run_shards",
            "submit.prices": "CostEstimate",
            "submit.service": "TuningJob",
            "submit.service_api": "RefusedTrainingFile",
            "submit.services": "open_tuning_service",
            "submit.submission": (
                "CostExceeded CostQuestion Submission SubmitReport SubmitSettings TuningJobFailed UnknownCreation"
            ),
            "toolformer.candidates": "propose_insertion_points",
            "toolformer.corpus": "AugmentedText CorpusText InlineCall corpus_rows format_call read_texts",
            "toolformer.filters": "CallLosses is_kept loss_reduction_filter weighted_nll",
            "toolformer.inference": "TextWithCall generate_with_calls",
            "toolformer.mining": "MinedCall MiningSettings mine_toolformer_data",
            "toolformer.mining_tool": (
                "MiningTool calculator_tool calendar_tool convert_tool qa_tool search_tool translate_tool"
            ),
            "toolformer.sampling": "sample_calls",
            "toolken.decoding": "ToolkenCall ToolkenOutput generate_with_toolkens",
            "toolken.demonstrations": (
                "Demonstration MarkedCall demonstration_of_query demonstrations_of_examples demonstrations_of_mined "
                "read_demonstrations"
            ),
            "toolken.fitting": "ToolkenFit add_toolkens collect_states fit_toolkens split_demonstrations",
            "toolken.head": "ToolkenHead",
            "toolken.training": "ToolkenScore ToolkenSettings calibrate_bias measure_toolkens sweep_bias",
            "training": "TrainSettings",
            "tuning": "TuneReport TuneSettings tune",
        },
        extras=dict.fromkeys(("gguf", "matplotlib", "numpy", "peft", "safetensors", "torch", "transformers"), "learn"),
    )
