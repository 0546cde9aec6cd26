"""Statements about the conversation: messages, media, reasoning, calls and results."""

from msgspec.structs import replace
from statements import (
    BASE,
    CALL,
    FREE,
    IMAGE,
    LOOKUP,
    MARK,
    PDF,
    SCHEMA,
    SIGNATURES,
    USER,
    Statement,
    linked_media,
    read_caches,
    read_calls,
    read_extra,
    read_media,
    read_order,
    read_parts,
    read_result_media,
    read_results,
    read_signatures,
    read_texts,
    reasoning,
    sign,
    stored_media,
    with_answer,
    with_messages,
    with_turn,
    with_user,
)

from toolwire.ir import Media, Message, Opaque, Reasoning, Refusal, Text, Tool, ToolCall, ToolResult
from toolwire.ir.tools import search_tool
from toolwire.wire import names

__all__ = ["CALLS", "CONVERSATION"]

PLAIN_TURN = with_turn(CALL, CALL.result("ok"))
SEARCHED = replace(
    with_turn(LOOKUP, LOOKUP.result()), tools=(search_tool(), Tool(MARK, input_schema=SCHEMA, deferred=True))
)
SECOND_CALL = ToolCall("call_2", "f", {"city": f"{MARK}2"}, f'{{"city": "{MARK}2"}}')
LONG_CALL = replace(CALL, name="find_the_weather_station_that_is_nearest_to_a_city_in_a_country_of_the_world")
STARTED = with_answer(Text("ok"))

CONVERSATION = [
    Statement("system message", BASE, with_messages(Message("system", (Text(MARK),)), USER), read_texts),
    Statement(
        "several system messages",
        with_messages(Message("system", (Text("a"),)), USER),
        with_messages(Message("system", (Text("a"),)), Message("system", (Text(MARK),)), USER),
        read_texts,
    ),
    Statement(
        "system message between others",
        with_messages(USER, USER),
        with_messages(USER, Message("system", (Text(MARK),)), USER),
        read_texts,
        unfitted=True,
    ),
    Statement("developer message", BASE, with_messages(Message("developer", (Text(MARK),)), USER), read_texts),
    Statement("text", BASE, with_messages(Message("user", (Text(MARK),))), read_texts),
    Statement(
        "text.cache",
        BASE,
        with_messages(Message("user", (Text("hi", cache="default"),))),
        lambda r: read_caches(r, Text),
    ),
    Statement(
        "system message.cache",
        with_messages(Message("system", (Text("a"),)), USER),
        with_messages(Message("system", (Text("a", cache="default"),)), USER),
        lambda r: read_caches(r, Text),
    ),
    Statement(
        "image.cache",
        with_user(IMAGE),
        with_user(replace(IMAGE, cache="default")),
        lambda r: read_caches(r, Media),
    ),
    Statement("blank text", BASE, with_messages(USER, Message("user", (Text(" "),))), read_texts, unfitted=True),
    Statement("image, inline", BASE, with_user(IMAGE), read_media),
    Statement("image by URL", BASE, linked_media("image", "image/png", f"https://example.com/{MARK}.png"), read_media),
    Statement(
        "image.detail",
        with_user(IMAGE),
        with_user(replace(IMAGE, detail="high")),
        lambda r: [part.detail for part in read_parts(r, Media)],
    ),
    Statement("PDF, inline", BASE, with_user(replace(PDF, name="a.pdf")), read_media),
    Statement(
        "PDF by URL",
        BASE,
        linked_media("file", "application/pdf", f"https://example.com/{MARK}.pdf"),
        read_media,
    ),
    Statement("image by file id", BASE, stored_media("image", media_type="image/png"), read_media),
    Statement("PDF by file id", BASE, stored_media("file", media_type="application/pdf"), read_media),
    Statement(
        "file.name",
        BASE,
        with_user(Media("file", "application/pdf", "b3Nsbw==", name=f"{MARK}.pdf")),
        lambda r: [part.name for part in read_parts(r, Media)],
    ),
    Statement("text file, inline", BASE, with_user(Media("file", "text/plain", "b3Nsbw==")), read_media),
    Statement("audio", BASE, with_user(Media("audio", "audio/wav", MARK)), read_media),
    Statement("video", BASE, with_user(Media("video", "video/mp4", MARK)), read_media),
    Statement("answer of the assistant", with_messages(USER, USER), with_answer(Text(MARK)), read_texts),
    Statement("image of the assistant", STARTED, with_answer(Text("ok"), IMAGE), read_media),
    Statement("refusal", STARTED, with_answer(Refusal(MARK)), lambda r: [part.text for part in read_parts(r, Refusal)]),
    Statement(
        "reasoning",
        STARTED,
        {wire: with_answer(reasoning(wire), Text("ok")) for wire in names()},
        lambda r: [part.joined_text for part in read_parts(r, Reasoning)],
    ),
    Statement(
        "reasoning.signature",
        STARTED,
        {wire: with_answer(sign(Reasoning(), wire), Text("ok")) for wire in SIGNATURES},
        read_signatures,
    ),
    Statement(
        "assistant message at the start",
        BASE,
        with_messages(Message("assistant", (Text(MARK),)), USER),
        read_texts,
        unfitted=True,
    ),
    Statement(
        "assistant message at the end", BASE, with_messages(USER, Message("assistant", (Text(MARK),))), read_texts
    ),
]

CALLS = [
    Statement("call", BASE, PLAIN_TURN, read_calls),
    Statement(
        "several calls at once",
        PLAIN_TURN,
        with_messages(
            USER,
            Message("assistant", (CALL, SECOND_CALL)),
            Message("user", (CALL.result("ok"), SECOND_CALL.result("ok"))),
        ),
        read_calls,
    ),
    Statement("call.name of 76 characters", PLAIN_TURN, with_turn(LONG_CALL, LONG_CALL.result("ok")), read_calls),
    Statement(
        "call.signature", PLAIN_TURN, {"gemini": with_turn(sign(CALL, "gemini"), CALL.result("ok"))}, read_signatures
    ),
    Statement(
        "call.cache",
        PLAIN_TURN,
        with_turn(replace(CALL, cache="default"), CALL.result("ok")),
        lambda r: read_caches(r, ToolCall),
    ),
    Statement("freeform call", BASE, with_turn(FREE, FREE.result("ok")), read_calls),
    Statement("text before a call", PLAIN_TURN, with_turn(CALL, CALL.result("ok"), Text(f"{MARK}2")), read_order),
    Statement(
        "text after a call",
        PLAIN_TURN,
        with_messages(USER, Message("assistant", (CALL, Text(f"{MARK}2"))), Message("user", (CALL.result("ok"),))),
        read_order,
    ),
    Statement("result", with_turn(CALL, CALL.result("")), with_turn(CALL, CALL.result(f"{MARK}2")), read_results),
    Statement(
        "result, structured",
        with_turn(CALL, CALL.result("")),
        with_turn(CALL, CALL.result({"celsius": f"{MARK}2"})),
        read_results,
    ),
    Statement("result that failed", PLAIN_TURN, with_turn(CALL, CALL.result(f"{MARK}2", is_error=True)), read_results),
    Statement(
        "result with an image",
        PLAIN_TURN,
        with_turn(CALL, replace(CALL.result("ok"), parts=(Text("ok"), replace(IMAGE, data=f"{MARK}2")))),
        read_result_media,
    ),
    Statement(
        "result with a PDF",
        PLAIN_TURN,
        with_turn(CALL, replace(CALL.result("ok"), parts=(Text("ok"), replace(PDF, data=f"{MARK}2222")))),
        read_result_media,
    ),
    Statement(
        "result.cache",
        PLAIN_TURN,
        with_turn(CALL, replace(CALL.result("ok"), cache="default")),
        lambda r: read_caches(r, ToolResult),
    ),
    Statement(
        "call without a result",
        PLAIN_TURN,
        with_messages(USER, Message("assistant", (CALL,)), USER),
        lambda r: len(read_parts(r, ToolResult)),
        unfitted=True,
    ),
    Statement(
        "result that loads a deferred tool",
        SEARCHED,
        replace(
            SEARCHED, messages=(*SEARCHED.messages[:2], Message("user", (replace(LOOKUP.result(), found=(MARK,)),)))
        ),
        lambda r: [part.found for part in read_parts(r, ToolResult)],
    ),
    Statement(
        "call of a built-in tool",
        STARTED,
        {
            "anthropic": with_answer(
                Opaque(
                    "anthropic",
                    "server_tool_use",
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": MARK}},
                ),
                Text("ok"),
            ),
            "gemini": with_answer(
                Opaque("gemini", "executableCode", {"executableCode": {"language": "PYTHON", "code": MARK}}), Text("ok")
            ),
            "gemini_interactions": with_answer(
                Opaque(
                    "gemini_interactions",
                    "google_search_call",
                    {"type": "google_search_call", "id": "g1", "arguments": {"queries": [MARK]}},
                ),
                Text("ok"),
            ),
            "openai_responses": with_answer(
                Opaque(
                    "openai_responses",
                    "web_search_call",
                    {
                        "type": "web_search_call",
                        "id": "ws_1",
                        "status": "completed",
                        "action": {"type": "search", "query": MARK},
                    },
                ),
                Text("ok"),
            ),
        },
        read_extra,
    ),
]
