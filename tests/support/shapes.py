"""Answers in the providers' own shapes, written down from what their clients recorded: nothing here comes from our encoders.

`text_response(upstream, said, stream=…)` is what an upstream of that kind says.
"""

import json
from typing import Any, NamedTuple

from toolwire.testing.upstream import RawReply

SIGNATURE = "c2lnbmF0dXJl"
USAGE = (10, 5)


class Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]


class ModelAnswer(NamedTuple):
    """`thought` is for those who show and sign it; the others keep it to themselves."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""


def provider_answer(upstream: str, said: ModelAnswer, *, stream: bool) -> RawReply:
    """`upstream` is a wire, "deepseek", or a text format that a chat server without calls writes."""
    if upstream in _TEXTS:
        said = ModelAnswer(said.text + _TEXTS[upstream](said.calls))
        upstream = "openai_chat"
    whole, chunks = (_deepseek_whole, _deepseek_chunks) if upstream == "deepseek" else _SHAPES[upstream]
    if not stream:
        return RawReply(json.dumps(whole(said)).encode())
    if upstream == "ollama":
        lines = "".join(json.dumps(line) + "\n" for line in chunks(said))
        return RawReply(lines.encode(), headers={"content-type": "application/x-ndjson"}, streamed=True)
    named = upstream in ("anthropic", "cohere", "gemini_interactions", "openai_responses")
    events = [
        f"event: {one.get('type') or one.get('event_type')}\n" * named + f"data: {json.dumps(one)}\n\n"
        for one in chunks(said)
    ]
    events += ["data: [DONE]\n\n"] if upstream in ("openai_chat", "deepseek", "cohere") else []
    return RawReply("".join(events).encode(), streamed=True)


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


# --- OpenAI Chat


def _chat_whole(said: ModelAnswer) -> dict:
    message: dict = {"role": "assistant", "content": said.text or None, "refusal": None, "annotations": []}
    if said.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in said.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if said.calls else "stop", "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1700000000, "model": "gpt-5.1"}
    return {**head, "choices": [choice], "usage": _CHAT_USAGE, "service_tier": "default"}


_CHAT_USAGE = {"prompt_tokens": USAGE[0], "completion_tokens": USAGE[1], "total_tokens": sum(USAGE)}


def _chat_chunks(said: ModelAnswer) -> list[dict]:
    deltas: list[dict] = [{"role": "assistant", "content": "" if said.text else None}]
    deltas += [{"content": half} for half in _halves(said.text) if half]
    for index, call in enumerate(said.calls):
        function = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for half in _halves(json.dumps(call.arguments)):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": "tool_calls" if said.calls else "stop"}])
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "gpt-5.1"}
    return [
        *({**head, "choices": one, "usage": None} for one in choices),
        {**head, "choices": [], "usage": _CHAT_USAGE},
    ]


def _deepseek_whole(said: ModelAnswer) -> dict:
    """Chat, with reasoning that the server shows without a signature."""
    document = _chat_whole(said)
    document["choices"][0]["message"]["reasoning_content"] = said.thought
    return document


def _deepseek_chunks(said: ModelAnswer) -> list[dict]:
    first, *others = _chat_chunks(said)
    deltas = [{"reasoning_content": half, "content": None} for half in _halves(said.thought) if half]
    thought = [{**first, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [first, *thought, *others]


# --- OpenAI Responses


def _responses_items(said: ModelAnswer) -> list[dict]:
    words = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [words]}
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in said.calls
    ]
    summary = [{"type": "summary_text", "text": said.thought}]
    thought = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": SIGNATURE}
    return [thought] * bool(said.thought) + [message] * bool(said.text) + calls


def _responses_whole(said: ModelAnswer) -> dict:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-5.1",
        "output": _responses_items(said),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": USAGE[0],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": USAGE[1],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sum(USAGE),
        },
    }


def _responses_chunks(said: ModelAnswer) -> list[dict]:
    whole = _responses_whole(said)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index}
        events += _ITEM_EVENTS[item["type"]](item, place)
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _message_events(item: dict, place: dict) -> list[dict]:
    index, part = place["output_index"], item["content"][0]
    spot = {**place, "content_index": 0}
    empty = {**item, "status": "in_progress", "content": []}
    deltas = [
        {"type": "response.output_text.delta", **spot, "delta": half, "logprobs": []} for half in _halves(part["text"])
    ]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": empty},
        {"type": "response.content_part.added", **spot, "part": {**part, "text": ""}},
        *deltas,
        {"type": "response.output_text.done", **spot, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **spot, "part": part},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _call_events(item: dict, place: dict) -> list[dict]:
    index, kind = place["output_index"], "response.function_call_arguments"
    empty = {**item, "status": "in_progress", "arguments": ""}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": empty},
        *({"type": f"{kind}.delta", **place, "delta": half} for half in _halves(item["arguments"])),
        {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _reasoning_events(item: dict, place: dict) -> list[dict]:
    index, part, kind = place["output_index"], item["summary"][0], "response.reasoning_summary"
    spot = {**place, "summary_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "summary": []}},
        {"type": f"{kind}_part.added", **spot, "part": {**part, "text": ""}},
        *({"type": f"{kind}_text.delta", **spot, "delta": half} for half in _halves(part["text"])),
        {"type": f"{kind}_text.done", **spot, "text": part["text"]},
        {"type": f"{kind}_part.done", **spot, "part": part},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


_ITEM_EVENTS = {"reasoning": _reasoning_events, "message": _message_events, "function_call": _call_events}


# --- Anthropic


def _anthropic_blocks(said: ModelAnswer) -> list[dict]:
    thought = [{"type": "thinking", "thinking": said.thought, "signature": SIGNATURE}] if said.thought else []
    words = [{"type": "text", "text": said.text}] if said.text else []
    return (
        thought + words + [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in said.calls]
    )


def _anthropic_whole(said: ModelAnswer) -> dict:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": _anthropic_blocks(said),
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": USAGE[0], "output_tokens": USAGE[1]},
    }


def _anthropic_chunks(said: ModelAnswer) -> list[dict]:
    whole = _anthropic_whole(said)
    usage = {"input_tokens": USAGE[0], "output_tokens": 1}
    begun = {**whole, "content": [], "stop_reason": None, "usage": usage}
    events: list[dict] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            start: dict = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": half} for half in _halves(block["text"])]
        elif block["type"] == "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": half} for half in _halves(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            start = {**block, "input": {}}
            pieces = ("", *_halves(json.dumps(block["input"])))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": USAGE[1]}})
    return [*events, {"type": "message_stop"}]


# --- Gemini: STOP whatever it says; the first call of a turn is signed


def _gemini_parts(said: ModelAnswer) -> list[dict]:
    parts: list[dict] = [{"text": said.thought, "thought": True}] if said.thought else []
    parts += [{"text": said.text}] if said.text else []
    for number, call in enumerate(said.calls):
        signed = {} if number else {"thoughtSignature": SIGNATURE}
        parts.append({"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}, **signed})
    return parts


_GEMINI_USAGE = {"promptTokenCount": USAGE[0], "candidatesTokenCount": USAGE[1], "totalTokenCount": sum(USAGE)}
_GEMINI_HEAD = {"modelVersion": "gemini-3-pro", "responseId": "r1"}


def _gemini_whole(said: ModelAnswer) -> dict:
    content = {"role": "model", "parts": _gemini_parts(said)}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": _GEMINI_USAGE, **_GEMINI_HEAD}


def _gemini_chunks(said: ModelAnswer) -> list[dict]:
    thought = [{"text": half, "thought": True} for half in _halves(said.thought) if half]
    words = [{"text": half} for half in _halves(said.text) if half]
    parts = [*thought, *words, *_gemini_parts(ModelAnswer(calls=said.calls))]
    chunks = [
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}], **_GEMINI_HEAD} for part in parts
    ]
    end = {"index": 0, "content": {"role": "model", "parts": []}, "finishReason": "STOP"}
    return [*chunks, {"candidates": [end], "usageMetadata": _GEMINI_USAGE, **_GEMINI_HEAD}]


# --- Interactions: a thought before the calls has the signature; recorded by vercel/ai


_INTERACTION = {"id": "v1_ChdU", "object": "interaction", "model": "gemini-3.8-flash"}
_INTERACTION_USAGE = {"total_tokens": sum(USAGE), "total_input_tokens": USAGE[0], "total_output_tokens": USAGE[1]}


def _interaction_steps(said: ModelAnswer) -> list[dict]:
    summary = {"summary": [{"type": "text", "text": said.thought}]} if said.thought else {}
    steps: list[dict] = [{"type": "thought", "signature": SIGNATURE, **summary}] if said.calls or said.thought else []
    steps += [{"type": "model_output", "content": [{"type": "text", "text": said.text}]}] if said.text else []
    called = {"type": "function_call", "signature": ""}
    return steps + [{**called, "id": c.id, "name": c.name, "arguments": c.arguments} for c in said.calls]


def _interaction_end(said: ModelAnswer) -> dict:
    return {**_INTERACTION, "status": "requires_action" if said.calls else "completed", "usage": _INTERACTION_USAGE}


def _interaction_whole(said: ModelAnswer) -> dict:
    return {**_interaction_end(said), "steps": _interaction_steps(said)}


def _interaction_deltas(step: dict) -> tuple[dict, list[dict]]:
    """What its start says, and the rest in pieces."""
    if step["type"] == "model_output":
        return {"type": "model_output"}, [
            {"type": "text", "text": half} for half in _halves(step["content"][0]["text"])
        ]
    if step["type"] == "thought":
        said = "".join(content["text"] for content in step.get("summary", ()))
        halves = [
            {"type": "thought_summary", "content": {"type": "text", "text": half}} for half in _halves(said) if half
        ]
        return {"type": "thought"}, [*halves, {"type": "thought_signature", "signature": SIGNATURE}]
    halves = _halves(json.dumps(step["arguments"]))
    return {**step, "arguments": {}}, [{"type": "arguments_delta", "arguments": half} for half in halves]


def _interaction_events(said: ModelAnswer) -> list[dict]:
    events: list[dict] = [
        {"interaction": {**_INTERACTION, "status": "in_progress"}, "event_type": "interaction.created"},
        {"interaction_id": "v1_ChdU", "status": "in_progress", "event_type": "interaction.status_update"},
    ]
    for index, step in enumerate(_interaction_steps(said)):
        begun, deltas = _interaction_deltas(step)
        events.append({"index": index, "step": begun, "event_type": "step.start"})
        events += [{"index": index, "delta": delta, "event_type": "step.delta"} for delta in deltas]
        events.append({"index": index, "event_type": "step.stop"})
    return [*events, {"interaction": _interaction_end(said), "event_type": "interaction.completed"}]


# --- Ollama


_OLLAMA_HEAD = {"model": "qwen3", "created_at": "2026-08-21T18:48:22.196249Z"}
_OLLAMA_END = {"done": True, "done_reason": "stop", "prompt_eval_count": USAGE[0], "eval_count": USAGE[1]}


def _ollama_calls(said: ModelAnswer) -> list[dict]:
    return [
        {"id": call.id, "function": {"index": index, "name": call.name, "arguments": call.arguments}}
        for index, call in enumerate(said.calls)
    ]


def _ollama_whole(said: ModelAnswer) -> dict:
    message: dict = {"role": "assistant", "content": said.text}
    if said.calls:
        message["tool_calls"] = _ollama_calls(said)
    return {**_OLLAMA_HEAD, "message": message, **_OLLAMA_END}


def _ollama_chunks(said: ModelAnswer) -> list[dict]:
    messages: list[dict] = [{"role": "assistant", "content": half} for half in _halves(said.text) if half]
    messages += [{"role": "assistant", "content": "", "tool_calls": [call]} for call in _ollama_calls(said)]
    lines = [{**_OLLAMA_HEAD, "message": message, "done": False} for message in messages]
    return [*lines, {**_OLLAMA_HEAD, "message": {"role": "assistant", "content": ""}, **_OLLAMA_END}]


# --- Cohere


_COHERE_USAGE = {
    "billed_units": {"input_tokens": 1, "output_tokens": 1},
    "tokens": {"input_tokens": USAGE[0], "output_tokens": USAGE[1]},
}


def _cohere_calls(said: ModelAnswer) -> list[dict]:
    return [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
        for c in said.calls
    ]


def _cohere_content(said: ModelAnswer) -> list[dict]:
    thought = [{"type": "thinking", "thinking": said.thought}] if said.thought else []
    return thought + ([{"type": "text", "text": said.text}] if said.text and not said.calls else [])


def _cohere_whole(said: ModelAnswer) -> dict:
    """Text before calls is the plan."""
    message: dict = {"role": "assistant"}
    if content := _cohere_content(said):
        message["content"] = content
    if said.calls:
        message |= {"tool_plan": said.text} if said.text else {}
        message["tool_calls"] = _cohere_calls(said)
    reason = "TOOL_CALL" if said.calls else "COMPLETE"
    return {"id": "cohere-1", "finish_reason": reason, "message": message, "usage": _COHERE_USAGE}


def _cohere_chunks(said: ModelAnswer) -> list[dict]:
    whole = _cohere_whole(said)
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    events: list[dict] = [{"id": whole["id"], "type": "message-start", "delta": {"message": empty}}]
    for index, item in enumerate(_cohere_content(said)):
        field = item["type"]
        start = {"content": {"type": field, field: ""}}
        events.append({"type": "content-start", "index": index, "delta": {"message": start}})
        deltas = [{"content": {field: half}} for half in _halves(item[field])]
        events += [{"type": "content-delta", "index": index, "delta": {"message": delta}} for delta in deltas]
        events.append({"type": "content-end", "index": index})
    plans = _halves(said.text) if said.calls else ()
    events += [{"type": "tool-plan-delta", "delta": {"message": {"tool_plan": half}}} for half in plans]
    for index, call in enumerate(_cohere_calls(said)):
        start = {"tool_calls": {**call, "function": {**call["function"], "arguments": ""}}}
        events.append({"type": "tool-call-start", "index": index, "delta": {"message": start}})
        deltas = [{"tool_calls": {"function": {"arguments": half}}} for half in _halves(call["function"]["arguments"])]
        events += [{"type": "tool-call-delta", "index": index, "delta": {"message": delta}} for delta in deltas]
        events.append({"type": "tool-call-end", "index": index})
    end = {"finish_reason": whole["finish_reason"], "usage": _COHERE_USAGE}
    return [*events, {"type": "message-end", "delta": end}]


# --- models that write their calls into the text


def _hermes(calls: tuple[Call, ...]) -> str:
    bodies = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in calls]
    return "".join(f"\n<tool_call>\n{body}\n</tool_call>" for body in bodies)


def _qwen3_xml(calls: tuple[Call, ...]) -> str:
    blocks = []
    for call in calls:
        values = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in call.arguments.items())
        blocks.append(f"\n<tool_call>\n<function={call.name}>\n{values}</function>\n</tool_call>")
    return "".join(blocks)


_SHAPES = {
    "openai_chat": (_chat_whole, _chat_chunks),
    "openai_responses": (_responses_whole, _responses_chunks),
    "anthropic": (_anthropic_whole, _anthropic_chunks),
    "gemini": (_gemini_whole, _gemini_chunks),
    "gemini_interactions": (_interaction_whole, _interaction_events),
    "ollama": (_ollama_whole, _ollama_chunks),
    "cohere": (_cohere_whole, _cohere_chunks),
}
_TEXTS = {"hermes": _hermes, "qwen3_xml": _qwen3_xml}
WIRES = tuple(_SHAPES)
FORMATS = tuple(_TEXTS)
