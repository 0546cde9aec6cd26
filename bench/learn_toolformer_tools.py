"""Toolformer with all six tools, in a size for a CPU: which calls are proposed and kept, and do they help?

    python bench/learn_toolformer_tools.py data OUT
    python bench/learn_toolformer_tools.py run OUT -m smollm2
    python bench/learn_toolformer_tools.py report OUT docs/experiments

`data` writes texts for each tool: arithmetic, dates and units from templates, capitals from Debian's package miscfiles, and
lines of the French dictionary. Search and questions use WordNet. `run` mines calls in some of the texts, and
lets the model call the tools in the others. Each stage is stored in OUT; a second `run` continues. `--root` is the folder
in which the packages miscfiles, dict-wn and dict-freedict-fra-eng were unpacked, if they are not installed.
"""

import argparse
import datetime as dt
import gzip
import json
import random
import re
from pathlib import Path
from statistics import mean, stdev

import msgspec

from learn_toolformer import count, spread
from learn_toolformer_data import number, templated
from toolwire.learn.toolformer.dictionaries import read_passages, read_translations
from toolwire.learn.toolformer.mining import CallCandidate, MiningSettings
from toolwire.learn.toolformer.mining_run import ListedTool, open_tools
from toolwire.learn.toolformer.mining_tool import convert

KINDS = ("calculator", "calendar", "convert", "search", "qa", "translate")
DICTIONARIES = {"search": "wn", "qa": "wn", "translate": "freedict-fra-eng"}
SETTINGS = MiningSettings(positions=2, samples=5, batch_tokens=8192)
CALENDAR = (
    ("Good morning! Today is a", "%A"),
    ("The newsletter of today is the issue for the month of", "%B"),
    ("This page was printed today, so its copyright is of the year", "%Y"),
)
CONVERT = (
    ("The trail is {} miles long. In kilometers, that is", "miles", "kilometers", 2, 90),
    ("The parcel weighs {} pounds. In kilograms, that is", "pounds", "kilograms", 2, 90),
    ("The oven is set to {} fahrenheit. In celsius, that is", "fahrenheit", "celsius", 100, 500),
    ("The room is {} feet wide. In meters, that is", "feet", "meters", 5, 90),
)
COLD = 1e-6  # a temperature at which the sample is the most probable call
UNANSWERABLE = "Who won the election of mayor in {} last year?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("data", "run", "report"))
    parser.add_argument("out", type=Path)
    parser.add_argument("target", type=Path, nargs="?", default=Path("docs/experiments"))
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--texts", type=int, default=12, help="texts to mine for each tool")
    parser.add_argument("--held-out", type=int, default=30, help="held-out texts for each tool")
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--only", help="do the stages whose names begin so, such as mined; another run does the others")
    arguments = parser.parse_args()
    if arguments.action == "data":
        write_texts(arguments)
    elif arguments.action == "run":
        Experiment(arguments).run()
    else:
        from learn_toolformer_report import write_tools

        write_tools(arguments.out, arguments.target)


# Texts: a prompt, the answer, and the rest. A call belongs between prompt and answer.


def write_texts(arguments: argparse.Namespace) -> None:
    draw = random.Random(0)
    countries = read_countries(arguments.root)
    draw.shuffle(countries)
    words = read_translations(dictionary(arguments.root, "translate"))
    makers = {
        "calculator": lambda _: calculation(draw),
        "calendar": lambda number: date_line(draw, number),
        "convert": lambda number: unit_line(draw, number),
        "search": lambda number: capital_line(countries[number % len(countries)], number),
        "qa": lambda number: capital_line(countries[number % len(countries)], number + 1),
        "translate": None,
    }
    lines = translation_lines(words, draw)
    makers["translate"] = lambda number: lines[number]
    rows = {}
    for kind in KINDS:
        found: dict[str, dict] = {}
        for step in range(100 * (arguments.texts + arguments.held_out)):
            row = makers[kind](step)
            found.setdefault(row["prompt"], row)
            if len(found) == arguments.texts + arguments.held_out:
                break
        own = list(found.values())
        rows[kind] = {"mined": own[: arguments.texts], "held out": own[arguments.texts :]}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "texts.json").write_text(json.dumps(rows, indent=1), "utf-8")
    print({kind: {name: len(part) for name, part in parts.items()} for kind, parts in rows.items()})


def line(prompt: str, answer: str, rest: str = ".", date: str | None = None) -> dict:
    return {"prompt": prompt, "answer": answer, "text": f"{prompt} {answer}{rest}", "date": date}


def calculation(draw: random.Random) -> dict:
    row = templated(draw, digits=draw.choice((2, 3)))
    return line(row["prompt"], number(row["answer"]))


def date_line(draw: random.Random, number: int) -> dict:
    date = dt.date(2020, 1, 1) + dt.timedelta(draw.randrange(3650))
    prompt, form = CALENDAR[number % len(CALENDAR)]
    greeting = draw.choice(("", "Hello. ", "Dear readers, welcome. ", "News of the town. ", "A short note. "))
    place = draw.choice(("Leeds", "Turin", "Porto", "Ghent", "Lyon", "Graz", "Cork", "Bergen", "Split", "Malmo"))
    return line(f"{greeting}{place}: {prompt}", f"{date:{form}}", date=date.isoformat())


def unit_line(draw: random.Random, number: int) -> dict:
    template, source, target, low, high = CONVERT[number % len(CONVERT)]
    amount = draw.randint(low, high)
    return line(template.format(amount), convert(f"{amount} {source} to {target}").split()[0], f" {target}.")


def capital_line(country: tuple[str, str], number: int) -> dict:
    name, capital = country
    if number % 2:
        return line(f"The capital of {name} is", capital)
    return line(f"{capital} is the capital city of", name)


def translation_lines(words: dict[str, str], draw: random.Random) -> list[dict]:
    fit = re.compile("[a-zéèêàçîôû]{4,12}").fullmatch
    chosen = [
        (french, english) for french, english in words.items() if fit(french) and re.fullmatch("[a-z]{3,12}", english)
    ]
    chosen = [
        (french, english) for french, english in chosen if french[:4] != english[:4]
    ]  # not guessed by their spelling
    draw.shuffle(chosen)
    return [line(f'The French word "{french}" means', english) for french, english in chosen]


def read_countries(root: Path) -> list[tuple[str, str]]:
    """Return countries with one capital, from the file of miscfiles."""
    rows = gzip.decompress((root / "usr/share/misc/countries.gz").read_bytes()).decode().splitlines()
    pairs = [tuple(row.split(":")[3:5]) for row in rows if row and not row.startswith("#")]
    return [(name, capital) for name, capital in pairs if capital and capital != name and "(" not in name + capital]


def dictionary(root: Path, kind: str) -> Path:
    return root / "usr/share/dictd" / f"{DICTIONARIES[kind]}.index"


class Experiment:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.out = arguments.out
        self.texts = json.loads((self.out / "texts.json").read_text("utf-8"))
        file = self.out / "results.json"
        self.results = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        self.opened: dict = {}

    def run(self) -> None:
        for kind in KINDS:
            self.stage(f"mined {kind}", lambda kind=kind: self.mine(kind))
        self.stage("questions", self.measure_questions)
        for kind in KINDS:
            self.stage(f"used {kind}", lambda kind=kind: self.use(kind))

    def stage(self, name: str, work) -> None:
        """Do a stage once, and store its result."""
        if name in self.results or not name.startswith(tuple((self.arguments.only or "").split(","))):
            return
        print(f"{name} …", flush=True)
        self.results[name] = work()
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1), "utf-8")
        print(f"{name}: {json.dumps(self.results[name])[:500]}", flush=True)

    def model(self):
        from toolwire.learn import open_model

        if "model" not in self.opened:
            self.opened["model"] = open_model(self.arguments.model)
        return self.opened["model"]

    def tool(self, kind: str):
        """Return a tool. Those with the same dictionary are opened together."""
        if kind not in self.opened:
            group = [one for one in KINDS if one == kind or DICTIONARIES.get(one) == DICTIONARIES.get(kind, "")]
            entries = [
                ListedTool(one, str(dictionary(self.arguments.root, one)) if one in DICTIONARIES else None)
                for one in group
            ]
            self.opened |= dict(zip(group, open_tools(entries), strict=True))
        return self.opened[kind]

    def measure_questions(self) -> dict:
        """Ask for capitals, and for facts that no dictionary has, by the least similarity of an answer.

        The countries are in none of the texts for mining, because `LEAST_SIMILARITY` is chosen with these questions.
        """
        from toolwire.learn.toolformer.dictionaries import PassageIndex
        from toolwire.learn.toolformer.mining_tool import LEAST_SIMILARITY
        from toolwire.retrieve import open_minilm

        texts = [row["text"] for kind in ("search", "qa") for part in self.texts[kind].values() for row in part]
        countries = [
            (name, capital)
            for name, capital in read_countries(self.arguments.root)
            if not any(name in text or capital in text for text in texts)
        ]
        countries = spread(countries, 50)
        index, encoder = PassageIndex(read_passages(dictionary(self.arguments.root, "qa"))), open_minilm(adapted=False)
        known = [(*index.answer(f"What is the capital of {name}?", encoder), capital) for name, capital in countries]
        unknown = [index.answer(UNANSWERABLE.format(name), encoder)[1] for name, _ in countries]
        table = {
            str(least): {
                "answered": sum(similarity >= least for _, similarity, _ in known),
                "right": sum(similarity >= least and capital in sentence for sentence, similarity, capital in known),
                "unanswerable answered": sum(similarity >= least for similarity in unknown),
            }
            for least in (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65)
        }
        return {"questions": len(countries), "chosen": LEAST_SIMILARITY, "by similarity": table}

    def mine(self, kind: str) -> dict:
        from toolwire.learn import CorpusText
        from toolwire.learn.toolformer.mining import decide, mine_texts
        from toolwire.learn.toolformer.mining_tool import LEAST_SIMILARITY

        rows, tool = self.texts[kind]["mined"], self.tool(kind)
        corpus = [CorpusText(row["text"], row["date"]) for row in rows]
        found = mine_texts(self.model(), corpus, [tool], SETTINGS)
        decided = decide(found, [tool], SETTINGS)
        (self.out / f"mined-{kind}.json").write_bytes(msgspec.json.encode(decided))
        executed = [one for one in found if one.result is not None]
        passed = [one for one in executed if one.gain >= tool.threshold]
        right = [one for one in executed if is_right(one, rows)]
        places = {(one.text, one.position) for one in found}
        return {
            "texts": len(rows),
            "texts with the position of the answer": sum(
                (at, len(row["prompt"])) in places or (at, len(row["prompt"]) + 1) in places
                for at, row in enumerate(rows)
            ),
            "samples": sum(one.samples for one in found),
            "proposed": len(found),
            "executed": len(executed),
            "right": len(right),
            "passed": len(passed),
            "right passed": sum(is_right(one, rows) for one in passed),
            "kept": sum(not one.reason for one in decided),
            "threshold": tool.threshold,
            "least similarity": LEAST_SIMILARITY if kind == "qa" else None,
            "best gain of a right call": max((round(one.gain, 3) for one in right), default=None),
            "failed": count(one.reason for one in found if one.reason),
        }

    def use(self, kind: str) -> dict:
        """Let the model without tuning write one call at the end of each held-out prompt, and complete the text after it.

        The few-shot prompt has the prompt only, not the answer. The call is a prefix of the text, as in the filter.
        """
        from toolwire.learn import format_call, generate_with_calls, weighted_nll
        from toolwire.learn.toolformer.candidates import CallExecutor
        from toolwire.learn.toolformer.sampling import sample_batch

        rows, tool, model = self.texts[kind]["held out"], self.tool(kind), self.model()
        places = [(row["prompt"], len(row["prompt"])) for row in rows]
        sampled = sample_batch(model, places, tool, samples=1, temperature=COLD, batch_tokens=8192)
        calls = [found[0] if found else "" for found in sampled]
        with CallExecutor([tool]) as executor:
            outcomes = executor.execute([(call, row["date"]) for call, row in zip(calls, rows, strict=True)])
        pairs = list(zip(calls, outcomes, strict=True))
        prefixes = [f"{format_call(call, one.result)}\n" if one.result else "" for call, one in pairs]
        right, gains = {}, []
        for mode, before in (("without", [""] * len(rows)), ("with", prefixes)):
            prompts = [prefix + row["prompt"] for prefix, row in zip(before, rows, strict=True)]
            texts = generate_with_calls(model, prompts, [], max_tokens=10, top_k=0, batch_tokens=8192)
            right[mode] = sum(is_answer(one.text, row) for one, row in zip(texts, rows, strict=True))
            gains.append(
                [weighted_nll(model, prompt, f" {row['answer']}") for prompt, row in zip(prompts, rows, strict=True)]
            )
        changes = [after - alone for alone, after in zip(*gains, strict=True)]
        return {
            "problems": len(rows),
            "executed": sum(one.result is not None for one in outcomes),
            "right calls": sum(has_answer(one.result, row) for one, row in zip(outcomes, rows, strict=True)),
            "right": right,
            "change of the loss": [
                round(value, 3) for value in (mean(changes), 1.96 * stdev(changes) / len(rows) ** 0.5)
            ],
            "failed": count(one.reason for one in outcomes if one.reason),
            "examples": [f"{call} -> {one.result}" for call, one in pairs[:4]],
        }


def is_right(one: CallCandidate, rows: list[dict]) -> bool:
    """Return True if the answer comes directly after the call, and is in its result."""
    row = rows[one.text]
    return one.position - len(row["prompt"]) in (0, 1) and has_answer(one.result, row)


def has_answer(result: str | None, row: dict) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(row['answer'])}(?!\w|\.\d)", result or "", re.IGNORECASE) is not None


def is_answer(text: str, row: dict) -> bool:
    """Return True if a text begins with the answer."""
    return re.match(rf"{re.escape(row['answer'])}(?!\w|\.\d)", text.strip(), re.IGNORECASE) is not None


if __name__ == "__main__":
    main()
