"""Write docs/experiments/tool-calls.md from docs/experiments/tool-calls.json.

python bench/tool_calls/tool_calls_page.py report.json     the report of evaluate.py, whose figures replace those of the page
python bench/tool_calls/tool_calls_page.py                 the page alone
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "experiments"


def page_text(results):
    card, rows = results["card"], results["scores"]
    servers = "\n".join(
        f"| {count} | {row['tasks']} | {row['right']:.0f} % | {row['right tool']:.0f} % | {row['right refusal']:.0f} % | {row['tool and arguments']:.0f} % |"
        for count in (1, 3, 10, 30)
        if (row := rows.get(f"servers/{count}"))
    )
    platform = "\n".join(
        f"| {size:,} | {row['tasks']} | {row['R@1']:.0f} % | {row['R@3']:.0f} % | {row['R@5']:.0f} % | {row['end to end']:.0f} % |"
        for size in (520, 5000)
        if (row := rows.get(f"platform/{size}"))
    )
    hubs = "\n".join(
        f"| {name} | {row['tasks']} | {row['model']:.0f} % | {row['first']:.0f} % | {row['frequent']:.0f} % | {row['oracle']:.0f} % |"
        for name in ("torchhub", "huggingface", "tensorflow")
        if (row := rows.get(f"hubs/{name}"))
    )
    commands = rows["commands"]
    invented = max(row["invented"] for name, row in rows.items() if name.startswith("hubs/"))
    return f"""\
# The adapter of the local model

An adapter (LoRA of rank {card["rank"]}, {card["megabytes"]:.1f} MB) teaches SmolLM2-135M to choose one call, or none. It is applied to the choice of a call alone, so the
texts of the model are those without it. The figures are in [tool-calls.json](tool-calls.json). Samples of this size have wide intervals: 50 prompts give about
±12 points.

**The figures are older than the present choice** (`local/choice.py`), which adds the rank of a search and takes off the usual preference of a name, and than the
limits of values (`local/values.py`). They have not been repeated with it; `weights.py` measures it on development requests.

**Functions of servers that training did not see** (12 MCP servers; a third of the prompts fits none of them). *Right* is the right function or the right refusal.

| functions | prompts | right | right function | right refusal | with all arguments |
|--:|--:|--:|--:|--:|--:|
{servers}

**The platform of many endpoints**, new requests: the index offers its first five, and the model calls one of them.

| endpoints | requests | index, first | in 3 | in 5 | end to end |
|--:|--:|--:|--:|--:|--:|
{platform}

**APIBench**, the reference API itself, with the three cards of the index. *First* always takes the first card, *frequent* the offered card that the
database has most often; the *oracle* takes the reference if it is offered. Answers with an API that was not offered: {invented:.0f} %.

| hub | tasks | model | first | frequent | oracle |
|---|--:|--:|--:|--:|--:|
{hubs}

The adapter alone does not help there: the first card of the index is better, and on tensorflow the most frequent one. The rows of its training had the
reference too often at a place where the index would not return it.

**`toolwire do`**, {commands["tasks"]} requests of others among all commands of a machine: right command {commands["right command"]:.0f} % of the requests that one command does (the index
offers it for {commands["offered"]:.0f} %), right arguments {commands["right arguments"]:.0f} %, right refusals {commands["right refusal"]:.0f} %.

## Card

- **Data**: {card["written"]:,} requests with their calls, written by a language model that saw the declarations of the training's servers (`bench/tool_calls/requests`), the
  torchhub requests of APIBench, and requests of MetaTool. `rows.py` copies each among other functions: {card["rows"]:,} rows. `splits.json` and `evaluation/` hold
  the servers and requests that are never trained on; rows with nearly the same request are left out ({card["left_out"]}).
- **Training**: `toolwire learn train rows.jsonl -m smollm2 -o RUN --epochs 2 --batch-tokens 32768 --device cuda --gguf`, one seed (0), about six minutes on one H200.
  The shipped file is the mean of two such runs (`mean.py`); the rows of the first came from an earlier state of `rows.py`, with random orders only.
- **SHA-256**: `{card["sha256"]}`

Repeat the figures: `python bench/tool_calls/evaluate.py tasks tasks.jsonl`, then `answer`, `report`, and `python bench/tool_calls/tool_calls_page.py report.json`. One
thread answers about 15 prompts a minute.
"""


def main(report=None):
    path = FOLDER / "tool-calls.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    if report is not None:
        (scores,) = json.loads(Path(report).read_text(encoding="utf-8")).values()
        results["scores"] = {
            name: {key: value for key, value in row.items() if key != "rows"} for name, row in scores.items()
        }
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "tool-calls.md").write_text(page_text(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
