"""`toolwire learn`: training data, fine-tuning, Toolformer, ToolkenGPT and evaluation for open models.

`toolwire learn export` is here: recorded conversations and training files as training data in another format.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from ...ir.errors import ConfigError
from ...ir.terminal import count_of, neutralise_line
from ..terminal.options import add_command, add_flag, positive_number, settings_from, whole_number
from ..terminal.output import ProgressBar, json_text, paint, print_note, print_text, table
from .evaluation import add_to as add_eval
from .submit import add_submit
from .toolken import add_to as add_toolken
from .training import add_mine, add_train

if TYPE_CHECKING:
    from ...learn.example_export import ExampleExport, ExportReport, ExportSettings
    from ...retrieve.index import ToolIndex


_FORMATS = (
    "openai",
    "trl",
    "trl_prompt",
    "llamafactory",
    "llamafactory_openai",
    "axolotl",
    "swift",
    "xlam",
    "toolwire",
)
_READ_ONLY = ("toolace",)
_EXPORT_HELP = """\
Write recorded conversations and training files as training data in another format.

examples:
  toolwire learn export traces/ --format trl -o train.jsonl               conversations of `--trace` and `trace record`
  toolwire learn export train.jsonl --format axolotl -o axolotl.jsonl     another format; that of the file is detected
  toolwire learn export traces/ --format openai -o data.jsonl --check --dedupe --split by-tool:0.1
                                                   data.train.jsonl and data.test.jsonl: 10 % of the tools held out
  toolwire learn export xlam.json --format trl -o train.jsonl --max-per-tool 200 --min-per-tool 20 --seed 1
  toolwire learn export train.jsonl --format trl -o rag.jsonl --specs tools.index --k 3
                                                   retrieved specifications; the right one may be missing
  toolwire learn export traces/ --format llamafactory --dry-run           the report only

formats: openai  trl  trl_prompt  llamafactory  llamafactory_openai  axolotl  swift  xlam  toolwire (lossless).
Read only: toolace, and traces of toolwire.
Only complete conversations of successful runs are exported. Rejected ones are counted with their reasons.
Beside the data, FILE.manifest.json records the settings, the SHA-256 of the inputs, the counts and the losses.
exit codes: 0 done   1 a loss with --strict, or no example   2 wrong usage, or unreadable input
"""


def add_export(actions: Any) -> None:
    """Register `toolwire learn export` with its options."""
    parser = add_command(
        actions, "export", "recorded conversations and training files as training data", _EXPORT_HELP, _export
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="traces, training files, or folders of them")
    parser.add_argument("--format", required=True, choices=_FORMATS, metavar="FORMAT", help="the format to write")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write")
    parser.add_argument(
        "--from", dest="source_format", choices=(*_FORMATS, *_READ_ONLY), metavar="FORMAT", help="format of the sources"
    )
    _add_selection(parser)
    _add_specifications(parser)
    add_flag(parser, "--strict", "write nothing if there is a loss above info")
    add_flag(parser, "--dry-run", "report only")
    add_flag(parser, "--json", "print the report as JSON")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select and split the examples."""
    group = parser.add_argument_group("selection")
    add_flag(group, "--check", "reject examples with wrong roles, results or arguments")
    add_flag(group, "--include-failed", "also runs without an answer and failed tools")
    group.add_argument(
        "--dedupe", nargs="?", const="exact", choices=("exact", "near"), help="remove duplicates; near: by the question"
    )
    group.add_argument("--max-per-tool", type=positive_number, metavar="N", help="keep at most N examples of a tool")
    group.add_argument(
        "--min-per-tool", type=positive_number, metavar="N", help="drop tools with fewer than N examples"
    )
    group.add_argument("--split", type=_parse_split, metavar="KIND:SHARE", help="by-tool:0.1 or by-example:0.1")
    group.add_argument("--seed", type=whole_number, default=0, metavar="N", help="seed of the selection (0)")


def _add_specifications(parser: argparse.ArgumentParser) -> None:
    """Add the options that replace an example's tools by retrieved specifications."""
    group = parser.add_argument_group("retrieved specifications")
    group.add_argument("--specs", metavar="INDEX", help="replace the tools by those found in an index file")
    group.add_argument("--k", type=positive_number, default=3, metavar="N", help="number of specifications (3)")
    group.add_argument(
        "--gold",
        choices=("retrieved", "kept", "first", "oracle"),
        default="retrieved",
        help="the called tool: as found (default), kept if missing, first, or alone",
    )
    group.add_argument("--place", choices=("tools", "prompt"), default="tools", help="where they are put (tools)")


def _parse_split(text: str) -> tuple[str, float]:
    found = re.fullmatch(r"(by-tool|by-example):(0?\.[0-9]{1,9})", text)
    if found is None or not float(found[2]):
        raise argparse.ArgumentTypeError(f"must be by-tool:SHARE or by-example:SHARE with 0 < SHARE < 1, got {text!r}")
    return found[1], float(found[2])


def _export(arguments: argparse.Namespace) -> int:
    """Collect, check and write examples, print the report, and return the exit code.

    With --strict, a loss above info prevents the writing. Raises `ConfigError` without -o and --dry-run.
    """
    from ...learn.example_export import ExampleExport

    if arguments.output is None and not arguments.dry_run:
        raise ConfigError("there is no file to write", hint="give -o FILE, or --dry-run for the report only")
    settings = _settings(arguments)
    with ExampleExport(settings, _open_index(arguments.specs)) as export:
        with ProgressBar("reading") as bar:
            export.collect(arguments.sources, bar)
        with ProgressBar("checking") as bar:
            report = export.plan(bar)
        refused = arguments.strict and any(loss.severity != "info" for loss in report.losses)
        written: dict[str, int] = {}
        if not arguments.json:
            _print_report(report, settings)
        if not (refused or arguments.dry_run) and report.examples:
            written = _write(export, report, arguments)
    if arguments.json:
        print(json_text(_document(report, written)))
    return _finish(report, written, refused=refused)


def _finish(report: ExportReport, written: dict[str, int], *, refused: bool) -> int:
    for file, count in written.items():
        print_note(f"wrote {file}: {count_of(count, 'example')}", None)
    if not report.examples:
        print_note("no example can be exported", None)
    elif refused:
        print_note("nothing was written: there are losses, and --strict is on", None)
    return int(refused or not report.examples)


def _settings(arguments: argparse.Namespace) -> ExportSettings:
    from ...learn.example_export import ExportSettings

    split, share = arguments.split or (None, 0.1)
    return settings_from(ExportSettings, arguments, split=split, share=share)


def _open_index(path: str | None) -> ToolIndex | None:
    if path is None:
        return None
    from ..tools.groups import load_file

    return load_file(path, argparse.Namespace(words_only=False))


def _write(export: ExampleExport, report: ExportReport, arguments: argparse.Namespace) -> dict[str, int]:
    """Write the data and the manifest with its inputs' hashes, and return the number of examples per file.

    Raises `ConfigError` if an output file is also an input.
    """
    from ...learn.example_sources import list_files
    from ...learn.run_folder import hash_file, write_atomically

    inputs = [file for source in arguments.sources for file in list_files(Path(source))]
    _refuse_own_input(inputs, list(export.files(arguments.output).values()))
    hashes = {str(file): hash_file(file) for file in inputs}
    if arguments.specs is not None:
        hashes[arguments.specs] = hash_file(Path(arguments.specs))
    written = export.write(arguments.output)
    manifest = {"settings": asdict(export.settings), "inputs": hashes, **_document(report, written)}
    target = Path(arguments.output)
    write_atomically(target.with_name(f"{target.stem}.manifest.json"), json_text(manifest).encode() + b"\n")
    return written


def _refuse_own_input(inputs: list[Path], outputs: list[Path]) -> None:
    """Raise ConfigError if the file to write is also an input."""
    known = {file.resolve() for file in inputs}
    for file in outputs:
        if file.resolve() in known:
            raise ConfigError(f"{file} is also an input", hint="choose another file to write")


def _print_report(report: ExportReport, settings: ExportSettings) -> None:
    """Print the tables of tools, losses and rejected examples, and a hint for the trainer."""
    from ...learn import formats

    sides = list(report.examples)
    if report.tools:
        total = ("all", *(str(report.examples[side]) for side in sides))
        rows = [(name, *(str(counts[side]) for side in sides)) for name, counts in report.tools.items()]
        print("\n".join(table([*rows[:_MAX_ROWS], total], ("tool", *sides))))
        if len(rows) > _MAX_ROWS:
            print(f"and {count_of(len(rows) - _MAX_ROWS, 'more tool')}")
    if report.held_out:
        print(neutralise_line(f"held out: {', '.join(report.held_out[:_MAX_ROWS])}"))
    if report.gold_found is not None:
        print_text(f"\nall called tools among the specifications: {100 * report.gold_found:.1f} % of the examples")
    if report.losses:
        print(f"\n{paint('losses', 'bold')}")
        cells = [
            (one.severity, f"{one.concept} {one.action}", str(one.count), one.first, one.detail)
            for one in report.losses
        ]
        print("\n".join(table(cells, ("severity", "loss", "examples", "first", "reason"))))
    if report.rejected:
        print(f"\n{paint('rejected', 'bold')}")
        first = {one.reason: f"{one.source}: {one.detail}" for one in reversed(report.details)}
        rejected_rows = [(reason, str(count), first.get(reason, "")) for reason, count in report.rejected.items()]
        print("\n".join(table(rejected_rows, ("reason", "examples", "first"))))
    hint = formats.get(settings.format).settings
    if hint and report.examples:
        print_text(f"\ntrainer: {hint}")


_MAX_ROWS = 40  # tools of a table; it stays on one screen with the lines around it


def _document(report: ExportReport, written: dict[str, int]) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(report)
    return {"examples": {}, "tools": {}, "losses": [], "rejected": {}, **document, "written": written}


_HELP = """\
Teach an open model to call tools, and measure how well it does.

examples:
  toolwire learn export traces/ --format trl -o train.jsonl    recorded conversations as training data
  toolwire learn train train.jsonl -m smollm2 -o runs/tuned    fine-tune, write an adapter and a GGUF file
  toolwire learn submit train.jsonl --to openai -m gpt-4.1-mini-2025-04-14 -o runs/job
                                                               fine-tune at a provider
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined     Toolformer: find the calls that help the model
  toolwire learn toolken pairs.jsonl -m smollm2 -o runs/head   ToolkenGPT: one trained token for each tool
  toolwire learn eval bfcl -m smollm2 --format hermes --mask   the share of right calls

Every action has its own help. Models are folders or files on this machine, except for submit; nothing is downloaded.
exit codes: 0 done   1 a check failed   2 wrong usage, or unreadable input
"""


def add_to(commands: Any) -> None:
    parser = add_command(commands, "learn", "training data, fine-tuning and evaluation for open models", _HELP)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for add in (add_export, add_train, add_submit, add_mine, add_toolken, add_eval):
        add(actions)
