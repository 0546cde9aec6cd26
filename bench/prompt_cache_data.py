"""Long conversations made of recorded exchanges, and a catalogue of real tools, for prompt_cache.py.

The recordings of `../shared/data/recorded` are short. The longest request of each recorded test, with its answer, is one
conversation of one to six turns. They are ordered by the first tool that they call, and joined to conversations of
at least 20 turns, with the system prompt of the first. Media, reasoning and provider-run tools are left out. The catalogue has the tools that the
recordings declare and those of real MCP servers (`../shared/data/tool_schemas`).
"""

import json
import random
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from toolwire.ir.errors import ToolwireError
from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Message, Request
from toolwire.ir.tools import SEARCH_TOOLS, Tool
from toolwire.run.values.keys import list_calls
from toolwire.wire import get

DATA = Path(__file__).parents[2] / "shared" / "data"
WIRES = (("/chat/completions", "openai_chat"), ("/responses", "openai_responses"), ("/v1/messages", "anthropic"))
PROVIDERS = ("anthropic", "openai", "groq", "mistral", "deepseek")
TURNS = 20


@dataclass
class Round:
    """A prompt of the user, and the replies of the model up to the next prompt."""

    prompt: str
    replies: list[list[Text | ToolCall]] = field(default_factory=list)


@dataclass
class RecordedConversation:
    """Rounds of at least 20 turns. `results`: the recorded texts by tool, in the order of the calls."""

    system: str = ""
    rounds: list[Round] = field(default_factory=list)
    results: dict[str, deque[str]] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        return sum(len(one.replies) for one in self.rounds)


def load_conversations() -> tuple[list[RecordedConversation], dict[str, Tool]]:
    """Return the joined conversations, and the tools that the recordings declare."""
    exchanges = [exchange for provider in PROVIDERS for exchange in _decode_exchanges(provider)]
    joined, tools, current = [], {}, RecordedConversation()
    for request, answer in sorted(exchanges, key=_first_call):
        for tool in request.tools:
            if tool.kind == "function" and tool.name != SEARCH_TOOLS:  # some recordings have one of their own
                tools.setdefault(tool.name, replace(tool, effect="read"))
        _append(current, request.messages, answer)
        if current.turns >= TURNS:
            joined.append(current)
            current = RecordedConversation()
    return joined, tools


def _decode_exchanges(provider: str) -> Iterator[tuple[Request, tuple]]:
    for wire, request, response in _longest_exchanges(provider):
        with suppress(ToolwireError):
            yield get(wire).decode_request(request), get(wire).decode_response(response).parts if response else ()


def _first_call(exchange: tuple[Request, tuple]) -> str:
    """Return the name of the first call, so that conversations about the same tools are neighbours."""
    return next((call.name for call in list_calls(exchange[0].messages)), "")


def _longest_exchanges(provider: str) -> list[tuple[str, dict, dict | None]]:
    """Return the last request of each recorded test with its answer: it has the whole conversation."""
    found = {}
    for line in (DATA / "recorded" / f"{provider}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        path = re.split(r"[?#]", row["path"])[0]
        wire = next((name for ending, name in WIRES if path.endswith(ending)), None)
        if wire is None or row["status"] != 200 or not isinstance(row["request"], dict):
            continue
        test = row["source"].rpartition(" #")[0]
        size = len(row["request"].get("messages") or row["request"].get("input") or ())
        if size >= found.get(test, (0,))[0]:
            found[test] = (size, wire, row["request"], row.get("response"))
    return [(wire, request, response) for _, wire, request, response in found.values()]


def _append(conversation: RecordedConversation, messages: Sequence[Message], answer: tuple) -> None:
    """Append the rounds of one recorded conversation. Calls get new ids, because the recordings repeat theirs."""
    names: dict[str, str] = {}
    answered = {part.call_id for one in messages for part in one.parts if isinstance(part, ToolResult)}
    for message in messages:
        if message.role in ("system", "developer") and not conversation.system:
            conversation.system = message.text
        elif message.role == "user":
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in names:
                    conversation.results.setdefault(names[part.call_id], deque()).append(part.text)
            if message.text.strip():
                conversation.rounds.append(Round(message.text))
        elif message.role == "assistant":
            _add_reply(conversation, message.parts, answered, names)
    _add_reply(conversation, answer, answered, names)
    conversation.rounds = [one for one in conversation.rounds if one.replies]


def _add_reply(conversation: RecordedConversation, parts: tuple, answered: set[str], names: dict[str, str]) -> None:
    reply = []
    for part in parts:
        if isinstance(part, Text) and part.text.strip():
            reply.append(Text(part.text))
        elif isinstance(part, ToolCall) and part.id in answered and part.name != SEARCH_TOOLS:
            names[part.id] = part.name
            reply.append(ToolCall(f"call_{next(_NUMBERS)}", part.name, part.arguments or {}))
    if reply and conversation.rounds:
        conversation.rounds[-1].replies.append(reply)


_NUMBERS = count(1)


def load_catalogue(size: int, recorded: dict[str, Tool], max_real: int = 3_000) -> list[Tool]:
    """Return the recorded tools, then real ones up to `size`; after `max_real` of them, copies with other names.

    The real ones are in random, always equal order, so that small and large catalogues are alike.
    """
    tools = dict(recorded)
    for tool in _load_real_tools()[:max_real]:
        if len(tools) < size:
            tools.setdefault(tool.name, tool)
    originals = list(tools.values())
    for number in count(2):
        for tool in originals:
            if len(tools) >= size:
                return list(tools.values())
            name = f"{tool.name[:58]}_{number}"
            tools[name] = Tool(name, f"{tool.description or ''} (copy {number})", tool.input_schema, effect="read")
    raise AssertionError


@cache
def _load_real_tools() -> list[Tool]:
    rows = [
        json.loads(line)
        for file in sorted((DATA / "tool_schemas").glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    tools = [Tool(row["name"][:64], row.get("description"), row["input_schema"], effect="read") for row in rows]
    random.Random(1).shuffle(tools)
    return [tool for tool in tools if tool.name != SEARCH_TOOLS]
