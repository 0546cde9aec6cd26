"""The page and the charts of the Toolformer experiment, from its `results.json`."""

import json
from pathlib import Path
from statistics import mean

from toolwire.learn.plots import draw_bars, draw_lines

KINDS = {
    "base": "base model",
    "plus-c": "tuned on the texts without calls (+C)",
    "disabled": "tuned on filtered calls, calls disabled",
    "no-filter": "tuned on unfiltered calls",
    "seed-filter": "tuned on calls of the filter `seed`",
    "enabled": "tuned on calls of the filter `paper`",
}
CANDIDATES = {"mined": "sampled by the model", "paired": "pairs of numbers"}


def write_report(out: Path, target: Path) -> None:
    """Write `toolformer.md` and two charts to the folder `target`."""
    results = json.loads((out / "results.json").read_text("utf-8"))
    target.mkdir(parents=True, exist_ok=True)
    precision = results["precision"]
    draw_lines(
        target / "toolformer-precision.svg",
        "Precision of kept calls",
        "threshold in nats",
        "right calls in percent",
        {
            f"{CANDIDATES[kind]}, filter {rule}": [
                (one["threshold"], 100 * one["precision"])
                for one in precision[f"{kind} {rule} sweep"]
                if one["kept"] >= 20
            ]
            for kind in CANDIDATES
            for rule in ("paper", "seed")
        },
    )
    accuracy = {
        kind: 100 * mean(one["arithmetic"]["accuracy"] for one in variants(results, kind))
        for kind in KINDS
        if variants(results, kind)
    }
    if accuracy:
        draw_bars(target / "toolformer-accuracy.svg", "Held-out arithmetic", "right answers in percent", accuracy)
    page = "\n".join([*_introduction(results), *_precision(precision), *_accuracy(results), *_throughput(results)])
    (target / "toolformer.md").write_text(page + "\n", "utf-8")
    print(f"wrote {target / 'toolformer.md'}")


def variants(results: dict, kind: str) -> list[dict]:
    """Return the results of all seeds of a variant."""
    return [value for name, value in results.items() if name.startswith("variant ") and name.split()[1] == kind]


def _introduction(results: dict) -> list[str]:
    mined = results["mined"]
    return [
        "# Toolformer on a small model",
        "",
        (
            "The question: does [Toolformer's filter](../toolformer.md) keep the right calls, and does a model learn from them? "
            "Model: SmolLM2-135M-Instruct. Texts: MAWPS problems with "
            "their answers, solution sentences of GSM8K, and templated arithmetic. The calculator is the only tool."
        ),
        "",
        (
            f"The model proposed {mined['positions']:,} positions in {mined['texts']:,} texts; the place before the answer is "
            f"among them in {mined['texts with the position of the answer']:,}. It wrote {mined['samples']:,} calls "
            f"({mined['candidates']:,} different ones), of which {mined['executed']:,} were executed."
        ),
        "",
    ]


def _precision(precision: dict) -> list[str]:
    lines = [
        "## Does the filter keep the right calls?",
        "",
        (
            "A call is right if its value is the answer. *Kept* are the calls whose result reduces the loss by the threshold "
            "or more (`paper` 0.5 nats, `seed` 1.0). The claim under test: the precision of kept calls of the filter `paper` "
            "is more than twice that of unfiltered calls. *Pairs of numbers*: not the model, but a program proposed the calls, from "
            "the four operations on two numbers of the text (at most 24 for a text, at random). *Ratio*: right, kept, by right, unfiltered. *AUC*: the probability that "
            "a right call has a greater reduction than a wrong one."
        ),
        "",
        "| candidates | filter | texts | executed | right, unfiltered | kept | right, kept | ratio | right calls kept | AUC |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, title in CANDIDATES.items():
        for rule in ("paper", "seed"):
            for key, one in precision.items():
                if not key.startswith(f"{kind} {rule} ") or isinstance(one, list):
                    continue
                ratio = f"{one['ratio']:.2f}" if one["ratio"] is not None else "–"
                kept = f"{100 * one['precision']:.1f} %" if one["kept"] else "–"
                lines.append(
                    f"| {title} | {rule} | {key.split()[2]} | {one['executed']:,} | {100 * one['unfiltered']:.1f} % | "
                    f"{one['kept']:,} | {kept} | {ratio} | {100 * one['right kept']:.1f} % | {one['auc']} |"
                )
    return [*lines, "", _claim(precision), "", "![Precision of kept calls by threshold](toolformer-precision.svg)", ""]


def _claim(precision: dict) -> str:
    """Return for which texts the claim holds, with the calls that the model sampled."""
    ratios = {
        key.split()[2]: one["ratio"] or 0.0
        for key, one in precision.items()
        if key.startswith("mined paper ") and not isinstance(one, list)
    }
    overall = ratios.pop("all")
    refuted = [name for name, ratio in ratios.items() if ratio <= 2]
    result = "holds" if overall > 2 else "does not hold"
    exceptions = f", but not for {' and '.join(refuted)} alone" if refuted and overall > 2 else ""
    return f"With sampled calls, the claim {result} for all texts together (ratio {overall:.2f}){exceptions}."


def _accuracy(results: dict) -> list[str]:
    lines = [
        "## Do the calls help on held-out problems?",
        "",
        (
            "The first number after the prompt is the answer. A call begins if its first token is among the ten most probable "
            "ones, at most one per problem. Arithmetic: 300 templated problems with operands of three digits. Ranges are those "
            "of the seeds."
        ),
        "",
        "| variant | seeds | calls in the texts | right ones | SVAMP | arithmetic | problems with a call | right calls |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, title in KINDS.items():
        own = variants(results, kind)
        if not own:
            continue
        called = [one["svamp"]["calls"] + one["arithmetic"]["calls"] for one in own]
        total = own[0]["svamp"]["problems"] + own[0]["arithmetic"]["problems"]
        right = [
            (
                one["svamp"]["right calls"] * one["svamp"]["calls"]
                + one["arithmetic"]["right calls"] * one["arithmetic"]["calls"]
            )
            / max(one["svamp"]["calls"] + one["arithmetic"]["calls"], 1)
            for one in own
        ]
        lines.append(
            f"| {title} | {len(own)} | {_numbers([one.get('calls', 0) for one in own])} | "
            f"{_percent([one.get('right', 0.0) for one in own])} | {_percent([one['svamp']['accuracy'] for one in own])} | "
            f"{_percent([one['arithmetic']['accuracy'] for one in own])} | "
            f"{_percent([number / total for number in called])} | {_percent(right)} |"
        )
    return [*lines, "", "![Accuracy on held-out arithmetic](toolformer-accuracy.svg)", ""]


def _throughput(results: dict) -> list[str]:
    one = results["throughput"]
    return [
        "## Throughput of the filter",
        "",
        "| method | candidates per second |",
        "|---|---|",
        f"| one candidate, one sequence at a time, logits of every token | {one['naive per second']:,.1f} |",
        f"| batched, as `toolwire learn mine` | {one['batched per second']:,.1f} |",
        "",
        (
            f"Ratio {one['ratio']:.1f}, both with {one['dtype']} weights and float32 losses on the same machine. Largest "
            f"difference of a loss between the two: {one['largest difference in nats']:.2g} nats."
        ),
        "",
        (
            "Repeat it: `python bench/learn_toolformer.py --help` shows the steps; "
            "`python bench/learn_toolformer.py report OUT docs/experiments` writes this page."
        ),
    ]


def _numbers(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _percent(values: list[float]) -> str:
    low, high = 100 * min(values), 100 * max(values)
    middle = f"{100 * mean(values):.1f} %"
    return middle if len(values) == 1 or low == high else f"{middle} ({low:.1f}–{high:.1f})"
