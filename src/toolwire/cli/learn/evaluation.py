"""`toolwire learn eval`: the share of right calls of a model on a public benchmark."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError
from ..sources.documents import replace_file
from ..terminal.bar_chart import Bar, BarGroup, check_plot_path, draw_bars, render_plot
from ..terminal.options import (
    add_command,
    add_executor,
    add_flag,
    add_model,
    open_executor,
    positive_number,
    read_variable,
)
from ..terminal.output import ProgressBar, json_text, print_note, table

if TYPE_CHECKING:
    from ...learn.bfcl.evaluation import AnswerSource, BFCLReport, CategoryScore
    from ...learn.run_folder import RunFolder


_HELP = """\
Ask a model the entries of a benchmark, and count right calls and kinds of errors.

examples:
  toolwire learn eval bfcl -m smollm2 --format hermes --mask --limit 100
  toolwire learn eval bfcl -m runs/tuned/model --format hermes -o runs/score --plot score.svg
  toolwire learn eval bfcl -m anthropic/claude-sonnet-5 --categories simple_python,multiple --concurrency 16
  toolwire learn eval bfcl -m openai/gpt-5.6 --categories multi_turn_base --limit 20 -o runs/turns
  toolwire learn eval bfcl -m gpt-5.6 --base-url http://127.0.0.1:8080/v1 --wire openai_chat --json
  toolwire learn eval bfcl -m smollm2 --format hermes -o runs/score --resume

MODEL is a folder, a .gguf file or `smollm2` (run here, needs the extra learn), or provider/model as for
`toolwire run`. --format: the text format of a model without native calls; see `toolwire formats`.
--mask: only valid calls can be generated; models that run here only.
`pip install --no-deps bfcl-eval` installs the data and the checker of the Berkeley Function Calling Leaderboard.
[low, high]: 95 % confidence interval. right: accepted by the leaderboard's checker. valid: the calls match their schemas.
multi_turn_…: conversations in which the calls of the model are executed, by classes that simulate files, tickets or cars.
exit codes: 0 done   1 the share of right answers is below --fail-under, or no question could be asked
            2 wrong usage, or unreadable input
"""


def add_to(actions: Any) -> None:
    """Register `toolwire learn eval` with its options."""
    parser = add_command(actions, "eval", "measure the share of right calls on a benchmark", _HELP, _evaluate)
    parser.add_argument("benchmark", choices=["bfcl"], help="bfcl: Berkeley Function Calling Leaderboard")
    add_model(parser, "a folder, a .gguf file, `smollm2`, or provider/model", required=True)
    parser.add_argument("--format", metavar="FORMAT", help="text format of the calls")
    parser.add_argument("--wire", metavar="WIRE", help="wire of the server, if not its provider's default")
    parser.add_argument("--base-url", help="base URL of the model, if not its provider's")
    parser.add_argument("--key-env", metavar="NAME", help="environment variable with the key for --base-url")
    add_flag(parser, "--mask", "constrain the calls of a local model to their schemas")
    parser.add_argument("--choice", choices=["auto", "required"], default="auto", help="tool choice (auto)")
    parser.add_argument("--categories", metavar="A,B", help="categories of the benchmark (all with expected calls)")
    parser.add_argument("--limit", type=positive_number, metavar="N", help="a random sample of N entries")
    parser.add_argument(
        "--max-tokens", type=positive_number, default=512, metavar="N", help="tokens of an answer (512)"
    )
    parser.add_argument("--concurrency", type=positive_number, default=8, metavar="N", help="requests at a time (8)")
    parser.add_argument("--device", default="cpu", help="device of a local model: cpu, cuda (cpu)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the sample and the model (0)")
    parser.add_argument("-o", "--output", metavar="RUN", help="folder for the answers and the report")
    add_flag(parser, "--resume", "continue the run in the folder of -o")
    parser.add_argument("--fail-under", type=float, metavar="PERCENT", help="exit with 1 if fewer answers are right")
    parser.add_argument("--plot", metavar="FILE", help="write a chart to FILE.svg or FILE.html")
    add_flag(parser, "--json", "print the report as JSON")
    add_executor(parser)


def _evaluate(arguments: argparse.Namespace) -> int:
    """Answer the entries of the benchmark and print the report and, with --plot, write a chart.

    Returns 1 if the accuracy is below --fail-under or no request was answered. Raises `ConfigError` for --resume
    without -o and for empty --categories.
    """
    check_plot_path(arguments.plot)
    if arguments.resume and arguments.output is None:
        raise ConfigError("--resume needs the folder of a run", hint="add -o RUN")
    from ...learn.bfcl.entries import CALL_CATEGORIES
    from ...learn.bfcl.evaluation import evaluate_bfcl, select_entries

    named = arguments.categories
    categories = CALL_CATEGORIES if named is None else [name.strip() for name in named.split(",") if name.strip()]
    if not categories:
        raise ConfigError("--categories names no category", hint="name at least one, such as simple_python")
    entries = select_entries(categories, limit=arguments.limit, seed=arguments.seed)
    executor = open_executor(arguments)
    source = _open_source(arguments)
    run = _open_run(arguments, source, list(categories))
    threads = _count_threads() if executor is not None and _is_local(arguments) else None
    with ProgressBar("asking") as bar:
        report = evaluate_bfcl(
            source, entries, run=run, on_answer=bar, executor=executor, reopen=partial(_open_worker, arguments, threads)
        )
    if arguments.json:
        print(json_text(report.document()))
    else:
        _print_report(report)
    if arguments.plot:
        replace_file(
            arguments.plot, render_plot(arguments.plot, "right answers in percent", [_chart(report)], 100), mode=0o666
        )
        print_note(f"wrote {arguments.plot}", None)
    failed = report.total.outcomes.get("upstream_error", 0)
    if failed:
        _print_failures(report, failed, can_resume=run is not None)
    is_below = arguments.fail_under is not None and 100 * report.total.accuracy < arguments.fail_under
    return int(is_below or failed == report.total.entries)


def _print_failures(report: BFCLReport, failed: int, *, can_resume: bool) -> None:
    """Print why questions could not be asked: they count as wrong, which is no fault of the model."""
    fix = "; --resume asks them again" if can_resume else ""
    text = f"{failed} of {report.total.entries} questions could not be asked{fix}: {report.first_error}"
    print_note(text, "red")


def _open_run(arguments: argparse.Namespace, source: AnswerSource, categories: list[str]) -> RunFolder | None:
    """Return the run folder of -o with the settings that a resumed run must repeat, or None without -o."""
    if arguments.output is None:
        return None
    from ...learn.language_model import find_model, weight_files
    from ...learn.run_folder import RunFolder

    inputs = weight_files(find_model(arguments.model)) if _is_local(arguments) else []
    settings = {**source.settings, "categories": categories, "limit": arguments.limit, "sample_seed": arguments.seed}
    return RunFolder.create(arguments.output, settings, inputs, resume=arguments.resume)


def _is_local(arguments: argparse.Namespace) -> bool:
    """Return whether the model runs in this process: a path, or the name of weights without a provider."""
    if arguments.base_url is not None:
        return False
    from ...local.weights import weights_names

    return arguments.model in weights_names() or Path(arguments.model).exists()


def _open_source(arguments: argparse.Namespace) -> AnswerSource:
    return _open_local(arguments) if _is_local(arguments) else _open_client(arguments)


def _count_threads() -> int:
    import torch

    return int(torch.get_num_threads())


def _open_worker(arguments: argparse.Namespace, threads: int | None) -> AnswerSource:
    """Open the model in a worker, with as many threads as the command has: sums of floats depend on their number."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return _open_source(arguments)


def _open_local(arguments: argparse.Namespace) -> AnswerSource:
    """Open a model in this process as the source of answers.

    Raises `ConfigError` for --wire, and if the text format is neither given nor known from the chat template.
    """
    if arguments.wire is not None:
        raise ConfigError("--wire has no effect on a local model", hint="use --format FORMAT")
    from ...learn import LocalAnswers, open_model
    from ...text import detect_template, get

    if arguments.format is not None:
        get(arguments.format)  # before the weights are read
    model = open_model(arguments.model, device=arguments.device)
    form = arguments.format or detect_template(model.tokenizer.chat_template or "")
    if form is None:
        raise ConfigError(
            "the text format of this model is unknown", hint="add --format FORMAT; see `toolwire formats`"
        )
    return LocalAnswers(
        model,
        form,
        mask=arguments.mask,
        choice=arguments.choice,
        max_tokens=arguments.max_tokens,
        seed=arguments.seed,
    )


def _open_client(arguments: argparse.Namespace) -> AnswerSource:
    """Return a source of answers that asks a server.

    Raises `ConfigError` for --mask, which needs a model in this process.
    """
    if arguments.mask:
        raise ConfigError("--mask needs a model that runs here", hint="give the folder of a model, or `smollm2`")
    from ...learn.bfcl.answers import ClientAnswers
    from ...net.model.client import ModelClient

    key = read_variable(arguments.key_env)
    client = ModelClient(
        arguments.model, text=arguments.format, base_url=arguments.base_url, key=key, wire=arguments.wire
    )
    return ClientAnswers(
        client,
        choice=arguments.choice,
        max_tokens=arguments.max_tokens,
        seed=arguments.seed,
        concurrency=arguments.concurrency,
    )


def _print_report(report: BFCLReport) -> None:
    scores = [*report.categories, report.total]
    headers = ("category", "entries", "right", "%", "95 %", "valid", "errors")
    print("\n".join(table([_row(score) for score in scores], headers)))
    print()
    print("\n".join(draw_bars([_chart(report)], 100)))


def _row(score: CategoryScore) -> tuple[str, ...]:
    """Return the table row of a category: entries, right answers, accuracy with its interval, valid calls, errors."""
    low, high = score.interval
    errors = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in score.outcomes.items() if name != "right")
    return (
        score.category,
        str(score.entries),
        str(score.right),
        f"{100 * score.accuracy:.1f}",
        f"[{100 * low:.1f}, {100 * high:.1f}]",
        str(score.valid),
        errors or "none",
    )


def _chart(report: BFCLReport) -> BarGroup:
    """Return a bar for each category, and one of another colour for all of them."""
    bars = [_bar(score, 0) for score in report.categories]
    return BarGroup(str(report.settings.get("model", "")), [*bars, _bar(report.total, 1)])


def _bar(score: CategoryScore, kind: int) -> Bar:
    return Bar(score.category, 100 * score.accuracy, f"{100 * score.accuracy:.1f} % of {score.entries}", kind)
