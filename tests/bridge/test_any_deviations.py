"""Streams with several deviations at once: all of their content arrives, is reported, or ends in an error.

A generator writes an answer as an imperfect server would. Each text, argument and thought has a number of its own, so that
nothing can disappear or be repeated unnoticed.
"""

import json
from random import Random

import pytest

from deviations import content
from recordings import WIRES
from toolwire import ToolwireError, fold, translate_stream
from toolwire.stream.event_stream import encode_event
from toolwire.testing.stream_checks import decode_stream, random_chunks
from toolwire.wire import get

SEEDS = 120


class Server:
    """An imperfect server: an answer, and the habits with which it writes streams."""

    def __init__(self, seed):
        self.random = random = Random(seed)
        self.number = 0
        self.thoughts = [self.word("think") for _ in range(random.choice((0, 0, 2)))]
        self.texts = [self.word("text") for _ in range(random.randrange(4))]
        self.calls = [
            (f"c{number}", random.choice(("get_weather", "find", "set_time")), self.arguments())
            for number in range(random.randrange(0 if self.texts else 1, 4))
        ]

    def word(self, kind):
        self.number += 1
        return f"{kind}-{self.number} " + self.random.choice(("", "é\u2028", '"q" ', "{} "))

    def arguments(self):
        return {
            "value": self.word("argument") + "x" * self.random.choice((0, 0, 2000)),
            **({"more": [1, {"a": None}]} if self.flip() else {}),
        }

    def flip(self, chance=0.5):
        return self.random.random() < chance

    def cut(self, text):
        """Cut a text into up to four pieces."""
        places = sorted(self.random.sample(range(1, len(text)), min(len(text) - 1, self.random.randrange(4))))
        return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]

    @property
    def expected(self):
        return {
            "text": "".join(self.texts),
            "reasoning": "".join(self.thoughts),
            "calls": [[name, arguments] for _, name, arguments in self.calls],
        }

    # OpenAI Chat

    def openai_chat(self):
        random, chunks = self.random, []
        style = random.choice(("plain", "early", "empty", "null text"))
        early = {"plain": None, "early": "stop", "empty": "", "null text": "null"}[style]
        field = random.choice(("reasoning_content", "reasoning", "reasoning_text", "thinking"))
        envelope = random.choice(({"id": "c", "model": "m", "created": 1}, {"id": 7, "created": 1.5}, {}))
        doubles = self.flip(0.2)
        self.index = random.choice((int, str, float, None, "zero"))

        def add(delta, reason=early):
            choice = {"index": random.choice((0, "0")), "delta": delta, "finish_reason": reason}
            if self.flip(0.2):
                choice.pop("index")
            chunks.append({**envelope, "choices": [choice]})
            if self.flip(0.1):
                chunks.append({**envelope, "choices": random.choice(([], None)), "usage": None})

        if self.flip():
            add({"role": "assistant", "content": random.choice((None, ""))}, None)
        for text in self.thoughts:
            both = {"reasoning": text, "reasoning_content": text} if doubles else {field: text}
            add({**both, **({"content": None} if self.flip() else {})})
        for text in self.texts:
            add({"content": text, **({"tool_calls": random.choice((None, []))} if self.flip() else {})})
        for number, call in enumerate(self.calls):
            self.chat_call(number, *call, add)
        if self.calls and self.index is not None and self.flip(0.2):  # a call again
            number = random.randrange(len(self.calls))
            if self.index == "zero" or number == len(self.calls) - 1:
                self.chat_call(number, *self.calls[number], add)
        if self.flip(0.3) and (self.texts or self.calls):
            message = {**self.repeated_text(field), "tool_calls": self.repeated_calls()}
            chunks.append({**envelope, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
        add({}, random.choice(("stop", "tool_calls", "tool_use", "eos")))
        if self.flip():
            counts = random.choice(((3, 2), ("3", 2.5), (True, -1), (None, [])))
            chunks.append({**envelope, "choices": [], "usage": dict(zip(("prompt_tokens", "completion_tokens"), counts, strict=True))})  # fmt: skip
        return self.events([(None, chunk) for chunk in chunks], end="data: [DONE]\n\n" if self.flip(0.8) else "")

    def repeated_text(self, field):
        """Return text and reasoning again: as an array, with other keys, in other fields."""
        text, thoughts = "".join(self.texts), "".join(self.thoughts)
        parts = [
            {"type": "text", "text": piece, **({"annotations": []} if self.flip() else {})} for piece in self.texts
        ]
        if thoughts and self.flip(0.3):
            return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]}, *parts]}
        fields = self.random.choice(([field], ["reasoning"], ["reasoning_content", "thinking"])) if thoughts else []
        content = self.random.choice((text, parts)) if text else None
        return {"content": content, **dict.fromkeys(fields, thoughts)}

    def repeated_calls(self):
        """Return some of the calls again, in any order, with other ids and formatting."""
        calls, ids = [], self.random.choice(("same", "new", "none"))
        for number, (call_id, name, arguments) in enumerate(self.some(self.calls)):
            identity = {"same": {"id": call_id}, "new": {"id": f"n{number}"}, "none": {}}[ids]
            calls.append({**identity, "function": {"name": name, "arguments": self.formatted(arguments)}})
        if ids == "same" and self.flip(0.3):
            for call in calls:
                call["function"]["arguments"] = self.random.choice(("", None))
        return calls

    def formatted(self, arguments):
        return self.random.choice((arguments, json.dumps(arguments), json.dumps(arguments, indent=1, sort_keys=True)))

    def some(self, values):
        kept = [value for value in values if self.flip(0.8)]
        if self.flip():
            self.random.shuffle(kept)
        return kept

    def chat_call(self, number, call_id, name, arguments, add):
        index = {"zero": 0, int: number, str: str(number), float: float(number), None: None}[self.index]
        identity = {} if index is None else {"index": index}

        def delta(function, **more):
            add({"tool_calls": [{**identity, **more, "function": function}]})

        text = json.dumps(arguments, ensure_ascii=self.flip())
        if self.flip(0.2):  # all at once
            delta({"name": name, "arguments": arguments if self.flip() else text}, id=call_id)
            return
        if index is not None and self.index != "zero" and self.flip(0.3):  # the name in pieces
            first, *others = self.cut(name)
            delta({"name": first, "arguments": ""}, id=call_id, type="function")
            for piece in others:
                delta({"name": piece})
        else:
            start = self.random.choice(("", None, "{}")) if index is not None else ""
            delta({"name": name, "arguments": start}, id=call_id)
        repeated = {"name": name} if self.flip(0.3) else {}
        ids = self.random.choice(({}, {"id": call_id}, {"id": None}, {"id": ""}))
        for piece in self.cut(text):
            delta({**repeated, "arguments": piece}, **ids)
        if self.flip(0.2):  # everything again
            for piece in self.random.choice(([text], [json.dumps(arguments, indent=1)], self.cut(text))):
                delta({"arguments": piece})

    # Anthropic

    def anthropic(self):
        random, blocks = self.random, []
        for text in self.thoughts:
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", text))
        for text in self.texts:
            blocks.append(({"type": "text", "text": ""}, "text_delta", "text", text))
        for call_id, name, arguments in self.calls:
            text = json.dumps(arguments)
            start = arguments if self.flip(0.2) else {}
            blocks.append(({"type": "tool_use", "id": call_id, "name": name, "input": start}, "input_json_delta", "partial_json", "" if start and self.flip() else text))  # fmt: skip
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": random.choice(({"input_tokens": 3}, {"input_tokens": "3"}, None, []))}  # fmt: skip
        events = [{"type": "message_start", "message": message}] * random.choice((1, 1, 2))
        overlaps, omits = self.flip(0.4), self.flip(0.3)
        stops = []
        for number, (block, kind, field, text) in enumerate(blocks):
            index = str(number) if self.flip(0.2) else number
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            start = len(events) - 1
            repeats_input = field == "partial_json" and self.flip(0.2)
            for piece in [part for _ in range(1 + repeats_input) for part in self.cut(text)] if len(text) > 1 else []:
                events.append({"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}})
                if self.flip(0.1):
                    events.append({"type": random.choice(("ping", "new_event"))})
            stop = {"type": "content_block_stop", "index": index}
            if overlaps:
                stops.append(stop)
            elif not omits or number + 1 < len(blocks):
                events.append(stop)
                if field == "partial_json" and self.flip(0.2):  # all of the call again
                    events += events[start:] * random.choice((1, 2))
        random.shuffle(stops)
        events += stops
        reason = random.choice(("end_turn", "tool_use", "stop", "tool_calls"))
        events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}})
        if self.flip(0.3):
            events.append({"type": "message_delta", "delta": {"stop_reason": None}})
        if omits or overlaps or self.flip(0.8):
            events.append({"type": "message_stop"})
        return self.events([(event["type"], event) for event in events])

    # Bedrock

    def bedrock(self):
        random, stops = self.random, []
        events = [("messageStart", {"role": "assistant"})] * random.choice((0, 1, 1, 2))
        blocks = [("reasoningContent", text) for text in self.thoughts] + [("text", text) for text in self.texts]
        overlaps, omits = self.flip(0.3), self.flip(0.3)
        for number, (kind, value) in enumerate([*blocks, *(("toolUse", call) for call in self.calls)]):
            place = {"contentBlockIndex": str(number) if self.flip(0.2) else number}
            start, deltas = self.converse_block(kind, value)
            if start is not None:
                repeats = 2 if kind == "toolUse" and self.flip(0.2) else 1
                events += [("contentBlockStart", {**place, "start": start})] * repeats
            for delta in deltas:
                events.append(("contentBlockDelta", {**place, "delta": delta, "p": "abc"}))
                if self.flip(0.1):
                    events.append(("newEvent", {}))
            if overlaps:
                stops.append(("contentBlockStop", place))
            elif not omits:
                events.append(("contentBlockStop", place))
        random.shuffle(stops)
        usage = random.choice(({"inputTokens": "3", "outputTokens": 2.5}, {"inputTokens": 3}, None, []))
        end = [("messageStop", {"stopReason": random.choice(("end_turn", "tool_use", "new"))})]
        if self.flip(0.8):
            end.insert(random.choice((0, 1)), ("metadata", {"usage": usage}))
        return b"".join(encode_event(kind, json.dumps(event).encode()) for kind, event in [*events, *stops, *end])

    def converse_block(self, kind, value):
        """Return the start of a block, or None without one, and its deltas."""
        if kind == "toolUse":
            call_id, name, arguments = value
            start, text = {"toolUseId": call_id, "name": name}, json.dumps(arguments)
            if self.flip(0.2):  # all at once
                return {kind: {**start, "input": self.random.choice((arguments, text))}}, []
            pieces = [arguments] if self.flip(0.2) else self.cut(text)
            return {kind: start}, [{kind: {"input": piece}} for piece in pieces]
        start = self.random.choice((None, None, {}, {"text": ""})) if kind == "text" else None
        return start, [{kind: piece if kind == "text" else {"text": piece}} for piece in self.cut(value)]

    # Gemini, Ollama, OpenAI Responses

    def gemini(self):
        random, chunks = self.random, []
        early = random.choice((None, "", "STOP", "FINISH_REASON_UNSPECIFIED"))
        parts = [{"text": text, "thought": True} for text in self.thoughts] + [{"text": text} for text in self.texts]
        for call_id, name, arguments in self.calls:
            value = json.dumps(arguments) if self.flip(0.3) else arguments
            parts.append(
                {random.choice(("functionCall", "function_call")): {"id": call_id, "name": name, "args": value}}
            )
        for part in parts:
            candidate = {"content": {"role": "model", "parts": part if self.flip(0.2) else [part]}}
            if early is not None:
                candidate["finishReason"] = early
            if self.flip():
                candidate["index"] = random.choice((0, "0"))
            chunks.append({"candidates": [candidate], "responseId": random.choice(("r", 7))})
        usage = random.choice(({"promptTokenCount": "3", "candidatesTokenCount": 2.5}, None, "none"))
        chunks.append({"candidates": [{"finishReason": random.choice(("STOP", "NEW"))}], "usageMetadata": usage})
        if self.flip(0.2):
            return json.dumps(chunks).encode()
        return self.events([(None, chunk) for chunk in chunks], end=random.choice(("", "data: [DONE]\n\n")))

    def ollama(self):
        random = self.random
        messages = [{"thinking": text, "content": ""} for text in self.thoughts]
        messages += [{"content": text} for text in self.texts]
        for call_id, name, arguments in self.calls:
            value = json.dumps(arguments) if self.flip(0.3) else arguments
            messages.append(
                {"content": None, "tool_calls": [{"id": call_id, "function": {"name": name, "arguments": value}}]}
            )
        early = random.choice(
            ({"done": False}, {"done": True}, {"done": "false"}, {"done_reason": "stop", "done": False}, {})
        )
        times = ({"created_at": "2026-01-01T00:00:00Z"}, {"created_at": "now"}, {"created_at": 5}, {})
        lines = [{"model": "m", **random.choice(times), "message": message, **early} for message in messages]
        last = {
            "model": "m",
            "done": random.choice((True, "true", 1)),
            "prompt_eval_count": random.choice((3, "3", 1.5, -1)),
        }
        if self.flip():
            last["done_reason"] = random.choice(("stop", "tool_calls", ""))
        separator = random.choice(("\n", "\r\n", "\n\n"))
        return "".join(json.dumps(line) + separator for line in [*lines, last]).encode()

    def openai_responses(self):
        random, items = self.random, []
        for number, text in enumerate(self.thoughts):
            items.append(
                ({"type": "reasoning", "id": f"r{number}", "summary": [{"type": "summary_text", "text": text}]}, text)
            )
        for number, text in enumerate(self.texts):
            part = {"type": "output_text", "text": text, "annotations": []}
            items.append(({"type": "message", "id": f"m{number}", "role": "assistant", "content": [part]}, text))
        for call_id, name, arguments in self.calls:
            call = {"type": "function_call", "id": f"f{call_id}", "call_id": call_id, "name": name}
            items.append(
                ({**call, "arguments": arguments if self.flip(0.2) else json.dumps(arguments)}, json.dumps(arguments))
            )
        response = {"id": "r", "model": "m", "status": "in_progress", "output": []}
        events = [{"type": "response.created", "response": response}] if self.flip(0.7) else []
        repeats, whole, renames = self.flip(0.5), self.flip(0.4), self.flip(0.3)
        changes = not renames and self.flip(0.3)  # the ids of calls
        for number, (item, text) in enumerate(items):
            place = {"output_index": random.choice((number, str(number))), "item_id": item["id"]}
            times = 1 if renames else random.choice((1, 1, 2))  # under a new id, an item again is another item
            if renames:
                place = {}
            first = random.choice(("", "", "{}", text)) if repeats or whole else ""
            empty = {**item, "arguments": first} if "arguments" in item else {**item, "content": [], "summary": []}
            start = len(events)
            is_announced = self.flip(0.7) or not repeats or "arguments" in item
            if is_announced:
                events += [{"type": "response.output_item.added", **place, "item": empty}] * times
            kind = {"reasoning": "reasoning_summary_text", "message": "output_text", "function_call": "function_call_arguments"}[item["type"]]  # fmt: skip
            extra = {"summary_index": 0} if item["type"] == "reasoning" else {"content_index": 0}
            pieces = self.cut(text) if is_announced or item["type"] == "message" else []
            if "arguments" in item and not renames:
                pieces = random.choice((pieces, pieces, pieces + self.cut(text), [] if repeats else pieces))
            for piece in pieces:
                events.append({"type": f"response.{kind}.delta", **place, **extra, "delta": piece})
            if repeats:
                final = item
                if changes and "arguments" in item:
                    new_ids = {"call_id": f"{item['call_id']}x", "id": f"{item['id']}x"}
                    final = {**item, **dict(random.choice((list(new_ids.items()), [("call_id", new_ids["call_id"])])))}
                events += [{"type": "response.output_item.done", **place, "item": final}] * times
                if is_announced and not renames and not changes and self.flip(0.1):  # all of the item again
                    events += events[start:]
        if renames:
            events = [self.renamed(event) for event in events]
        usage = random.choice((None, {"input_tokens": "3", "output_tokens": 2.5}, []))
        output = self.repeated_items([item for item, _ in items]) if whole else []
        final = {**response, "status": "completed", "output": output, "usage": usage}
        events.append({"type": "response.completed", "response": final})
        return self.events([(event["type"], event) for event in events])

    def renamed(self, event):
        """Return an event with a new item id."""
        self.number += 1
        item = {"item": {**event["item"], "id": f"new{self.number}"}} if "item" in event else {}
        return {**event, **item, **({"item_id": f"new{self.number}"} if "delta" in event else {})}

    def repeated_items(self, items):
        """Return the items of the final response: some of the calls, in any order, with other ids and formatting."""
        calls = self.some([item for item in items if "arguments" in item])
        ids = self.random.choice(("same", "new", "none"))
        out = [item for item in items if "arguments" not in item]
        for number, item in enumerate(calls):
            own = {key: value for key, value in item.items() if key not in ("id", "call_id")}
            if ids != "none":
                own |= {"id": f"z{number}", "call_id": f"y{number}" if ids == "new" else item["call_id"]}
            arguments = item["arguments"]
            own["arguments"] = self.formatted(json.loads(arguments) if type(arguments) is str else arguments)
            out.append(own)
        return out

    def events(self, events, end=""):
        """Write server-sent events, with one of the forms that servers use."""
        space, line = self.random.choice((" ", "")), self.random.choice(("\n", "\r\n", "\r"))
        named = self.flip(0.9)
        out = []
        for name, event in events:
            head = f"event: {name}{line}" if name is not None and named else ""
            out.append(f"{head}data:{space}{json.dumps(event)}{line * 2}")
            if self.flip(0.1):
                out.append(f": ping{line * 2}")
        return ("".join(out) + end.replace("\n", line)).encode()


@pytest.mark.finding("GA1", "GA7", "GA8", "GA12")
@pytest.mark.parametrize("wire", WIRES)
def test_combined_deviations_lose_nothing(wire):
    for seed in range(SEEDS):
        server = Server(f"{wire} {seed}")
        data = getattr(server, wire)()
        chunks = random_chunks(data, server.random, 5)
        found = content(fold(decode_stream(get(wire), chunks)))
        assert found == server.expected, f"seed {seed}\n{data!r}"
        target = server.random.choice([other for other in WIRES if other != wire])
        stream = translate_stream(source=wire, target=target)
        written = b"".join(map(stream.feed, chunks)) + stream.close()
        assert stream.error is None, f"seed {seed}: {stream.error}\n{data!r}"
        arrived = content(fold(decode_stream(get(target), [written])))
        arrived["reasoning"] = arrived["reasoning"].replace("\n\n", "")  # sections of a summary are separated
        assert arrived == server.expected, f"seed {seed} to {target}\n{data!r}"


@pytest.mark.parametrize("wire", WIRES)
def test_prefix_of_combined_deviations_never_has_another_call(wire):
    """A stream that was cut is an error, or an answer whose complete calls are calls of the whole answer."""
    for seed in range(SEEDS // 3):
        server = Server(f"{wire} {seed}")
        data = getattr(server, wire)()
        for length in server.random.sample(range(len(data)), min(12, len(data))):
            try:
                found = content(fold(decode_stream(get(wire), [data[:length]])))
            except ToolwireError:
                continue
            calls = server.expected["calls"]
            assert found["calls"] == calls[: len(found["calls"])], f"seed {seed}, {length} bytes\n{data!r}"
            assert server.expected["text"].startswith(found["text"])
