"""Grammars of text formats in llguidance: accepted texts parse into valid calls, and rendered calls are accepted."""

import json
import random
import re
from collections.abc import Iterator, Sequence

import pytest

from grammar_cases import CALLS, NOW, TOOLS
from tables import every_case
from toolwire import text
from toolwire.ir.tools import ToolChoice
from toolwire.schema import validator
from toolwire.text import CallGrammar, Format

llguidance = pytest.importorskip("llguidance")
np = pytest.importorskip("numpy")
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask  # noqa: E402  # after importorskip

END = 256
_HUGE_NUMBER = re.compile(rb"[0-9][eE][+-]?[0-9]{3}").search  # JSON has no largest number, Python has
REQUIRED = ToolChoice("required")


class _ByteTokenizer:
    """One token for each byte, an end token, and special tokens."""

    def __init__(self, special: Sequence[str] = ()) -> None:
        self.eos_token_id = END
        self.bos_token_id = None
        self.tokens = [bytes([byte]) for byte in range(256)] + [b"<end>", *(one.encode() for one in special)]
        self.special_token_ids = list(range(256, len(self.tokens)))

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def byte_tokenizer(special: Sequence[str] = ()) -> "llguidance.LLTokenizer":
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_ByteTokenizer(special)))


TOKENIZER = byte_tokenizer()


def matcher(lark: str, tokenizer: "llguidance.LLTokenizer" = TOKENIZER) -> "llguidance.LLMatcher":
    found = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(lark))
    assert not found.is_error(), found.get_error()
    return found


def accepts(lark: str, written: str) -> bool:
    state = matcher(lark)
    tokens = list(written.encode())
    return state.try_consume_tokens(tokens) == len(tokens) and state.is_accepting()


@pytest.mark.one_in(3)
@every_case("name", text.names())
def test_rendered_calls_are_accepted(name: str) -> None:
    form = text.get(name)
    grammar = form.grammar(TOOLS, REQUIRED)
    written = [form.render_call(call, TOOLS) for call in CALLS]
    for call, rendered in zip(CALLS, written, strict=True):
        assert rendered.losses or accepts(grammar.lark, rendered.text), (call, rendered.text)
    assert not written[0].losses
    if not form.one_call:
        assert accepts(grammar.lark, form.render_calls(CALLS[:3], TOOLS).text)
        assert not accepts(form.grammar(TOOLS, REQUIRED, False).lark, form.render_calls(CALLS[:2], TOOLS).text)


@pytest.mark.one_in(5)
@every_case("name", text.names())
def test_text_is_free_before_a_call_that_may_be_made(name: str) -> None:
    form = text.get(name)
    lark = form.grammar(TOOLS).lark
    rendered = form.render_call(CALLS[0], TOOLS).text
    assert accepts(lark, "")
    assert accepts(lark, "I can help: 3 < 4 {x}.\n")
    assert accepts(lark, rendered)
    if not form.calls.template().only_at_start:
        assert accepts(lark, f"Let me look.\n{rendered}")
    assert not accepts(form.grammar(TOOLS, REQUIRED).lark, "I can help.")
    assert not accepts(form.grammar(TOOLS, ToolChoice("none")).lark, f"Let me look.\n{rendered}")
    assert accepts(form.grammar(TOOLS, ToolChoice("none")).lark, "No call.")


@pytest.mark.one_in(5)
@every_case("name", text.names())
def test_reasoning_is_free_before_calls(name: str) -> None:
    form = text.get(name)
    pairs = (*form.reasoning, *form.calls.template().reasoning)
    rendered = form.render_call(CALLS[2], TOOLS).text
    for opener, closer in pairs[:1]:
        thought = f"{opener}Maybe <b>now</b>? {{1: 2}} It's fine.{closer}"
        assert accepts(form.grammar(TOOLS, REQUIRED).lark, thought + rendered)
        assert accepts(form.grammar(TOOLS).lark, thought + rendered)
        assert not accepts(form.grammar(TOOLS, REQUIRED, may_reason=False).lark, thought + rendered)


def test_a_trigger_inside_reasoning_starts_no_mask() -> None:
    lark = text.get("hermes").grammar(TOOLS).lark
    assert accepts(lark, "<think>should I write <tool_call> here?</think>No.")
    assert not accepts(lark, "should I write <tool_call> here?")


def test_the_name_of_another_tool_is_impossible_after_the_trigger() -> None:
    for name in ("hermes", "qwen3_xml", "glm45", "mistral_v11", "kimi_k2"):
        form = text.get(name)
        rendered = form.render_call(CALLS[2], [NOW]).text
        assert accepts(form.grammar([NOW]).lark, rendered)
        assert not accepts(form.grammar([NOW]).lark, rendered.replace("now", "later"))


def test_reasoning_that_the_prompt_opened_ends_with_its_closer() -> None:
    grammar = text.get("hermes").grammar(TOOLS, REQUIRED, reasoning=True)
    rendered = text.get("hermes").render_call(CALLS[2], TOOLS).text
    assert accepts(grammar.lark, f"I need the time.</think>\n\n{rendered}")
    assert not accepts(grammar.lark, rendered)


def _snippets(form: Format, grammar: CallGrammar) -> tuple[list[str], list[str]]:
    """Return texts that a value should not contain or that begin a call, and texts that close something."""
    template = form.calls.template()
    notation = template.arguments
    tags = [getattr(notation, field, "") for field in ("opening", "closing", "mark")]
    tags += getattr(notation, "forbidden", ())
    quotes = list(getattr(getattr(notation, "language", None), "quotes", ()))
    filled = [tag.replace("{key}", "city").replace("{name}", "store") for tag in filter(None, (*tags, *quotes))]
    marks = [*grammar.markers, *filled]
    values = ["null", "true", "42", "-1.5", "[1", '{"a": ', "\n", "\r", "None", "```", "\\", "é", "<think>", "</think>"]
    begins = [*marks, *(mark[:-1] for mark in marks if len(mark) > 2), *values, *grammar.triggers, *grammar.triggers]
    keys = ("city", "note", "value", "tags", "unit", "where", "name", "item", "tree", "meta")
    ends = [template.after, *(part for part in template.call[-1:] if isinstance(part, str))]
    ends += [getattr(notation, "closing", "").replace("{key}", key) for key in keys]
    ends += [f"{notation.mark}</{key}>" for key in keys if hasattr(notation, "mark")]
    ends += [*quotes[:1], *(closer for _, closer in form.reasoning)]
    return begins, [*filter(None, dict.fromkeys(ends)), '"', "'", "}", "]", ")", "1"]


def _walk(lark: str, rng: random.Random, begins: list[str], ends: list[str]) -> bytes | None:
    """Return a random text of the grammar, or None if it did not come to an end."""
    state, written = matcher(lark), bytearray()
    mask = allocate_token_bitmask(1, END + 1)

    def push(snippet: str) -> bool:
        tokens = list(snippet.encode())
        if state.validate_tokens(tokens) < len(tokens):
            return False
        written.extend(tokens)
        return bool(state.consume_tokens(tokens))

    while len(written) < 800 and not state.is_stopped():
        is_closing = len(written) > 120
        if rng.random() < 0.4 and any(push(one) for one in rng.sample(ends if is_closing else begins, 3)):
            continue
        fill_next_token_bitmask(state, mask, 0)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[: END + 1]).tolist()
        assert allowed, f"no token is allowed after {bytes(written)!r}"
        if END in allowed and (len(allowed) == 1 or is_closing or rng.random() < 0.03):
            break
        plain = [token for token in allowed if 31 < token < 127 or token == 10]
        written.append(rng.choice(plain or [token for token in allowed if token != END]))
        assert state.consume_token(written[-1])
    return bytes(written) if state.is_accepting() else None


_CHOICES = {
    "auto": (ToolChoice("auto"), None),
    "required": (REQUIRED, None),
    "tool": (ToolChoice("tool", ("store",)), None),
    "single": (REQUIRED, False),
}


def _random_texts(name: str, mode: str, count: int) -> Iterator[str]:
    form = text.get(name)
    choice, parallel = _CHOICES[mode]
    grammar = form.grammar(TOOLS, choice, parallel)
    begins, ends = _snippets(form, grammar)
    for number in range(count):
        found = _walk(grammar.lark, random.Random(f"{name} {mode} {number}"), begins, ends)
        if found is not None and not _HUGE_NUMBER(found):
            yield found.decode(errors="replace")


def _repeats_a_key(raw: str) -> bool:
    repeated: list[bool] = []

    def check(pairs: list[tuple[str, object]]) -> None:
        repeated.append(len(dict(pairs)) < len(pairs))

    json.loads(raw, object_pairs_hook=check)
    return any(repeated)


@pytest.mark.one_in(11)
@every_case("mode", _CHOICES)
@every_case("name", text.names())
def test_every_accepted_text_parses_into_valid_calls(name: str, mode: str) -> None:
    validators = {tool.name: validator(tool.input_schema or {}) for tool in TOOLS}
    choice, parallel = _CHOICES[mode]
    left = {one.keyword for one in text.get(name).grammar(TOOLS, choice, parallel).residual}
    for written in _random_texts(name, mode, 4):
        calls = text.get(name).parse(written, TOOLS).calls
        for call in calls:
            if call.state == "invalid" and _repeats_a_key(call.text):
                continue  # the engine does not compare the keys of a map
            assert call.state == "complete" and call.arguments is not None, (call, written)
            problems = validators[call.name].problems(call.arguments)
            assert {problem.keyword for problem in problems} <= left, (problems, written)
        assert mode == "auto" or calls, written
        assert mode != "single" or len(calls) == 1, written
        assert mode != "tool" or {call.name for call in calls} == {"store"}, written
