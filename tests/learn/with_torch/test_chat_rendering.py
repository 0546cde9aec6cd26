"""The loss covers exactly the tokens that the model writes: its text, its calls and the end of its turn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import byte_tokenizer
from transformers import AutoTokenizer

from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Reasoning, Text, ToolCall
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import find_model
from toolwire.learn.chat_rendering import (
    IGNORED,
    encode_segments,
    render_prompt,
    render_segments,
    text_segments,
)
from toolwire.learn.examples import make_example
from toolwire.text import get

TOOL = Tool("add", "Add numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
CALL = ToolCall("c1", "add", {"a": 1})
WRITTEN = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def said(role, *parts):
    return Message(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def conversation(**settings):
    return make_example(
        [
            said("system", "Be brief."),
            said("user", "Add 1."),
            said("assistant", "Sure.", CALL),
            said("user", CALL.result({"sum": 1})),
            said("assistant", "It is 1."),
            said("user", "Thanks!"),
        ],
        [TOOL],
        **settings,
    )


def trained_texts(example, form="hermes", tokenizer=None):
    """Decode each run of tokens with a label."""
    tokenizer = tokenizer or byte_tokenizer()
    row = encode_segments(render_segments(example, tokenizer, get(form)), tokenizer)
    runs, inside = [], False
    for token, label in zip(row.tokens, row.labels, strict=True):
        assert label in (token, IGNORED)
        if label != IGNORED:
            runs = runs if inside else [*runs, []]
            runs[-1].append(token)
        inside = label != IGNORED
    return [tokenizer.decode(run) for run in runs]


def test_answers_and_their_ends_are_trained_and_nothing_else():
    assert trained_texts(conversation()) == [f"Sure.\n{WRITTEN}<|im_end|>", "It is 1.<|im_end|>"]


def test_whole_text_is_the_prompt_of_the_gateway_and_the_answers():
    tokenizer, form, example = byte_tokenizer(), get("hermes"), conversation()
    whole = "".join(segment.text for segment in render_segments(example, tokenizer, form))
    last = render_prompt(example.messages[:4], example.tools, tokenizer, form)
    assert whole == last + "It is 1.<|im_end|>"
    assert '<|im_start|>user\n<tool_response>\n{"sum":1}\n</tool_response><|im_end|>\n<|im_start|>assistant\n' in last
    assert last.startswith("<|im_start|>system\nBe brief.\n\n# Tools")


@pytest.mark.parametrize(
    ("weights", "expected"),
    [((0, 1), ["It is 1.<|im_end|>"]), ((1, 0), [f"Sure.\n{WRITTEN}<|im_end|>"]), ((0, 0), [])],
)
def test_answer_with_weight_0_is_not_trained(weights, expected):
    assert trained_texts(conversation(weights=weights)) == expected


@pytest.mark.parametrize("form", ["hermes", "llama3_json", "qwen3_xml", "pythonic"])
@pytest.mark.parametrize("model", ["bytes", "smollm2"])
def test_tokens_of_the_segments_are_those_of_the_whole_text(model, form):
    tokenizer = byte_tokenizer() if model == "bytes" else AutoTokenizer.from_pretrained(find_model(model))
    form = get(form)
    segments = render_segments(conversation(), tokenizer, form)
    whole = tokenizer("".join(segment.text for segment in segments), return_offsets_mapping=True)
    row = encode_segments(segments, tokenizer)
    assert list(row.tokens) == whole["input_ids"]
    edges, position = [], 0
    for segment in segments:
        edges.append((position, position + len(segment.text), segment.trained))
        position += len(segment.text)
    for (start, stop), label in zip(whole["offset_mapping"], row.labels, strict=True):
        trained = any(begin <= start and stop <= end for begin, end, is_trained in edges if is_trained)
        assert (label != IGNORED) is trained


@pytest.mark.parametrize("form", ["hermes", "llama3_json", "mistral_v11", "qwen3_xml", "pythonic", "react", "glm45"])
def test_every_call_is_read_back_from_the_trained_tokens(form):
    first = trained_texts(conversation(), form)[0].removesuffix("<|im_end|>")
    [call] = get(form).parse(first, [TOOL]).calls
    assert (call.name, call.arguments, call.state) == ("add", {"a": 1}, "complete")


def test_one_call_at_a_time_is_in_the_prompt_and_enforced():
    tokenizer, form = byte_tokenizer(), get("hermes")
    assert "at most one call in a turn" in render_segments(conversation(parallel=False), tokenizer, form)[0].text
    assert "at most one call" not in render_segments(conversation(parallel=True), tokenizer, form)[0].text
    two = make_example(
        [said("user", "Add."), said("assistant", CALL, ToolCall("c2", "add", {"a": 2}))],
        [TOOL],
        parallel=False,
        source="data.jsonl:3",
    )
    with pytest.raises(ConfigError, match=r"data\.jsonl:3: 2 calls in one answer"):
        render_segments(two, tokenizer, form)


def test_reasoning_is_in_neither_prompt_nor_answer():
    example = make_example(
        [
            said("user", "Hi"),
            said("assistant", Reasoning("secret"), "Yes."),
            said("user", "Again"),
            said("assistant", "No."),
        ]
    )
    assert trained_texts(example) == ["Yes.<|im_end|>", "No.<|im_end|>"]
    assert "secret" not in "".join(one.text for one in render_segments(example, byte_tokenizer(), get("hermes")))


def test_template_that_rewrites_history_is_refused():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{{ message['content'] }}", "{{ message['content'] | replace('Sure', 'sure') }}"
    )
    with pytest.raises(ConfigError, match="earlier turns in another form"):
        render_segments(conversation(), tokenizer, get("hermes"))
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    with pytest.raises(ConfigError, match="no text that ends an answer"):
        render_segments(conversation(), tokenizer, get("hermes"))


@given(st.lists(st.text("abcé[]→ 1", max_size=6), min_size=1, max_size=7))
@settings(max_examples=60, deadline=None)
def test_masked_spans_of_a_text_have_no_labels(pieces):
    tokenizer = byte_tokenizer()
    spans, position, expected = [], 0, []
    for number, piece in enumerate(pieces):
        if number % 2:
            spans.append((position, position + len(piece)))
        else:
            expected.append(piece)
        position += len(piece)
    text = "".join(pieces)
    row = encode_segments(text_segments(text, spans, "<|im_end|>"), tokenizer)
    assert tokenizer.decode(row.tokens) == text + "<|im_end|>"
    labelled = [label for label in row.labels if label != IGNORED]
    assert tokenizer.decode(labelled) == "".join(expected) + "<|im_end|>"


def test_adjoining_spans_without_a_loss_are_one_segment():
    segments = text_segments("0ab12cd", [(0, 1), (3, 4), (4, 5), (5, 5)], start="<s>")
    assert [(segment.text, segment.trained) for segment in segments] == [
        ("<s>", False),
        ("0", False),
        ("ab", True),
        ("12", False),
        ("cd", True),
    ]


def test_span_outside_the_text_is_refused():
    with pytest.raises(ConfigError, match="3:9 overlaps another one, or is outside"):
        text_segments("abcd", [(3, 9)])


def test_result_of_a_toolformer_text_is_masked():
    text = "400 of 1400 is [Calculator(400 / 1400)] → 0.29 or 29 %."
    start = text.index("0.29")
    row = encode_segments(text_segments(text, [(start, start + 4)]), byte_tokenizer())
    assert [number for number, label in enumerate(row.labels) if label == IGNORED] == list(
        range(len(text[:start].encode()), len(text[:start].encode()) + 4)
    )
