"""`toolwire learn toolken`: train, extend, measure and use a head of toolkens (ToolkenGPT)."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.terminal import count_of, neutralise_text
from ..terminal.options import add_command, add_flag, add_model, positive_number, whole_number
from ..terminal.output import ProgressBar, json_text, print_note, table

if TYPE_CHECKING:
    from ...ir.tools import Tool
    from ...learn.language_model import LanguageModel
    from ...learn.run_folder import RunFolder
    from ...learn.toolken.decoding import ToolkenOutput
    from ...learn.toolken.demonstrations import Demonstration
    from ...learn.toolken.fitting import ToolkenFit
    from ...learn.toolken.head import ToolkenHead
    from ...learn.toolken.training import ToolkenScore


_HELP = """\
Train one row of the output layer for each tool. The model itself stays as it is.

examples:
  toolwire learn toolken pairs.jsonl -m smollm2 -o runs/head              one trained row for each tool of the pairs
  toolwire learn toolken pairs.jsonl -m smollm2 -o runs/head --resume     continue after an interruption
  toolwire learn toolken more.jsonl --add runs/head                       rows for new tools in this head; the others stay
  toolwire learn toolken recordings/ -m smollm2 -o runs/head              learn from conversations that a gateway recorded
  toolwire learn toolken test.jsonl -m smollm2 --head runs/head           measure: accuracy for each tool
  toolwire learn toolken -m smollm2 --head runs/head --tools tools.py --prompt "12 * 7 = "    write a text with calls

Each line of PAIRS is a text with marked calls, or a request with its tool:
  {"text": "2 + 3 = 5.", "calls": [{"tool": "add", "start": 8, "end": 9, "arguments": {"a": 2, "b": 3}}]}
  {"query": "rain in Rome tomorrow", "tool": "get_weather", "arguments": {"city": "Rome"}}
  {"query": "good morning", "answer": "Good morning!"}
--chat: queries are conversations in the model's chat template, as recordings are. Train a head with it to serve it by the
provider `toolken`.
start and end: the characters of the result. arguments: demonstrations for the prompt that asks for arguments.
--prompt: a function with side effects does not run without --yes; declare others with @tool(effect="read").
The model is not changed. --bias auto: the bias with the best F1 on the development set, a tenth of the texts.
exit codes: 0 done   1 the accuracy is below --fail-under   2 wrong usage, or unreadable input
"""
_SHOWN = 40  # rows of the table, one screen


def add_to(actions: Any) -> None:
    """Register `toolwire learn toolken` with its options."""
    parser = add_command(
        actions, "toolken", "ToolkenGPT: one trained token for each tool, on a frozen model", _HELP, _run
    )
    parser.add_argument(
        "pairs", nargs="?", metavar="PAIRS", help="JSON Lines of texts with marked calls, or recordings"
    )
    add_model(parser, "a folder, a .gguf file, or smollm2 (default: the model of --add or --head)")
    parser.add_argument("-o", "--output", metavar="RUN", help="the folder of the run; the head is in RUN/head")
    parser.add_argument(
        "--add", metavar="RUN", help="add the new tools of PAIRS to this head; with -o, to a copy of it"
    )
    parser.add_argument("--head", metavar="RUN", help="use the head of a run: measure PAIRS, or continue --prompt")
    parser.add_argument("--prompt", metavar="TEXT", help="the text to continue; calls run the functions of --tools")
    parser.add_argument("--tools", metavar="FILE", help="a Python file with the functions of the tools")
    add_flag(parser, "--yes", "run also calls with side effects (default: they fail)")
    parser.add_argument(
        "--max-tokens", type=positive_number, default=64, metavar="N", help="tokens after --prompt (64)"
    )
    parser.add_argument("--fail-under", type=_parse_number, metavar="PERCENT", help="exit with 1 if accuracy is lower")
    add_flag(parser, "--json", "print the result as JSON")
    _add_training(parser.add_argument_group("training"))


def _add_training(group: Any) -> None:
    """Add the options of the training."""
    group.add_argument("--dev", metavar="FILE", help="pairs for the calibration (default: a tenth of PAIRS)")
    group.add_argument("--bias", type=_parse_bias, metavar="auto|NUMBER", help="added to the logits of toolkens (auto)")
    group.add_argument("--epochs", type=positive_number, default=30, metavar="N", help="passes over the pairs (30)")
    group.add_argument("--rate", type=_parse_number, default=3e-3, metavar="NUMBER", help="learning rate (0.003)")
    group.add_argument("--batch", type=positive_number, default=256, metavar="N", help="positions per step (256)")
    group.add_argument("--negatives", type=positive_number, metavar="N", help="positions without a call per text (all)")
    group.add_argument("--seed", type=whole_number, default=0, metavar="N", help="seed of all random choices (0)")
    group.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda, … (cpu)")
    add_flag(group, "--chat", "queries are conversations in the model's chat template, as a head is served")
    add_flag(group, "--resume", "continue an interrupted run")


def _parse_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return value


def _parse_bias(text: str) -> float | None:
    return None if text == "auto" else _parse_number(text)


def _run(arguments: argparse.Namespace) -> int:
    """Use an existing head (--head) or train a new head. Raises `ConfigError` without PAIRS or -o for the training."""
    if arguments.head is not None:
        return _use_head(arguments)
    if arguments.pairs is None or (arguments.output is None and arguments.add is None):
        raise ConfigError(
            "there is nothing to train" if arguments.pairs is None else "there is no folder for the run",
            hint="give PAIRS and -o RUN, or --head RUN to use a head",
        )
    if arguments.output is not None:
        return _train(arguments, arguments.output)
    with TemporaryDirectory() as folder:  # an addition to a head in its own folder takes seconds
        return _train(arguments, folder)


def _train(arguments: argparse.Namespace, output: str) -> int:
    """Train a head, or extend the head of --add, in a run folder.

    Writes the head, the loss curve and `result.json`, and prints the result. Without -o, the head of --add is replaced.
    Returns 1 if the accuracy is below --fail-under.
    """
    from ...learn import ToolkenHead, open_model, split_demonstrations
    from ...learn.language_model import find_model, weight_files
    from ...learn.run_folder import RunFolder

    files = [file for file in (arguments.pairs, arguments.dev) if file]
    _check_pairs(files)  # before the model, which takes seconds
    tools = _read_tools(arguments.tools)
    name = _model_name(arguments)
    inputs: list[str | Path] = [one for file in files for one in _list_inputs(file)]
    inputs += [arguments.tools] if arguments.tools else []
    inputs += [*([_head_folder(arguments.add) / "head.json"] if arguments.add else []), *weight_files(find_model(name))]
    run = RunFolder.create(output, _settings_of(arguments), inputs, resume=arguments.resume)
    with run.preparing():
        model = open_model(name, device=arguments.device)
        base = None if arguments.add is None else ToolkenHead.load(_head_folder(arguments.add), model)
        is_chat = arguments.chat or any(map(_is_recorded, files)) or (base is not None and base.is_chat)
        pairs = [_read_pairs(file, model, is_chat=is_chat) for file in files]
        train, dev = pairs if arguments.dev else split_demonstrations(pairs[0], seed=arguments.seed)
    fit = _fit(arguments, model, base, (train, dev), tools, run)
    fit.head.is_chat = is_chat
    target = _head_folder(arguments.add if arguments.output is None else run.path)
    fit.head.save(target)
    _write_loss_curve(run, fit.losses)
    document = {
        "head": str(target),
        "tools": len(fit.head.tools),
        "parameters": (len(fit.head.tools) - (len(base.tools) if base else 0)) * fit.head.hidden_dim,
        "loss": fit.losses[-1],
        "bias": fit.head.bias,
        **_score_document(fit.score),
    }
    run.write_json("result.json", document)
    return _finish(arguments, document, fit.score)


def _model_name(arguments: argparse.Namespace) -> str:
    """Return the model of -m, or the model of the head of --add or --head. Raise ConfigError if none is known."""
    from ...learn import ToolkenHead

    if arguments.model is not None:
        return str(arguments.model)
    head = arguments.add or arguments.head
    name = "" if head is None else ToolkenHead.load(_head_folder(head)).model_name
    if not name:
        raise ConfigError("there is no model", hint="give the model with -m")
    return name


# Pairs are rows of JSON Lines, or conversations: recordings of a gateway or an agent, in a file or a folder.


def _is_recorded(file: str) -> bool:
    from ...learn.example_sources import is_trace

    return Path(file).is_dir() or is_trace(Path(file))


def _list_inputs(file: str) -> list[Path]:
    from ...learn.example_sources import list_files

    return list_files(Path(file)) if Path(file).is_dir() else [Path(file)]


def _check_pairs(files: list[str]) -> None:
    """Raise ConfigError for an invalid row."""
    from ...learn import read_demonstrations

    for file in files:
        if not _is_recorded(file):
            read_demonstrations(file)


def _read_pairs(file: str, model: LanguageModel, *, is_chat: bool) -> list[Demonstration]:
    """Read the pairs of a file or a folder. Raise ConfigError if recordings have no conversation to learn from."""
    from ...learn import collect_examples, demonstrations_of_examples, read_demonstrations
    from ...learn.toolken.demonstrations import QUERY_PROMPT, chat_query_prompt

    if not _is_recorded(file):
        return read_demonstrations(file, prompt=chat_query_prompt(model) if is_chat else QUERY_PROMPT)
    found = demonstrations_of_examples(model, collect_examples([file]))
    if not found:
        raise ConfigError(f"{file} has no conversation to learn from", hint="`toolwire learn export` shows the reasons")
    return found


def _settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("model", "add", "tools", "bias", "chat", "epochs", "rate", "batch", "negatives", "seed")
    return {name: getattr(arguments, name) for name in names}


def _fit(
    arguments: argparse.Namespace,
    model: LanguageModel,
    base: ToolkenHead | None,
    data: tuple[list[Demonstration], list[Demonstration]],
    tools: tuple[Tool, ...],
    run: RunFolder,
) -> ToolkenFit:
    """Train on `data` (training and dev demonstrations), with the tools of `base` kept as they are if it is given.

    Hidden states are cached in the run folder.
    """
    from ...learn import ToolkenSettings, add_toolkens, fit_toolkens

    settings = ToolkenSettings(
        epochs=arguments.epochs, learning_rate=arguments.rate, batch=arguments.batch, seed=arguments.seed
    )
    with ProgressBar("hidden states") as bar:
        options: dict[str, Any] = {
            "tools": tools,
            "settings": settings,
            "bias": arguments.bias,
            "negatives": arguments.negatives,
            "cache": run.path / "states",
            "run": run,
            "progress": bar,
        }
        return fit_toolkens(model, *data, **options) if base is None else add_toolkens(model, base, *data, **options)


def _write_loss_curve(run: RunFolder, losses: tuple[float, ...]) -> None:
    from ...learn.plots import draw_lines
    from ...learn.run_folder import is_installed

    if not is_installed("matplotlib"):
        return
    points = [(float(epoch), loss) for epoch, loss in enumerate(losses, 1)]
    draw_lines(run.path / "loss.svg", "Loss of the toolkens", "epoch", "mean of -log p", {"train": points})


def _use_head(arguments: argparse.Namespace) -> int:
    """Measure a trained head on PAIRS, or continue --prompt with it.

    Raises `ConfigError` unless exactly one of the two is given. --bias replaces the bias of the head.
    """
    if (arguments.pairs is None) == (arguments.prompt is None):
        raise ConfigError("--head needs either PAIRS to measure or --prompt to continue")
    from ...learn import ToolkenHead, collect_states, measure_toolkens, open_model

    _check_pairs([] if arguments.pairs is None else [arguments.pairs])
    model = open_model(_model_name(arguments), device=arguments.device)
    head = ToolkenHead.load(_head_folder(arguments.head), model).to(model.device)
    if arguments.bias is not None:
        head.bias = arguments.bias
    if arguments.pairs is None:
        return _continue_prompt(arguments, model, head)
    demonstrations = _read_pairs(arguments.pairs, model, is_chat=arguments.chat or head.is_chat)
    with ProgressBar("hidden states") as bar:
        states = collect_states(model, demonstrations, head.names, progress=bar)
    score = measure_toolkens(head, states)
    document = {"head": arguments.head, "tools": len(head.tools), "bias": head.bias, **_score_document(score)}
    return _finish(arguments, document, score)


def _continue_prompt(arguments: argparse.Namespace, model: LanguageModel, head: ToolkenHead) -> int:
    """Continue --prompt with a head, run its calls with the functions of --tools, and print the text.

    Calls with side effects fail unless --yes is given. Raises `ConfigError` without --tools.
    """
    from ...learn import generate_with_toolkens
    from ...net.tools.runner import Runner
    from ...run.calls.policy import Policy
    from ..sources.targets import load_tools

    if arguments.tools is None:
        raise ConfigError("the calls need functions", hint="give a Python file with --tools")
    policy = Policy() if arguments.yes else Policy(approve=("write", "idempotent"))
    runner = Runner(load_tools(arguments.tools), keeps_outputs=False, policy=policy)  # without an approver
    try:
        output = generate_with_toolkens(model, head, runner, arguments.prompt, max_new=arguments.max_tokens)
    finally:
        runner.close()
    if arguments.json:
        print(json_text(msgspec.to_builtins(output)))
    else:
        _print_output(arguments.prompt, output)
    return 0


def _print_output(prompt: str, output: ToolkenOutput) -> None:
    print(neutralise_text(prompt + output.text))
    rows = [
        (call.tool, json_text(call.arguments or {}).replace("\n", " "), call.result or f"failed: {call.error}")
        for call in (*output.calls, *output.failed)
    ]
    if rows:
        print("\n".join(table(rows, ("tool", "arguments", "result"))), file=sys.stderr)


def _head_folder(run: str | Path) -> Path:
    """Return the folder of a head: inside the folder of a run, or the folder itself."""
    path = Path(run)
    return path if (path / "head.json").is_file() else path / "head"


def _read_tools(file: str | None) -> tuple[Tool, ...]:
    if file is None:
        return ()
    from ...run.tools.toolbox import Toolbox
    from ..sources.targets import load_tools

    return Toolbox(load_tools(file)).tools


def _score_document(score: ToolkenScore) -> dict[str, Any]:
    return {
        "accuracy": score.accuracy,
        "positions": score.positions,
        "calls": {"precision": score.calls.precision, "recall": score.calls.recall, "f1": score.calls.f1},
        "by_tool": {name: {"accuracy": value, "positions": count} for name, (value, count) in score.by_tool.items()},
    }


def _finish(arguments: argparse.Namespace, document: dict[str, Any], score: ToolkenScore) -> int:
    """Print the result, the worst tools first, and return 1 if the accuracy is below --fail-under."""
    if arguments.json:
        print(json_text(document))
    else:
        ordered = sorted(score.by_tool.items(), key=lambda item: (item[1][0], item[0]))
        rows = [(name, f"{100 * value:.1f}", str(count)) for name, (value, count) in ordered[:_SHOWN]]
        print("\n".join(table(rows, ("tool", "right tool %", "positions"))))
        if len(ordered) > _SHOWN:
            print(f"and {count_of(len(ordered) - _SHOWN, 'better tool')}")
        print(f"right tool at {count_of(score.positions, 'call')}: {100 * score.accuracy:.1f} %")
        print(
            f"calls with bias {document['bias']:.2f}: precision {100 * score.calls.precision:.1f} %, "
            f"recall {100 * score.calls.recall:.1f} %"
        )
        if "loss" in document:
            print_note(f"wrote {document['head']}", None)
    return int(arguments.fail_under is not None and 100 * score.accuracy < arguments.fail_under)
