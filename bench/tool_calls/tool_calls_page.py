"""Write docs/experiments/tool-calls.md from docs/experiments/tool-calls.json.

python bench/tool_calls/tool_calls_page.py report.json     the report of evaluate.py about tuned.jsonl and untuned.jsonl
python bench/tool_calls/tool_calls_page.py                 the page alone
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "experiments"
HUBS = ("torchhub", "huggingface", "tensorflow")


def server_rows(tuned, untuned):
    for count in (1, 3, 10, 30):
        row, bare = tuned[f"servers/{count}"], untuned[f"servers/{count}"]
        yield (
            f"| {count} | {row['tasks']} | {row['right']:.0f} % | {row['right tool']:.0f} % | {row['right refusal']:.0f} % "
            f"| {row['tool and arguments']:.0f} % | {bare['right']:.0f} % | {bare['tool and arguments']:.0f} % |"
        )


def platform_rows(tuned, untuned):
    for size in (520, 5000):
        row, bare = tuned[f"platform/{size}"], untuned[f"platform/{size}"]
        found = " | ".join(f"{row[f'R@{k}']:.0f} %" for k in (1, 3, 5))
        yield f"| {size:,} | {row['tasks']} | {found} | {row['end to end']:.0f} % | {bare['end to end']:.0f} % ({bare['tasks']}) |"


def hub_rows(tuned, untuned):
    for name in HUBS:
        row, bare = tuned[f"hubs/{name}"], untuned[f"hubs/{name}"]
        shares = " | ".join(f"{row[key]:.0f} %" for key in ("model", "first", "frequent", "oracle"))
        differences = " | ".join(
            f"{mean:+.1f} [{least:+.1f}, {most:+.1f}]"
            for mean, least, most in (row["minus first"], row["minus frequent"])
        )
        yield f"| {name} | {row['tasks']} | {shares} | {differences} | {bare['model']:.0f} % ({bare['tasks']}) |"


def page_text(results):
    card, tuned, untuned = results["card"], results["scores"], results["untuned"]
    servers, platform, hubs = ("\n".join(rows(tuned, untuned)) for rows in (server_rows, platform_rows, hub_rows))
    commands, bare = tuned["commands"], untuned["commands"]
    invented = max(row["invented"] for name, row in tuned.items() if name.startswith("hubs/"))
    perplexity = "\n".join(
        f"| {row['condition']} | {row['tokens']} | {row['perplexity']:.3f} |" for row in results["perplexity"]
    )
    seeds = ", ".join(f"{loss:.3f} (seed {seed})" for seed, loss in enumerate(card["held_out"]))
    return f"""\
# The adapter of the local model

An adapter (LoRA of rank {card["rank"]}, {card["megabytes"]:.1f} MB) teaches SmolLM2-135M to choose one call, or none. It is applied to the choice of a call alone, so the
texts of the model are those without it. The figures are in [tool-calls.json](tool-calls.json). *Untuned* is the model without an adapter, with the same prompt,
ranking, choice and grammar. Samples of 100 have intervals of about ±9 points.

**Functions of servers that training did not see** (12 MCP servers; a third of the prompts fits none of them). *Right* is the right function or the right refusal.

| functions | prompts | right | right function | right refusal | with all arguments | untuned: right | with all arguments |
|--:|--:|--:|--:|--:|--:|--:|--:|
{servers}

Of more than six functions the model reads the six that a search by BM25 and by meaning finds; without the encoder (extra `retrieve`) it is BM25 alone,
which has the right one of 30 among six for 72 % of these requests. The figures are
those of the ranking and the model together. Since the run, functions without a common term share a rank (before, they were ordered by name).

**The platform of many endpoints**, new requests: the index offers its first five, and the model calls one of them.

| endpoints | requests | index, first | in 3 | in 5 | end to end | untuned (requests) |
|--:|--:|--:|--:|--:|--:|--:|
{platform}

**APIBench**, the reference API itself, with the first three APIs of the index. *First* always takes the first one, *frequent* the offered one that the
database has most often; the *oracle* takes the reference if it is offered. Differences of the model have 95 % intervals of a paired bootstrap. Answers with an
API that was not offered: {invented:.0f} %.

| hub | tasks | model | first | frequent | oracle | model - first | model - frequent | untuned (tasks) |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
{hubs}

The adapter hardly helps there: on no hub is the model better than both the first and the most frequent API with an interval above 0. The run with the adapter
was stopped after half of the tasks of the hubs and the platform, which are in random order.

**`toolwire do`**, {commands["tasks"]} requests of others among all commands of a machine: right command {commands["right command"]:.0f} % of the requests that one command does (untuned
{bare["right command"]:.0f} %; the index offers it for {commands["offered"]:.0f} %), right arguments {commands["right arguments"]:.0f} % ({bare["right arguments"]:.0f} %), right refusals {commands["right refusal"]:.0f} % ({bare["right refusal"]:.0f} %). So `do` only proposes the
local model's commands.

**Texts.** The perplexity of held solutions of GSM8K as answers ({card["texts"]} texts): the local model answers texts as the weights without an adapter do.

| condition | tokens | perplexity |
|---|--:|--:|
{perplexity}

Of 27 development requests with one function, the same function is chosen with this adapter and the one before; of 17 calls, 47 % have all arguments right, and 35 %
before.

**Can the right arguments be written?** Under the grammar with values of the request (`local/values.py`), the right arguments of 180 of the 200 requests for unseen
servers can be written, apart from upper and lower case. The others need a value that the request does not have (`Africa/Nairobi` for Nairobi, `deals` for a deal), or
a switch that it does not mention.

## Choice

The weights of `local/choice.py` were chosen by `weights.py` on {card["dev"]["requests"]} development requests (servers of their own, the platform's development requests,
requests for `toolwire do`): {card["dev"]["right"]} % are right, the mean of the sets, and {card["dev"]["model alone"]} % with the most probable name. With weights chosen for each, on {card["dev"]["common"]} common requests,
this adapter has {card["dev"]["this"]} % and the one before {card["dev"]["before"]} %.

## Card

- **Data**: {card["written"]:,} requests with their calls, written by a language model that saw the declarations of the training's servers (`bench/tool_calls/requests`), the
  torchhub requests of APIBench, and requests of MetaTool. `rows.py` copies each among other functions: {card["rows"]:,} rows. APIs and commands are offered only as the
  index returns them. `splits.json` and `evaluation/` hold the servers and requests that are never trained on; rows with nearly the same request are left out ({card["left_out"]}).
- **Training**: `python bench/tool_calls/rows.py rows.jsonl`, then `toolwire learn train rows.jsonl -m smollm2 -o RUN --epochs 2 --batch-tokens 32768 --held-out 2
  --device cuda --gguf`: eight minutes on one H200 that also did other work. The shipped file is `adapter.gguf` of seed 0. Held-out loss: {seeds}. Rows depend on
  the manuals of the machine, and in rare ties on the precision of the encoder (its weights were rounded to half precision for this run).
- **SHA-256**: `{card["sha256"]}`

Repeat the figures: `python bench/tool_calls/evaluate.py tasks tasks.jsonl`, `answer tasks.jsonl tuned.jsonl`, `answer tasks.jsonl untuned.jsonl --without-adapter`,
`report tasks.jsonl tuned.jsonl untuned.jsonl`, and `python bench/tool_calls/tool_calls_page.py report.json`; `text_perplexity.py` for the texts. A core answers about 15 prompts a minute. The
answers were made by the engine of the package (xllamacpp 2026.10, 16 cores, one thread a process); servers with every third request. `bench/tool_calls/answers` has them, and `answer` continues such files.
"""


def main(report=None):
    path = FOLDER / "tool-calls.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    if report is not None:
        found = json.loads(Path(report).read_text(encoding="utf-8"))
        for key, name in (("scores", "tuned"), ("untuned", "untuned")):
            results[key] = {
                task: {field: value for field, value in row.items() if field != "rows"}
                for task, row in sorted(found[name].items())
            }
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "tool-calls.md").write_text(page_text(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
