"""ToolkenGPT on a frozen model: tool choice among MetaTool's 199 tools, and four arithmetic toolkens.

    python bench/learn_toolken.py train -m smollm2 --out bench/.learn-toolken --device cuda   # states and heads
    python bench/learn_toolken.py baselines --out bench/.learn-toolken                       # BM25 and MiniLM, on the CPU
    python bench/learn_toolken.py page --out bench/.learn-toolken                            # docs/experiments/toolkengpt.md

`train` writes its results after each step and continues where it stopped; `--minutes` stops it between two steps.
Hidden states are cached in `--cache`. Prompt form and settings are chosen on the dev queries; the test queries are read
after that. `--tools`, `--per-tool` and `--texts` make it small.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from learn_toolken_data import (
    DATA,
    OPERATIONS,
    SYMBOLS,
    make_templated,
    read_descriptions,
    read_gsm8k,
    read_metatool,
)

HERE = Path(__file__).resolve().parent
RESULTS = "toolkengpt.json"
SHOTS = """\
Request: Will it rain in Oslo tomorrow?
Topic: weather forecast

Request: Say "good morning" in French.
Topic: translation

Request: I need a cheap flight to Rome in May.
Topic: flight search

"""
FORMS = {
    "tool": "Request: {query}\nTool:",
    "best": "Which tool answers this request?\nRequest: {query}\nThe best tool is called",
    "twice": "Request: {query}\nThe request again: {query}\nTool:",
    "twice, one word": 'Request: {query}\nThe request again: {query}\nThe request means in one word: "',
    "chat": "<|im_start|>system\nName the tool that answers the request.<|im_end|>\n<|im_start|>user\n{query}<|im_end|>\n<|im_start|>assistant\n",
    "few-shot": SHOTS + "Request: {query}\nTopic:",
    "few-shot, twice": SHOTS + "Request: {query}\nThe request again: {query}\nTopic:",
}
FORM_QUERIES = 25  # training queries per tool for the choice of the form
NEGATIVES = 3  # per query
TEST_NEGATIVES = 10
BIASES = [number / 2 for number in range(-20, 21)]
TRIALS = 8


class Experiment:
    """The steps share a model, the data and a file of results."""

    def __init__(self, options) -> None:
        self.options = options
        self.started = time.monotonic()
        self.file = options.out / RESULTS
        options.out.mkdir(parents=True, exist_ok=True)
        self.results = json.loads(self.file.read_text()) if self.file.is_file() else {}
        self._model = None
        self._hash = ""

    @property
    def model(self):
        if self._model is None:
            from toolwire.learn import open_model
            from toolwire.learn.toolken.states import hash_model

            self._model = open_model(self.options.model, device=self.options.device, dtype=self.options.dtype)
            self._hash = hash_model(self._model)
        return self._model

    def step(self, name: str, run) -> bool:
        """Run a step unless its result exists. Return False if there is no time left."""
        if name in self.results:
            return True
        if self.options.minutes and time.monotonic() - self.started > 60 * self.options.minutes:
            print(f"stopped before {name}: run the command again to continue", flush=True)
            return False
        begin = time.monotonic()
        result = run()
        self.results[name] = {**result, "seconds": round(time.monotonic() - begin, 1)}
        self.file.write_text(json.dumps(self.results, indent=1) + "\n")
        print(f"{name}: {self.results[name]['seconds']} s", flush=True)
        return True

    def queries(self):
        options = self.options
        return read_metatool(options.data, tools=options.tools, per_tool=options.per_tool)

    def states(self, demonstrations, names, *, negatives=None):
        """Return hidden states, from the cache or computed."""
        from toolwire.learn.toolken.states import compute_states, label_demonstrations

        labelled = label_demonstrations(self.model, demonstrations, names, negatives=negatives)
        return compute_states(
            self.model,
            labelled,
            cache=self.options.cache,
            batch_tokens=self.options.batch_tokens,
            model_hash=self._hash,
            progress=report,
        )

    def query_states(self, pairs, names, form, *, negatives=NEGATIVES):
        from toolwire.learn import demonstration_of_query

        prompt = FORMS[form]
        return self.states([demonstration_of_query(*pair, prompt=prompt) for pair in pairs], names, negatives=negatives)

    def head(self, names, table, settings):
        """Train a head on the device of the model."""
        from toolwire.learn import ToolkenHead
        from toolwire.learn.toolken.training import train_toolkens

        head = ToolkenHead(table.states.shape[1], names).to(self.model.device)
        train_toolkens(head, table, settings)
        return head


def report(done: int, total: int) -> None:
    """Print the progress of the forward passes on one line."""
    print(f"\r  {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def settings_of(given: dict):
    from toolwire.learn import ToolkenSettings

    return ToolkenSettings(**{"epochs": 30, "learning_rate": 3e-3, "batch": 1024, **given})


def score_row(head, table) -> dict:
    from toolwire.learn import measure_toolkens

    score = measure_toolkens(head, table)
    return {
        "accuracy": round(score.accuracy, 5),
        "positions": score.positions,
        "precision": round(score.calls.precision, 5),
        "recall": round(score.calls.recall, 5),
        "bias": round(head.bias, 3),
    }


# MetaTool


def choose_form(run: Experiment) -> dict:
    """Choose the prompt form by dev accuracy with a part of the training queries."""
    queries = run.queries()
    names = sorted({tool for _, tool in queries.train})
    part = first_of_each(queries.train, FORM_QUERIES)
    found = {}
    for form in FORMS:
        train, dev = (run.query_states(pairs, names, form) for pairs in (part, queries.dev))
        head = run.head(names, train, settings_of({}))
        found[form] = score_row(head, dev)["accuracy"]
        print(f"  {form}: dev {100 * found[form]:.1f} %", flush=True)
    return {"dev_accuracy": found, "chosen": max(found, key=found.get), "training_queries": len(part)}


def first_of_each(pairs, count):
    seen: dict[str, int] = {}
    kept = []
    for query, tool in pairs:
        seen[tool] = seen.get(tool, 0) + 1
        if seen[tool] <= count:
            kept.append((query, tool))
    return kept


def first_rows(table, pairs, count):
    """Return the rows of the first queries of each tool. The call is the last row of its query."""
    import torch

    kept = set(first_of_each(pairs, count))
    is_call = table.labels >= 0
    owner = is_call.cumsum(0) - is_call.long()
    return table.select(torch.tensor([pair in kept for pair in pairs])[owner])


def choose_settings(run: Experiment) -> dict:
    """Choose the settings of the training by dev accuracy with the chosen form."""
    queries = run.queries()
    names = sorted({tool for _, tool in queries.train})
    form = run.results["form"]["chosen"]
    train, dev = (run.query_states(pairs, names, form) for pairs in (queries.train, queries.dev))
    found = []
    for whitening in (0.0, 0.5, 1.0):
        for rate in (3e-3, 1e-2):
            for decay in (0.0, 0.1, 1.0):
                given = {"whitening": whitening, "learning_rate": rate, "weight_decay": decay}
                head = run.head(names, train, settings_of(given))
                found.append({**given, "dev_accuracy": score_row(head, dev)["accuracy"]})
    best = max(found, key=lambda one: one["dev_accuracy"])
    longer = []
    for epochs in (15, 60):
        given = {name: best[name] for name in ("whitening", "learning_rate", "weight_decay")} | {"epochs": epochs}
        longer.append({**given, "dev_accuracy": score_row(run.head(names, train, settings_of(given)), dev)["accuracy"]})
    best = max([best, *longer], key=lambda one: one["dev_accuracy"])
    print(f"  settings: {best}", flush=True)
    return {
        "tried": [*found, *longer],
        "chosen": {name: value for name, value in best.items() if name != "dev_accuracy"},
    }


def measure_metatool(run: Experiment) -> dict:
    """Train with the chosen form and settings, calibrate on dev, and measure on test."""
    from toolwire.learn import calibrate_bias, measure_toolkens

    queries = run.queries()
    names = sorted({tool for _, tool in queries.train})
    form = run.results["form"]["chosen"]
    settings = settings_of(run.results["settings"]["chosen"])
    train, dev = (run.query_states(pairs, names, form) for pairs in (queries.train, queries.dev))
    test = run.query_states(queries.test, names, form, negatives=TEST_NEGATIVES)
    rows = []
    for seed in range(3):
        head = run.head(names, train, replace(settings, seed=seed))
        calibrate_bias(head, dev)
        rows.append(score_row(head, test))
    curve = []
    for count in (5, 10, 20, 40):
        fewer = first_rows(train, queries.train, count)
        curve.append([count, score_row(run.head(names, fewer, settings), test)["accuracy"]])
    without = run.head(names, train, replace(settings, negative_weight=0.0))
    score = measure_toolkens(head, test)
    return {
        "tools": len(names),
        "queries": {"train": len(queries.train), "dev": len(queries.dev), "test": len(queries.test), **queries.dropped},
        "seeds": rows,
        "accuracy": sum(row["accuracy"] for row in rows) / len(rows),
        "parameters": head.W_T.weight.numel(),
        "by_training_queries": curve,
        "without_negatives": score_row(without, test),
        "by_tool": {name: [round(value, 4), count] for name, (value, count) in score.by_tool.items()},
    }


def measure_adding(run: Experiment) -> dict:
    """Add one tool to a head of all others, and compare the accuracy on the others before and after."""
    queries = run.queries()
    names = sorted({tool for _, tool in queries.train})
    form = run.results["form"]["chosen"]
    train = run.query_states(queries.train, names, form)
    test = run.query_states(queries.test, names, form, negatives=TEST_NEGATIVES)
    chosen = [names[number * len(names) // TRIALS] for number in range(min(TRIALS, len(names) - 1))]
    trials = [leave_one_out(run, names, names.index(tool), train, test) for tool in dict.fromkeys(chosen)]
    trials.append(add_mathematics(run, names, form, train, test))
    losses = [trial["before"] - trial["after"] for trial in trials]
    return {"trials": trials, "mean_loss": sum(losses) / len(losses), "worst_loss": max(losses)}


def leave_one_out(run: Experiment, names, held: int, train, test) -> dict:
    """Train without one tool, then add it. The others keep their order, the tool gets the last row."""
    order = [number for number in range(len(names)) if number != held] + [held]
    rank = [order.index(number) for number in range(len(names))]
    return add_last([names[number] for number in order], relabel(train, rank), relabel(test, rank), run)


def relabel(table, rank):
    import torch

    numbers = torch.tensor([*rank, -1])
    return table._replace(labels=numbers[table.labels])


def add_mathematics(run: Experiment, names, form, train, test) -> dict:
    """Add a tool that is not in MetaTool: its queries are questions of GSM8K."""
    import torch

    def table(name, count):
        questions = [
            one.text.split("\nAnswer:")[0].removeprefix("Question: ")
            for one in read_gsm8k(run.options.data, name, count)
        ]
        return run.query_states(
            [(one, "grade school mathematics") for one in questions], [*names, "grade school mathematics"], form
        )

    def both(first, second):
        return type(first)(*(torch.cat(columns) for columns in zip(first, second, strict=True)))

    size = run.options.per_tool or 70
    return add_last(
        [*names, "grade school mathematics"], both(train, table("train", size)), both(test, table("test", 100)), run
    )


def add_last(names, train, test, run: Experiment) -> dict:
    """Train a head without the last tool, add it as one row, and measure the others before and after."""
    from toolwire.learn.toolken.training import train_toolkens

    settings = settings_of(run.results["settings"]["chosen"])
    last = len(names) - 1
    old = train.select(train.labels != last)
    base = run.head(names[:-1], old, settings)
    larger = base.extend([names[-1]])
    train_toolkens(larger, train, settings, rows=[last])
    alone = base.extend([names[-1]])  # without the states of other tools' queries as negatives
    train_toolkens(alone, train.select((train.labels == last) | (train.labels < 0)), settings, rows=[last])
    others = test.select((test.labels >= 0) & (test.labels != last))
    own = test.select(test.labels == last)
    unchanged = bool((larger.W_T.weight[:last] == base.W_T.weight).all())
    return {
        "tool": names[-1],
        "tools_after": len(names),
        "rows_unchanged": unchanged,
        "before": score_row(base, others)["accuracy"],
        "after": score_row(larger, others)["accuracy"],
        "own": score_row(larger, own)["accuracy"],
        "after_without_others_as_negatives": score_row(alone, others)["accuracy"],
        "own_without_others_as_negatives": score_row(alone, own)["accuracy"],
    }


# Arithmetic


def arithmetic_sets(run: Experiment) -> dict:
    count = run.options.texts
    data = run.options.data
    rows = read_gsm8k(data, "train", count + count // 5)
    return {
        "train": [*rows[:count], *make_templated(count, "train", held=False)],
        "dev": [*rows[count:], *make_templated(count // 5, "dev", held=False)],
        "gsm8k": read_gsm8k(data, "test", max(count // 3, 10)),
        "templates seen in training": make_templated(max(count // 4, 10), "test", held=False),
        "new templates": make_templated(max(count // 4, 10), "test", held=True),
    }


def measure_arithmetic(run: Experiment, train=None) -> dict:
    """Train four toolkens, calibrate on dev, and measure operations and positions on the test texts."""
    from toolwire.learn import calibrate_bias, sweep_bias

    sets = arithmetic_sets(run)
    dev = run.states(sets["dev"], OPERATIONS)
    table = run.states(train or sets["train"], OPERATIONS, negatives=24)
    best = None
    for whitening in (0.0, 0.5):
        for rate in (1e-3, 1e-2):
            settings = settings_of({"whitening": whitening, "learning_rate": rate})
            head = run.head(OPERATIONS, table, settings)
            found = calibrate_bias(head, dev)
            if best is None or found.f1 > best[1].f1:
                best = head, found, settings
    head, found, settings = best
    tests = {}
    for name in ("gsm8k", "templates seen in training", "new templates"):
        test = run.states(sets[name], OPERATIONS)
        points = sweep_bias(head, test, BIASES)
        tests[name] = {
            **score_row(head, test),
            "texts": len(sets[name]),
            "words": int((test.labels < 0).sum()),
            "sweep": [[point.bias, round(point.precision, 4), round(point.recall, 4)] for point in points],
        }
        head.bias, bias = 0.0, head.bias
        tests[name]["without_bias"] = score_row(head, test)
        head.bias = bias
    return {
        "texts": len(train or sets["train"]),
        "calls": int((table.labels >= 0).sum()),
        "settings": {"whitening": settings.whitening, "learning_rate": settings.learning_rate},
        "calibration": {"bias": found.bias, "precision": found.precision, "recall": found.recall, "f1": found.f1},
        "tests": tests,
    }


def read_mined(folder: Path) -> list:
    """Read the calls that Toolformer's filter kept in the run of bench/learn_toolformer.py, as demonstrations.

    A calculation of two numbers is a call of one of the four tools. The precision of the filter is that of the run.
    """
    import gzip

    import msgspec

    from learn_toolformer_data import load_data
    from toolwire.learn import calculator_tool, demonstrations_of_mined
    from toolwire.learn.toolformer.mining import CallCandidate, MinedCall, MiningSettings, decide

    texts = [row["text"] for row in load_data(folder)["train"]]
    rows = []
    for name in ("mined-paper", "paired-paper"):
        file = folder / f"{name}.json.gz"
        if file.is_file():
            rows += msgspec.json.decode(gzip.decompress(file.read_bytes()), type=list[CallCandidate])
    settings = MiningSettings(filter="paper", threshold=0.5)
    kept = [one for one in decide(rows, [calculator_tool()], settings) if not one.reason]
    calls = [MinedCall(texts[one.text], one.position, one.call, one.result or "", one.gain) for one in kept]
    return demonstrations_of_mined(calls, name_of=operation_of)


def operation_of(call) -> str | None:
    simple = re.fullmatch(r"Calculator\(\s*[0-9.]+\s*([-+*/])\s*[0-9.]+\s*\)", call.call)
    return SYMBOLS[simple[1]] if simple else None


def train(options) -> None:
    run = Experiment(options)
    started = time.monotonic()
    steps = [
        ("form", lambda: choose_form(run)),
        ("settings", lambda: choose_settings(run)),
        ("metatool", lambda: measure_metatool(run)),
        ("adding", lambda: measure_adding(run)),
        ("arithmetic", lambda: measure_arithmetic(run)),
    ]
    if options.mined:
        mined = read_mined(options.mined)
        print(f"{len(mined)} mined texts")
        steps.append(("mined", lambda: measure_arithmetic(run, mined)))
        steps.append(("combined", lambda: measure_arithmetic(run, [*mined, *arithmetic_sets(run)["train"]])))
    if all(run.step(name, step) for name, step in steps):
        run.results["machine"] = {
            "device": device_name(options.device),
            "dtype": options.dtype,
            "model": Path(options.model).name,  # no path of a machine in the results
        }
        run.file.write_text(json.dumps(run.results, indent=1) + "\n")
    print(f"{time.monotonic() - started:.0f} s in all")
    print(json.dumps(summary(run.results), indent=1))


def device_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"


def summary(results: dict) -> dict:
    found = {}
    if "metatool" in results:
        found["MetaTool top-1"] = results["metatool"]["accuracy"]
    if "adding" in results:
        found["loss by one more tool"] = {name: results["adding"][name] for name in ("mean_loss", "worst_loss")}
    for source in ("arithmetic", "mined", "combined"):
        for name, row in results.get(source, {}).get("tests", {}).items():
            found[f"{source}: {name}"] = {key: row[key] for key in ("accuracy", "precision", "recall")}
    return found


# Baselines


def baselines(options) -> None:
    """Measure retrieval and classifiers over MiniLM on the same test queries."""
    import numpy as np
    import torch

    from toolwire import Tool
    from toolwire.retrieve import ToolIndex, open_minilm

    queries = read_metatool(options.data, tools=options.tools, per_tool=options.per_tool)
    texts = read_descriptions(options.data)
    names = sorted({tool for _, tool in queries.train})
    numbers = {name: number for number, name in enumerate(names)}
    test_labels = np.array([numbers[tool] for _, tool in queries.test])
    train_labels = np.array([numbers[tool] for _, tool in queries.train])
    found = {}

    def note(name: str, chosen) -> None:
        found[name] = round(float((np.asarray(chosen) == test_labels).mean()), 5)
        print(f"{name}: {100 * found[name]:.1f} %", flush=True)

    tools = [Tool(name, texts[name]) for name in names]
    index = ToolIndex()
    index.add(tools)
    hits = [index.search(query, 1) for query, _ in queries.test]
    note("BM25 over descriptions", [numbers[hit[0].tool.name] if hit else -1 for hit in hits])
    documents = [f"{name}: {texts[name]}" for name in names]
    for label, encoder in (("MiniLM", open_minilm(adapted=False)), ("MiniLM adapted to tools", open_minilm())):
        test = encode(encoder, [query for query, _ in queries.test], options)
        note(f"{label}, descriptions", (test @ encode(encoder, documents, options).T).argmax(1))
        if label != "MiniLM":
            continue
        train = encode(encoder, [query for query, _ in queries.train], options)
        centroids = np.stack([train[train_labels == number].mean(0) for number in range(len(names))])
        note(
            "MiniLM, centroid of training queries",
            (test @ (centroids / np.linalg.norm(centroids, axis=1, keepdims=True)).T).argmax(1),
        )
        note("MiniLM, nearest training query", train_labels[(test @ train.T).argmax(1)])
        note("MiniLM, trained linear layer", linear_layer(torch, train, train_labels, test, len(names)))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "baselines.json").write_text(
        json.dumps({"test_queries": len(queries.test), "accuracy": found}, indent=1) + "\n"
    )


def encode(encoder, texts, options):
    """Encode texts in pieces that are stored, so that the work can be continued."""
    import hashlib

    import numpy as np

    folder = options.cache / "minilm"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for start in range(0, len(texts), 512):
        piece = texts[start : start + 512]
        file = folder / f"{hashlib.sha256(json.dumps([encoder.name, piece]).encode()).hexdigest()[:32]}.npy"
        if not file.is_file():
            np.save(file, encoder.encode(piece))
        found.append(np.load(file))
        report(min(start + 512, len(texts)), len(texts))
    return np.concatenate(found)


def linear_layer(torch, train, labels, test, count):
    """Train a linear layer over unit vectors by cross entropy, as strong as the head of the frozen model."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(train.shape[1], count)
    states, targets = torch.from_numpy(train), torch.from_numpy(labels)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=3e-2, weight_decay=0.0)
    for epoch in range(30):
        for group in optimiser.param_groups:
            group["lr"] = 3e-2 * (1 - epoch / 30)
        for rows in torch.randperm(len(states)).split(1024):
            loss = torch.nn.functional.cross_entropy(layer(states[rows]), targets[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return layer(torch.from_numpy(test)).argmax(1).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("train", "baselines", "page"))
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / ".learn-toolken")
    parser.add_argument("--cache", type=Path, default=HERE / ".learn-toolken" / "cache")
    parser.add_argument("--mined", type=Path, help="folder of bench/learn_toolformer.py, for the calls that it mined")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--tools", type=int, help="number of MetaTool's tools (all)")
    parser.add_argument("--per-tool", type=int, help="queries per tool (all)")
    parser.add_argument("--texts", type=int, default=3000, help="training texts of each arithmetic source (3000)")
    parser.add_argument("--minutes", type=float, help="stop before the next step after this time")
    options = parser.parse_args()
    if options.stage == "page":
        from learn_toolken_page import write_page

        write_page(options.out)
    else:
        {"train": train, "baselines": baselines}[options.stage](options)


if __name__ == "__main__":
    main()
