"""The rule for the context of an Ollama model, the reports that it uses, and the estimates of tokens."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Media, Reasoning, Text, ToolCall, ToolResult
from toolwire.ir.prompt_size import least_tokens
from toolwire.ir.request import Message, Request
from toolwire.ir.response import Fault
from toolwire.ir.tools import Tool
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.server_facts import ContextSize, ContextSizes, SizedBody
from toolwire.wire import get
from toolwire.wire.faults import CONTEXT_LENGTH, overflow_counts
from toolwire.wire.ollama.context import (
    ModelFacts,
    choose_context,
    estimate_prompt,
    output_limit,
    read_loaded_context,
    read_model_facts,
)
from toolwire.wire.ollama.fault import OUT_OF_MEMORY

pytestmark = pytest.mark.finding("CA4")

SHOW = {
    "parameters": 'num_ctx                        16384\nstop                           "num_ctx 7"',
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
    "system": "You are a pirate.",
}
COUNT = st.integers(1, 1 << 20)


@given(st.lists(COUNT, min_size=1, max_size=20), st.none() | COUNT, st.none() | COUNT)
def test_context_never_shrinks_and_is_a_power_of_two_or_the_limit(needs, length, context_max):
    size = ContextSize(context_max)
    size.facts = ModelFacts(length)
    limit = min([value for value in (length, context_max) if value is not None], default=None)
    earlier = 0
    for needed in needs:
        chosen = size.choose(needed)
        assert chosen >= earlier
        assert chosen & (chosen - 1) == 0 or chosen == limit
        assert limit is None or chosen <= limit
        assert chosen >= (needed if limit is None else min(needed, limit))
        earlier = chosen


@given(COUNT, COUNT, COUNT)
def test_context_is_never_below_the_loaded_one_and_the_modelfile(needed, loaded, modelfile):
    size = ContextSize(8192)
    size.facts, size.loaded = ModelFacts(1 << 20, modelfile), loaded
    assert size.choose(needed) >= max(loaded, modelfile)


def test_huge_numbers_are_bounded():
    assert choose_context(10**30) == 1 << 24
    assert [output_limit({"num_predict": value}) for value in (-1, 0, "x", True, None, 131_073, 10**30)] == [8192] * 7
    assert output_limit({"num_predict": 131_072}) == 131_072
    assert read_loaded_context({"models": [{"model": "m", "context_length": 1e300}]}, "m") == 1 << 24


def test_size_above_a_length_that_is_reported_later_is_forgotten():
    size = ContextSize(None)
    assert size.choose(100_000) == 131_072
    size.facts = ModelFacts(40_960)
    assert (size.window, size.choose(10)) == (40_960, 40_960)


def test_facts_of_a_model_are_read():
    facts = read_model_facts(SHOW)
    assert (facts.length, facts.modelfile, facts.is_remote, facts.own_prompt > 0) == (40960, 16384, False, True)
    assert read_model_facts({"remote_host": "https://ollama.com:443", "model_info": {}}).is_remote


@pytest.mark.parametrize(
    "document",
    [None, [], "x", {}, {"model_info": 3, "parameters": 4, "system": 5, "messages": 6}, {"model_info": {"a.context_length": "x"}}],
)  # fmt: skip
def test_unusable_reports_are_unknown(document):
    assert read_model_facts(document) == ModelFacts()
    assert read_loaded_context(document, "m") is None


@pytest.mark.parametrize(
    ("requested", "listed"),
    [("qwen3:8b", "qwen3:8b"), ("qwen3", "qwen3:latest"), ("library/Qwen3:latest", "qwen3"), ("hf.co/a/b:Q4", "hf.co/a/b:Q4")],
)  # fmt: skip
def test_loaded_model_is_found_by_any_of_its_names(requested, listed):
    report = {"models": [{"model": "other:1b", "context_length": 1}, {"model": listed, "context_length": 8192}]}
    assert read_loaded_context(report, requested) == 8192
    assert read_loaded_context(report, "third") is None


def test_estimate_is_above_four_bytes_per_token_and_ignores_image_data():
    text = b'{"messages":[{"role":"user","content":"%b"}]}' % (b"Read the file and explain it. " * 1000)
    assert len(text) / 4 < estimate_prompt(text) < len(text) / 2
    image = b'{"messages":[{"role":"user","images":["%b","AAAA"],"content":"%b"}]}' % (b"iVBOR" * 100_000, b"x" * 600)
    assert 3200 < estimate_prompt(image) < 5000
    quoted = json.dumps({"content": '"images":["' + "A" * 3000 + '"]'}, separators=(",", ":")).encode()
    assert estimate_prompt(quoted) > 3000


def make_body(size, **fields):
    return SizedBody(size, {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields})


def test_own_size_and_flags_of_a_request_are_kept():
    sized = make_body(ContextSize(None), options={"num_ctx": 5000, "seed": 1}, truncate=True)
    body = json.loads(sized.data)
    assert body["options"] == {"num_ctx": 5000, "seed": 1}
    assert (body["truncate"], body["shift"]) == (True, False)
    for code in (OUT_OF_MEMORY, CONTEXT_LENGTH):
        assert not sized.resize(Fault("server", "", 500, code))


def test_model_in_the_cloud_gets_no_size():
    size = ContextSize(None)
    size.facts = ModelFacts(262_144, is_remote=True)
    assert "options" not in json.loads(make_body(size).data)


def test_size_changes_once_in_each_direction():
    sized = make_body(ContextSize(None), options={"num_predict": 20_000})
    too_long = Fault("invalid_request", "the input length exceeds the context length", 400, CONTEXT_LENGTH)
    assert json.loads(sized.data)["options"]["num_ctx"] == 32_768
    assert sized.resize(too_long)
    assert json.loads(sized.data)["options"]["num_ctx"] == 65_536
    assert not sized.resize(too_long)
    no_memory = Fault("server", "", 500, OUT_OF_MEMORY)
    assert sized.resize(no_memory)
    assert json.loads(sized.data)["options"]["num_ctx"] == 32_768
    assert not sized.resize(no_memory)


def test_idle_model_is_forgotten_and_the_number_of_models_is_bounded():
    now = [0.0]
    sizes = ContextSizes(lambda: now[0])
    size = sizes.of(resolve("ollama/m", {}))
    now[0] = 299.0
    assert sizes.of(resolve("ollama/m", {})) is size
    now[0] = 700.0
    assert sizes.of(resolve("ollama/m", {})) is not size
    for number in range(1000):
        sizes.of(resolve(f"ollama/m{number}", {}))
    assert len(sizes._sizes) <= 256


def test_limit_of_the_context_must_be_positive():
    with pytest.raises(ConfigError, match="context_max must be positive, got 0"):
        resolve("ollama/m", {}, context_max=0)


def test_least_tokens_are_the_words_of_texts_calls_results_and_tools():
    parts = (
        Text("don't stop_here,  please:" + " " * 1000 + "=" * 1000),
        ToolCall("c1", "look", {"a": "one two"}),
        ToolResult("c1", "look", (Text("three"),)),
        Reasoning("not counted"),
        Media("image", "image/png", "A" * 10_000),
    )
    request = Request("", (Message("user", parts),), (Tool("look", "Look at it.", {"type": "object"}),))
    # don't stop_here please | a one two | three | look | Look at it
    assert least_tokens(request) == 3 + 3 + 1 + 1 + 3
    assert least_tokens(Request("", (Message("user", (Text("模型的上下文长度" * 100),)),))) == 1


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 9000 tokens > 8192 maximum",
        "The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please …",
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "input length (9000 tokens) exceeds the model's maximum context length (8192 tokens)",
    ],
)
def test_counts_of_a_long_prompt_reach_every_client(message):
    assert overflow_counts(message) == (9000, 8192)
    fault = Fault("invalid_request", message, 400, CONTEXT_LENGTH)
    written = {
        name: get(name).encode_error(fault).body["error"] for name in ("anthropic", "gemini", "openai_chat", "ollama")
    }
    assert written["anthropic"]["message"] == "prompt is too long: 9000 tokens > 8192 maximum"
    expected = "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."
    assert written["gemini"]["message"] == expected
    assert written["openai_chat"]["code"] == "context_length_exceeded"
    assert "maximum context length is 8192 tokens" in written["openai_chat"]["message"]
    assert overflow_counts(written["ollama"]) == (9000, 8192)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("the request exceeds the available context size, try increasing it", CONTEXT_LENGTH),
        ("the prompt is longer than the context length currently available to the model; shorten it", CONTEXT_LENGTH),
        ("the input length exceeds the context length", CONTEXT_LENGTH),
        ("model requires more system memory (9.1 GiB) than is available (5.2 GiB)", OUT_OF_MEMORY),
        ("llama runner process has terminated: cudaMalloc failed: out of memory", OUT_OF_MEMORY),
        ("unexpected EOF", None),
    ],
)
def test_errors_of_the_server_are_recognised_with_and_without_a_status(message, code):
    for status in (None, 500):
        fault = get("ollama").decode_error(status, {"error": message})
        assert fault.code == code
        assert (fault.kind == "invalid_request") is (code == CONTEXT_LENGTH)
    assert (fault.retryable is False) is (code == OUT_OF_MEMORY)


def test_deferred_tools_are_not_in_the_prompt():
    tools = (
        Tool("look", "two words", {"type": "object"}),
        Tool("find", "two words", {"type": "object"}, deferred=True),
    )
    assert least_tokens(Request("m", (), tools)) == 3
