"""The page of bench/learn_toolken.py: docs/experiments/toolkengpt.md and its charts."""

import json
from pathlib import Path

from toolwire.learn.plots import draw_bars, draw_lines

TARGET = Path(__file__).resolve().parent.parent / "docs" / "experiments"
GOAL = 0.75
FORM_QUERIES = 25
FORM_TEXTS = {
    "tool": "`Request: …`, `Tool:`",
    "best": "`Which tool answers this request?`, the request, `The best tool is called`",
    "twice": "the request, repeated after `The request again:`, then `Tool:`",
    "twice, one word": "the request twice, then `The request means in one word:`",
    "chat": "the model's chat template, with the system prompt `Name the tool that answers the request.`",
    "few-shot": "three requests with their topics as examples, which are not from MetaTool, then the request and `Topic:`",
    "few-shot, twice": "the same examples, the request twice, then `Topic:`",
}
"""The texts of the prompt forms in learn_toolken.py, in short."""


def write_page(out: Path, target: Path = TARGET) -> None:
    """Write the page. Results that are not in `out` are those of the last page, which are kept beside it."""
    target.mkdir(parents=True, exist_ok=True)
    results = read_results(out / "toolkengpt.json", target / "toolkengpt.json")
    baselines = read_results(out / "baselines.json", target / "toolkengpt-baselines.json")
    draw_charts(results, baselines, target)
    (target / "toolkengpt.md").write_text(page_text(results, baselines), "utf-8")
    print(f"wrote {target / 'toolkengpt.md'}")


def page_text(results: dict, baselines: dict) -> str:
    """Return the page of the committed results."""
    parts = [*introduction(results), *choice(results, baselines), *adding(results), *arithmetic(results)]
    return "\n".join(parts).rstrip() + "\n"


def read_results(file: Path, kept: Path) -> dict:
    if file.is_file():
        kept.write_text(file.read_text("utf-8"), "utf-8")
    return json.loads(kept.read_text("utf-8"))


def describe_settings(settings: dict) -> str:
    """Return the settings of the training as a list, with the names of `ToolkenSettings`."""
    return ", ".join(f"`{name}={value}`" for name, value in settings.items())


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)] + [""]


def draw_charts(results: dict, baselines: dict, target: Path) -> None:
    bars = {"toolkens": 100 * results["metatool"]["accuracy"]}
    shown = {
        "BM25": "BM25 over descriptions",
        "MiniLM": "MiniLM, descriptions",
        "MiniLM\ncentroids": "MiniLM, centroid of training queries",
        "MiniLM\nlinear": "MiniLM, trained linear layer",
    }
    bars = {name: 100 * baselines["accuracy"][key] for name, key in shown.items()} | bars
    draw_bars(target / "toolkengpt-metatool.svg", "Right tool among MetaTool's tools", "percent of test queries", bars)
    series = {}
    for name, row in results["arithmetic"]["tests"].items():
        series[f"{name}: precision"] = [(bias, precision) for bias, precision, _ in row["sweep"]]
        series[f"{name}: recall"] = [(bias, recall) for bias, _, recall in row["sweep"]]
    draw_lines(target / "toolkengpt-bias.svg", "Calls of four arithmetic toolkens", "bias", "share", series)


def introduction(results: dict) -> list[str]:
    machine = results.get("machine", {})
    return [
        "# ToolkenGPT on a frozen model",
        "",
        "One trained row of the output layer for each tool, on SmolLM2-135M-Instruct, whose weights stay as they are",
        "([how it works](../toolkengpt.md)). Every figure is written by `bench/learn_toolken.py`, which can be run again:",
        "",
        "```sh",
        "python bench/learn_toolken.py train -m smollm2 --device cuda",
        "python bench/learn_toolken.py baselines",
        "python bench/learn_toolken.py page",
        "```",
        "",
        "The figures are in [toolkengpt.json](toolkengpt.json) and [toolkengpt-baselines.json](toolkengpt-baselines.json).",
        (
            f"Hidden states were computed on {machine.get('device', 'a CPU')} in {machine.get('dtype', 'float32')}. "
            f"All steps together took {sum(step.get('seconds', 0) for step in results.values()):.0f} seconds."
        ),
        "",
    ]


def choice(results: dict, baselines: dict) -> list[str]:
    found = results["metatool"]
    queries = found["queries"]
    accuracies = [row["accuracy"] for row in found["seeds"]]
    rows = [[name, percent(value)] for name, value in baselines["accuracy"].items()]
    spread = f"{percent(min(accuracies))} to {percent(max(accuracies))}"
    rows.append([f"**toolkens** (mean of {len(accuracies)} seeds, {spread})", f"**{percent(found['accuracy'])}**"])
    forms = results["form"]["dev_accuracy"]
    last = found["seeds"][-1]
    without = found["without_negatives"]
    worst = sorted(found["by_tool"].items(), key=lambda item: (item[1][0], item[0]))[:5]
    reached = "reached" if found["accuracy"] >= GOAL else "not reached"
    return [
        f"## Choice among {found['tools']} tools",
        "",
        f"MetaTool's queries with one tool: {queries['train']} for training, {queries['dev']} for development,",
        f"{queries['test']} for the test, split at random within each tool. {queries['repeated']} repeated queries and",
        f"{queries['of several tools']} rows with several right tools were dropped. The head has {found['parameters']} parameters.",
        "",
        *table(["method", "right tool, % of test queries"], rows),
        f"The goal of {percent(GOAL)} % is {reached}. BM25 and the rows named *descriptions* read only the tools' descriptions; the",
        "others learn from the same training queries as the head does. MetaTool's queries were written by a model in",
        "series, so that a test query often resembles a training query: the nearest training query shows this effect.",
        "",
        "![Right tool](toolkengpt-metatool.svg)",
        "",
        "Prompt form and training settings were chosen on the development queries, before the test queries were read:",
        "",
        *table(
            ["prompt form", "text after which the tool is chosen", "right tool, % of dev queries"],
            [[name, FORM_TEXTS[name], percent(value)] for name, value in forms.items()],
        ),
        (
            f"The forms were compared with up to {FORM_QUERIES} training queries per tool. Chosen: *{results['form']['chosen']}*, with "
            f"{describe_settings(results['settings']['chosen'])}."
        ),
        "",
        "With fewer training queries per tool, the right tool is chosen less often:",
        "",
        *table(
            ["training queries per tool", "right tool, % of test queries"],
            [[str(count), percent(value)] for count, value in found["by_training_queries"]],
        ),
        (
            f"With the bias calibrated on the development set ({last['bias']:.2f}), the head calls with a precision of "
            f"{percent(last['precision'])} % and a recall of {percent(last['recall'])} %, measured at the calls"
        ),
        "and at ten other positions of each query. Trained without negatives, as in the simplest form of the method,",
        f"precision is {percent(without['precision'])} % with the bias 0. The least accurate tools: "
        + ", ".join(f"{name} ({percent(value)} % of {count} queries)" for name, (value, count) in worst)
        + ".",
        "",
    ]


def adding(results: dict) -> list[str]:
    found = results["adding"]
    rows = [
        [
            one["tool"],
            str(one["tools_after"]),
            percent(one["before"]),
            percent(one["after"]),
            f"{100 * (one['after'] - one['before']):+.2f}",
            percent(one["own"]),
            f"{100 * (one['after_without_others_as_negatives'] - one['before']):+.2f}",
        ]
        for one in found["trials"]
    ]
    return [
        "## One more tool",
        "",
        "A head is trained without one tool. Then one row is trained for it, while all other rows stay bit-equal. The last",
        "row of the table adds a tool that MetaTool does not have, with questions of GSM8K as its queries.",
        "",
        *table(
            [
                "added tool",
                "tools",
                "others before, %",
                "after, %",
                "change, points",
                "the tool itself, %",
                "change without other tools' queries",
            ],
            rows,
        ),
        f"The others lose {100 * found['mean_loss']:.2f} points on average and {100 * found['worst_loss']:.2f} points in the worst trial",
        "(goal: less than 1). The cached states of the other tools' queries are negatives for the new row; the last column",
        "shows the change without them.",
        "",
    ]


def arithmetic(results: dict) -> list[str]:
    rows = []
    for source, label in (("arithmetic", "marked texts"), ("mined", "mined calls"), ("combined", "both")):
        for name, row in results.get(source, {}).get("tests", {}).items():
            plain = row["without_bias"]
            rows.append(
                [
                    label,
                    name,
                    str(row["positions"]),
                    percent(row["accuracy"]),
                    percent(row["precision"]),
                    percent(row["recall"]),
                    f"{percent(plain['precision'])} / {percent(plain['recall'])}",
                ]
            )
    base = results["arithmetic"]
    text = [
        "## Four arithmetic toolkens",
        "",
        f"Toolkens for add, subtract, multiply and divide, trained on {base['texts']} texts with {base['calls']} calls: answers of",
        "GSM8K, whose calculations are marked, and sentences from templates in which no symbol names the operation. A call",
        "belongs where the result is written; every other token of an answer is a negative. *operation*: the right toolken has",
        "the highest logit, given the position. Precision and recall count a call only if position and operation are right.",
        "",
        *table(
            [
                "training source",
                "test texts",
                "calls",
                "operation, %",
                "precision, %",
                "recall, %",
                "precision / recall without bias",
            ],
            rows,
        ),
        f"The bias of {base['calibration']['bias']:.2f} was calibrated on development texts. The chart shows precision and recall for",
        "other values.",
        "",
        "![Precision and recall](toolkengpt-bias.svg)",
        "",
    ]
    if "mined" in results:
        mined = results["mined"]
        text += [
            f"*Mined calls*: {mined['calls']} calls in {mined['texts']} texts that Toolformer's filter kept in",
            "[its experiment](toolformer.md), with no other label: the model finds the calls by itself, and the head learns them.",
            "The bias is calibrated on the same development texts.",
            "",
        ]
    return text
