"""Reasoning in every text format: opened by the model or by the prompt, closed or not, empty, repeated, truncated."""

import pytest

from tables import every_case
from toolwire import Tool, ToolCall
from toolwire.ir import Reasoning
from toolwire.text import detect, get, names

TOOL = Tool("get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
CALL = ToolCall("call00000", "get_weather", {"city": "Paris"})
THOUGHT = "I should look.\n"

CHANNELS = {
    "harmony": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant",
        "<|channel|>final<|message|>Hello<|return|>",
    ),
    "muse_glimmer": (" to=self<|message|>", "<|eom|>", "<|start|>assistant to=user<|message|>Hello<|eom|>"),
}
"""Formats whose reasoning is a message: its header, its end, and a message to the user."""

BARE_CALLS = ("generic_json", "json_array", "llama3_json", "pythonic", "react", "xlam")
"""Formats whose calls begin with ordinary text, so that a call in unfinished reasoning cannot be told from reasoning."""


def markers(name):
    """Return the opener and closer of a format's reasoning, and the text of an answer after it."""
    return CHANNELS.get(name) or (*get(name).reasoning[0], "Hello")


def written_call(name):
    return get(name).render_calls([CALL], [TOOL]).text


def read(name, text, *, opened=False, finished=True):
    """Parse a text under every cut into two pieces and character by character; return reasoning, text and calls."""
    form = get(name)
    parsed = form.parse(text, [TOOL], reasoning=opened, finished=finished)
    cuts = [[text[:at], text[at:]] for at in range(1, len(text))]
    for pieces in (list(text), *cuts):
        assert form.parse_pieces(pieces, [TOOL], reasoning=opened, finished=finished) == parsed
    reasoning = "".join(part.text for part in parsed.parts if isinstance(part, Reasoning))
    assert all(call.state == "complete" for call in parsed.calls)
    return reasoning, parsed.text, [(call.name, call.arguments) for call in parsed.calls], parsed.diagnostics


ONE_CALL = [("get_weather", {"city": "Paris"})]
every_format = every_case("name", names())


@pytest.mark.one_in(3)
@every_format
@every_case("opened", [False, True], ids=["by the model", "by the prompt"])
@pytest.mark.finding("T14")
def test_closed_reasoning_before_text_and_before_a_call(name, opened):
    opener, closer, answer = markers(name)
    start = "" if opened else opener
    assert read(name, f"{start}{THOUGHT}{closer}{answer}", opened=opened) == (THOUGHT, "Hello", [], ())
    assert read(name, f"{start}{THOUGHT}{closer}{written_call(name)}", opened=opened) == (THOUGHT, "", ONE_CALL, ())


@pytest.mark.one_in(3)
@every_case("name", [name for name in names() if name not in BARE_CALLS])
@pytest.mark.finding("T4")
def test_a_call_ends_unclosed_reasoning_and_its_tags_are_not_reasoning(name):
    opener, call = markers(name)[0], written_call(name)
    assert read(name, f"{opener}{THOUGHT}{call}")[:3] == (THOUGHT, "", ONE_CALL)
    assert read(name, f"{THOUGHT}{call}", opened=True)[:3] == (THOUGHT, "", ONE_CALL)


@every_case("name", BARE_CALLS)
def test_an_object_in_unfinished_reasoning_is_no_call(name):
    reasoning, text, calls, _ = read(name, f"{THOUGHT}So: {written_call(name)}", opened=True)
    assert (reasoning, text, calls) == (f"{THOUGHT}So: {written_call(name)}", "", [])


@pytest.mark.one_in(3)
@every_format
def test_a_turn_that_is_only_a_call_is_a_call_although_the_prompt_opened_the_reasoning(name):
    assert read(name, written_call(name), opened=True)[:3] == ("", "", ONE_CALL)


@every_format
def test_an_opener_repeated_after_that_of_the_prompt_is_dropped(name):
    opener, closer, answer = markers(name)
    for text in (f"{opener}{THOUGHT}{closer}{answer}", f"\n{opener}{THOUGHT}{closer}{answer}"):
        assert read(name, text, opened=True) == (THOUGHT, "Hello", [], ())


@every_format
@pytest.mark.finding("T12")
def test_empty_reasoning_leaves_no_part(name):
    opener, closer, answer = markers(name)
    for text in (f"{opener}{closer}{answer}", f"{opener}\n\n{closer}{answer}"):
        assert [type(part).__name__ for part in get(name).parse(text).parts] == ["Text"]
        assert read(name, text) == ("", "Hello", [], ())
    assert read(name, f"\n\n{closer}{answer}", opened=True) == ("", "Hello", [], ())


@every_format
@every_case("finished", [False, True])
def test_reasoning_without_an_end_is_reasoning(name, finished):
    opener = markers(name)[0]
    assert read(name, f"{opener}{THOUGHT}", finished=finished) == (THOUGHT, "", [], ())
    assert read(name, THOUGHT, opened=True, finished=finished) == (THOUGHT, "", [], ())


@every_case(
    ("name", "token"),
    [
        ("hermes", "<|im_end|>"),
        ("kimi_k2", "<|tool_calls_section_end|>"),
        ("deepseek_v3", "<｜tool▁calls▁end｜>"),
        ("deepseek_v31", "<｜end▁of▁sentence｜>"),
        ("gemma4", "<turn|>"),
        ("step3", "<｜tool_calls_end｜>"),
    ],
)
def test_special_tokens_are_not_reasoning(name, token):
    opener, closer, answer = markers(name)
    assert read(name, f"{opener}{THOUGHT}{token}{closer}{answer}") == (THOUGHT, "Hello", [], ())


TAG_CLOSERS = [
    name for name in names() if name not in (*CHANNELS, "granite3") and markers(name)[1] not in get(name).noise
]
"""Formats whose closer is a tag with no other use; granite's is a phrase, and other ones end every message."""


@every_case("name", TAG_CLOSERS)
@pytest.mark.finding("T9")
def test_a_closer_without_an_opener_is_dropped_and_reported(name):
    closer = markers(name)[1]
    reasoning, text, calls, (note,) = read(name, f"{THOUGHT}{closer}Hello")
    assert (reasoning, text, calls, note.code) == ("", f"{THOUGHT}Hello", [], "unopened")
    assert note.position == len(THOUGHT)
    assert read(name, f"{THOUGHT}{closer}{written_call(name)}")[:3] == ("", THOUGHT, ONE_CALL)


@every_case("name", TAG_CLOSERS)
def test_a_closer_before_everything_else_is_dropped(name):
    closer = markers(name)[1]
    assert read(name, f"{closer}Hello") == ("", "Hello", [], ())
    assert read(name, f"\n{closer}{written_call(name)}") == ("", "", ONE_CALL, ())


def test_a_closer_in_the_answer_is_text_and_reported():
    reasoning, text, _, (note,) = read("hermes", "<think>a</think>Write </think> here.")
    assert (reasoning, text, note.code) == ("a", "Write </think> here.", "unopened")
    assert read("hermes", "I wrote `</think>` once.") == ("", "I wrote `</think>` once.", [], ())


def test_a_repeated_closer_is_dropped_and_reported():
    reasoning, text, _, (note,) = read("hermes", "<think>a</think>\n</think>Hello")
    assert (reasoning, text.strip(), note.code) == ("a", "Hello", "unopened")


def test_a_call_is_made_if_reasoning_is_opened_again_after_it():
    call = written_call("hermes")
    assert read("hermes", f"Hi.<think>a{call}<think>b{call}") == ("ab", "Hi.", ONE_CALL * 2, ())
    assert read("hermes", f"Hi.<think>a{call}<think>b</think>Hello") == ("ab", "Hi.Hello", ONE_CALL, ())


@every_case("name", ["hermes", "qwen3_xml", "lfm2"])
def test_a_call_in_unfinished_reasoning_is_complete_only_if_the_model_stopped_by_itself(name):
    opener, closer, _ = markers(name)
    text = f"{opener}Maybe {written_call(name)}"
    assert [call.state for call in get(name).parse(text, [TOOL]).calls] == ["complete"]
    cut = get(name).parse(text, [TOOL], finished=False)
    assert [call.state for call in cut.calls] == ["truncated"]
    assert cut == get(name).parse_pieces(list(text), [TOOL], finished=False)
    assert [note.code for note in cut.diagnostics] == ["truncated"]
    closed = get(name).parse(f"{text}, or not.{closer}Hello", [TOOL], finished=False)
    assert closed.calls == ()


def test_an_opener_inside_reasoning_is_reasoning():
    assert read("hermes", "<think>a <think> b</think>Hello") == ("a <think> b", "Hello", [], ())


@pytest.mark.finding("T5")
@every_case(
    ("name", "opener"),
    [
        ("kimi_k3", "<|open|>response<|sep|>"),
        ("cohere_action", "<|START_RESPONSE|>"),
        ("cohere_action", "<|START_TEXT|>"),
        ("inkling", "<|content_text|>"),
        ("inkling", "<|message_model|><|content_text|>"),
        ("kimi_k2", "<|tool_calls_section_begin|>"),
    ],
)
def test_the_opener_of_the_answer_ends_reasoning(name, opener):
    assert read(name, f"{opener}Hello", opened=True) == ("", "Hello", [], ())
    assert read(name, f"{THOUGHT}{opener}Hello", opened=True) == (THOUGHT, "Hello", [], ())


@pytest.mark.finding("T6")
def test_reasoning_in_prose():
    thought, answer = "\nI think.\n", "\nHello"
    assert read("apriel", f"{thought}[BEGIN FINAL RESPONSE]{answer}", opened=True) == (thought, answer, [], ())
    for here in ("Here is", "Here's"):
        text = f"{here} my thought process:{thought}Here is my response:{answer}"
        assert read("granite3", text) == (thought, answer, [], ())
        text = f"{thought}{here} my response:{answer}"
        assert read("granite3", text, opened=True) == (thought, answer, [], ())
    text = "As I said, Here is my thought process: short. Here is my response: none."
    assert read("granite3", text) == ("", text, [], ())


@pytest.mark.finding("T1")
@every_case(
    ("name", "opener", "closer"),
    [
        ("minimax_m3", "<mm:think>", "</mm:think>"),
        ("mistral_v11", "[THINK]", "[/THINK]"),
        ("mistral_v11", "<think>", "</think>"),
        ("hermes", "<thought>", "</thought>"),
        ("hermes", "◁think▷", "◁/think▷"),
        ("granite3", "<think>", "</think>"),
    ],
)
def test_other_markers_of_a_family(name, opener, closer):
    assert read(name, f"{opener}{THOUGHT}{closer}Hello") == (THOUGHT, "Hello", [], ())
    assert read(name, f"{THOUGHT}{closer}Hello", opened=True) == (THOUGHT, "Hello", [], ())


@every_case(
    ("model", "text"),
    [
        ("EXAONE-Deep-32B", "<thought>\nI should look.\n</thought>Hello"),
        ("Kimi-VL-A3B-Thinking-2506", "◁think▷I should look.\n◁/think▷Hello"),
        ("Kimi-Dev-72B", "◁think▷I should look.\n◁/think▷Hello"),
        ("Holo2-8B", "<think>I should look.\n</think>Hello"),
        ("granite-3.2-8b-instruct", "Here is my thought process: I should look.\nHere is my response:Hello"),
        ("Magistral-Small-2509", "[THINK]I should look.\n[/THINK]Hello"),
        ("Hunyuan-A13B-Instruct", "<think>\nI should look.\n</think>\n<answer>\nHello\n</answer>"),
        ("MiniMax-M3", "<mm:think>I should look.\n</mm:think>Hello"),
    ],
)
def test_the_format_of_a_model_name_reads_its_reasoning(model, text):
    reasoning, content, calls, notes = read(detect(model), text)
    assert (reasoning.strip(), content.strip(), calls, notes) == ("I should look.", "Hello", [], ())


def test_calls_are_made_inside_reasoning_where_the_format_says_so():
    call = written_call("apertus")
    text = f"<|inner_prefix|>One.{call}Two.<|inner_suffix|>Hello"
    assert read("apertus", text) == ("One.Two.", "Hello", ONE_CALL, ())


@pytest.mark.finding("T3")
@every_case(
    ("header", "name", "body"),
    [
        ("<|channel|>commentary to=browser.search <|constrain|>json<|message|>", "browser.search", '{"query":"x"}'),
        ("<|channel|>analysis to=browser.search code<|message|>", "browser.search", '{"query":"x"}'),
        ("<|channel|>commentary to=python <|constrain|>code<|message|>", "python", 'print("x")'),
        ("<|channel|>analysis to=python code<|message|>", "python", '"""Doc."""\nprint(1)'),
        (" to=container.exec<|channel|>commentary<|message|>", "container.exec", "ls -l"),
        ("<|start|>assistant to=container.exec<|channel|>commentary<|message|>", "container.exec", '{"cmd":["ls"]}'),
    ],
)
@every_case("end", ["<|call|>", ""])
@every_case("tools", [(), (TOOL,)])
def test_a_message_to_a_built_in_tool_is_a_call_with_a_diagnostic(header, name, body, end, tools):
    parsed = get("harmony").parse(header + body + end, tools)
    assert parsed == get("harmony").parse_pieces(list(header + body + end), tools)
    (call,) = parsed.parts
    assert isinstance(call, ToolCall)
    assert (call.name, call.text) == (name, body)
    assert call.state == ("complete" if body.startswith("{") else "invalid")
    assert [note.code for note in parsed.diagnostics].count("unknown_tool") == 1


@every_case("header", [" to=get_weather<|message|>", "<|start|>assistant to=get_weather<|message|>"])
@every_case("opened", [False, True])
def test_a_header_ends_reasoning_that_the_model_did_not_end(header, opened):
    body = written_call("muse_glimmer").partition("<|message|>")[2]
    text = f"{'' if opened else ' to=self<|message|>'}Set to=1. {header}{body}"
    reasoning, content, calls, _ = read("muse_glimmer", text, opened=opened)
    assert (reasoning.strip(), content, calls) == ("Set to=1.", "", ONE_CALL)


def test_a_message_of_another_role_is_dropped_and_reported():
    text = (
        '<|channel|>commentary to=functions.get_weather<|message|>{"city":"Paris"}<|call|>'
        "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>22 degrees<|end|>"
    )
    reasoning, content, calls, (note,) = read("harmony", text)
    assert (reasoning, content, calls, note.code) == ("", "", ONE_CALL, "after_stop")
