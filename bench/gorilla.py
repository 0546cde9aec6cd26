"""Gorilla's table: calls of APIBench by the local model and by an oracle, without retrieval, with BM25 and with ToolIndex.

    python bench/gorilla.py                     the oracle on all tasks, the local model on 5 tasks per hub
    python bench/gorilla.py --tasks 0           the oracle alone

Each hub of APIBench (torchhub, huggingface, tensorflow) is a catalogue of its own, with one card per distinct call. The
prompt is the seed's form: the cards that were found, the request, and `### Call:`. Answers are matched as in the paper
(`gorilla_calls.py`): accuracy is the share of answers with an API of the task's domain, "exact" with the reference API
itself, hallucination the share without any API of the database. The oracle writes the call of an offered card that is
right, the reference if it is among them, and otherwise a call of its own invention, so its accuracy is the limit that
retrieval sets to any model that copies. Answers of the local model are cached by prompt in `bench/.cache-retrieval`; those
of `gorilla_gpu.py`, with the same weights, are reported for all tasks. The wording of the prompt and the given beginning of
the answer (`model =`) were chosen on a few other tasks, and are equal in all conditions except for the list of cards.
"""

import argparse
import asyncio
import hashlib
import json
import random
import re
import statistics
import sys
from collections import Counter
from functools import cached_property
from pathlib import Path

from gorilla_calls import HUBS, Database
from retrieval_data import CACHE, DATA, Bm25, has_data, open_encoder, read_lines
from toolwire import Tool
from toolwire.retrieve import ToolIndex

FILES = {
    "torchhub": ("torchhub_api.jsonl", "torchhub_eval.json"),
    "huggingface": ("huggingface_api.jsonl", "huggingface_eval.json"),
    "tensorflow": ("tensorflowhub_api.jsonl", "tensorflow_eval.json"),
}
PROGRAMS = {
    "torchhub": "PyTorch Hub, such as torch.hub.load(repo_or_dir='…', model='…')",
    "huggingface": "Hugging Face, such as AutoModel.from_pretrained('…') or pipeline('…', model='…')",
    "tensorflow": "TensorFlow Hub, such as hub.load('https://tfhub.dev/…')",
}
CONDITIONS = {
    "no retrieval": ("none", 0),
    "BM25, k = 1": ("bm25", 1),
    "BM25, k = 3": ("bm25", 3),
    "toolwire, k = 1": ("toolwire", 1),
    "toolwire, k = 3": ("toolwire", 3),
}
INVENTED = "no_such_api('invented')"
MAX_TOKENS = 64
_TASK = re.compile(r"###\s*Instruction:?\s*(.*?)\s*(?:###\s*Output|<<<|\n|\Z)", re.DOTALL)


class Hub:
    """The cards, the tasks and the retrievers of a hub."""

    def __init__(self, name: str, encoder) -> None:
        cards_file, tasks_file = FILES[name]
        cards = read_lines(DATA / "apibench" / cards_file)
        self.name = name
        self.database = Database(name, cards)
        self.cards = list({card["api_call"]: card for card in reversed(cards)}.values())[::-1]
        self.tasks = [
            {
                "query": _TASK.search(line["code"])[1],
                "reference": {"api_call": line["api_call"], "domain": line["api_data"]["domain"]},
            }
            for line in read_lines(DATA / "apibench" / tasks_file)
        ]
        texts = [_card_text(card) for card in self.cards]
        self._words = Bm25([f"{card['api_name']} {text}" for card, text in zip(self.cards, texts, strict=True)])
        repeated = Counter()
        names = []
        for card in self.cards:
            number = repeated[card["api_name"]]
            names.append(f"{card['api_name']} {number}" if number else card["api_name"])
            repeated[card["api_name"]] += 1
        self._tools = [Tool(name, text) for name, text in zip(names, texts, strict=True)]
        self._numbers = {name: number for number, name in enumerate(names)}
        self._encoder = encoder

    @cached_property
    def _index(self) -> ToolIndex:
        index = ToolIndex(self._encoder)
        index.add(self._tools)
        return index

    def find(self, query: str, condition: str) -> list[dict]:
        """Return the cards that a condition offers for a query."""
        retriever, k = CONDITIONS[condition]
        if retriever == "none":
            return []
        if retriever == "bm25":
            return [self.cards[number] for number in self._words.search(query, k)]
        return [self.cards[self._numbers[hit.tool.name]] for hit in self._index.search(query, k)]


def _card_text(card: dict) -> str:
    """Return domain, functionality and description. A few cards have lists."""
    return " ".join(str(card[field]) for field in ("domain", "functionality", "description") if card.get(field))


def make_messages(hub: str, query: str, cards: list[dict]) -> list[dict]:
    """Return the prompt in the seed's form: signatures with the beginning of their descriptions, and the request."""
    specs = "\n\n".join(f"{card['api_call']}\n    {' '.join(card['description'].split())[:120]}" for card in cards)
    rule = (
        f"Answer with one line of Python that loads a model for the request from {PROGRAMS[hub]}. Write nothing else."
    )
    if cards:
        rule += " Copy the best of the listed calls."
    begin = f"### API specs:\n{specs}\n\n" if cards else ""
    return [
        {"role": "system", "content": rule},
        {"role": "user", "content": f"{begin}### User: {query}\n### Call:"},
        {"role": "assistant", "content": "```python\nmodel ="},
    ]


def ask_oracle(hub: Hub, task: dict, cards: list[dict]) -> str:
    """Answer with the reference if it was offered, else with a card of the domain, else with an invented call."""
    verdicts = {card["api_call"]: hub.database.judge(card["api_call"], task["reference"]) for card in cards}
    for wanted in ("exact", "right"):
        for call, verdict in verdicts.items():
            if verdict == wanted:
                return call
    return INVENTED


class LocalModel:
    """The local model, with its answers on disk."""

    def __init__(self) -> None:
        self._file = CACHE / "answers-smollm2.jsonl"
        self.known = read_answers(self._file)
        self._model = None

    async def ask(self, messages: list[dict]) -> str:
        key = message_key(messages)
        if key not in self.known:
            self.known[key] = await self._generate(messages)
            CACHE.mkdir(exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "answer": self.known[key]}) + "\n")
        return self.known[key]

    async def _generate(self, messages: list[dict]) -> str:
        if self._model is None:
            from toolwire.local import open_model

            self._model = open_model(threads=1)
        body = {"messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0, "stop": ["\n"]}
        answer = json.loads(await self._model.complete(json.dumps(body).encode()))
        return answer["choices"][0]["message"]["content"] or ""


def read_answers(path: Path) -> dict[str, str]:
    """Return the answers of a file by the key of their prompts."""
    return {line["key"]: line["answer"] for line in read_lines(path)} if path.exists() else {}


def summarise(verdicts: list[str]) -> dict:
    """Return shares in percent."""
    count = len(verdicts)
    exact, right, missing = (verdicts.count(one) for one in ("exact", "right", "hallucination"))
    return {
        "tasks": count,
        "accuracy": 100 * (exact + right) / count,
        "exact": 100 * exact / count,
        "hallucination": 100 * missing / count,
    }


def _share_of_domain(hub: Hub, reference: dict) -> float:
    """Return the share of the cards that are right for a task: the accuracy of a random card."""
    return statistics.mean(hub.database.judge(card["api_call"], reference) in ("exact", "right") for card in hub.cards)


def dump_prompts(path: Path, conditions: list[str]) -> None:
    """Write the prompts of all tasks, for `gorilla_gpu.py`."""
    encoder = open_encoder()
    prompts = {}
    for name in HUBS:
        hub = Hub(name, encoder)
        for condition in conditions:
            for task in hub.tasks:
                messages = make_messages(name, task["query"], hub.find(task["query"], condition))
                prompts[message_key(messages)] = messages
        encoder.save()
    lines = (json.dumps({"key": key, "messages": messages}) + "\n" for key, messages in prompts.items())
    path.write_text("".join(lines), "utf-8")


def message_key(messages: list[dict]) -> str:
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


async def measure(tasks: int, seed: int, conditions: list[str]) -> dict:
    """Measure all models. A task without an answer of the GPU is left out of that model's row."""
    encoder, local = open_encoder(), LocalModel()
    stored = read_answers(CACHE / "answers-smollm2-gpu.jsonl")
    rows, catalogues = [], {}
    for name in HUBS:
        hub = Hub(name, encoder)
        verdicts_of_references = [
            hub.database.judge(one["reference"]["api_call"], one["reference"]) for one in hub.tasks
        ]
        catalogues[name] = {
            "cards": len(hub.cards),
            "tasks": len(hub.tasks),
            "random": 100 * statistics.mean(_share_of_domain(hub, task["reference"]) for task in hub.tasks),
            "matched": sum(verdict == "exact" for verdict in verdicts_of_references),
        }
        sample = random.Random(f"{seed} {name}").sample(range(len(hub.tasks)), min(tasks, len(hub.tasks)))
        for condition in conditions:
            verdicts: dict[str, list[str]] = {"oracle": [], "gpu": [], "local": []}
            for number, task in enumerate(hub.tasks):
                cards = hub.find(task["query"], condition)
                messages = make_messages(name, task["query"], cards)
                answers = {"oracle": ask_oracle(hub, task, cards), "gpu": stored.get(message_key(messages))}
                if number in sample:
                    answers["local"] = await local.ask(messages)
                for model, answer in answers.items():
                    if answer is not None:
                        verdicts[model].append(hub.database.judge(answer, task["reference"]))
            for model, found in verdicts.items():
                if found:
                    rows.append({"model": model, "hub": name, "condition": condition, **summarise(found)})
                    print(rows[-1], file=sys.stderr, flush=True)
        encoder.save()
    both = [key for key in local.known if key in stored]
    agreement = [len(both), sum(local.known[key].strip() == stored[key].strip() for key in both)]
    return {"rows": rows, "catalogues": catalogues, "agreement": agreement, "encoder": encoder.name}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=5, help="tasks per hub for the local model")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--conditions", nargs="*", default=list(CONDITIONS), choices=list(CONDITIONS))
    parser.add_argument("--prompts", type=Path, help="write the prompts of all tasks to this file, and exit")
    given = parser.parse_args()
    if not has_data("apibench"):
        sys.exit()
    if given.prompts:
        dump_prompts(given.prompts, given.conditions)
        sys.exit()
    print(json.dumps(asyncio.run(measure(given.tasks, given.seed, given.conditions))))
