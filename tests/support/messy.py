"""Strategies for request bodies with messy histories: every part is well-formed, the whole rarely is.

Calls without results, results without calls, repeated and missing ids, empty texts, turns of one role in a row, system
messages anywhere, histories that begin or end with the model.
"""

from hypothesis import strategies as st

texts = st.sampled_from(["hi", "Paris?", " ", "", "done \n"])
ids = st.sampled_from(["call_1", "call_2", "toolu_01", "id with space", "x" * 50])
names = st.sampled_from(["f", "get_weather", "a.b"])
arguments = st.sampled_from([{}, {"city": "Paris"}, {"n": 1}])
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer", "minimum": 0}}}


def _listed(key, element):
    return st.lists(element, min_size=1, max_size=3).map(lambda found: {key: found})


def _joined(*parts):
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


_chat_tools = st.lists(names, unique=True, max_size=3).map(
    lambda found: (
        {"tools": [{"type": "function", "function": {"name": one, "parameters": SCHEMA}} for one in found]}
        if found
        else {}
    )
)
_chat_call = st.builds(
    lambda call_id, name, raw: {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}},
    ids,
    names,
    st.sampled_from(["{}", '{"city": "Paris"}', "", "{", "[1]"]),
)
_chat_message = st.one_of(
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant", "system", "developer"]),
        texts,
    ),
    st.builds(
        lambda text, calls: {"role": "assistant", "content": text, **calls},
        st.none() | texts,
        _listed("tool_calls", _chat_call),
    ),
    st.builds(lambda call_id, text: {"role": "tool", "tool_call_id": call_id, "content": text}, ids, texts),
)
_settings = st.sampled_from(
    [
        {},
        {"temperature": 0.5},
        {"max_tokens": 1},
        {"tool_choice": "required"},
        {"tool_choice": "none"},
        {"parallel_tool_calls": False},
        {"reasoning_effort": "high"},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"stop": ["a", "b", "c", "d"], "top_p": 0.5},
        {"stream": True, "stream_options": {"include_usage": True}},
    ]
)
chat_bodies = _joined(
    st.just({"model": "m"}),
    st.lists(_chat_message, min_size=1, max_size=7).map(lambda found: {"messages": found}),
    _chat_tools,
    _settings,
)

_tool_use = st.builds(
    lambda call_id, name, given: {"type": "tool_use", "id": call_id, "name": name, "input": given},
    ids,
    names,
    arguments,
)
_tool_result = st.builds(
    lambda call_id, text, failed: {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": failed},
    ids,
    texts,
    st.booleans(),
)
_text = texts.map(lambda text: {"type": "text", "text": text})
_thinking = st.just({"type": "thinking", "thinking": "hm", "signature": "EqQBCg"})
_anthropic_message = st.one_of(
    st.lists(st.one_of(_text, _tool_result), max_size=3).map(lambda found: {"role": "user", "content": found}),
    st.lists(st.one_of(_text, _tool_use, _thinking), max_size=3).map(
        lambda found: {"role": "assistant", "content": found}
    ),
    texts.map(lambda text: {"role": "user", "content": text}),
)
anthropic_bodies = _joined(
    st.just({"model": "m", "max_tokens": 4096}),
    st.lists(_anthropic_message, min_size=1, max_size=7).map(lambda found: {"messages": found}),
    st.sampled_from(
        [
            {},
            {"system": "be brief"},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            {"stop_sequences": ["a"]},
        ]
    ),
    st.sampled_from([{}, {"tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}]),
)

_part = st.one_of(
    texts.map(lambda text: {"text": text}),
    st.builds(lambda name, given: {"functionCall": {"name": name, "args": given}}, names, arguments),
)
_reply = st.one_of(
    texts.map(lambda text: {"text": text}),
    st.builds(lambda name, text: {"functionResponse": {"name": name, "response": {"output": text}}}, names, texts),
)
_content = st.one_of(
    st.lists(_part, min_size=1, max_size=3).map(lambda found: {"role": "model", "parts": found}),
    st.lists(_reply, min_size=1, max_size=3).map(lambda found: {"role": "user", "parts": found}),
)
gemini_bodies = _joined(
    st.lists(_content, min_size=1, max_size=7).map(lambda found: {"contents": found}),
    st.sampled_from([{}, {"tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}}]}]}]),
    st.sampled_from(
        [
            {},
            {"generationConfig": {"responseMimeType": "application/json"}},
            {"generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}}},
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
            {"generationConfig": {"temperature": 0.2, "maxOutputTokens": 5}},
        ]
    ),
)  # fmt: skip
BODIES = {"openai_chat": chat_bodies, "anthropic": anthropic_bodies, "gemini": gemini_bodies}
"""A strategy for the bodies of each wire."""
