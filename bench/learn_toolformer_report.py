"""The page, the charts and the committed figures of the Toolformer experiment, from the `results.json` of a run."""

import json
import math
import re
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


NAME, TOOLS = "toolformer.json", "toolformer-tools.json"
FROM_RUN = "The figures, also those of every threshold, are in [toolformer.json](toolformer.json)."
FROM_PAGE = (
    "The result file of this run was not kept. [toolformer.json](toolformer.json) was converted from an earlier form of this page, so its "
    "figures are rounded, and those of single seeds and thresholds are missing. The two charts were drawn by the run itself. Another run "
    "replaces all of them; it was not repeated since then."
)


def write_report(out: Path, target: Path) -> None:
    """Write `toolformer.md`, its results and two charts to the folder `target`. Without a run in `out`, only the page."""
    target.mkdir(parents=True, exist_ok=True)
    if (out / "results.json").is_file():
        summary = summarise(json.loads((out / "results.json").read_text("utf-8")))
        (target / NAME).write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
        draw_charts(summary, target)
    summary, tools = (json.loads((target / name).read_text("utf-8")) for name in (NAME, TOOLS))
    (target / "toolformer.md").write_text(page_text(summary, tools), "utf-8")
    print(f"wrote {target / 'toolformer.md'}")


def write_tools(out: Path, target: Path) -> None:
    """Write the results of learn_toolformer_tools.py without the texts of answers, and the page."""
    results = json.loads((out / "results.json").read_text("utf-8"))
    for value in results.values():
        value.pop("examples", None)
    (target / TOOLS).write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    write_report(Path(), target)


def summarise(results: dict) -> dict:
    """Return the figures of the page and its charts, without the texts of answers."""
    found = {kind: _accuracy_of(variants(results, kind)) for kind in KINDS if variants(results, kind)}
    return {
        "source": "run",
        "mined": results["mined"],
        "precision": results["precision"],
        "accuracy": found,
        "throughput": results["throughput"],
    }


def _accuracy_of(own: list[dict]) -> dict:
    """Return the counts of a variant, and the mean, least and greatest share of its seeds."""
    called = [one["svamp"]["calls"] + one["arithmetic"]["calls"] for one in own]
    problems = own[0]["svamp"]["problems"] + own[0]["arithmetic"]["problems"]
    right = [
        (
            one["svamp"]["right calls"] * one["svamp"]["calls"]
            + one["arithmetic"]["right calls"] * one["arithmetic"]["calls"]
        )
        / max(count, 1)
        for one, count in zip(own, called, strict=True)
    ]
    calls = [one.get("calls", 0) for one in own]
    return {
        "seeds": len(own),
        "calls": [min(calls), max(calls)],
        "right": _spread([one.get("right", 0.0) for one in own]),
        "svamp": _spread([one["svamp"]["accuracy"] for one in own]),
        "arithmetic": _spread([one["arithmetic"]["accuracy"] for one in own]),
        "called": _spread([number / problems for number in called]),
        "right called": _spread(right),
    }


def _spread(values: list[float]) -> list[float]:
    return [round(value, 6) for value in (mean(values), min(values), max(values))]


def draw_charts(summary: dict, target: Path) -> None:
    """Draw precision by threshold, and accuracy by variant."""
    precision = summary["precision"]
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
    accuracy = {kind: 100 * row["arithmetic"][0] for kind, row in summary["accuracy"].items()}
    if accuracy:
        draw_bars(target / "toolformer-accuracy.svg", "Held-out arithmetic", "right answers in percent", accuracy)


def page_text(summary: dict, tools: dict) -> str:
    """Return the page of the committed results: the calculator on a GPU, and all tools on a CPU."""
    parts = (
        _introduction(summary),
        _precision(summary["precision"]),
        _accuracy(summary["accuracy"]),
        _throughput(summary),
        tools_section(tools),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


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
            "their answers, solution sentences of GSM8K, and templated arithmetic. The calculator is the only tool; [all six](#all-six-tools-in-a-size-for-a-cpu) follow in a smaller size."
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


def _accuracy(accuracy: dict) -> list[str]:
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
    for kind, row in accuracy.items():
        low, high = row["calls"]
        calls = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        shares = [_percent(row[name]) for name in ("right", "svamp", "arithmetic", "called", "right called")]
        lines.append(f"| {KINDS[kind]} | {row['seeds']} | {calls} | {' | '.join(shares)} |")
    return [*lines, "", "![Accuracy on held-out arithmetic](toolformer-accuracy.svg)", ""]


def _throughput(summary: dict) -> list[str]:
    one = summary["throughput"]
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
        "",
        FROM_RUN if summary["source"] == "run" else FROM_PAGE,
    ]


def _percent(spread: list[float]) -> str:
    """Return a mean, with the range of the seeds unless all are equal."""
    middle, low, high = (100 * value for value in spread)
    return f"{middle:.1f} %" if low == high else f"{middle:.1f} % ({low:.1f}–{high:.1f})"


TITLES = {
    "calculator": "Calculator",
    "calendar": "Calendar",
    "convert": "Convert",
    "search": "Search",
    "qa": "QA",
    "translate": "Translate",
}


def tools_section(results: dict) -> list[str]:
    """Return the part of the page about the six tools, with the reason where a tool does not help."""
    texts, problems = results["mined calculator"]["texts"], results["used calculator"]["problems"]
    lines = [
        "",
        "## All six tools, in a size for a CPU",
        "",
        (
            f"The question: does the filter find useful calls of every tool, and do calls help on held-out texts? For each tool, calls are mined in {texts} "
            "texts by its filter `paper`, with two positions and five samples each. Arithmetic, dates and units are templates; `Search` and `QA` get "
            "the capitals of Debian's package miscfiles, and answer from WordNet (dict-wn); `Translate` gets entries of its own dictionary "
            "(dict-freedict-fra-eng), French to English."
        ),
        "",
        (
            "*Right*: the call is directly before the answer of its text, and its result contains the answer. *Passed*: its result reduces the loss "
            "by the threshold; the best of them at each position is kept."
        ),
        "",
        "| tool | proposed | executed | right, unfiltered | passed | right, passed | kept | failures |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, title in TITLES.items():
        one = results[f"mined {kind}"]
        lines.append(
            f"| {title} | {one['proposed']} | {one['executed']} | {_part(one['right'], one['executed'])} | {one['passed']} | "
            f"{_part(one['right passed'], one['passed'])} | {one['kept']} | {_failures(one)} |"
        )
    lines += [
        "",
        (
            f"Do calls help? The model is not tuned. At the end of {problems} held-out prompts for each tool, it writes its most probable call, "
            "and completes the text with the call and its result before the prompt, as in the filter. Intervals of 95 %: Wilson's for answers, normal for the loss of "
            "the answer in nats (negative is better)."
        ),
        "",
        "| tool | calls with the answer | right answers without | right answers with | loss of the answer | effect |",
        "|---|---|---|---|---|---|",
    ]
    for kind, title in TITLES.items():
        one = results.get(f"used {kind}")
        if one is None:
            lines.append(f"| {title} | – | – | – | – | not measured |")
            continue
        change, half = one["change of the loss"]
        lines.append(
            f"| {title} | {one['right calls']} of {one['problems']} | {_interval(one, 'without')} | {_interval(one, 'with')} | "
            f"{change:+.2f} ± {half:.2f} | {_effect(one)} |"
        )
    if "questions" in results:
        asked = results["questions"]
        chosen = asked["by similarity"][str(asked["chosen"])]
        mined = results["mined qa"]["least similarity"]
        older = (
            f" The calls of `QA` in the first table are older: they were mined with {mined}."
            if mined != asked["chosen"]
            else ""
        )
        lines += [
            "",
            (
                f"`QA` does not answer if the cosine of the question and the best passage is below {asked['chosen']}. Of {asked['questions']} questions "
                f"for a capital, it answers {chosen['answered']}, and {chosen['right']} of the answers contain the capital of miscfiles. Of as many "
                f"questions that WordNet cannot answer, it answers {chosen['unanswerable answered']}. The countries are in none of the texts "
                f"above, because the limit was chosen with these questions.{older}"
            ),
        ]
    return [
        *lines,
        "",
        "Repeat it: `python bench/learn_toolformer_tools.py --help`. The figures are in [toolformer-tools.json](toolformer-tools.json).",
    ]


def _effect(used: dict) -> str:
    """Return what calls change, and the reason where they do not help."""
    change, half = used["change of the loss"]
    if change + half < 0:
        effect = "helps"
    else:
        kind = "harms" if change - half > 0 else "no effect"
        effect = f"{kind}: {used['problems'] - used['right calls']} of {used['problems']} calls lack the answer"
        if used["failed"]:
            reason, times = next(iter(used["failed"].items()))
            effect += f" ({times}: {reason})"
    return effect


def _failures(mined: dict) -> str:
    """Return why calls failed, and why the filter does not find the right ones."""
    notes = []
    if mined["failed"]:
        reason = re.sub(r"'.*' is not", "a term is not", next(iter(mined["failed"])))
        notes.append(f"{mined['proposed'] - mined['executed']} calls, such as: {reason}")
    if not mined["right passed"]:
        best, threshold = mined["best gain of a right call"], mined["threshold"]
        notes.append(
            f"no right call passed: the best reduced the loss by {best:.2f} of {threshold:g} nats"
            if mined["right"]
            else "no call was right"
        )
    elif mined["right passed"] / mined["passed"] < 2 * mined["right"] / mined["executed"]:
        notes.append("the filter does not double the share of right calls")
    return "; ".join(notes) or "–"


def wilson(right: int, total: int) -> tuple[float, float]:
    """Return the interval of 95 % for a share."""
    z = 1.96
    middle = (right + z * z / 2) / (total + z * z)
    half = z * math.sqrt(right * (total - right) / total + z * z / 4) / (total + z * z)
    return middle - half, middle + half


def _interval(one: dict, mode: str) -> str:
    right, problems = one["right"][mode], one["problems"]
    low, high = wilson(right, problems)
    return f"{100 * right / problems:.0f} % ({100 * max(low, 0):.0f}–{100 * high:.0f})"


def _part(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "–"
