"""Toolformer on a small model: does the loss filter keep the right calls, and do they help?

    python bench/learn_toolformer.py data OUT --source ../shared/data/math
    python bench/learn_toolformer.py run OUT -m smollm2 --device cuda --minutes 9
    python bench/learn_toolformer.py report OUT docs/experiments

`data` writes the texts to OUT as one small file. `run` mines calls, measures the filters, fine-tunes every variant and
evaluates it. Each stage is stored in OUT, so that a second `run` continues. `report` writes the page and its charts.
"""

import argparse
import gzip
import itertools
import json
import random
import re
import shutil
import time
from pathlib import Path

import msgspec

from learn_toolformer_data import load_data, write_data
from toolwire.learn.toolformer.mining import CallCandidate, MiningSettings
from toolwire.learn.toolformer.mining_tool import evaluate

SEEDS = (0, 1, 2)
THRESHOLDS = {"paper": 0.5, "seed": 1.0}
POSITIONS, CALL_PROBABILITY, SAMPLES = 2, 0.005, 10
MAX_PAIRS = 24
NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    data = actions.add_parser("data")
    data.add_argument("out", type=Path)
    data.add_argument("--source", type=Path, default=Path("../shared/data/math"))
    data.add_argument("--limit", type=int, default=1500, help="texts of each source")
    data.add_argument("--seed", type=int, default=0)
    run = actions.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("-m", "--model", required=True)
    run.add_argument("--device", default="cpu")
    run.add_argument("--dtype", default=None, help="of mining: bfloat16 on cuda, else float32")
    run.add_argument("--minutes", type=float, default=9)
    run.add_argument("--batch-tokens", type=int, default=0)
    run.add_argument("--limit", type=int, default=None, help="texts and problems to use")
    run.add_argument("--naive", type=int, default=200, help="candidates of the naive loop")
    run.add_argument("--samples", type=int, default=SAMPLES, help="calls per position")
    run.add_argument("--call-probability", type=float, default=CALL_PROBABILITY)
    run.add_argument("--epochs", type=int, default=3)
    run.add_argument("--rate", type=float, default=1e-4)
    run.add_argument("--seeds", type=int, default=3)
    report = actions.add_parser("report")
    report.add_argument("out", type=Path, help="if it contains no results, the committed figures are used")
    report.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "data":
        file = write_data(arguments.out, arguments.source, arguments.limit, arguments.seed)
        rows = load_data(arguments.out)
        print(f"{file}: {file.stat().st_size} bytes, {len(rows['train'])} texts, {len(rows['evaluation'])} problems")
    elif arguments.action == "run":
        Experiment(arguments).run()
    else:
        from learn_toolformer_report import write_report

        write_report(arguments.out, arguments.target)


class OutOfTime(Exception):
    pass


class Experiment:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.out = arguments.out
        self.deadline = time.monotonic() + 60 * arguments.minutes
        self.on_gpu = arguments.device.startswith("cuda")
        self.batch_tokens = arguments.batch_tokens or (600_000 if self.on_gpu else 4096)
        self.dtype = arguments.dtype or ("bfloat16" if self.on_gpu else "float32")
        data = load_data(self.out)
        self.train, self.problems = data["train"], data["evaluation"]
        if arguments.limit:
            self.train = spread(self.train, arguments.limit)
            self.problems = spread(self.problems, arguments.limit)
        self.texts = [row["text"] for row in self.train]
        file = self.out / "results.json"
        self.results = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        self.model = None

    def run(self) -> None:
        try:
            self.stage("mined", self.mine)
            self.stage("paired", self.pair)
            for rule in ("paper", "seed"):
                self.stage(f"losses-{rule}", lambda rule=rule: self.measure(rule))
            self.stage("throughput", self.compare_throughput)
            self.stage("precision", self.measure_precision)
            for name in self.variants():
                self.stage(f"variant {name}", lambda name=name: self.train_variant(name))
            print("finished")
        except OutOfTime as error:
            print(f"stopped before {error}: run the same command again")
        self.print_table()

    def stage(self, name: str, work) -> None:
        """Do a stage once; its result is stored with the seconds that it took."""
        if name in self.results:
            return
        if time.monotonic() > self.deadline:
            raise OutOfTime(name)
        began = time.monotonic()
        print(f"{name} …", flush=True)
        value = work()
        self.results[name] = {**value, "seconds": round(time.monotonic() - began, 2)}
        self.save("results.json", json.dumps(self.results, indent=1).encode())
        print(f"{name}: {json.dumps(self.results[name])[:300]}", flush=True)

    def save(self, name: str, content: bytes) -> None:
        part = self.out / f"{name}.part"
        part.write_bytes(content)
        part.replace(self.out / name)

    def save_rows(self, name: str, rows: list) -> None:
        self.save(f"{name}.json.gz", gzip.compress(msgspec.json.encode(rows), 6, mtime=0))

    def load_rows(self, name: str) -> list[CallCandidate]:
        content = gzip.decompress((self.out / f"{name}.json.gz").read_bytes())
        return msgspec.json.decode(content, type=list[CallCandidate])

    def open(self):
        from toolwire.learn import open_model

        if self.model is None:
            self.model = open_model(self.arguments.model, device=self.arguments.device, dtype=self.dtype)
        return self.model

    def settings(self, rule: str = "none", **changes) -> MiningSettings:
        base = MiningSettings(
            filter=rule,
            threshold=THRESHOLDS.get(rule),
            positions=POSITIONS,
            samples=self.arguments.samples,
            call_probability=self.arguments.call_probability,
            batch_tokens=self.batch_tokens,
        )
        return msgspec.structs.replace(base, **changes)

    # stages

    def mine(self) -> dict:
        """Propose positions, sample calls with the mask, execute them."""
        from toolwire.learn import CorpusText, calculator_tool
        from toolwire.learn.toolformer.mining import mine_texts

        tool = calculator_tool()
        found = mine_texts(self.open(), [CorpusText(text) for text in self.texts], [tool], self.settings())
        self.save_rows("mined", found)
        places = {(one.text, one.position) for one in found}
        gold = {(number, len(row["prompt"])) for number, row in enumerate(self.train)}
        return {
            "texts": len(self.texts),
            "positions": len(places),
            "texts with the position of the answer": len(places & gold),
            "samples": sum(one.samples for one in found),
            "candidates": len(found),
            "executed": sum(one.result is not None for one in found),
            "reasons": count(one.reason for one in found if one.reason),
        }

    def pair(self) -> dict:
        """Heuristic candidates: every operation on two numbers of the text before the answer."""
        from toolwire.learn import calculator_tool
        from toolwire.learn.toolformer.candidates import CallExecutor

        rows = []
        for number, row in enumerate(self.train):
            values = list(dict.fromkeys(value.strip(",") for value in NUMBER.findall(row["prompt"])))[:6]
            pairs = [f"{a} {sign} {b}" for a, b in itertools.permutations(values, 2) for sign in "+-*/"]
            chosen = random.Random(f"{number}").sample(pairs, min(MAX_PAIRS, len(pairs)))
            rows += [
                CallCandidate(number, len(row["prompt"]), "Calculator", f"Calculator({pair})")
                for pair in sorted(chosen)
            ]
        with CallExecutor([calculator_tool()]) as executor:
            outcomes = executor.execute([(one.call, None) for one in rows])
        rows = [
            msgspec.structs.replace(one, result=outcome.result, reason=outcome.reason)
            for one, outcome in zip(rows, outcomes, strict=True)
        ]
        self.save_rows("paired", rows)
        return {"candidates": len(rows), "executed": sum(one.result is not None for one in rows)}

    def measure(self, rule: str) -> dict:
        from toolwire.learn.toolformer.mining import score_candidates

        report = {}
        for kind in ("mined", "paired"):
            rows = self.load_rows(kind)
            began = time.monotonic()
            scored = score_candidates(self.open(), self.texts, rows, self.settings(rule))
            self.synchronise()
            seconds = time.monotonic() - began
            self.save_rows(f"{kind}-{rule}", scored)
            scored_count = sum(one.losses is not None for one in scored)
            report[kind] = {
                "candidates": scored_count,
                "seconds": round(seconds, 3),
                "per second": round(scored_count / max(seconds, 1e-9), 1),
            }
        return report

    def compare_throughput(self) -> dict:
        """The same losses by a plain loop: one candidate, one sequence at a time, logits of every token."""
        from toolwire.learn.toolformer.mining import score_candidates

        rows = [one for one in self.load_rows("paired-paper") if one.losses is not None]
        rows = random.Random(0).sample(rows, min(self.arguments.naive, len(rows)))
        model = self.open()
        for one in rows[:3]:
            naive_losses(model, self.texts[one.text], one)
        self.synchronise()
        began = time.monotonic()
        plain = [naive_losses(model, self.texts[one.text], one) for one in rows]
        self.synchronise()
        naive = len(rows) / (time.monotonic() - began)
        began = time.monotonic()
        again = score_candidates(model, self.texts, rows, self.settings("paper"))
        self.synchronise()
        same = len(rows) / (time.monotonic() - began)
        differences = [
            abs(a - b)
            for one, (alone, full, bare) in zip(again, plain, strict=True)
            for a, b in (
                (one.losses.without_call, alone),
                (one.losses.with_result, full),
                (one.losses.without_result, bare),
            )
        ]
        batched = self.results["losses-paper"]["paired"]["per second"]
        return {
            "naive per second": round(naive, 2),
            "batched per second": batched,
            "batched per second, same candidates": round(same, 2),
            "ratio": round(batched / naive, 2),
            "candidates": len(rows),
            "largest difference in nats": round(max(differences), 6),
            "dtype": self.dtype,
        }

    def measure_precision(self) -> dict:
        report = {}
        for kind, rule in itertools.product(("mined", "paired"), ("paper", "seed")):
            rows = [one for one in self.load_rows(f"{kind}-{rule}") if one.losses is not None]
            for source in ("all", *dict.fromkeys(row["source"] for row in self.train)):
                own = [one for one in rows if source in ("all", self.train[one.text]["source"])]
                report[f"{kind} {rule} {source}"] = self.precision(own, THRESHOLDS[rule])
            sweep = [round(0.1 * step, 1) for step in range(16)]
            report[f"{kind} {rule} sweep"] = [{"threshold": one, **self.precision(rows, one)} for one in sweep]
        return report

    def precision(self, rows: list[CallCandidate], threshold: float) -> dict:
        right = [self.is_right(one) for one in rows]
        passed = [ok for ok, one in zip(right, rows, strict=True) if one.gain >= threshold]
        unfiltered = share(right)
        return {
            "executed": len(rows),
            "unfiltered": unfiltered,
            "kept": len(passed),
            "precision": share(passed),
            "ratio": round(share(passed) / unfiltered, 3) if passed and unfiltered else None,
            "right kept": round(sum(passed) / max(sum(right), 1), 4),
            "auc": auc([one.gain for one in rows], right),
        }

    def is_right(self, one: CallCandidate) -> bool:
        value = evaluate(one.call.removeprefix("Calculator(")[:-1])
        return abs(value - self.train[one.text]["answer"]) < 0.005 + 1e-9

    def variants(self) -> list[str]:
        seeds = SEEDS[: self.arguments.seeds]
        own = [f"{kind} {seed}" for seed in seeds for kind in ("enabled", "no-filter", "seed-filter")]
        return ["base", "disabled 0", "plus-c 0", *own]

    def source_kind(self) -> str:
        """Train on sampled calls, or also on pairs of numbers if less than 5 % of the sampled calls are right."""
        unfiltered = self.results["precision"]["mined paper all"]["unfiltered"]
        return "mined" if unfiltered >= 0.05 else "both"

    def rows_of(self, kind: str, seed: int) -> tuple[list, dict]:
        from toolwire.learn import calculator_tool
        from toolwire.learn.toolformer.mining import build_corpus, decide

        if kind == "plus-c":
            return build_corpus(self.texts, []), {"calls": 0}
        rule = {"enabled": "paper", "disabled": "paper", "no-filter": "paper", "seed-filter": "seed"}[kind]
        names = ("mined",) if self.source_kind() == "mined" else ("mined", "paired")
        rows = [one for name in names for one in self.load_rows(f"{name}-{rule}")]
        if kind == "no-filter":
            random.Random(seed).shuffle(rows)
            rule = "none"
        decided = decide(rows, [calculator_tool()], self.settings(rule))
        kept = [one for one in decided if not one.reason]
        info = {"calls": len(kept), "right": share([self.is_right(one) for one in kept])}
        return build_corpus(self.texts, decided), info

    def train_variant(self, name: str) -> dict:
        """Fine-tune one variant and evaluate it. `disabled` is evaluated with the weights of `enabled`."""
        from toolwire.learn import open_model
        from toolwire.learn.run_folder import RunFolder
        from toolwire.learn.toolformer.corpus import corpus_rows
        from toolwire.learn.training import TrainSettings, train

        kind, _, number = name.partition(" ")
        if kind == "base":
            return self.evaluate(self.open(), 0)
        seed = int(number)
        augmented, info = self.rows_of(kind, seed)
        model = open_model(self.arguments.model, device=self.arguments.device, dtype="float32")
        folder = self.out / "training" / name.replace(" ", "-")
        settings = TrainSettings(
            epochs=self.arguments.epochs,
            learning_rate=self.arguments.rate,
            batch_tokens=4096 if self.on_gpu else 1024,
            seed=seed,
            checkpoint_seconds=1e9,
        )
        run = RunFolder.create(folder, msgspec.to_builtins(settings), resume=True)
        left = max((self.deadline - time.monotonic()) / 60, 0.05)
        report = train(model, corpus_rows(model, augmented), settings, run, minutes=left)
        if not report.finished:
            raise OutOfTime(name)
        info |= {"steps": report.steps, "first loss": report.log[0].loss, "last loss": report.log[-1].loss}
        if self.on_gpu:
            model.network.to(dtype=getattr(__import__("torch"), self.dtype))
        found = {**info, **self.evaluate(model, 0 if kind in ("disabled", "plus-c") else 10)}
        if kind == "disabled":  # the same weights with calls
            self.results["variant enabled 0"] = {**info, **self.evaluate(model, 10)}
        shutil.rmtree(folder)
        return found

    def evaluate(self, model, top_k: int) -> dict:
        from toolwire.learn import calculator_tool, generate_with_calls

        prompts = [row["prompt"] for row in self.problems]
        answers = generate_with_calls(
            model,
            prompts,
            [calculator_tool()],
            max_tokens=10,
            top_k=top_k,
            call_tokens=32,
            batch_tokens=self.batch_tokens // 4,
        )
        report = {}
        for source in dict.fromkeys(row["source"] for row in self.problems):
            own = [(row, one) for row, one in zip(self.problems, answers, strict=True) if row["source"] == source]
            called = [(row, one) for row, one in own if one.call is not None]
            report[source] = {
                "problems": len(own),
                "accuracy": share([is_answer(one.after if one.call else one.text, row) for row, one in own]),
                "calls": len(called),
                "right calls": share([is_answer(one.result, row) for row, one in called]),
                "dropped": count(one.reason for _, one in own if one.reason),
            }
        report["examples"] = [row["prompt"][-60:] + one.text for row, one in zip(self.problems, answers, strict=True)][
            :: max(1, len(self.problems) // 4)
        ]
        return report

    def synchronise(self) -> None:
        if self.on_gpu:
            import torch

            torch.cuda.synchronize()

    def print_table(self) -> None:
        for name, value in self.results.items():
            if name.startswith("variant "):
                scores = {
                    key: one["accuracy"] for key, one in value.items() if isinstance(one, dict) and "accuracy" in one
                }
                print(f"{name:24} {scores} calls in C*: {value.get('calls')} right: {value.get('right')}")


def naive_losses(model, text: str, one: CallCandidate) -> tuple[float, float, float]:
    """Return L(ε), L(c, r) and L(c, ε), each by a full forward pass of one sequence."""
    import torch

    from toolwire.learn import format_call
    from toolwire.learn.toolformer.filters import WEIGHTS

    context, suffix = model.encode(text[: one.position]), model.encode(text[one.position :])
    prefixes = ("", format_call(one.call, one.result) + "\n", format_call(one.call) + "\n")
    losses = []
    for prefix in prefixes:
        tokens = [*model.encode(prefix), *context, *suffix]
        with torch.inference_mode():
            logits = model.network(input_ids=torch.tensor([tokens], device=model.device)).logits[0].float()
        chances = torch.log_softmax(logits, -1)
        first = len(tokens) - len(suffix)
        losses.append(
            -sum(
                weight * float(chances[first + place - 1, token])
                for place, (weight, token) in enumerate(zip(WEIGHTS, suffix, strict=False))
            )
        )
    return losses[0], losses[1], losses[2]


def is_answer(text: str | None, row: dict) -> bool:
    """Return True if the first number of a text is the answer."""
    found = NUMBER.search(text or "")
    return found is not None and abs(float(found[0].replace(",", "")) - row["answer"]) < 0.005 + 1e-9


def spread(rows: list, count: int) -> list:
    """Return `count` rows from all parts of a list."""
    step = max(1, len(rows) // count)
    return rows[::step][:count]


def share(values: list[bool]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def count(values) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return dict(sorted(found.items(), key=lambda pair: -pair[1])[:8])


def auc(scores: list[float], labels: list[bool]) -> float | None:
    """Return the probability that a right candidate has a larger gain than a wrong one."""
    right = sum(labels)
    if not right or right == len(labels):
        return None
    order = sorted(range(len(scores)), key=lambda number: scores[number])
    ranks = sum(rank for rank, number in enumerate(order, 1) if labels[number])
    return round((ranks - right * (right + 1) / 2) / (right * (len(labels) - right)), 4)


if __name__ == "__main__":
    main()
