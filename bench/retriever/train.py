"""Train the adapter of the encoder: matrices of rank 32 that are added to the weights of all-MiniLM-L6-v2.

    python bench/retriever/train.py --model FOLDER --out adapter.npz        # needs torch, transformers and a GPU

Each query is trained to be nearer to its tool than to the other tools of the batch and to tools that the untrained
encoder confuses with it (InfoNCE). Five models are trained with different settings, their changes of the weights are
averaged, and the average is cut to rank 32. The number of epochs and the settings were chosen on the development queries
of `retrieval/dev.jsonl` (bench/retrieval_quality.py --split dev).
"""

import argparse
import json
import random
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoTokenizer, BertModel

HERE = Path(__file__).parent
EPOCHS, RANK, MAX_TOKENS, HARD = 2, 32, 128, 60
EQUAL = 0.92  # tools that are more similar than this are no negatives of each other
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[_./\-]+")


class Settings(NamedTuple):
    """How one of the models is trained."""

    seed: int
    rate: float
    temperature: float
    batch: int
    negatives: int
    lora: int = 0  # the rank of a trained low-rank change; 0: all matrices of the layers are trained


MODELS = (
    Settings(0, 8e-5, 0.03, 384, 5),
    Settings(1, 6e-5, 0.03, 256, 4),
    Settings(2, 5e-4, 0.03, 384, 5, lora=64),
    Settings(3, 8e-5, 0.02, 384, 6),
    Settings(4, 1e-4, 0.04, 384, 5),
)


class LowRank(torch.nn.Module):
    """A linear layer whose weights are fixed, plus a trained change of low rank."""

    def __init__(self, linear: torch.nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        scale = linear.in_features**-0.5
        self.right = torch.nn.Parameter(torch.randn(rank, linear.in_features, device=linear.weight.device) * scale)
        self.left = torch.nn.Parameter(torch.zeros(linear.out_features, rank, device=linear.weight.device))
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.linear(values) + 2 * (self.dropout(values) @ self.right.T) @ self.left.T

    @property
    def change(self) -> torch.Tensor:
        return 2 * self.left @ self.right


def tool_text(tool: dict, *, parameters: bool = True, split: bool = True) -> str:
    """Return the text of a tool as `ToolDocument.text` makes it, or a variant of it."""
    name = _SEPARATORS.sub(" ", _CASE_CHANGE.sub(" ", tool["name"])) if split else tool["name"]
    names = ", ".join(one["name"] for one in tool["parameters"]) if parameters else ""
    return ". ".join(part for part in (name, tool["description"], names) if part)


def varied_text(tool: dict) -> str:
    """Return the text of a tool, sometimes without parameters or with the name as it is."""
    return tool_text(tool, parameters=random.random() < 0.64, split=random.random() < 0.73)


def read_data(others: Path | None) -> tuple[list[dict], list[tuple[str, list[int]]]]:
    """Return all tools, and the queries with the numbers of their tools. `others`: tools without queries."""
    tools: list[dict] = []
    queries: list[tuple[str, list[int]]] = []
    for path in sorted((HERE / "queries").glob("*.jsonl")):
        if path.stem.endswith("_multi"):
            continue
        numbers: dict[str, int] = {}
        for row in map(json.loads, path.read_text("utf-8").splitlines()):
            numbers[row["name"]] = len(tools)
            queries += [(query, [len(tools)]) for query in row.pop("queries")]
            tools.append(row)
        for row in map(json.loads, path.with_stem(f"{path.stem}_multi").read_text("utf-8").splitlines()):
            queries.append((row["query"], [numbers[name] for name in row["tools"]]))
    for path in sorted(others.glob("*.jsonl")) if others else ():
        for row in map(json.loads, path.read_text("utf-8").splitlines()):
            names = list(row["input_schema"].get("properties") or {})[:20]
            text = (row.get("description") or "")[:600]
            tools.append({"name": row["name"], "description": text, "parameters": [{"name": name} for name in names]})
    return tools, queries


class Trainer:
    """The base model, the data, and the vectors of the untrained encoder."""

    def __init__(self, folder: Path, others: Path | None) -> None:
        self.folder = folder
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tools, self.queries = read_data(others)
        base = self.new_model()
        vectors = self.encode_all(base, [tool_text(tool) for tool in self.tools])
        self.similar = vectors @ vectors.T
        asked = self.encode_all(base, [query for query, _ in self.queries])
        self.confused = (asked @ vectors.T).topk(HARD).indices.cpu().tolist()
        self.base = {name: weight.clone() for name, weight in base.state_dict().items()}

    def new_model(self) -> BertModel:
        return BertModel.from_pretrained(self.folder, add_pooling_layer=False).float().cuda()

    def encode(self, model: BertModel, texts: list[str]) -> torch.Tensor:
        given = self.tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        given = given.to("cuda")
        hidden = model(input_ids=given.input_ids, attention_mask=given.attention_mask).last_hidden_state
        mask = given.attention_mask[..., None].to(hidden.dtype)
        return functional.normalize((hidden * mask).sum(1).float(), dim=-1)

    @torch.no_grad()
    def encode_all(self, model: BertModel, texts: list[str]) -> torch.Tensor:
        model.eval()
        return torch.cat([self.encode(model, texts[start : start + 512]) for start in range(0, len(texts), 512)])

    def train(self, settings: Settings) -> dict[str, torch.Tensor]:
        """Return the change of each weight matrix of the layers."""
        random.seed(settings.seed)
        torch.manual_seed(settings.seed)
        model = self.new_model()
        model.embeddings.requires_grad_(requires_grad=False)
        if settings.lora:
            add_low_rank(model, settings.lora)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=settings.rate, weight_decay=0.01)
        steps = EPOCHS * (len(self.queries) // settings.batch + 1)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1, (step + 1) / (0.1 * steps)) * max(0.02, 1 - step / steps)
        )
        for _ in range(EPOCHS):
            model.train()
            order = random.sample(range(len(self.queries)), len(self.queries))
            for start in range(0, len(order), settings.batch):
                self.loss(model, order[start : start + settings.batch], settings).backward()
                torch.nn.utils.clip_grad_norm_(trained, 1.0)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
        return self.changes(model)

    def loss(self, model: BertModel, numbers: list[int], settings: Settings) -> torch.Tensor:
        """Return the cross-entropy of the right tool among the tools of the batch."""
        offered: list[int] = []
        right: list[int] = []
        for number in numbers:
            gold = self.queries[number][1]
            chosen = random.choice(gold)
            right.append(len(offered))
            wrong = [one for one in self.confused[number] if one not in gold and self.similar[one, chosen] < EQUAL]
            offered += [chosen, *random.sample(wrong, min(settings.negatives, len(wrong)))]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            queries = self.encode(model, [self.queries[number][0] for number in numbers])
            tools = self.encode(model, [varied_text(self.tools[one]) for one in offered])
        scores = queries @ tools.T / settings.temperature
        columns, targets = torch.tensor(offered, device="cuda"), torch.tensor(right, device="cuda")
        for row, number in enumerate(numbers):
            gold = torch.tensor(self.queries[number][1], device="cuda")
            excluded = torch.isin(columns, gold) | (self.similar[columns[targets[row]]][columns] > EQUAL)
            excluded[targets[row]] = False
            scores[row] = scores[row].masked_fill(excluded, -1e4)
        return functional.cross_entropy(scores, targets)

    def changes(self, model: BertModel) -> dict[str, torch.Tensor]:
        found = {}
        for name, module in model.named_modules():
            if isinstance(module, LowRank):
                found[name] = module.change.detach()
            elif name.startswith("encoder") and isinstance(module, torch.nn.Linear) and not name.endswith(".linear"):
                found[name] = module.weight.detach() - self.base[f"{name}.weight"]
        return found


def add_low_rank(model: BertModel, rank: int) -> None:
    """Replace the linear layers by fixed ones with a trained change."""
    model.requires_grad_(requires_grad=False)
    for layer in model.encoder.layer:
        attention = layer.attention
        places = [(attention.self, name) for name in ("query", "key", "value")]
        places += [(attention.output, "dense"), (layer.intermediate, "dense"), (layer.output, "dense")]
        for owner, name in places:
            setattr(owner, name, LowRank(getattr(owner, name), rank))


def write_adapter(changes: list[dict[str, torch.Tensor]], path: Path) -> None:
    """Average the changes, cut them to the rank, and write their factors."""
    factors = {}
    for name in changes[0]:
        average = sum(one[name] for one in changes) / len(changes)
        left, scale, right = torch.linalg.svd(average.float(), full_matrices=False)
        root = scale[:RANK].sqrt()
        factors[f"{name}.left"] = (left[:, :RANK] * root).half().cpu().numpy()
        factors[f"{name}.right"] = (root[:, None] * right[:RANK]).half().cpu().numpy()
    np.savez(path, **factors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of all-MiniLM-L6-v2 (in the wheel: model/)")
    parser.add_argument("--others", type=Path, help="folder of tool declarations without queries, used as negatives")
    parser.add_argument("--out", type=Path, default=Path("adapter.npz"))
    given = parser.parse_args()
    trainer = Trainer(given.model, given.others)
    print(f"{len(trainer.tools)} tools, {len(trainer.queries)} queries")
    write_adapter([trainer.train(settings) for settings in MODELS], given.out)


if __name__ == "__main__":
    main()
