"""Fine-tune a model on 20 tools with 50, 100 and 200 examples each, and measure calls on held-out prompts.

    python bench/learn_sft.py run OUT -m smollm2 --device cuda --minutes 7
    python bench/learn_sft.py report OUT docs/experiments

Held-out prompts have templates and values that no training prompt has (bench/learn_sft_data.py). Calls are measured
free, and with a mask that allows only a call; before training and after each size. Every stage is stored in OUT, so that
a second `run` continues. The settings were fixed before the first run. `report` writes the page and its chart.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import msgspec

from learn_sft_data import OFFERED, SKILLS, make_examples
from toolwire.learn import TrainSettings, open_model
from toolwire.learn.call_quality import CallQuality, call_questions, mask_calls, measure_calls
from toolwire.learn.plots import draw_lines
from toolwire.learn.run_folder import RunFolder
from toolwire.learn.training import add_adapter, merge_adapter, train
from toolwire.learn.tuning import build_rows
from toolwire.text import get

SIZES = {"full": (50, 100, 200), "tiny": (1, 2)}
FORMAT = "hermes"
ANSWER_TOKENS = 120
COUNTS = ("finished", "valid", "right_tool", "right")
PAGE = """\
# Fine-tuning: 20 tools, 50 to 200 examples each

The question: how many examples does a small model need before it calls tools correctly ([how it works](../fine-tuning.md))? SmolLM2-135M, LoRA of rank {rank},
{epochs} epochs, learning rate {rate}, number of seeds: {seeds}, text format `{format}`. Each prompt offers the right tool and {others} others.

The {count} held-out prompts have templates and slot values that no training prompt has; only enumerations and booleans share
their few values. A call is valid if it is finished, its tool was offered and its arguments match the schema. It is right if
the tool and all arguments equal the expected ones. *Free*: greedy decoding. *Masked*: greedy decoding in which only a call is
possible (`ToolMask`, tool choice `required`).

| | free: finished | valid | right tool | right | masked: finished | valid | right tool | right |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
{table}

![Valid and right calls by examples per tool](fine-tuning.svg)

| examples per tool | examples | steps | tokens | seconds of training |
|--:|--:|--:|--:|--:|
{trained}

The settings were fixed before the first run; they were not chosen on the held-out prompts. The prompts are made from
templates, so they are easier than the prompts of people. With {count} prompts, a share near 85 % has a 95 % confidence interval of
about ±5 points: the rows with 50, 100 and 200 examples do not differ reliably in right calls.

Repeat it: `python bench/learn_sft.py run OUT -m smollm2 --device cuda`, then
`python bench/learn_sft.py report OUT docs/experiments`. The figures are in [fine-tuning.json](fine-tuning.json).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("-m", "--model", required=True)
    run.add_argument("--device", default="cpu")
    run.add_argument("--minutes", type=float, default=9, help="stop cleanly; a second call continues")
    run.add_argument("--sizes", choices=SIZES, default="full", help="examples per tool: 50, 100, 200; tiny: 1, 2")
    run.add_argument("--tools", type=int, default=len(SKILLS), help="use the first tools only")
    run.add_argument("--prompts", type=int, default=10, help="held-out prompts per tool")
    run.add_argument("--epochs", type=int, default=3)
    run.add_argument("--rate", type=float, default=1e-3)
    run.add_argument("--rank", type=int, default=16)
    run.add_argument("--batch-tokens", type=int, default=0, help="tokens in a step (16384 on cuda, else 2048)")
    run.add_argument("--seeds", type=int, default=1)
    report = actions.add_parser("report")
    report.add_argument("out", type=Path, help="if it contains no run, the committed results are used")
    report.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "report":
        write_report(arguments.out, arguments.target)
    else:
        Experiment(arguments).run()


class Experiment:
    """The stages of a run, each stored when it is complete."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.end = time.monotonic() + 60 * arguments.minutes
        self.skills = SKILLS[: arguments.tools]
        self.sizes = SIZES[arguments.sizes]
        self.form = get(FORMAT)
        self.batch_tokens = arguments.batch_tokens or (16384 if arguments.device.startswith("cuda") else 2048)
        names = ("model", "sizes", "tools", "prompts", "epochs", "rate", "rank", "seeds")
        self.folder = RunFolder.create(arguments.out, {name: getattr(arguments, name) for name in names}, resume=True)
        self.questions = call_questions(make_examples(self.skills, arguments.prompts, seed=0, held_out=True))

    def run(self) -> None:
        """Run the stages that are not stored yet, until the time is over."""
        finished = self.measure_base()
        for seed in range(self.arguments.seeds):
            for size in self.sizes:
                finished = finished and self.tune(size, seed)
        print(json.dumps({"finished": finished, "results": without_texts(collect(self.folder))}, indent=2))

    def has_time(self) -> bool:
        return time.monotonic() < self.end

    def measure_base(self) -> bool:
        if self.folder.has("base.json"):
            return True
        model = open_model(self.arguments.model, device=self.arguments.device)
        self.folder.write_json("base.json", self.measure(model))
        return self.has_time()

    def measure(self, model: Any) -> dict[str, Any]:
        """Answer all held-out prompts, free and masked."""
        found = {}
        memory = 8 * self.batch_tokens if self.arguments.device.startswith("cuda") else 4096
        for mode in ("free", "masked"):
            began = time.monotonic()
            answers = measure_calls(
                model,
                self.questions,
                self.form,
                max_tokens=ANSWER_TOKENS,
                batch_tokens=memory,
                make_processor=mask_calls(model, self.form, ANSWER_TOKENS) if mode == "masked" else None,
            )
            quality = CallQuality.count(answers)
            found[mode] = {**msgspec.to_builtins(quality), "seconds": round(time.monotonic() - began, 1)}
            wrong = [
                {"expected": msgspec.to_builtins(question.expected[0]), "text": answer.text[:300]}
                for question, answer in zip(self.questions, answers, strict=True)
                if not answer.right
            ]
            found[mode]["wrong"] = wrong[:20]
            print(f"  {mode}: {quality.valid} valid, {quality.right} right of {quality.prompts}", flush=True)
        return found

    def tune(self, size: int, seed: int) -> bool:
        """Train on `size` examples per tool and measure; return False if the time is over before the end."""
        name = f"{size}-{seed}.json"
        if self.folder.has(name):
            return True
        if not self.has_time():
            return False
        print(f"{size} examples per tool, seed {seed}", flush=True)
        model = open_model(self.arguments.model, device=self.arguments.device)
        examples = list(make_examples(self.skills, size, seed=seed, held_out=False))
        rows, _ = build_rows(examples, model.tokenizer, self.form, max_length=8192)
        settings = TrainSettings(
            epochs=self.arguments.epochs,
            learning_rate=self.arguments.rate,
            batch_tokens=self.batch_tokens,
            seed=seed,
        )
        adapter = add_adapter(model, self.arguments.rank, seed=seed)
        inner = RunFolder.create(self.folder.path / f"train-{size}-{seed}", {"tokens": self.batch_tokens}, resume=True)
        began = time.monotonic()
        report = train(
            model,
            rows,
            settings,
            inner,
            minutes=max(0.0, self.end - began) / 60,
            on_step=lambda step: (
                step.step % 20 or print(f"  step {step.step}/{step.steps} {step.loss:.3f}", flush=True)
            ),
        )
        seconds = time.monotonic() - began
        if not report.finished:
            return False
        merge_adapter(model, adapter)
        tokens = self.arguments.epochs * sum(len(row.tokens) for row in rows)
        facts = {"examples": len(rows), "steps": report.steps, "tokens": tokens, "seconds": round(seconds, 1)}
        self.folder.write_json(name, {**self.measure(model), "training": facts, "loss": report.log[-1].loss})
        return True


def collect(folder: RunFolder) -> dict[str, Any]:
    """Return the results of all finished stages."""
    names = sorted(
        (file.stem for file in folder.path.glob("*-*.json")), key=lambda stem: tuple(map(int, stem.split("-")))
    )
    return {name: folder.read_json(f"{name}.json") for name in ("base", *names) if folder.has(f"{name}.json")}


def without_texts(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results without the texts of wrong answers."""
    return {
        name: {
            key: {inner: one for inner, one in part.items() if inner != "wrong"} if isinstance(part, dict) else part
            for key, part in value.items()
        }
        for name, value in results.items()
    }


def mean_percent(results: dict[str, Any], size: int, mode: str, count: str) -> float:
    """Return the mean over the seeds, in percent; size 0 is the model before training."""
    rows = [value[mode] for name, value in results.items() if name == "base" or name.startswith(f"{size}-")]
    chosen = [results["base"][mode]] if not size else [row for row in rows if row is not results["base"][mode]]
    return sum(100 * row[count] / row["prompts"] for row in chosen) / len(chosen)


def write_report(out: Path, target: Path) -> None:
    """Write the results, the chart and the page of the experiment."""
    target.mkdir(parents=True, exist_ok=True)
    kept = target / "fine-tuning.json"
    if (out / "manifest.json").is_file():
        folder = RunFolder(out, json.loads((out / "manifest.json").read_text()))
        settings = folder.manifest["settings"]
        settings["model"] = Path(settings["model"]).name  # no path of a machine in the results
        kept.write_text(json.dumps({"settings": settings, "results": without_texts(collect(folder))}, indent=2) + "\n")
    found = json.loads(kept.read_text())
    results, sizes = found["results"], sizes_of(found["results"])
    series = {
        f"{title} {mode}": [(size, mean_percent(results, size, mode, count)) for size in (0, *sizes)]
        for count, title in (("valid", "valid,"), ("right", "right,"))
        for mode in ("free", "masked")
    }
    draw_lines(target / "fine-tuning.svg", "Calls on held-out prompts", "examples per tool", "percent", series)
    (target / "fine-tuning.md").write_text(page_text(found))
    print(f"wrote {target}/fine-tuning.md, .json and .svg")


def sizes_of(results: dict[str, Any]) -> list[int]:
    """Return the numbers of examples per tool, in order."""
    return sorted({int(name.split("-")[0]) for name in results if name != "base"})


def page_text(found: dict[str, Any]) -> str:
    """Return the page of the committed results."""
    results, settings = found["results"], found["settings"]
    rows = []
    for size in (0, *sizes_of(results)):
        title = f"{size} examples per tool" if size else "before training"
        cells = [f"{mean_percent(results, size, mode, count):.1f} %" for mode in ("free", "masked") for count in COUNTS]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    prompts = results["base"]["free"]["prompts"]
    trained = [
        f"| {name.split('-')[0]} | {value['training']['examples']} | {value['training']['steps']} | "
        f"{value['training']['tokens']:,} | {value['training']['seconds']} |"
        for name, value in results.items()
        if name != "base" and name.endswith("-0")
    ]
    return PAGE.format(
        **settings,
        format=FORMAT,
        others=OFFERED - 1,
        count=prompts,
        table="\n".join(rows),
        trained="\n".join(trained),
    )


if __name__ == "__main__":
    main()
