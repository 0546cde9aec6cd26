"""Evaluate the local model's choice of calls: unseen servers, APIBench, the platform's endpoints, commands.

    python bench/tool_calls/evaluate.py tasks tasks.jsonl             the requests with their offered functions
    python bench/tool_calls/evaluate.py answer tasks.jsonl answers.jsonl --processes 2
    python bench/tool_calls/evaluate.py answer tasks.jsonl untuned.jsonl --without-adapter
    python bench/tool_calls/evaluate.py report tasks.jsonl answers.jsonl untuned.jsonl

The answers are those of the shipped engine (`toolwire.local`, llama.cpp on a CPU, one thread a process); they can be made on
another machine, and a run that was interrupted continues. `splits.json` states what no row of the training may have.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from functools import cache
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent.parent / "tests" / "support")]

COUNTS = (1, 3, 10, 30)
HUB_TASKS = 200  # of a hub; torchhub has 186
HUB_CARDS = 3
PLATFORM_K = 5
SEED = 13
NOTHING_FITS = "nothing_fits"


# tasks


def make_tasks(sets):
    builders = {
        "servers": lambda: server_tasks("servers", "test"),
        "dev": lambda: server_tasks("dev", "dev"),
        "hubs": hub_tasks,
        "platform": lambda: platform_tasks(
            [json.loads(line) for line in (HERE / "evaluation" / "platform.jsonl").read_text("utf-8").splitlines()],
            "platform",
        ),
        "platform_dev": lambda: platform_tasks(load_dev_requests(), "platform_dev"),
        "commands": lambda: command_tasks(HERE / "evaluation" / "commands.jsonl", "commands"),
        "commands_dev": command_dev_tasks,
    }
    for name in sets or builders:
        yield from builders[name]()


def server_tasks(file, split):
    """Offer 1, 3, 10 and 30 functions of the held-out servers, up to half of them of the request's own server."""
    from retrieval_data import DATA, read_lines
    from toolwire import Tool

    servers = {}
    for name in json.loads((HERE / "splits.json").read_text("utf-8"))["servers"][split]:
        lines = read_lines(DATA / "tool_schemas" / f"{name}.jsonl")
        servers[name] = {line["name"]: Tool(line["name"], line["description"], line["input_schema"]) for line in lines}
    everything = [(server, tool) for server, tools in servers.items() for tool in tools.values()]
    for count in COUNTS:
        for number, line in enumerate(read_lines(HERE / "evaluation" / f"{file}.jsonl")):
            if is_near_training(line["request"]):
                continue
            draw = random.Random(f"{SEED} {count} {number}")
            right = servers[line["server"]][line["tool"]] if line["tool"] else None
            taken = {line["tool"], *line.get("also", ())}
            near = [tool for server, tool in everything if server == line["server"] and tool.name not in taken]
            far = [tool for server, tool in everything if server != line["server"] and tool.name not in taken]
            wanted = count - (right is not None)
            others = draw.sample(near, min(len(near), (wanted + 1) // 2))
            offered = others + draw.sample(far, wanted - len(others)) + ([right] if right else [])
            offered = list({tool.name: tool for tool in offered}.values())
            draw.shuffle(offered)
            expected = {"tools": sorted(taken) if right else [NOTHING_FITS], "arguments": line.get("arguments") or {}}
            yield make_task(f"{file}/{count}/{number}", line["request"], offered, expected)


@cache
def training_words():
    """Return the words of each request that rows of the training are made of."""
    from retrieval_data import read_lines
    from toolwire.run.tools.words import split_words

    lines = (line for path in sorted((HERE / "requests").glob("*.jsonl")) for line in read_lines(path))
    return [frozenset(split_words(line["request"])) for line in lines if "request" in line]


def is_near_training(request):
    """Return whether a request shares most of its words with one of the training."""
    from toolwire.run.tools.words import split_words

    words = frozenset(split_words(request))
    return any(len(words & other) >= 0.8 * max(len(words | other), 1) for other in training_words())


def make_task(task_id, request, tools, expected, *, required=False, limit=160, extra=None):
    from toolwire import Message, Request, Text, ToolChoice
    from toolwire.wire import get

    asked = Request(
        messages=(Message("user", (Text(request),)),),
        tools=tuple(tools),
        choice=ToolChoice("required") if required else None,
        extra=extra or {},
    )
    body = {**get("openai_chat").encode_request(asked)[0], "temperature": 0, "max_tokens": limit}
    return {"id": task_id, "body": body, "expected": expected}


def hub_tasks():
    """Offer the first APIs of an index of all cards for requests of APIBench; one of them has to be called."""
    from rows import HubCards

    from gorilla import _TASK, FILES
    from retrieval_data import DATA, open_encoder, read_lines
    from toolwire.run.tools.refusal import ranked

    encoder = open_encoder()
    for name in FILES:
        hub = HubCards(name, encoder)
        tasks = read_lines(DATA / "apibench" / FILES[name][1])
        numbers = list(range(len(tasks)))
        if len(numbers) > HUB_TASKS:
            numbers = sorted(random.Random(f"{SEED} {name}").sample(numbers, HUB_TASKS))
        for number in numbers:
            query = _TASK.search(tasks[number]["code"])[1]
            reference = {"api_call": tasks[number]["api_call"], "domain": tasks[number]["api_data"]["domain"]}
            tools, counts, names = hub.search(query, HUB_CARDS)
            expected = {"hub": name, "calls": list(names.values()), "names": names, **reference}
            yield make_task(f"hubs/{name}/{number}", query, tools, expected, required=True, extra=ranked(counts))
        encoder.save()


def platform_tasks(requests, label):
    """Offer the first endpoints of the index over 520 and over 5,000 endpoints."""
    from platform_catalogue import index_endpoints
    from platform_data import load_catalogue, load_large_catalogue
    from retrieval_data import open_encoder
    from toolwire.run.tools.refusal import ranked

    encoder = open_encoder()
    for endpoints in (load_catalogue(), load_large_catalogue()):
        index = index_endpoints(endpoints, encoder)
        for number, line in enumerate(requests):
            hits = index.search(line["request"], 10)
            found = [f"{hit.server}/{hit.tool.name}" for hit in hits]
            tools, names = platform_tools(hits)
            expected = {"endpoints": line["endpoints"], "found": found, "names": names}
            yield make_task(
                f"{label}/{len(endpoints)}/{number}",
                line["request"],
                tools,
                expected,
                required=True,
                limit=48,  # the name of the endpoint; arguments are not judged
                extra=ranked([1] * len(tools)),
            )
    encoder.save()


def platform_tools(hits):
    """Return the offered endpoints as functions whose names begin with their service."""
    from msgspec.structs import replace

    tools, names = {}, {}
    for hit in hits[:PLATFORM_K]:
        name = f"{hit.server}.{hit.tool.name}"
        tools[name] = replace(hit.tool, name=name)
        names[name] = f"{hit.server}/{hit.tool.name}"
    return list(tools.values()), names


def load_dev_requests():
    from platform_data import load_requests

    return load_requests()


def command_tasks(path, label):
    from retrieval_data import read_lines

    return make_command_tasks(read_lines(path), label)


def command_dev_tasks():
    from do_fixtures import REQUESTS

    return make_command_tasks(REQUESTS, "commands_dev")


def make_command_tasks(lines, label):
    """Offer what `toolwire do` offers the local model for a request, among all commands of this machine."""
    from do import load_commands
    from do_fixtures import make_candidates
    from toolwire.cli.do.command import _make_request
    from toolwire.wire import get

    catalogue, commands = load_commands(with_machine=True)
    candidates = make_candidates(commands, catalogue.read)
    for number, line in enumerate(lines):
        offer = candidates.search(line["request"], 6, is_small=True)
        expected = {**line, "offered": [command.name for command in offer.commands.values()]}
        asked = _make_request(line["request"], offer, is_small=True)
        yield {"id": f"{label}/{number}", "body": get("openai_chat").encode_request(asked)[0], "expected": expected}


# answers


def answer_tasks(tasks, target, processes, *, without_adapter):
    known = {line["id"] for line in read(target)} if target.exists() else set()
    left = spread([task for task in tasks if task["id"] not in known])
    began = time.monotonic()
    with (
        multiprocessing.get_context("spawn").Pool(processes, _open, (without_adapter,)) as pool,
        target.open("a") as file,
    ):
        for number, line in enumerate(pool.imap_unordered(_answer, left, chunksize=1), 1):
            file.write(json.dumps(line) + "\n")
            file.flush()
            if number % 100 == 0 or number == len(left):
                print(f"{number} of {len(left)}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def spread(tasks):
    """Return tasks in a random order that takes one of each set in turn, so that an interrupted run is a sample of all."""
    sets = defaultdict(list)
    for task in tasks:
        sets[task["id"].rpartition("/")[0]].append(task)
    for name, found in sets.items():
        random.Random(f"{SEED} {name}").shuffle(found)
    return [task for round_ in zip_longest(*sets.values()) for task in round_ if task is not None]


def _open(without_adapter):
    global MODEL
    from toolwire.local import open_model
    from toolwire.local.weights import find_weights

    name = "smollm2"
    if without_adapter:  # the same weights under a name that has no adapter
        weights = find_weights(name).path()
        os.environ["TOOLWIRE_MODELS"], name = str(weights.parent), weights.stem
    MODEL = open_model(name, threads=1)


def _answer(task):
    began = time.process_time()
    document = json.loads(asyncio.run(ask(task["body"])))
    if "error" in document:
        return {"id": task["id"], "name": None, "error": document["error"]}
    calls = document["choices"][0]["message"].get("tool_calls") or []
    line = {"id": task["id"], "name": None, "arguments": {}}
    if calls:
        line["name"] = calls[0]["function"]["name"]
        try:
            line["arguments"] = json.loads(calls[0]["function"]["arguments"])
        except ValueError:
            line["arguments"] = None
    return {**line, "margin": document.get("margin"), "cpu": round(time.process_time() - began, 2)}


async def ask(body):
    """Answer without the text that follows a refusal, which nobody judges."""
    from toolwire.ir.response import UpstreamError

    tools = body["tools"]
    if body.get("tool_choice") is None and all(one["function"]["name"] != NOTHING_FITS for one in tools):
        from toolwire.run.tools.refusal import NOTHING

        nothing = {"name": NOTHING.name, "description": NOTHING.description, "parameters": NOTHING.input_schema}
        body = {**body, "tools": [*tools, {"type": "function", "function": nothing}]}
    try:
        return await MODEL.complete(json.dumps(body).encode())
    except UpstreamError as error:
        return json.dumps({"error": error.message}).encode()


def read(path):
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line.strip()]


# scores


def report(tasks, answers):
    grouped = defaultdict(list)
    for task in tasks:
        if task["id"] in answers:
            grouped[task["id"].rpartition("/")[0]].append((task, answers[task["id"]]))
    rows = {}
    for name, pairs in grouped.items():
        kind = name.partition("/")[0]
        score = {"hubs": score_hub, "commands": score_commands, "commands_dev": score_commands}.get(
            kind, score_platform if kind.startswith("platform") else score_servers
        )
        rows[name] = {"tasks": len(pairs), **score(pairs)}
        rows[name]["cpu"] = round(statistics.median(answer["cpu"] for _, answer in pairs if "cpu" in answer), 2)
    return rows


def score_servers(pairs):
    counts = Counter()
    for task, answer in pairs:
        expected = task["expected"]
        right = answer["name"] in expected["tools"]
        counts["right"] += right
        if expected["tools"] == [NOTHING_FITS]:
            counts["refusals"] += right
            counts["none"] += 1
        else:
            counts["right tool"] += right
            counts["arguments"] += right and same(answer["arguments"], expected["arguments"])
    fits = len(pairs) - counts["none"]
    return {
        "right": percent(counts["right"], len(pairs)),
        "right tool": percent(counts["right tool"], fits),
        "right refusal": percent(counts["refusals"], counts["none"]),
        "tool and arguments": percent(counts["arguments"], fits),
    }


def same(found, wanted):
    """Return whether arguments are equal, except for case and surrounding space and punctuation of texts."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in found)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(found, str) and isinstance(wanted, str):
        return found.casefold().strip(" .!?\"'") == wanted.casefold().strip(" .!?\"'")
    return type(found) is type(wanted) and found == wanted


def score_hub(pairs):
    from gorilla_calls import Database
    from retrieval_data import DATA, read_lines

    hub = pairs[0][0]["expected"]["hub"]
    files = {"torchhub": "torchhub_api", "huggingface": "huggingface_api", "tensorflow": "tensorflowhub_api"}
    cards = read_lines(DATA / "apibench" / f"{files[hub]}.jsonl")
    database, frequent = Database(hub, cards), Counter(card["api_call"] for card in cards)
    exact = defaultdict(list)
    for task, answer in pairs:
        expected = task["expected"]
        offered = expected["calls"]
        chosen = {
            "model": expected["names"].get(answer["name"], "no_such_api('invented')"),
            "first": offered[0],
            "frequent": max(offered, key=lambda call: frequent[call]),
        }
        for name, call in chosen.items():
            verdict = database.judge(call, expected)
            exact[name].append(verdict == "exact")
            exact[f"{name} domain"].append(verdict in ("exact", "right"))
        exact["oracle"].append(any(database.judge(call, expected) == "exact" for call in offered))
        exact["invented"].append(answer["name"] not in expected["names"])
    rows = {name: percent(sum(found), len(found)) for name, found in exact.items()}
    for name in ("first", "frequent"):
        differences = [a - b for a, b in zip(exact["model"], exact[name], strict=True)]
        rows[f"minus {name}"] = interval(differences)
    return rows


def interval(differences):
    """Return the mean difference of pairs in percent with its 95 % interval by bootstrap."""
    draw = random.Random(SEED)
    means = sorted(statistics.mean(draw.choices(differences, k=len(differences))) for _ in range(2000))
    return [round(100 * value, 1) for value in (statistics.mean(differences), means[50], means[1949])]


def score_platform(pairs):
    counts = Counter()
    for task, answer in pairs:
        expected = task["expected"]
        for k in (1, 3, 5, 10):
            counts[f"R@{k}"] += any(one in expected["endpoints"] for one in expected["found"][:k])
        counts["end to end"] += expected["names"].get(answer["name"]) in expected["endpoints"]
    return {name: percent(count, len(pairs)) for name, count in counts.items()}


def score_commands(pairs):
    """Judge as bench/do.py does. Calls become command lines, so this needs the machine's manuals."""
    from do import is_accepted, load_commands, read_command
    from toolwire.retrieve.commands.command_tool import RefusedCall, make_command_line

    catalogue, commands = load_commands(with_machine=True)
    named = {command.tool_name: command for command in commands}
    counts, rows = Counter(), []
    for task, answer in pairs:
        wanted = task["expected"]
        line = None
        if answer["name"] in named:
            command = read_command(catalogue, named[answer["name"]])
            try:
                line = None if answer["arguments"] is None else make_command_line(command, answer["arguments"])
            except RefusedCall:
                line = None
        counts["fit" if wanted["command"] else "do not fit"] += 1
        if wanted["command"] is None:
            counts["refused"] += answer["name"] == NOTHING_FITS
            counts["wrong, read-only"] += line is not None and line.effect.is_read_only
        elif line is not None:
            words = wanted["command"].split()
            is_right = list(line.vector[: len(words)]) == words
            counts["command"] += is_right
            counts["arguments"] += is_right and is_accepted(command, line.vector, wanted)
        rows.append([wanted["request"], list(line.vector) if line else None, answer.get("margin")])
    return {
        "right command": percent(counts["command"], counts["fit"]),
        "right arguments": percent(counts["arguments"], counts["fit"]),
        "right refusal": percent(counts["refused"], counts["do not fit"]),
        "wrong, read-only": counts["wrong, read-only"],
        "offered": percent(
            sum(t["expected"]["command"] in t["expected"]["offered"] for t, _ in pairs if t["expected"]["command"]),
            counts["fit"],
        ),
        "rows": rows,
    }


def percent(count, total):
    return round(100 * count / total, 1) if total else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    make = parts.add_parser("tasks")
    make.add_argument("target", type=Path)
    make.add_argument("--sets", nargs="*")
    answer = parts.add_parser("answer")
    answer.add_argument("tasks", type=Path)
    answer.add_argument("target", type=Path)
    answer.add_argument("--processes", type=int, default=1)
    answer.add_argument("--only", nargs="*", help="beginnings of task ids")
    answer.add_argument("--without-adapter", action="store_true")
    show = parts.add_parser("report")
    show.add_argument("tasks", type=Path)
    show.add_argument("answers", type=Path, nargs="+")
    given = parser.parse_args()
    if given.part == "tasks":
        with given.target.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(task) + "\n" for task in make_tasks(given.sets))
    elif given.part == "answer":
        tasks = [task for task in read(given.tasks) if not given.only or task["id"].startswith(tuple(given.only))]
        answer_tasks(tasks, given.target, given.processes, without_adapter=given.without_adapter)
    else:
        tasks = read(given.tasks)
        found = {path.stem: report(tasks, {line["id"]: line for line in read(path)}) for path in given.answers}
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
