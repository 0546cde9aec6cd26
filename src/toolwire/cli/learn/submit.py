"""`toolwire learn submit`: fine-tune a model at its provider."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.terminal import count_of, neutralise_line
from ..terminal.input import discard_typed_input, is_confirmed
from ..terminal.options import add_command, add_flag, add_model, positive_number, settings_from, whole_number
from ..terminal.output import json_text, print_command, print_note, print_text

if TYPE_CHECKING:
    from ...learn.submit.service import TuningService
    from ...learn.submit.submission import CostQuestion, Submission, SubmitReport, SubmitSettings

_SERVICES = ("openai", "mistral", "together", "vertex")
_EPOCHS = 3  # the default of `SubmitSettings`, where it has its reason
_FIXED = ("validation", "epochs", "suffix", "seed", "learning_rate", "bucket", "max_cost", "price", "base_url")
_HELP = """\
Fine-tune a model at its provider: check the data, show the cost, upload, create the job, watch it and fetch the result.

examples:
  toolwire learn submit train.jsonl --to openai -m gpt-4.1-mini-2025-04-14 -o runs/job
  toolwire learn submit train.jsonl --to together -m Qwen/Qwen3-8B -o runs/job --validation test.jsonl --yes --max-cost 5
  toolwire learn submit train.jsonl --to vertex -m gemini-2.5-flash -o runs/job --bucket gs://data/tuning --price 5
  toolwire learn submit -o runs/job --resume      after Ctrl-C, a restart or an error: never a second job
  toolwire learn submit -o runs/job --cancel

FILE: conversations in any format of `toolwire learn export`. Nothing is sent before you confirm the cost.
Keys: OPENAI_API_KEY, MISTRAL_API_KEY, TOGETHER_API_KEY, or --key-env; for vertex CLOUDSDK_AUTH_ACCESS_TOKEN or
--key-command, and GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION. They are not written.
Another server, of --base-url or OPENAI_BASE_URL, gets a key only with --key-env.
The folder gets train.jsonl (in the form of the service), state.json, and result.json with the name of the model.
exit codes: 0 done   1 not confirmed, refused or failed   2 wrong usage, or no answer; continue with --resume
130 Ctrl-C: the job goes on
"""


def add_submit(actions: Any) -> None:
    """Register `toolwire learn submit` with its options."""
    parser = add_command(actions, "submit", "fine-tune a model at its provider", _HELP, _submit)
    parser.add_argument("file", nargs="?", metavar="FILE", help="the training examples")
    parser.add_argument("--to", choices=_SERVICES, help="the provider")
    add_model(parser, "the provider's name of the base model")
    parser.add_argument("-o", "--output", required=True, metavar="RUN", help="the folder of the run")
    parser.add_argument("--validation", metavar="FILE", help="held-out examples that the provider measures on")
    parser.add_argument("--epochs", type=positive_number, metavar="NUMBER", help="passes over the data (3)")
    parser.add_argument("--suffix", metavar="NAME", help="part of the name of the tuned model")
    parser.add_argument("--seed", type=whole_number, metavar="NUMBER", help="seed of the training (openai, together)")
    parser.add_argument("--learning-rate", type=_parse_amount, metavar="RATE", help="a multiplier at openai and vertex")
    parser.add_argument("--bucket", metavar="gs://NAME", help="of Cloud Storage, for vertex")
    cost = parser.add_argument_group("cost")
    add_flag(cost, "--yes", "confirm every cost, also an unknown one without --max-cost")
    cost.add_argument(
        "--max-cost", type=_parse_amount, metavar="USD", help="start no job that costs more, or an unknown amount"
    )
    cost.add_argument("--price", type=_parse_amount, metavar="USD", help="per million tokens, if none is known")
    group = parser.add_argument_group("run")
    add_flag(group, "--resume", "continue the run in the folder")
    add_flag(group, "--cancel", "cancel the job of the folder")
    add_flag(group, "--no-wait", "return after the job has started")
    group.add_argument("--poll", type=positive_number, default=30, metavar="SECONDS", help="between two looks (30)")
    group.add_argument("--minutes", type=_parse_amount, metavar="NUMBER", help="stop watching after this time")
    group.add_argument("--key-env", metavar="NAME", help="environment variable with the key")
    group.add_argument(
        "--key-command",
        type=_parse_command,
        metavar="COMMAND",
        help="command that prints the key; it runs again when needed",
    )
    group.add_argument("--base-url", metavar="URL", help="another server with the same API; needs --key-env")
    add_flag(group, "--json", "print the report as JSON")


def _parse_amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return number


def _parse_command(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error} in {text!r}") from None
    if not words:
        raise argparse.ArgumentTypeError("the command is empty")
    return words


def _submit(arguments: argparse.Namespace) -> int:
    """Run the steps of a submission that are not done, and print the report. Returns 1 without a tuned model."""
    from ...learn.run_folder import RunFolder
    from ...learn.submit.service_api import RefusedTrainingFile
    from ...learn.submit.submission import CostExceeded, TuningJobFailed, open_settings

    if arguments.resume and arguments.cancel:
        raise ConfigError("both --resume and --cancel are given", hint="remove one of them")
    is_known = arguments.resume or arguments.cancel
    if is_known:
        _require_no_settings(arguments)
    settings = open_settings(RunFolder.open(arguments.output)) if is_known else _new_settings(arguments)
    try:
        report = asyncio.run(_run(arguments, settings))
    except KeyboardInterrupt:
        _print_continuation(arguments.output)
        raise
    except (CostExceeded, RefusedTrainingFile, TuningJobFailed) as error:
        if arguments.json:
            print(json_text({"error": error.message, "kind": type(error).__name__}))
        print_note(str(error), "red")
        return 1
    except TimeoutError as error:
        print_note(str(error), None)
        _print_continuation(arguments.output)
        return 1
    _print_report(report, arguments)
    return 0


def _require_no_settings(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for an option that would not apply to a run in its folder."""
    if arguments.file or arguments.to or arguments.model:
        raise ConfigError("a run continues with its own file and model", hint="give only -o RUN")
    for name in _FIXED:
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} cannot change for a run that exists", hint="remove it, or use a new folder")


def _new_settings(arguments: argparse.Namespace) -> SubmitSettings:
    from ...learn.submit.submission import SubmitSettings

    for name, value in (("FILE", arguments.file), ("--to", arguments.to), ("-m", arguments.model)):
        if value is None:
            raise ConfigError(f"{name} is missing", hint="see --help, or continue a run with --resume")
    return settings_from(SubmitSettings, arguments, epochs=arguments.epochs or _EPOCHS)


async def _run(arguments: argparse.Namespace, settings: SubmitSettings) -> SubmitReport:
    from ...learn.submit.services import open_tuning_service

    keys = {"key_variable": arguments.key_env, "key_command": arguments.key_command}
    async with open_tuning_service(settings, **keys) as service:
        submission = _open_submission(arguments, settings, service)
        if arguments.cancel:
            return await submission.cancel()
        return await submission.run(
            confirm=lambda question: _confirm(question, is_yes=arguments.yes),
            on_status=lambda line: print_note(line, None),
            is_watching=not arguments.no_wait,
        )


def _open_submission(arguments: argparse.Namespace, settings: SubmitSettings, service: TuningService) -> Submission:
    from ...learn.run_folder import RunFolder
    from ...learn.submit.submission import Submission, Waiting

    seconds = None if arguments.minutes is None else arguments.minutes * 60
    waiting = Waiting(poll_seconds=float(arguments.poll), watch_seconds=seconds)
    if arguments.resume or arguments.cancel:
        return Submission(RunFolder.open(arguments.output), settings, service, waiting)
    return Submission.create(
        arguments.output, arguments.file, settings, service, validation=arguments.validation, waiting=waiting
    )


def _confirm(question: CostQuestion, *, is_yes: bool) -> bool:
    """Print the cost, and ask on a terminal. An unknown cost needs --yes."""
    for line in _cost_lines(question):
        print_note(line, None)
    if is_yes:
        return True
    if question.estimate.usd is None and not question.is_quoted_later:
        print_note("the cost is unknown: give --yes, or --price USD per million tokens")
        return False
    if not sys.stdin.isatty():
        print_note("there is no terminal to confirm on: give --yes")
        return False
    discard_typed_input()  # text that was typed before the question is not an answer to it
    return is_confirmed("Start the job:" if question.is_quote else f"Upload to {question.service}:")


def _cost_lines(question: CostQuestion) -> list[str]:
    """Return the size of the files, the cost with its source, and the service's limitations."""
    estimate, lines = question.estimate, []
    if not question.is_quote:
        for file in question.files:
            lines.append(f"{count_of(file.examples, 'example')}, {file.bytes} bytes, about {file.tokens} tokens")
            lines += [f"  {name}: {count_of(count, 'example')}" for name, count in file.losses.items()]
    usd = "unknown" if estimate.usd is None else f"{estimate.usd:.2f} USD"
    lines.append(f"cost of about {estimate.tokens} trained tokens: {usd} ({estimate.source})")
    if question.is_quoted_later:
        lines.append(f"{question.service} calculates its own price before the job starts, and you are asked again")
    return [*lines, *([question.notice] if question.notice and not question.is_quote else [])]


def _print_continuation(folder: str) -> None:
    quoted = shlex.quote(folder)
    print_command(f"toolwire learn submit -o {quoted} --resume", "continue; a job at the provider goes on meanwhile")
    print_command(f"toolwire learn submit -o {quoted} --cancel", "cancel the job")


def _print_report(report: SubmitReport, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json_text(msgspec.to_builtins(report)))
        return
    job = report.job
    if job is None:
        return
    print(neutralise_line(f"job {job.id}: {job.status}"))
    if job.model is not None:
        print(neutralise_line(f"model {job.model}"))
    if job.trained_tokens is not None:
        print_text(f"{job.trained_tokens} trained tokens")
    if job.cost is not None:
        print_text(f"cost {job.cost:.2f} {job.currency}")
    if job.phase == "done":
        print(neutralise_line(f"wrote {report.folder}: result.json{_listed(report)}"))
    elif not job.is_final:
        _print_continuation(report.folder)


def _listed(report: SubmitReport) -> str:
    files = report.results.get("files") or []
    return "".join(f", {name}" for name in files)
