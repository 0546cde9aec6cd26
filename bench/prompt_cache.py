"""Measure how much of each prompt repeats the beginning of the previous one: providers bill that part at a fraction.

Recorded conversations of 20 turns (`prompt_cache_data.py`) are run by an agent. Its model replies as recorded. If a reply
calls a tool that is not offered, the model searches for it first, with the words of its name, then with the name itself.
Three offers are compared: all tools, the cache-stable selection of a retriever, and a new selection for each request. The
body of each request, in prompt order (tools, system, messages), is compared with the one before; four bytes are a token.
A tool with deferred loading is part of the prompt where its search result refers to it.

The system prompts of the recordings are short. The requests of coding agents that were recorded (`../shared/fixtures/clients`)
have 31 to 65 KB of prose, which the recordings leave out; so the conversations are also run with 30 KB of other text as
the system prompt.
"""

import asyncio
import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from statistics import mean

import numpy as np
from msgspec.structs import replace

from prompt_cache_data import DATA, TURNS, RecordedConversation, load_catalogue, load_conversations
from toolwire import Agent, Text, ToolCall
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir.prompt_size import BYTES_PER_TOKEN
from toolwire.ir.request import Request
from toolwire.ir.response import Response
from toolwire.ir.text import to_bytes
from toolwire.ir.tools import SEARCH_TOOLS, Tool
from toolwire.retrieve import ToolIndex, open_minilm
from toolwire.run import Budget, Entry
from toolwire.wire import get

WIRES = {"anthropic": "claude-sonnet-5", "openai_responses": "gpt-5.6", "openai_chat": "gpt-5.6"}
CATALOGUE = 500
SIZES = (50, 500, 5_000)
REAL = 400  # tools of real servers in them; encoding more takes minutes
GROWN = 10  # conversations for these sizes
K = 16
SMALLER = (5, 8)
LONG_SYSTEM = "\n".join(
    f"{number}. Follow rule {number} of the guide for contributors exactly." for number in range(1, 480)
)
_SEARCHES = 2  # for one missing tool
_NUMBERS = count(1)


class RecordedModel:
    """Replies as recorded, and searches for tools that are not offered."""

    model = "m"

    def __init__(self, replies: list, catalogue: dict[str, Tool]) -> None:
        self.replies = replies
        self.requests: list[Request] = []
        self.searches = 0
        self._tried = 0
        self._catalogue = catalogue

    async def ask(self, request: Request) -> Response:
        self.requests.append(request)
        if not self.replies:  # the recording ends with the result of a call
            return Response(parts=(Text("Done."),))
        reply, offered = self.replies[0], {tool.name for tool in request.tools}
        missing = [part.name for part in reply if isinstance(part, ToolCall) and part.name not in offered]
        if missing and SEARCH_TOOLS in offered and self._tried < _SEARCHES:
            self._tried += 1
            self.searches += 1
            tool = self._catalogue[missing[0]]
            query = tool.name.replace("_", " ") if self._tried == 1 else tool.name
            call = ToolCall(f"search_{next(_NUMBERS)}", SEARCH_TOOLS, {"query": query}, kind="search")
            return Response(parts=(call,))
        self._tried = 0
        return Response(parts=tuple(self.replies.pop(0)))


class Run:
    """One conversation, run by an agent. `requests`: its first 20 requests, `state`: the size of the last dump."""

    def __init__(
        self,
        conversation: RecordedConversation,
        catalogue: list[Tool],
        index: ToolIndex | None,
        k: int = K,
        always: Sequence[str] = (),
    ) -> None:
        known = {tool.name: tool for tool in catalogue}
        results = {name: list(texts) for name, texts in conversation.results.items()}

        def entry(tool: Tool) -> Entry:
            def run(**_: object) -> str:
                texts = results.get(tool.name)
                return texts.pop(0) if texts else "done"

            return Entry(tool, run, origin=tool.name)

        self.model = RecordedModel([], known)
        self._agent = Agent(
            self.model,
            [entry(tool) for tool in catalogue],
            system=conversation.system,
            retriever=None if index is None else index.retriever(k=k, always=always),
            budget=Budget(iterations=100, calls=1000, same_call=100, failures=100),
        )
        self.state = 0
        asyncio.run(self._converse(conversation))
        self.requests = self.model.requests[:TURNS]

    async def _converse(self, conversation: RecordedConversation) -> None:
        answer = None
        for one in conversation.rounds:
            self.model.replies += [list(reply) for reply in one.replies]
            session = await self._agent.session(one.prompt, history=() if answer is None else answer)
            answer = await self._agent.run(session)
            self.state = len(session.dump())
            self.model.replies.clear()  # a recorded reply without calls ended the run early


def write_prompt(request: Request, wire_name: str) -> bytes:
    """Return the prompt of a request as its wire sends it: tools, system, messages."""
    wire = get(wire_name)
    wire = replace(wire, limits=replace(wire.limits, tools=None))  # to measure all tools where a provider refuses them
    body = wire.encode_request(prepare(replace(request, model=WIRES[wire_name]), wire).request)[0]
    tools = body.get("tools", [])
    if wire_name == "anthropic":
        return _join([tool for tool in tools if not tool.get("defer_loading")], _expand(body, tools))
    if wire_name == "openai_responses":
        return _join(tools, [body.get("instructions"), *body["input"]])
    return _join(tools, body["messages"])


def _expand(body: dict, tools: list[dict]) -> Iterator[object]:
    """Return the system prompt and the blocks of an Anthropic request; a reference becomes the declaration of its tool."""
    declared = {tool["name"]: tool for tool in tools}
    yield body.get("system")
    for message in body["messages"]:
        content = message["content"]
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            inner = block.get("content")
            if isinstance(inner, list):
                block = {**block, "content": [declared.get(one.get("tool_name"), one) for one in inner]}
            yield message["role"], block


def _join(*parts: Sequence[object] | Iterator[object]) -> bytes:
    return b"\n".join(to_bytes(element) for part in parts for element in part)


def common_prefix(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def select_naively(requests: Sequence[Request], catalogue: list[Tool], index: ToolIndex) -> list[Request]:
    """Return the requests with a new selection for the last user text of each."""
    known = {tool.name: tool for tool in catalogue}
    changed = []
    for request in requests:
        text = next(one.text for one in reversed(request.messages) if one.role == "user" and one.text.strip())
        names = [hit.tool.name for hit in index.search(text, K)]
        changed.append(replace(request, tools=tuple(known[name] for name in names)))
    return changed


def measure_shares(requests: list[list[Request]], wire: str) -> dict[str, float]:
    """Return means over turns 2 to 20 of all conversations.

    `share`: of the tokens of a prompt, how many repeat the beginning of the previous one. `kept`: of the tokens of the
    previous prompt, how many are repeated. `new`: tokens that are not repeated.
    """
    shares, kept, tokens, new = [], [], [], []
    for conversation in requests:
        constant, prompts = write_prompts(conversation, wire)
        for earlier, later in pairwise(prompts):
            common = common_prefix(earlier, later)
            shares.append((common + constant) / (len(later) + constant))
            kept.append((common + constant) / (len(earlier) + constant))
            tokens.append((len(later) + constant) / BYTES_PER_TOKEN)
            new.append((len(later) - common) / BYTES_PER_TOKEN)
    return {"share": mean(shares), "kept": mean(kept), "tokens": mean(tokens), "new": mean(new)}


def write_prompts(requests: list[Request], wire: str) -> tuple[int, list[bytes]]:
    """Return the prompts of a conversation. If all of them have the same tools, only the first tool is written.

    The first value is the size of the tools that are not written.
    """
    tools = requests[0].tools
    if len(tools) <= 2 * K or any(request.tools != tools for request in requests):
        return 0, [write_prompt(request, wire) for request in requests]
    shortened = [replace(request, tools=tools[:1]) for request in requests]
    prompts = [write_prompt(request, wire) for request in shortened]
    return len(write_prompt(requests[0], wire)) - len(prompts[0]), prompts


def measure_set(conversations: list[RecordedConversation], catalogue: list[Tool]) -> dict:
    """Compare the three offers on each wire."""
    index = ToolIndex()
    index.add(catalogue)
    everything = [Run(one, catalogue, None) for one in conversations]
    stable = {k: [Run(one, catalogue, index, k) for one in conversations] for k in (*SMALLER, K)}
    offers = {
        "all tools": [run.requests for run in everything],
        **{f"stable selection of {k}": [run.requests for run in runs] for k, runs in stable.items()},
        f"new selection of {K} for each request": [
            select_naively(run.requests, catalogue, index) for run in everything
        ],
    }
    rows = [
        {"wire": wire, "offer": offer, **measure_shares(requests, wire)}
        for wire in WIRES
        for offer, requests in offers.items()
    ]
    turns = [pair for run in stable[K] for pair in pairwise(run.requests)]
    return {
        "rows": rows,
        "turns": len(turns),
        "searches": sum(run.model.searches for run in stable[K]),
        "growth": sum(len(one.tools) != len(other.tools) for one, other in turns),
    }


class CopyEncoder:
    """An encoder that encodes each text once, and a copy of a tool like its original, which keeps the run short."""

    def __init__(self) -> None:
        self._encoder = open_minilm()
        self.dimensions, self.name = self._encoder.dimensions, self._encoder.name
        self._vectors: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str], progress: object = None) -> np.ndarray:
        originals = [_COPY.sub("", text) for text in texts]
        new = list(dict.fromkeys(text for text in originals if text not in self._vectors))
        if new:
            self._vectors.update(zip(new, self._encoder.encode(new), strict=True))
        return np.stack([self._vectors[text] for text in originals])


_COPY = re.compile(r" (?=\d+\. )\d+| \(copy \d+\)")


def measure_growth(conversations: list[RecordedConversation], recorded: dict[str, Tool]) -> list[dict]:
    """Measure the 20th prompt and the stored state with catalogues of several sizes.

    A catalogue has the tools that its conversation calls, which are always offered, and others of the same distribution
    in each size. The index also compares meanings, so that there are always enough tools to offer.
    """
    encoder = CopyEncoder()
    rows = []
    for size in SIZES:
        index = ToolIndex(encoder)
        tokens, states = [], []
        for conversation in conversations:
            called = _called_tools(conversation, recorded)
            catalogue = load_catalogue(size, called, REAL)
            run = Run(conversation, catalogue, index, always=list(called))
            tokens.append(_last_size(run))
            states.append(run.state)
        everything = Run(conversations[0], catalogue, None)
        all_tokens, all_state = _last_size(everything), everything.state
        rows.append(
            {
                "tools": size,
                "tokens": mean(tokens),
                "state": mean(states),
                "all tokens": all_tokens,
                "all state": all_state,
            }
        )
    return rows


def _called_tools(conversation: RecordedConversation, recorded: dict[str, Tool]) -> dict[str, Tool]:
    replies = [reply for one in conversation.rounds for reply in one.replies]
    called = {part.name for reply in replies for part in reply if isinstance(part, ToolCall)}
    return {name: tool for name, tool in recorded.items() if name in called}


def _last_size(run: Run) -> float:
    return len(write_prompt(run.requests[-1], "openai_chat")) / BYTES_PER_TOKEN


def main() -> None:
    if not DATA.is_dir():
        print("null")
        return
    conversations, recorded = load_conversations()
    catalogue = load_catalogue(CATALOGUE, recorded)
    grown = conversations[:: len(conversations) // GROWN]
    result = {
        "conversations": len(conversations),
        "catalogue": len(catalogue),
        "k": K,
        "short": measure_set(conversations, catalogue),
        "long": measure_set([dataclasses.replace(one, system=LONG_SYSTEM) for one in conversations], catalogue),
        "growth": measure_growth(grown, recorded),
        "grown": len(grown),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
