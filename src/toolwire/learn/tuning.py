"""Fine-tune a model on a file of examples, from the file to a model that can be served.

    report = tune("train.jsonl", "runs/tuned", TuneSettings(model="smollm2"))
    report.model_folder, report.before, report.after

The run folder has the manifest, the loss of each step (`loss.jsonl`), the call quality before and after, the adapter
(`adapter/`), the merged model (`model/`) and, if wanted, the file for llama.cpp (`model.gguf`).

The file is split into training and held-out items, which become rows of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from ..ir.errors import ConfigError, ProtocolError
from ..ir.value import Value
from ..run.executor import Executor, map_items
from ..stream.strict import parse, parse_object
from ..text import get
from ..text.engine.format import Format
from .call_quality import CallQuality, CallQuestion, call_questions, mask_calls, measure_calls
from .chat_rendering import TrainingRow, encode_segments, render_segments, start_of_text, text_segments
from .example_files import MAX_ROW, RejectedExample, read_examples
from .examples import Example
from .gguf_files import write_gguf
from .language_model import LanguageModel, find_model, open_model, open_tokenizer, weight_files
from .run_folder import RunFolder, reading, require_installed
from .toolformer.corpus import AugmentedText, result_spans
from .training import TrainSettings, TrainStep, add_adapter, mean_loss, merge_adapter, save_model, train

TrainingItem: TypeAlias = Example | AugmentedText
"""A conversation, or a text with inline calls."""

_SplitItem = TypeVar("_SplitItem", bound=TrainingItem)


def read_training_file(
    path: str | Path, *, on_rejected: Callable[[RejectedExample], None] | None = None
) -> list[TrainingItem]:
    """Read a file of conversations in any training format, or of texts (`{"text": …}`), as mining writes them.

    Raise ConfigError if it has none.
    """
    file = Path(path)
    items: list[TrainingItem] = list(
        _read_texts(file) if _has_texts(file) else read_examples(file, on_rejected=on_rejected)
    )
    if not items:
        raise ConfigError(f"{file} has no examples to train on")
    return items


def split_held_out(items: Sequence[_SplitItem], share: float, seed: int) -> tuple[list[_SplitItem], list[_SplitItem]]:
    """Return (training items, held-out items) by a seeded hash; items with an equal prompt are on the same side.

    Raises `ConfigError` for a share outside of 0 to 1.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"the held-out share must be at least 0 and below 1, got {share}")
    sides: tuple[list[_SplitItem], list[_SplitItem]] = ([], [])
    for item in items:
        key = item.user_text if isinstance(item, Example) else str(item.source)
        digest = sha256(f"{seed}/{key}".encode("utf-8", "surrogatepass")).digest()
        sides[int.from_bytes(digest[:8]) < share * 2**64].append(item)
    return sides


def build_rows(
    items: Sequence[TrainingItem],
    tokenizer: Any,
    form: Format,
    *,
    max_length: int,
    mask_results: bool = False,
    executor: Executor | None = None,
    reopen: Callable[[], Any] | None = None,
) -> tuple[list[TrainingRow], Counter[str]]:
    """Return the rows of the items, and the reasons for items without a row with their counts.

    A row longer than `max_length` is left out, not truncated: the model would learn to stop early. `mask_results`
    leaves the results of inline calls out of the loss. The workers of `executor` open the tokenizer with `reopen`.
    """
    if executor is None:
        return _build_rows(items, tokenizer, form, max_length, mask_results=mask_results)
    if reopen is None:
        raise ConfigError("rows of workers need `reopen`")
    work = _RowBuilder(reopen, form.name, max_length, mask_results)
    groups = [items[start : start + _GROUP] for start in range(0, len(items), _GROUP)]
    rows: list[TrainingRow] = []
    skipped: Counter[str] = Counter()
    for found in map_items(work, groups, executor=executor):
        part, reasons = msgspec.msgpack.decode(found, type=tuple[list[TrainingRow], dict[str, int]])
        rows += part
        skipped.update(reasons)
    return rows, skipped


class _RowBuilder:
    """Builds the rows of a group of items. Each process opens the tokenizer once."""

    def __init__(self, reopen: Callable[[], Any], form: str, max_length: int, mask_results: bool) -> None:
        self._reopen = reopen
        self._form = form
        self._max_length = max_length
        self._mask_results = mask_results
        self._tokenizer: Any = None

    def __call__(self, items: Sequence[TrainingItem]) -> bytes:
        self._tokenizer = self._tokenizer or self._reopen()
        found = _build_rows(items, self._tokenizer, get(self._form), self._max_length, mask_results=self._mask_results)
        return msgspec.msgpack.encode(found)


def _build_rows(
    items: Sequence[TrainingItem], tokenizer: Any, form: Format, max_length: int, *, mask_results: bool
) -> tuple[list[TrainingRow], Counter[str]]:
    rows: list[TrainingRow] = []
    skipped: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Example):
            segments = render_segments(item, tokenizer, form)
        else:
            spans = result_spans(item) if mask_results else ()
            segments = text_segments(item.text, spans, tokenizer.eos_token, start=start_of_text(tokenizer))
        row = encode_segments(segments, tokenizer)
        if not row.trained_count:
            skipped["no answer to learn from"] += 1
        elif len(row.tokens) > max_length:
            skipped[f"longer than {max_length} tokens"] += 1
        else:
            rows.append(row)
    return rows, skipped


def _has_texts(file: Path) -> bool:
    """Return whether the first row is a text instead of a conversation."""
    with reading(file), file.open("rb") as stream:
        line = b"\n"
        while line and not line.strip():
            line = stream.readline(MAX_ROW)  # a longer row is not complete, and the reader of examples reports it
    try:
        first = parse(line)
    except ProtocolError:
        return False  # perhaps an array over several lines; the reader of examples reports the error
    return isinstance(first, dict) and isinstance(first.get("text"), str) and "messages" not in first


def _read_texts(file: Path) -> list[AugmentedText]:
    """Return the texts with inline calls in a file of JSON Lines; `source` is the line if a row has none.

    Raises `ConfigError` for an invalid line.
    """
    items = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = {"source": number, **parse_object(line)}
            items.append(msgspec.convert(row, AugmentedText))
        except (ProtocolError, msgspec.MsgspecError) as error:
            reason = error.message if isinstance(error, ProtocolError) else error
            hint = 'write lines such as {"text": "The sum is [Calculator(3 + 4)] → 7 apples."}'
            raise ConfigError(f"{file}, line {number}: {reason}", hint=hint) from None
    return items


_GROUP = 256  # items of a worker at a time: about a second of rendering and tokenizing
_RESULT = "result.json"


class TuneSettings(Value, frozen=True):
    """The settings of a run; the manifest records them. `rank` is the adapter's rank, 0 to train all weights."""

    model: str
    format: str = "hermes"
    rank: int = 16  # the experiment's value (docs/experiments/fine-tuning.md)
    training: TrainSettings = TrainSettings()
    held_out: float = 0.1
    """The share of the examples that are not trained on, but measured."""
    max_length: int = 2048  # tokens; longer rows are left out. Attention memory is quadratic in it
    prompts: int = 100
    """The most held-out prompts that are answered before and after."""
    answer_tokens: int = 160  # a call with some arguments; an answer that is longer counts as wrong
    masked: bool = False
    """Answer the prompts a second time, with a mask that allows only calls."""
    mask_results: bool = False
    gguf: str | None = None
    """The format of the matrices in `model.gguf`, or None for no such file. `adapter.gguf` has the adapter alone."""


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
    executor: Executor | None = None,
) -> TuneReport:
    """Train, measure before and after, merge and write the model.

    `minutes` limits the training in this call. `test_file` has the held-out examples; without it, a share of the
    examples of `file` is held out. A finished run in `folder` is only read. `on_answers` receives the number of answers
    so far, and of all, while the model is measured. `executor` prepares the rows. Raises `ConfigError` for invalid settings or data, and
    `MissingExtra`.
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
            data,
            model.tokenizer,
            form,
            max_length=settings.max_length,
            mask_results=settings.mask_results,
            executor=executor,
            reopen=partial(open_tokenizer, base),
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
        """Tokenize the held-out items, and take up to `settings.prompts` questions with expected calls from them."""
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
        """Return the held-out loss and the call quality, each None if no held-out item serves for it.

        `masked` is measured only if the settings ask for it.
        """
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
        """Answer the held-out questions and count the right calls."""
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
        if adapter is not None:
            from .gguf_adapter import write_adapter

            write_adapter(run.path / "adapter", model.network.config, run.path / "adapter.gguf")
    return msgspec.structs.replace(report, after=after, model_folder=str(target), gguf=gguf)
