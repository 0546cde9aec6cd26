"""Fine-tune a model on a file of examples, from the file to a model that can be served.

    report = tune("train.jsonl", "runs/tuned", TuneSettings(model="smollm2"))
    report.model_folder, report.before, report.after

The run folder has the manifest, the loss of each step (`loss.jsonl`), the call quality before and after, the adapter
(`adapter/`), the merged model (`model/`) and, if wanted, the file for llama.cpp (`model.gguf`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..ir.errors import ConfigError
from ..ir.value import Value
from ..text import get
from ..text.engine.format import Format
from .call_quality import CallQuality, CallQuestion, call_questions, mask_calls, measure_calls
from .chat_rendering import TrainingRow
from .examples import Example
from .gguf_files import write_gguf
from .installed import require_installed
from .language_model import LanguageModel, open_model
from .lora import add_adapter, merge_adapter, save_model
from .model_files import find_model, weight_files
from .run_folder import RunFolder
from .training import TrainSettings, TrainStep, mean_loss, train
from .training_data import TrainingItem, build_rows, read_training_file, split_held_out

__all__ = ["Measurement", "TuneReport", "TuneSettings", "find_problem", "tune"]

_RESULT = "result.json"


class TuneSettings(Value, frozen=True):
    """The settings of a run; the manifest records them. `rank` is that of the adapter, 0 to train all weights."""

    model: str
    format: str = "hermes"
    rank: int = 16
    training: TrainSettings = TrainSettings()
    held_out: float = 0.1
    """The share of the examples that are not trained on, but measured."""
    max_length: int = 2048
    prompts: int = 100
    """The most held-out prompts that are answered before and after."""
    answer_tokens: int = 160
    masked: bool = False
    """Answer the prompts a second time, with a mask that allows only calls."""
    mask_results: bool = False
    gguf: str | None = None
    """The format of the matrices in `model.gguf`, or None for no such file."""


class Measurement(Value, frozen=True):
    """The model before or after training, on held-out items. `calls` is None if there are none with calls.

    `masked` are the same prompts, answered with a mask that allows only calls.
    """

    loss: float | None = None
    calls: CallQuality | None = None
    masked: CallQuality | None = None


class TuneReport(Value, frozen=True):
    """The result of a run. If it is not `finished`, the time was over: run it again with `resume`."""

    finished: bool
    rows: int
    held_out: int
    skipped: dict[str, int]
    before: Measurement
    after: Measurement = Measurement()
    steps: int = 0
    model_folder: str = ""
    gguf: str = ""


def tune(
    file: str | Path,
    folder: str | Path,
    settings: TuneSettings,
    *,
    test_file: str | Path | None = None,
    device: str = "cpu",
    resume: bool = False,
    minutes: float | None = None,
    on_step: Callable[[TrainStep], None] | None = None,
    on_answers: Callable[[int, int], None] | None = None,
) -> TuneReport:
    """Train, measure before and after, merge and write the model. `minutes` limits the training in this call.

    `test_file` has the held-out examples; without it, a share of the examples of `file` is held out.
    """
    require_installed("fine-tuning", "torch", "transformers")
    if settings.rank:
        require_installed("an adapter", "peft")
    if settings.gguf is not None:
        require_installed("a GGUF file", "gguf")
    form = get(settings.format)
    base = find_model(settings.model)
    inputs = [file, *([] if test_file is None else [test_file]), *weight_files(base)]
    run = RunFolder.create(folder, msgspec.to_builtins(settings), inputs, resume=resume)
    if run.has(_RESULT):
        return msgspec.convert(run.read_json(_RESULT), TuneReport)
    with run.preparing():
        data, held = _read_data(file, test_file, settings)
        model = open_model(base, device=device)
        rows, skipped = build_rows(
            data, model.tokenizer, form, max_length=settings.max_length, mask_results=settings.mask_results
        )
        _require_rows(rows, skipped)
    scorer = _Scorer(model, form, settings, held, on_answers)
    before = scorer.measure_once(run, "before.json")
    adapter = add_adapter(model, settings.rank, seed=settings.training.seed) if settings.rank else None
    trained = train(model, rows, settings.training, run, held_out=scorer.rows, minutes=minutes, on_step=on_step)
    report = TuneReport(trained.finished, len(rows), len(held), dict(skipped), before, steps=trained.done)
    if not trained.finished:
        return report
    report = _finish(run, model, adapter, settings, scorer, report)
    run.write_json(_RESULT, report)
    return report


def find_problem(report: TuneReport, threshold: float | None = None) -> str | None:
    """Return why a model should not replace the one before it, or None.

    The share of right calls on held-out prompts must not be lower than before, nor than `threshold` percent. Without
    such prompts, the held-out loss must not be higher than before.
    """
    before, after = report.before, report.after
    if after.calls is not None and before.calls is not None:
        now, then = after.calls.percent("right"), before.calls.percent("right")
        if now < then:
            return f"{now:.1f} % of the held-out calls are right, but {then:.1f} % were before"
        if threshold is not None and now < threshold:
            return f"{now:.1f} % of the held-out calls are right, less than {threshold:g} %"
        return None
    if threshold is not None:
        return "there are no held-out prompts with calls to check"
    if after.loss is not None and before.loss is not None and after.loss > before.loss:
        return f"the held-out loss rose from {before.loss:.3f} to {after.loss:.3f}"
    return None


def _require_rows(rows: Sequence[TrainingRow], skipped: Mapping[str, int]) -> None:
    if not rows:
        reasons = "".join(f"; {count} left out: {reason}" for reason, count in skipped.items())
        raise ConfigError(
            f"there is nothing to train on{reasons}",
            hint="give at least one example with an answer that is not too long",
        )


def _read_data(
    file: str | Path, test_file: str | Path | None, settings: TuneSettings
) -> tuple[list[TrainingItem], list[TrainingItem]]:
    """Return the examples to train on and the held-out ones."""
    items = read_training_file(file)
    if test_file is not None:
        return items, read_training_file(test_file)
    return split_held_out(items, settings.held_out, settings.training.seed)


class _Scorer:
    """Measures a model on the held-out items."""

    def __init__(
        self,
        model: LanguageModel,
        form: Format,
        settings: TuneSettings,
        held: Sequence[TrainingItem],
        on_answers: Callable[[int, int], None] | None,
    ) -> None:
        self._model = model
        self._form = form
        self._settings = settings
        self._on_answers = on_answers
        self.rows, _ = build_rows(
            held, model.tokenizer, form, max_length=settings.max_length, mask_results=settings.mask_results
        )
        asked = call_questions(item for item in held if isinstance(item, Example))
        self._questions: list[CallQuestion] = [one for one in asked if one.expected][: settings.prompts]

    def measure_once(self, run: RunFolder, name: str) -> Measurement:
        """Measure, or return the stored result of an earlier call."""
        if not run.has(name):
            run.write_json(name, self.measure())
        return msgspec.convert(run.read_json(name), Measurement)

    def measure(self) -> Measurement:
        loss = mean_loss(self._model, self.rows, self._settings.training.batch_tokens) if self.rows else None
        if not self._questions:
            return Measurement(loss)
        masked = (
            self._count(mask_calls(self._model, self._form, self._settings.answer_tokens))
            if self._settings.masked
            else None
        )
        return Measurement(loss, self._count(), masked)

    def _count(self, make_processor: Callable[[Sequence[CallQuestion], int], Any] | None = None) -> CallQuality:
        answers = measure_calls(
            self._model,
            self._questions,
            self._form,
            max_tokens=self._settings.answer_tokens,
            make_processor=make_processor,
            on_answers=self._on_answers,
        )
        return CallQuality.count(answers)


def _finish(
    run: RunFolder, model: LanguageModel, adapter: Any, settings: TuneSettings, scorer: _Scorer, report: TuneReport
) -> TuneReport:
    """Write the adapter and the merged model, and measure the merged model."""
    if adapter is not None:
        adapter.save_pretrained(run.path / "adapter", save_embedding_layers=False)
        merge_adapter(model, adapter)
    target = run.path / "model"
    save_model(model, target)
    after = scorer.measure_once(run, "after.json")
    gguf = ""
    if settings.gguf is not None:
        gguf = str(run.path / "model.gguf")
        write_gguf(target, Path(gguf), matrices=settings.gguf)
    return msgspec.structs.replace(report, after=after, model_folder=str(target), gguf=gguf)
