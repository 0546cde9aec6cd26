"""`toolwire learn train` and `mine`: fine-tune a model on tool calls, and find such calls in plain texts (Toolformer)."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.terminal import count_of, neutralise_line
from ..terminal.options import (
    add_command,
    add_executor,
    add_flag,
    add_model,
    open_executor,
    percentage,
    positive_number,
    settings_from,
)
from ..terminal.output import ProgressBar, json_text, print_note, print_text, table

if TYPE_CHECKING:
    from ...learn.call_quality import CallQuality
    from ...learn.toolformer.mining_run import MiningReport
    from ...learn.training import TrainStep
    from ...learn.tuning import Measurement, TuneReport, TuneSettings


_TRAIN_HELP = """\
Fine-tune a model on tool calls, and measure held-out calls before and after.

examples:
  toolwire learn train train.jsonl -m smollm2 -o runs/tuned --gguf
  toolwire learn train train.jsonl -m models/Qwen3-0.6B -o runs/tuned --device cuda --epochs 2 --gate 90
  toolwire learn train train.jsonl -m smollm2 -o runs/tuned --minutes 10      then again with --resume
  toolwire learn train mined.jsonl -m smollm2 -o runs/toolformer --full --lr 5e-5 --mask-results

FILE: conversations in any format of `toolwire learn export`, or texts with inline calls, {"text": …}.
RUN gets manifest.json, loss.jsonl, loss.svg, adapter/, model/ (merged) and model.gguf. Serve the latter with
TOOLWIRE_MODELS=RUN and the model local/model; use the same text format there (--text, or emulate of the gateway).
The prompt is the one that the gateway sends for the text format. Only answers, their calls and the end of the turn
have a loss; an answer with weight 0 has none.
exit codes: 0 done   1 the gate failed, or the time was over   2 wrong usage, or unreadable input
"""


def add_train(actions: Any) -> None:
    """Register `toolwire learn train` with its options."""
    parser = add_command(actions, "train", "fine-tune a model on tool calls", _TRAIN_HELP, _train)
    parser.add_argument("file", metavar="FILE", help="the training examples")
    add_model(parser, "a folder, a .gguf file, or smollm2", required=True)
    parser.add_argument("-o", "--output", required=True, metavar="RUN", help="the folder of the run")
    parser.add_argument("--format", default="hermes", metavar="FORMAT", help="the text format of calls (hermes)")
    parser.add_argument("--epochs", type=positive_number, default=3, metavar="NUMBER", help="passes over the data (3)")
    parser.add_argument(
        "--lr", type=_parse_number, metavar="RATE", help="highest learning rate (1e-3; 5e-5 with --full)"
    )
    parser.add_argument("--rank", type=positive_number, default=16, metavar="NUMBER", help="rank of the adapter (16)")
    add_flag(parser, "--full", "train all weights instead of an adapter")
    parser.add_argument(
        "--batch-tokens", type=positive_number, default=4096, metavar="NUMBER", help="tokens in a step (4096)"
    )
    parser.add_argument(
        "--max-length", type=positive_number, default=2048, metavar="NUMBER", help="leave out longer examples (2048)"
    )
    parser.add_argument(
        "--held-out", type=percentage, default=10.0, metavar="PERCENT", help="examples to measure on (10)"
    )
    parser.add_argument("--test", metavar="FILE", help="held-out examples, instead of a share of the training examples")
    parser.add_argument(
        "--prompts",
        type=positive_number,
        default=100,
        metavar="NUMBER",
        help="the most held-out prompts to answer (100)",
    )
    parser.add_argument(
        "--answer-tokens",
        type=positive_number,
        default=160,
        metavar="NUMBER",
        help="the longest answer to a prompt (160)",
    )
    add_flag(parser, "--masked", "measure also with a mask that allows only calls")
    add_flag(parser, "--mask-results", "no loss on the results of inline calls")
    parser.add_argument(
        "--gate", type=percentage, metavar="PERCENT", help="exit with 1 if fewer held-out calls are right"
    )
    parser.add_argument(
        "--gguf", nargs="?", const="f16", choices=("f32", "f16", "q8_0"), help="write model.gguf (default: f16)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or another device of torch (cpu)")
    parser.add_argument("--minutes", type=_parse_number, metavar="NUMBER", help="stop training after this time")
    add_flag(parser, "--resume", "continue an interrupted run")
    parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="seed of adapter, split and order (0)")
    add_flag(parser, "--json", "print the report as JSON")
    add_executor(parser)


def _parse_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return number


def _train(arguments: argparse.Namespace) -> int:
    """Fine-tune a model, draw the loss curve, and print the report.

    Returns 1 with a message if the gate failed or the time was over before the last step.
    """
    from ...learn.tuning import find_problem, tune

    executor = open_executor(arguments)
    with ProgressBar("measuring") as answers, ProgressBar("training") as steps:

        def show_step(step: TrainStep) -> None:
            steps.label = f"training: loss {step.loss:.3f}"
            steps(step.step, step.steps)

        report = tune(
            arguments.file,
            arguments.output,
            _train_settings(arguments),
            test_file=arguments.test,
            device=arguments.device,
            resume=arguments.resume,
            minutes=arguments.minutes,
            on_step=show_step,
            on_answers=answers,
            executor=executor,
        )
    plot = _draw_loss(Path(arguments.output))
    problem = find_problem(report, arguments.gate) if report.finished else "the time was over before the last step"
    if arguments.json:
        print(json_text({**msgspec.to_builtins(report), "problem": problem}))
    else:
        _print_report(report, plot)
    if problem is not None:
        hint = "" if report.finished else "; continue with --resume"
        print_note(f"{problem}{hint}", "red")
    return int(problem is not None)


def _train_settings(arguments: argparse.Namespace) -> TuneSettings:
    """Return the settings of the command line.

    Raises `ConfigError` if all examples are held out. Rank 0 trains all weights.
    """
    from ...learn.training import TrainSettings
    from ...learn.tuning import TuneSettings

    if arguments.held_out >= 100:
        raise ConfigError("--held-out 100 leaves nothing to train on", hint="use a smaller share, such as 10")
    rate = arguments.lr or (5e-5 if arguments.full else 1e-3)
    training = settings_from(TrainSettings, arguments, learning_rate=rate)
    rank = 0 if arguments.full else arguments.rank
    return settings_from(TuneSettings, arguments, rank=rank, training=training, held_out=arguments.held_out / 100)


def _draw_loss(folder: Path) -> str | None:
    """Draw the loss of the steps, and the held-out loss, into the run folder, and return the file.

    Returns None without matplotlib or steps.
    """
    from ...learn.run_folder import is_installed
    from ...learn.training import LOSS_LOG, TrainStep

    if not is_installed("matplotlib") or not (folder / LOSS_LOG).is_file():
        return None
    from ...learn.plots import draw_lines

    log = [msgspec.json.decode(row, type=TrainStep) for row in (folder / LOSS_LOG).read_bytes().splitlines()]
    series = {
        "training": [(step.step, step.loss) for step in log],
        "held out": [(step.step, step.held_out) for step in log if step.held_out is not None],
    }
    if not log:
        return None
    target = str(folder / "loss.svg")
    draw_lines(target, "Loss", "step", "nats per trained token", {name: line for name, line in series.items() if line})
    return target


def _print_report(report: TuneReport, plot: str | None) -> None:
    """Print the number of examples, the measurements before and after the training, and the written files.

    An unfinished run has only the numbers.
    """
    print(f"{count_of(report.rows, 'example')} in {count_of(report.steps, 'step')}, {report.held_out} held out")
    for reason, count in report.skipped.items():
        print(f"left out: {count_of(count, 'example')}, {reason}")
    if not report.finished:
        return
    rows = [("held-out loss", _loss(report.before), _loss(report.after))]
    for kind, before, after in (
        ("", report.before.calls, report.after.calls),
        (", masked", report.before.masked, report.after.masked),
    ):
        for title, name in (("valid calls", "valid"), ("right tool", "right_tool"), ("right calls", "right")):
            if before is not None and after is not None:
                rows.append((title + kind, _share(before, name), _share(after, name)))
    print()
    if report.held_out:
        print("\n".join(table(rows, ("", "before", "after"))))
    else:
        print_text(
            "No example was held out, so nothing was measured: give a greater share with --held-out, or --test FILE."
        )
    print()
    for title, path in (("model", report.model_folder), ("llama.cpp", report.gguf), ("loss curve", plot or "")):
        if path:
            print(f"{title}: {path}")


def _loss(measured: Measurement) -> str:
    return "" if measured.loss is None else f"{measured.loss:.3f}"


def _share(calls: CallQuality, name: str) -> str:
    return f"{calls.percent(name):.1f} % of {calls.prompts}"


_CPU_SHARD, _SHARD = 1, 32  # texts; a GPU needs many at once, and a CPU is busy with one for about ten seconds
_MAX_REASONS = 4  # they share one line; the rest is counted as "other"
_MINE_HELP = """\
Sample tool calls in texts, execute them, and keep those whose results help to predict the text.

examples:
  toolwire learn mine texts.txt -m smollm2 -o runs/mined
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined --tools calculator,search,qa,translate
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined --tools search=passages.txt
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined --resume
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined --workers 4             in four processes
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined --ray 10.0.0.5:6379     on a cluster of Ray

TEXTS: one text per line, or JSON Lines such as {"text": "8 - 2 = 6", "date": "2025-07-04"}.
Tools: calculator, calendar, convert, search and qa (WordNet: apt install dict-wn), translate (French to English: apt install
dict-freedict-fra-eng). The last three also accept a file: another dictionary (search=gcide.index), one passage per line,
or for qa and translate two columns separated by a tab. Or give a JSON file such as [{"kind": "calculator", "threshold": 0.5}].
Filters: paper (the call before the text, its loss below both no call and no result), seed (the call at its place,
against no call), rank (the best share by the score of seed), none.
The folder gets candidates.jsonl, corpus.jsonl (all texts, with the kept calls) and report.json.
exit codes: 0 done   1 no call was kept   2 wrong usage, or unreadable input
"""


def add_mine(actions: Any) -> None:
    """Register `toolwire learn mine` with its options."""
    parser = add_command(
        actions, "mine", "find the tool calls of plain texts that help a model (Toolformer)", _MINE_HELP, _mine
    )
    parser.add_argument("texts", metavar="TEXTS", help="file of texts")
    add_model(parser, "a folder, a .gguf file, or smollm2", required=True)
    parser.add_argument("-o", "--output", required=True, metavar="RUN", help="folder of the run")
    parser.add_argument("--tools", default="calculator", metavar="NAMES|FILE", help="tools (calculator)")
    parser.add_argument("--filter", choices=("paper", "seed", "rank", "none"), default="paper", help="filter (paper)")
    parser.add_argument("--threshold", type=float, metavar="NATS", help="least reduction of the loss (of each tool)")
    parser.add_argument("--share", type=float, default=0.1, help="share of the candidates that rank keeps (0.1)")
    parser.add_argument("--positions", type=int, metavar="NUMBER", help="positions per text (of each tool)")
    parser.add_argument("--samples", type=int, metavar="NUMBER", help="calls per position (of each tool)")
    parser.add_argument("--call-probability", type=float, metavar="P", help="least probability of a call")
    parser.add_argument("--temperature", type=float, default=0.8, help="of sampling (0.8)")
    parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="seed of sampling (0)")
    parser.add_argument("--results", metavar="URL", help="folder or object store of the shards (RUN/shards)")
    parser.add_argument(
        "--shard-size", type=int, metavar="NUMBER", help="texts of a shard, a step of progress (1 on a CPU, else 32)"
    )
    parser.add_argument("--batch-tokens", type=int, default=16_384, metavar="NUMBER", help="tokens of a batch (16384)")
    parser.add_argument("--device", default="cpu", help="device of the model (cpu)")
    parser.add_argument("--dtype", default="float32", help="type of the weights (float32)")
    add_flag(parser, "--resume", "continue the run in the folder")
    add_flag(parser, "--json", "print the report as JSON")
    add_executor(parser)


def _mine(arguments: argparse.Namespace) -> int:
    """Mine the texts for tool calls in a run folder, and print the report.

    Texts, tools and settings are checked before the folder is created and the model is read. Returns 1 if no text has a
    call.
    """
    from ...learn.language_model import find_model, open_model, weight_files
    from ...learn.run_folder import RunFolder, require_installed
    from ...learn.toolformer.corpus import read_texts
    from ...learn.toolformer.mining import MiningSettings, check_settings
    from ...learn.toolformer.mining_run import mine_corpus, open_miner, open_tools, read_tool_list, tool_files

    require_installed("mining", "torch", "transformers", "llguidance")  # before the folder of the run is created
    texts = read_texts(arguments.texts)
    entries = read_tool_list(arguments.tools)
    tools = open_tools(entries)
    settings = settings_from(MiningSettings, arguments)
    check_settings(tools, settings)
    model_folder = find_model(arguments.model)
    inputs = [arguments.texts, *tool_files(entries), *weight_files(model_folder)]
    shard_size = arguments.shard_size
    if shard_size is None:
        shard_size = _CPU_SHARD if arguments.device == "cpu" else _SHARD
    described = {
        **msgspec.structs.asdict(settings),
        "tools": msgspec.to_builtins(entries),
        "shard_size": shard_size,
        "dtype": arguments.dtype,
    }
    executor = open_executor(arguments)
    folder = RunFolder.create(arguments.output, described, inputs, resume=arguments.resume)
    with folder.preparing():
        model = open_model(model_folder, device=arguments.device, dtype=arguments.dtype)
    with ProgressBar("mining shards") as bar:
        report = mine_corpus(
            model,
            texts,
            tools,
            settings,
            folder,
            shard_size=shard_size,
            executor=executor,
            reopen=partial(open_miner, model.name, arguments.device, arguments.dtype, entries),
            results=arguments.results,
            progress=bar,
        )
    _print(report, folder.path, as_json=arguments.json)
    return int(not report.augmented)


def _print(report: MiningReport, folder: Path, *, as_json: bool) -> None:
    """Print a table of the tools with the most frequent reasons for rejected candidates, or the report as JSON."""
    if as_json:
        print(json_text(msgspec.to_builtins(report)))
        return
    rows = []
    for counts in report.tools:
        reasons = list(counts.reasons.items())
        shown = [f"{reason} {number}" for reason, number in reasons[:_MAX_REASONS]]
        others = sum(number for _, number in reasons[_MAX_REASONS:])
        shown += [f"other {others}"] if others else []
        numbers = (counts.positions, counts.samples, counts.candidates, counts.executed, counts.kept)
        rows.append((counts.tool, *map(str, numbers), ", ".join(shown)))
    print("\n".join(table(rows, ("tool", "positions", "samples", "candidates", "executed", "kept", "not kept"))))
    print(f"{report.augmented} of {count_of(report.texts, 'text')} have calls")
    print(neutralise_line(f"wrote {folder}: candidates.jsonl, corpus.jsonl, report.json"))
