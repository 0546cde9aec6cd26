"""`toolwire learn mine`: find the tool calls of plain texts that help a model to predict them (Toolformer)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.terminal import neutralise_line
from .progress_bar import ProgressBar
from .show import count_of, json_text, table

if TYPE_CHECKING:
    from ..learn.toolformer.mining import MiningSettings
    from ..learn.toolformer.mining_run import MiningReport

__all__ = ["add_to"]

_MAX_REASONS = 4
_EXAMPLES = """\
examples:
  toolwire learn mine texts.txt -m smollm2 -o runs/mined
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined --tools calculator,calendar,search=passages.txt
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined --resume
  toolwire learn mine texts.jsonl -m smollm2 -o runs/here --store redis://host     on several machines at once

TEXTS: one text per line, or JSON Lines such as {"text": "8 - 2 = 6", "date": "2025-07-04"}.
Tools: calculator, calendar, convert, search=FILE (one passage per line), qa=FILE and translate=FILE (two columns
separated by a tab), or a JSON file such as [{"kind": "calculator", "threshold": 0.5}].
Filters: paper (the call before the text, its loss below both no call and no result), seed (the call at its place,
against no call), rank (the best share by the score of seed), none.
The folder gets candidates.jsonl, corpus.jsonl (all texts, with the kept calls) and report.json.
exit codes: 0 done   1 no call was kept   2 wrong usage, or unreadable input
"""


def add_to(actions: Any) -> None:
    parser = actions.add_parser(
        "mine",
        help="find the tool calls of plain texts that help a model (Toolformer)",
        description="Sample tool calls in texts, execute them, and keep those whose results help to predict the text.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("texts", metavar="TEXTS", help="file of texts")
    parser.add_argument("-m", "--model", required=True, help="folder of a model, a GGUF file, or smollm2")
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
    parser.add_argument("--store", metavar="URL", help="store that several machines share (default: a file in RUN)")
    parser.add_argument("--lease", type=float, default=120.0, metavar="SECONDS", help="lease of a shard (120)")
    parser.add_argument("--shard-size", type=int, default=32, metavar="NUMBER", help="texts of a shard (32)")
    parser.add_argument("--batch-tokens", type=int, default=16_384, metavar="NUMBER", help="tokens of a batch (16384)")
    parser.add_argument("--device", default="cpu", help="device of the model (cpu)")
    parser.add_argument("--dtype", default="float32", help="type of the weights (float32)")
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=_mine)


def _mine(arguments: argparse.Namespace) -> int:
    import msgspec

    from ..learn.language_model import find_model, open_model, weight_files
    from ..learn.run_folder import RunFolder, require_installed
    from ..learn.toolformer.corpus import read_texts
    from ..learn.toolformer.mining import check_settings
    from ..learn.toolformer.mining_run import mine_corpus, open_tools, read_tool_list
    from ..net.stores import open_store

    require_installed("mining", "torch", "transformers", "llguidance")  # before the folder of the run is created
    texts = read_texts(arguments.texts)
    entries = read_tool_list(arguments.tools)
    tools = open_tools(entries)
    settings = _settings(arguments)
    check_settings(tools, settings)
    model_folder = find_model(arguments.model)
    inputs = [arguments.texts, *(one.file for one in entries if one.file), *weight_files(model_folder)]
    described = {
        **msgspec.structs.asdict(settings),
        "tools": msgspec.to_builtins(entries),
        "shard_size": arguments.shard_size,
        "dtype": arguments.dtype,
    }
    folder = RunFolder.create(arguments.output, described, inputs, resume=arguments.resume)
    with folder.preparing():
        model = open_model(model_folder, device=arguments.device, dtype=arguments.dtype)
    store = open_store(arguments.store or str(folder.path / "shards.db"))
    try:
        with ProgressBar("mining shards") as bar:
            report = mine_corpus(
                model,
                texts,
                tools,
                settings,
                folder,
                store,
                shard_size=arguments.shard_size,
                lease=arguments.lease,
                progress=bar,
            )
    finally:
        store.close()
    _print(report, folder.path, as_json=arguments.json)
    return int(not report.augmented)


def _settings(arguments: argparse.Namespace) -> MiningSettings:
    from ..learn.toolformer.mining import MiningSettings

    return MiningSettings(
        filter=arguments.filter,
        threshold=arguments.threshold,
        positions=arguments.positions,
        samples=arguments.samples,
        call_probability=arguments.call_probability,
        temperature=arguments.temperature,
        share=arguments.share,
        seed=arguments.seed,
        batch_tokens=arguments.batch_tokens,
    )


def _print(report: MiningReport, folder: Path, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        print(json_text(msgspec.to_builtins(report)))
        return
    rows = []
    for one in report.tools:
        reasons = list(one.reasons.items())
        shown = [f"{reason} {number}" for reason, number in reasons[:_MAX_REASONS]]
        others = sum(number for _, number in reasons[_MAX_REASONS:])
        shown += [f"other {others}"] if others else []
        numbers = (one.positions, one.samples, one.candidates, one.executed, one.kept)
        rows.append((one.tool, *map(str, numbers), ", ".join(shown)))
    print("\n".join(table(rows, ("tool", "positions", "samples", "candidates", "executed", "kept", "not kept"))))
    print(f"{report.augmented} of {count_of(report.texts, 'text')} have calls")
    print(neutralise_line(f"wrote {folder}: candidates.jsonl, corpus.jsonl, report.json"))
