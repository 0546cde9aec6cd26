"""The rows on which the adapter of the local model is trained: a request, the functions offered, and the right call.

    python bench/tool_calls/rows.py rows.jsonl

Each request of `requests/` is copied several times, each time among other functions: of its own server, of the nearest by
words, or as the index returns them; with and without the right one, whose place `nothing_fits` takes. Names, descriptions,
parameters and values vary, so that the model learns to read the declarations instead of remembering them. The torchhub
requests of APIBench and those of MetaTool are added, without the ones that an evaluation uses (`splits.json`). Rows whose
request is nearly one of an evaluation are left out, and so are functions that are nearly one of a held-out server.
"""

import argparse
import csv
import json
import random
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "support"))

from gorilla import _TASK, FILES, _card_text
from gorilla_calls import list_keys
from platform_data import _read_spec
from retrieval_data import DATA, open_encoder, read_lines
from toolwire import Tool
from toolwire.cli.do.command import _SYSTEM_SMALL
from toolwire.local.plan import declare, write_call
from toolwire.retrieve import ToolIndex
from toolwire.retrieve.api_call import group_entries
from toolwire.run.tools.refusal import NOTHING, NOTHING_FITS
from toolwire.run.tools.words import rank_by_words, split_words
from toolwire.schema.validation.validator import validator

HERE = Path(__file__).parent
REQUESTS = HERE / "requests"
SPLITS = json.loads((HERE / "splits.json").read_text("utf-8"))
COPIES = 10  # of a written request
COMMAND_COPIES = 14
COUNTS = (1, 1, 2, 3, 3, 4, 5, 6, 6)  # as many as the local model is offered
REFUSALS = 0.25  # share of the copies from which the right function is taken
CHANGED_NAMES = 0.3
CHANGED_VALUES = 0.5
SHORT_DESCRIPTIONS = 0.25
# services of the API zoo that the platform's catalogues do not have
ZOO = (
    "Google_Chat_API.json",
    "Google_Slides_API.json",
    "Google_Translate_API.json",
    "GoogleFormsAPI.json",
    "Google_Docs_API.json",
    "Google_Search_Console_API.json",
    "Weaviate_API.json",
    "yfinance.json",
    "danielgeorge.json",
    "felixzhu1.json",
    "jennifer818.json",
    "shawnharmsen1.json",
    "aryanvichare.json",
)
_MAX_HUB_COPIES = 30
_NEAR = 0.8  # share of common words from which two texts count as nearly equal
_SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant with access to tools. Be concise.",
    "You are an assistant inside our app. Use the functions when they help the user.",
    "Answer in English. Today is Tuesday.",
    "You turn a request into one call of a function.",
)
_FIRST = "Maria Ahmed Chen Olga Kwame Lucia Jonas Priya Tomas Aisha Mateo Ingrid Kenji Nadia Pedro Hana Felix Zoe Ravi Elena".split()
_LAST = "Okafor Schmidt Tanaka Rossi Novak Silva Haddad Lindqvist Kumar Moreau Petrov Alvarez Berg Nakamura Costa Weber".split()
_PLACES = (
    "Lisbon Nairobi Osaka Bergen Quito Leeds Tampa Graz Izmir Porto Adelaide Malmo Denver Jakarta Ghent Riga".split()
)
_WORD = re.compile(r"[^\W\d_]+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", nargs="*", help="kinds of rows: servers, hubs, metatool, commands (which need manuals)"
    )
    given = parser.parse_args()
    blocked = EvaluationTexts()
    builders = {
        "servers": lambda draw: server_rows(draw, COPIES, blocked),
        "hubs": lambda draw: hub_rows(draw, COPIES // 3, blocked),
        "metatool": lambda draw: metatool_rows(draw, blocked),
        "commands": lambda draw: command_rows(draw, COMMAND_COPIES, blocked),
    }
    rows = []
    for kind in given.only or builders:  # each kind has its own random numbers, so that they can be made apart
        found = list(builders[kind](random.Random(f"{given.seed} {kind}")))
        random.Random(given.seed).shuffle(found)
        rows += found
    with given.target.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    print(json.dumps({"rows": len(rows), "left out": blocked.count}), file=sys.stderr)


class EvaluationTexts:
    """The requests of all evaluations, to leave out rows with nearly the same."""

    def __init__(self) -> None:
        self.count = 0
        self._words = defaultdict(list)
        for name in SPLITS["evaluation_requests"]:
            for line in read_lines(DATA / name):
                self._add(line["query"] if "query" in line else _TASK.search(line["code"])[1])
        for path in sorted((HERE / "evaluation").glob("*.jsonl")):
            for line in read_lines(path):
                self._add(line["request"])

    def _add(self, text: str) -> None:
        words = frozenset(split_words(text))
        for word in words:
            self._words[word].append(words)

    def has(self, text: str) -> bool:
        """Return whether a text is nearly an evaluation's: most words are common."""
        words = frozenset(split_words(text))
        rarest = sorted(words, key=lambda word: len(self._words.get(word, ())))[:4]
        near = any(
            len(words & other) >= _NEAR * max(len(words | other), 1)
            for word in rarest
            for other in self._words.get(word, ())
        )
        self.count += near
        return near


def server_rows(draw, copies, blocked):
    """Return rows of the written requests for MCP servers and for invented functions."""
    servers = read_servers()
    everything = [tool for tools in servers.values() for tool in tools.values()]
    index = index_servers(servers)
    for path in sorted(REQUESTS.glob("*.jsonl")):
        if not path.stem.startswith(("mcp", "own", "zoo")) or path.stem.endswith("_tools"):
            continue
        for line in read_lines(path):
            tools = servers.get(line.get("server") or "", {})
            right = tools.get(line.get("tool") or "")
            if (line.get("tool") and right is None) or blocked.has(line["request"]):
                continue
            nearest = rank_by_words(line["request"], everything, 30) or everything
            hits = index.search(line["request"], 16)
            near = [hit.tool for hit in hits]
            known = [
                Tool(f"{hit.server}.{hit.tool.name}", hit.tool.description, hit.tool.input_schema) for hit in hits[:8]
            ]
            named = f"{line.get('server')}.{line.get('tool')}"
            for number in range(copies):
                count, mode = draw.choice(COUNTS), draw.random()
                if number < copies // 3:  # as the index returns them, the best first
                    yield from ranked_row(draw, line, right, named, known[:count] if number else known[:3])
                    continue
                is_ranked = mode >= 0.6  # as the local model's own choice among many, the best first
                pool = list(tools.values()) if mode < 0.4 and len(tools) > 1 else everything
                if is_ranked:
                    pool = near if mode >= 0.75 else nearest
                is_refused = right is None or draw.random() < REFUSALS
                taken = set() if right is None else {right.name}
                others = [tool for tool in draw.sample(pool, min(len(pool), 3 * count)) if tool.name not in taken]
                offered = list({tool.name: tool for tool in others}.values())[: count if is_refused else count - 1]
                if not offered and is_refused:
                    continue
                answer = None if is_refused else (right, line.get("arguments") or {})
                yield make_row(draw, line["request"], offered, answer, order=pool if is_ranked else None)


def ranked_row(draw, line, right, named, offered):
    """Return the rows of a request among the functions that the index found, in their order; the right one is never inserted."""
    answer = next((tool for tool in offered if tool.name == named), None)
    if answer is None and right is not None and draw.random() < 0.7:
        return  # otherwise a function that was not found would be refused too often
    others = [tool for tool in offered if tool is not answer]
    if answer is not None and draw.random() < REFUSALS / 2 and others:
        offered, answer = others, None
    if answer is None:
        yield make_row(draw, line["request"], others, None, order=offered)
        return
    arguments = line.get("arguments") or {}
    yield make_row(draw, line["request"], others, (answer, arguments), order=offered, may_refuse=draw.random() < 0.6)


def index_servers(servers):
    index = ToolIndex(open_encoder())
    for server, tools in servers.items():
        index.add(list(tools.values()), server=server)
    return index


def read_servers():
    """Return the functions that may be trained on, by server and name."""
    held = {name for names in SPLITS["servers"].values() for name in names}
    near = {
        frozenset(split_words(f"{line['name']} {line['description']}"))
        for name in held
        if (DATA / "tool_schemas" / f"{name}.jsonl").exists() and not name.startswith("openapi")
        for line in read_lines(DATA / "tool_schemas" / f"{name}.jsonl")
    }
    lines = [
        (path.stem, line)
        for path in sorted((DATA / "tool_schemas").glob("*.jsonl"))
        if path.stem not in held
        for line in read_lines(path)
    ]
    lines += [(line["server"], line) for path in sorted(REQUESTS.glob("*_tools.jsonl")) for line in read_lines(path)]
    servers = defaultdict(dict)
    for name in ZOO:
        for spec in json.loads((DATA / "apizoo" / name).read_text("utf-8")):
            tool = _read_spec(spec)
            servers[f"zoo_{name.partition('.')[0]}"][tool.name] = tool
    for server, line in lines:
        words = frozenset(split_words(f"{line['name']} {line.get('description') or ''}"))
        if any(len(words & other) >= _NEAR * len(words | other) for other in near):
            continue
        servers[server][line["name"]] = Tool(line["name"], line.get("description") or "", line["input_schema"])
    return dict(servers)


def make_row(draw, request, others, answer, *, may_refuse=True, is_command=False, is_fixed=False, order=None):
    """Return a row: messages of which the last is the call to learn. `order`: the functions in the order of a ranking."""
    arguments = {}
    ranks = {tool.name: rank for rank, tool in enumerate(order or ())}
    if order is not None:
        others = sorted(others, key=lambda tool: ranks.get(tool.name, len(ranks)))
    place = (
        None
        if order is None or answer is None
        else sum(ranks.get(tool.name, 99) < ranks.get(answer[0].name, 99) for tool in others)
    )
    tools = [tool if is_fixed else vary_tool(draw, tool, frozenset()) for tool in others]
    name = NOTHING_FITS
    if answer is not None:
        tool, arguments = answer
        if not is_fixed:  # the values of commands are enumerations of the request's words
            if draw.random() < CHANGED_VALUES:
                request, arguments = change_values(draw, request, arguments)
            tool = vary_tool(draw, tool, frozenset(arguments))
        order = (tool.input_schema or {}).get("properties") or {}
        arguments = {key: arguments[key] for key in order if key in arguments}
        tools.insert(len(tools) if place is None else place, tool)
        name = tool.name
    if order is None:
        draw.shuffle(tools)
    system = declare([*tools, NOTHING] if may_refuse else tools)
    if is_command:
        system = f"{_SYSTEM_SMALL}\n\n{system}"
    elif draw.random() < 0.2:
        system = f"{draw.choice(_SYSTEMS)}\n\n{system}"
    return {
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": request},
            {"role": "assistant", "content": write_call(name, arguments)},
        ]
    }


def vary_tool(draw, tool, used):
    """Return a tool with another spelling of its name, fewer optional parameters, or a shorter description."""
    name, description, schema = tool.name, tool.description or "", tool.input_schema or {}
    if draw.random() < CHANGED_NAMES:
        name = respell(draw, name)
    if draw.random() < SHORT_DESCRIPTIONS:
        description = description.partition(". ")[0] if draw.random() < 0.8 else ""
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        required = schema.get("required") or []
        kept = {
            key: value for key, value in properties.items() if key in used or key in required or draw.random() < 0.6
        }
        if draw.random() < 0.3:
            mixed = list(kept.items())
            draw.shuffle(mixed)
            kept = dict(mixed)
        schema = {**schema, "properties": kept}
    return Tool(name, description, schema)


def respell(draw, name):
    """Return a name in another style of identifiers, now and then without its first word."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)] or [name]
    if len(words) > 2 and draw.random() < 0.3:
        words = words[1:]
    style = draw.randrange(4)
    if style == 0:
        return "_".join(words)
    if style == 1:
        return words[0] + "".join(word.capitalize() for word in words[1:])
    return "-".join(words) if style == 2 else ".".join(words[:2]) + "".join(f"_{word}" for word in words[2:])


def change_values(draw, request, arguments):
    """Return the request and the arguments with other names, numbers and ids, the same ones in both."""
    changed = {}
    for value in iter_values(arguments):
        text = str(value)
        if type(value) is bool or request.count(text) != 1 or len(text) > 60 or text in changed:
            continue
        if not re.search(rf"(?<![\w.]){re.escape(text)}(?![\w])", request):
            continue
        if type(value) is int and text.isdigit():
            changed[text] = str(draw.randrange(1, 10 ** len(text)))
        elif type(value) is str and re.search(r"\d", text):
            changed[text] = "".join(similar_character(draw, char) for char in text)
        elif type(value) is str and re.fullmatch(r"[A-Z][a-z]+", text):
            changed[text] = draw.choice((*_FIRST, *_PLACES))
        elif type(value) is str and re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", text):
            changed[text] = f"{draw.choice(_FIRST)} {draw.choice(_LAST)}"
    for old, new in changed.items():
        request = re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w])", lambda _, new=new: new, request, count=1)
    return request, replace_values(arguments, changed)


def similar_character(draw, char):
    if char.isdigit():
        return str(draw.randrange(1, 10))
    return char


def iter_values(value):
    if isinstance(value, dict):
        for one in value.values():
            yield from iter_values(one)
    elif isinstance(value, list):
        for one in value:
            yield from iter_values(one)
    else:
        yield value


def replace_values(value, changed):
    if isinstance(value, dict):
        return {key: replace_values(one, changed) for key, one in value.items()}
    if isinstance(value, list):
        return [replace_values(one, changed) for one in value]
    if type(value) is int and str(value) in changed:
        return int(changed[str(value)])
    return changed.get(value, value) if type(value) is str else value


class HubCards:
    """The cards of an APIBench hub in an index. A popular API has many cards, one for each task that it is described for."""

    def __init__(self, name, encoder):
        self.name = name
        self.lines = read_lines(DATA / "apibench" / FILES[name][0])
        self._index, self._cards = ToolIndex(encoder), {}
        repeated, layers = Counter(), defaultdict(list)
        for card in self.lines:  # one server for each repetition of a name
            layer = f"cards {repeated[card['api_name']]}"
            layers[layer].append(Tool(card["api_name"], _card_text(card)))
            self._cards[layer, card["api_name"]] = card
            repeated[card["api_name"]] += 1
        for server, tools in layers.items():
            self._index.add(tools, server=server)

    def search(self, request, count):
        """Return the first APIs as `retrieve.call` offers them: functions, their numbers of cards, and their calls by name."""
        hits = [self._cards[hit.server, hit.tool.name] for hit in self._index.search(request, 4 * count)]
        cards = [(card_tool(card, self.name), card["api_call"]) for card in hits]
        tools, counts = group_entries([tool for tool, _ in cards], count)
        calls = {tool.name: call for tool, call in reversed(cards)}
        return tools, counts, {tool.name: calls[tool.name] for tool in tools}


def hub_rows(draw, copies, blocked):
    """Return rows of APIBench's hubs: the APIs that the index returns, in its order. Others are never inserted."""
    encoder = open_encoder()
    for name in FILES:
        hub = HubCards(name, encoder)
        cards = {card["api_call"]: card for card in hub.lines}
        counts = Counter(card["api_call"] for card in hub.lines)
        requests = [(request, call) for request, call in hub_requests(name, list(cards)) if call in cards]
        written = Counter(call for _, call in requests)
        for request, call in requests:
            if blocked.has(request):
                continue
            found, _, calls = hub.search(request, 5)
            right_name = next((key for key, value in calls.items() if value == call), None)
            # Requests for a card are as frequent as the card is in the database.
            for _ in range(min(max(round(copies * counts[call] / written[call]), 1), _MAX_HUB_COPIES)):
                offered = found[: draw.choice((1, 3, 3, 3, 5))]
                right = next((tool for tool in offered if tool.name == right_name), None)
                if right is None and draw.random() < 0.8:
                    continue
                others = [tool for tool in offered if tool is not right]
                answer = None if right is None else (right, {})
                may_refuse = right is None or draw.random() < 0.2
                yield make_row(draw, request, others, answer, may_refuse=may_refuse, is_fixed=True, order=offered)
        encoder.save()


def hub_requests(name, calls):
    """Return (request, call): torchhub's training requests, and the ones written for the cards of the others."""
    if name == "torchhub":
        for line in read_lines(DATA / "apibench" / "torchhub_train.json"):
            found = _TASK.search(line["code"])
            request = found[1] if found else re.search(r"'Instruction': [\"'](.*?)[\"'], 'Output'", line["code"])
            if request is not None:
                yield request if isinstance(request, str) else request[1], line["api_call"]
        return
    for path in sorted(REQUESTS.glob("hf*.jsonl" if name == "huggingface" else "tf*.jsonl")):
        for line in read_lines(path):
            yield line["request"], calls[line["id"]]


def card_tool(card, hub):
    """Return a card as a function without parameters, with the identity of its API as the name."""
    described = " ".join(str(card[field]) for field in ("functionality", "description") if card.get(field))
    key = next(iter(list_keys(hub, card["api_call"])), None)
    name = card["api_name"] if key is None else "_".join([key.function, *key.arguments])
    return Tool(re.sub(r"[^\w.-]+", "_", name)[-64:].strip("_"), described, {"type": "object", "properties": {}})


def command_rows(draw, copies, blocked):
    """Return rows of `toolwire do`: the commands of this machine that its index offers for a request."""
    from do import load_commands, read_vector
    from do_fixtures import make_candidates
    from toolwire.cli.do.candidates import limit_values
    from toolwire.retrieve.commands.command_tool import declare_command, select_options

    catalogue, commands = load_commands(with_machine=True)
    named = {command.name: command for command in commands}
    candidates = make_candidates(commands, catalogue.read)
    unread = 0
    for line in read_lines(REQUESTS / "shell.jsonl"):
        request = line["request"]
        if blocked.has(request):
            continue
        right, arguments = None, {}
        if line["command"]:
            command = next(iter(catalogue.read([named[line["command"]]])), None) if line["command"] in named else None
            command = command[0] if isinstance(command, list) and command else command
            arguments = None if command is None else read_vector(command, line["vector"])
            if arguments is None:
                unread += 1
                continue
            right = limit_values(declare_command(command, select_options(command, request, 10)), command, request)
            arguments = fit_arguments(right, arguments)
            if validator(right.input_schema).problems(arguments):
                unread += 1
                continue
        found = candidates.search(request, 4, is_small=True).tools
        for _ in range(copies if right is not None else copies // 2):
            offered = found[: draw.choice((1, 2, 3, 3, 3))]
            if right is not None and all(tool.name != right.name for tool in offered):
                continue  # the index does not return it
            others = [tool for tool in offered if right is None or tool.name != right.name]
            is_refused = right is None or (others and draw.random() < 0.12)
            if others or not is_refused:
                answer = None if is_refused else (right, arguments)
                yield make_row(draw, request, others, answer, is_command=True, is_fixed=True, order=offered)
    print(json.dumps({"commands without a call": unread}), file=sys.stderr)


def fit_arguments(tool, arguments):
    """Return the arguments that the declaration of the local model has a place for."""
    properties = (tool.input_schema or {}).get("properties") or {}
    kept = {}
    for name, value in arguments.items():
        schema = properties.get(name)
        for one in (value, str(value), [value]):
            if schema is not None and not validator({"type": "object", "properties": {name: schema}}).problems(
                {name: one}
            ):
                kept[name] = one
                break
    return kept


def metatool_rows(draw, blocked):
    """Return rows of MetaTool's requests: the right plugin among others, and requests without it."""
    described = json.loads((DATA / "metatool" / "plugin_des.json").read_text("utf-8"))
    plugins = {name: Tool(name, text, {"type": "object", "properties": {}}) for name, text in described.items()}
    with (DATA / "metatool" / "all_clean_data.csv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["Tool"] in plugins]
    for line in draw.sample(lines, min(len(lines), 8_000)):
        if blocked.has(line["Query"]):
            continue
        right = plugins[line["Tool"]]
        count = draw.choice(COUNTS)
        others = [tool for tool in draw.sample(list(plugins.values()), count) if tool is not right][: count - 1]
        answer = None if others and draw.random() < 0.2 else (right, {})
        yield make_row(draw, line["Query"], others, answer)


if __name__ == "__main__":
    main()
