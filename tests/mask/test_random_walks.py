"""Every output with a token limit that `start` accepts is complete, whichever allowed tokens are chosen."""

import random

import pytest

from byte_tokenizer import allowed_tokens, make_tokenizer
from mask_judge import make_judge, read
from random_schemas import published_schemas, stored_documents
from toolwire import text
from toolwire.ir.errors import SchemaError
from toolwire.ir.tools import Tool, ToolChoice
from toolwire.mask import GrammarMask, JSONSchemaMask, RegexMask, TokenLimitError, ToolMask
from toolwire.schema import validator

PLACE = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b" * 30]}, "at": {"type": "string", "format": "date-time"}},
    "required": ["kind", "at"],
}
SCHEMAS = {
    **{
        name: {"type": "string", "format": name}
        for name in "date time duration email hostname ipv4 ipv6 uri uuid".split()
    },
    "any": {},
    "open map": {"type": "object"},
    "map of arrays": {
        "properties": {"abc": {"type": "string", "minLength": 20}, "abd": {"type": "integer"}},
        "additionalProperties": {"type": "array", "items": {"type": "string"}, "minItems": 5},
    },
    "map with patterns": {
        "type": "object",
        "patternProperties": {"^x-": {"type": "string", "format": "email"}},
        "additionalProperties": {"type": "string", "minLength": 30},
    },
    "pattern": {"type": "string", "pattern": "^[a-z]+://[a-z]+[.](com|org)/x$"},
    "alternatives with open ends": {"type": "array", "items": {"type": "string", "pattern": "^allow|deny$"}},
    "parts with equal masks": {
        "type": "object",
        "properties": {
            "at": {"type": "string", "pattern": r"\d{4}-\d{2}T\d{2}:\d{2}"},
            "id": {"type": "string", "pattern": "^id:[a-z0-9-]+:([a-z0-9-]+)?:[0-9]+$"},
        },
        "required": ["at"],
    },
    "tagged branches": {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "kind": {"enum": [kind]},
                    "a": {"type": "array", "items": {"const": kind}, "minItems": size},
                },
                "required": ["kind", "a"],
            }
            for kind, size in (("point", 0), ("line", 9), ("ring", 20))
        ]
    },
    "required keys after optional ones": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("ba", "bb", "bc", "ca", "cb")},
        "required": ["bb", "cb", "not declared"],
    },
    "pattern with counts": {"type": "string", "pattern": "^(a{3}-[0-9]{4};)*$"},
    "large optional values": {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "string", "minLength": 100},
            "places": {"type": "array", "items": PLACE, "minItems": 3},
        },
    },
    "branches": {"type": "array", "items": {"anyOf": [{"type": "null"}, PLACE, {"type": "string", "minLength": 40}]}},
    "multiples": {"type": "array", "items": {"type": "integer", "multipleOf": 12, "minimum": 1_000_000}},
    "recursive": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["name", "next"],
    },
}
BYTES = [set(found) for found in make_tokenizer().token_bytes]


def walk(mask, limit, seed):
    """Choose random tokens, half of them with brackets, quotes and commas if there are any; return the state."""
    rng = random.Random(f"{limit} {seed}")
    state = mask.start(limit)
    for _ in range(limit):
        if state.is_finished:
            break
        allowed = allowed_tokens(state)
        structural = [token for token in allowed if BYTES[token] & set(b'"{}[],:<>')]
        state.accept(rng.choice(structural if structural and rng.random() < 0.3 else allowed))
    return state


def smallest_limit(mask):
    """Return the limit with which `start` refuses a limit of one token."""
    try:
        mask.start(1)
    except TokenLimitError as error:
        if error.least is None:
            raise
        assert f"at least {error.least} tokens, got max_tokens=1" in str(error)
        return error.least
    return 1


def check_walks(schema, mask, seeds, longer=(0, 1, 7, 30, 120)):
    """Check that each output is closed within its limit, and is valid JSON of the schema without residual keywords."""
    judge = make_judge(schema, mask)
    least = smallest_limit(mask)
    if least > 1:
        with pytest.raises(TokenLimitError, match=f"at least {least} tokens, got max_tokens={least - 1}"):
            mask.start(least - 1)
    for more in longer:
        for seed in seeds:
            state = walk(mask, least + more, seed)
            value = read(state.finish())
            assert len(state.tokens) <= least + more
            assert judge.is_valid(value), value


@pytest.mark.parametrize("name", SCHEMAS)
def test_outputs_of_schemas_are_closed(name):
    check_walks(SCHEMAS[name], JSONSchemaMask(SCHEMAS[name], make_tokenizer()), range(2))


@pytest.mark.full
@pytest.mark.parametrize("name", SCHEMAS)
def test_many_outputs_of_schemas_are_closed(name):
    check_walks(
        SCHEMAS[name], JSONSchemaMask(SCHEMAS[name], make_tokenizer()), range(40), [*range(20), 40, 80, 160, 320]
    )


def check_all(schemas, seeds):
    for schema in schemas:
        try:
            mask = JSONSchemaMask(schema, make_tokenizer())
        except SchemaError:
            continue
        try:
            check_walks(schema, mask, seeds, (0, 20, 100))
        except TokenLimitError as error:
            assert error.least is None and error.hint, schema


def test_outputs_of_published_schemas_are_closed():
    check_all(published_schemas(400), range(1))


@pytest.mark.full
def test_many_outputs_of_published_schemas_are_closed():
    check_all(published_schemas(12), range(3))


def test_outputs_of_random_schemas_are_closed():
    check_all(stored_documents(25), range(1))


@pytest.mark.full
def test_many_outputs_of_random_schemas_are_closed():
    check_all(stored_documents(1), range(2))


TOOLS = [
    Tool(
        "send", input_schema={"type": "object", "properties": {"a": {"type": "string"}, "at": PLACE}, "required": ["a"]}
    ),
    Tool("invite", input_schema={"type": "object", "properties": {"who": SCHEMAS["email"], "at": SCHEMAS["date"]}}),
    Tool("now", input_schema={"type": "object", "properties": {}, "additionalProperties": False}),
]


def check_calls(name, choice, seeds, longer):
    mask = ToolMask(TOOLS, make_tokenizer(), name, choice)
    validators = {tool.name: validator(tool.input_schema) for tool in TOOLS}
    left = {keyword.keyword for keyword in mask.residual}
    least = smallest_limit(mask)
    for more in longer:
        for seed in seeds:
            state = walk(mask, least + more, seed)
            calls = mask.format.parse(state.finish(), TOOLS).calls
            assert choice.mode == "auto" or calls, state.text
            assert {call.state for call in calls} <= {"complete"}, state.text
            for call in calls:
                problems = validators[call.name].problems(call.arguments)
                assert {problem.keyword for problem in problems} <= left, (problems, state.text)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", text.names())
def test_calls_in_every_format_are_closed(name):
    check_calls(name, ToolChoice("required"), range(1), (0, 40, 200))


@pytest.mark.full
@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("name", text.names())
def test_many_calls_in_every_format_are_closed(name, mode):
    check_calls(name, ToolChoice(mode), range(8), (0, 10, 40, 100, 300))


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: JSONSchemaMask({"type": "integer", "multipleOf": 7919}, make_tokenizer()), "multipleOf 7919"),
        (lambda: JSONSchemaMask({"pattern": "^(a{90}b){90}$", "type": "string"}, make_tokenizer()), "about 8,"),
        (lambda: RegexMask("(a{90}b){90}", make_tokenizer()), "about 8,"),
        (lambda: GrammarMask('start: "a" | "b" "c"*', make_tokenizer()), "growth of this grammar is not known"),
    ],
)
def test_limit_is_refused_where_the_end_is_not_bounded(make, cause):
    mask = make()
    for limit in (1, 100_000):
        with pytest.raises(TokenLimitError, match=cause) as caught:
            mask.start(limit)
        assert caught.value.least is None
        assert "max_tokens" in caught.value.hint
    assert not mask.start().is_finished


def test_grammar_with_declared_growth_is_closed():
    mask = GrammarMask('start: ("a" | "b" /c{30}/)* "."', make_tokenizer(), growth=31)
    assert smallest_limit(mask) == 1
    for limit in range(1, 120):
        assert walk(mask, limit, limit).finish().endswith(".")


def test_limited_pattern_is_closed():
    mask = RegexMask("(a|b{20}c|[0-9]{3,9})*[.]", make_tokenizer())
    for limit in range(1, 90):
        assert walk(mask, limit, limit).finish().endswith(".")
