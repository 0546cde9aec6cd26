"""The tools of Toolformer, each with its few-shot prompt, the pattern of its input, and its thresholds.

Arithmetic and units are computed here: four operations on bounded numbers without `eval`, and conversions between units
of the same quantity.
"""

from __future__ import annotations

import ast
import datetime as dt
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...ir.errors import ConfigError
from ...ir.value import Value
from ...run.calls.context import CallContext, ToolError
from ...run.tools.function_tool import FunctionTool, tool
from .dictionaries import PassageIndex

_MAX_LENGTH = 200  # characters of an expression, which a model sampled; a real calculation is shorter
_MAX_VALUE = 10**15  # floats below 2**53 (9e15) are exact integers; also stops towers of powers
_ALLOWED = re.compile(r"[0-9+\-*/(). ]+").fullmatch
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_LEADING_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(expression: str) -> float:
    """Return the value of an expression of numbers, + - * / and parentheses. Raise ToolError for anything else.

    >>> evaluate("(1,200 - 200) / 8")
    125.0
    """
    if len(expression) > _MAX_LENGTH:
        raise ToolError(f"the expression is longer than {_MAX_LENGTH} characters")
    text = _LEADING_ZEROS.sub("", _THOUSANDS.sub("", expression)).strip()
    if not _ALLOWED(text):
        raise ToolError("the expression may contain numbers, + - * / and parentheses only")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, MemoryError, RecursionError):
        raise ToolError("the expression is not valid") from None
    return _value(tree.body)


def format_number(value: float) -> str:
    """Return a number with at most two decimals, as the calculator of the paper does.

    >>> format_number(400 / 1400)
    '0.29'
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _value(node: ast.expr) -> float:
    """Evaluate an arithmetic expression.

    Raises `ToolError` for other syntax, division by zero and numbers out of range.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)  # type: ignore[arg-type]  # checked above
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    operation = _OPERATORS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if operation is None or not isinstance(node, ast.BinOp):
        raise ToolError("the expression may contain + - * / only")
    try:
        return _bounded(operation(_value(node.left), _value(node.right)))
    except ZeroDivisionError:
        raise ToolError("division by zero") from None


def _bounded(value: float) -> float:
    if not abs(value) <= _MAX_VALUE:
        raise ToolError(f"a number of the expression exceeds {_MAX_VALUE}")
    return value


_QUANTITIES: dict[str, dict[str, float]] = {
    "length": {
        "millimeter": 0.001,
        "centimeter": 0.01,
        "meter": 1.0,
        "kilometer": 1000.0,
        "inch": 0.0254,
        "foot": 0.3048,
        "yard": 0.9144,
        "mile": 1609.344,
    },
    "mass": {
        "milligram": 1e-6,
        "gram": 0.001,
        "kilogram": 1.0,
        "ton": 1000.0,
        "ounce": 0.028349523125,
        "pound": 0.45359237,
    },
    "time": {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0, "week": 604_800.0},
    "volume": {"milliliter": 0.001, "liter": 1.0, "pint": 0.473176473, "gallon": 3.785411784, "cup": 0.2365882365},
    "area": {"square meter": 1.0, "hectare": 10_000.0, "acre": 4046.8564224, "square kilometer": 1e6},
    "speed": {"meter per second": 1.0, "kilometer per hour": 1 / 3.6, "mile per hour": 0.44704},
}
_TEMPERATURES = ("celsius", "fahrenheit", "kelvin")
_PLURALS = {"feet": "foot", "inches": "inch"}
_ABBREVIATIONS = {
    "mm": "millimeter", "cm": "centimeter", "m": "meter", "km": "kilometer", "in": "inch", "ft": "foot", "yd": "yard",
    "mi": "mile", "mg": "milligram", "g": "gram", "kg": "kilogram", "oz": "ounce", "lb": "pound", "lbs": "pound",
    "s": "second", "min": "minute", "h": "hour", "ml": "milliliter", "l": "liter", "km/h": "kilometer per hour",
    "mph": "mile per hour", "m/s": "meter per second", "c": "celsius", "f": "fahrenheit", "k": "kelvin",
}  # fmt: skip
_REQUEST = re.compile(r"(-?[0-9][0-9,]{0,14}(?:\.[0-9]{1,9})?) ?([a-z/ ]{1,30}?) (?:to|in) ([a-z/ ]{1,30})")
UNIT_PATTERN = "|".join(sorted({unit for units in _QUANTITIES.values() for unit in units} | set(_TEMPERATURES)))
"""A regular expression of the unit names, without plurals and abbreviations."""


def convert(request: str) -> str:
    """Return the amount in the other unit. Raise ToolError if the request is not of this form, or for unknown units.

    >>> convert("26.2 miles to kilometers")
    '42.16 kilometers'
    """
    found = _REQUEST.fullmatch(" ".join(request.lower().split()))
    if not found:
        raise ToolError("the request must be an amount and two units, such as 3 miles to kilometers")
    amount, source, target = float(found[1].replace(",", "")), _unit_name(found[2]), _unit_name(found[3])
    if source in _TEMPERATURES and target in _TEMPERATURES:
        return f"{format_number(_from_kelvin(_to_kelvin(amount, source), target))} {found[3]}"
    for units in _QUANTITIES.values():
        if source in units and target in units:
            return f"{format_number(amount * units[source] / units[target])} {found[3]}"
    raise ToolError(f"cannot convert {found[2]} to {found[3]}")


def _unit_name(text: str) -> str:
    name = _ABBREVIATIONS.get(text, text).removeprefix("degrees ").replace("metre", "meter").replace("litre", "liter")
    head, separator, rest = name.partition(" per ")
    head = _PLURALS.get(head, head)
    known = {unit for units in _QUANTITIES.values() for unit in units} | set(_TEMPERATURES)
    singular = head if head + separator + rest in known else head.removesuffix("s")
    return singular + separator + rest


def _to_kelvin(amount: float, unit: str) -> float:
    return {"celsius": amount + 273.15, "fahrenheit": (amount + 459.67) * 5 / 9, "kelvin": amount}[unit]


def _from_kelvin(kelvin: float, unit: str) -> float:
    return {"celsius": kelvin - 273.15, "fahrenheit": kelvin * 9 / 5 - 459.67, "kelvin": kelvin}[unit]


# Thresholds are the paper's: probability of a call 0.05 and a loss reduction of 1.0; for calculator and translation 0 and
# 0.5. So are 5 positions and 5 samples, but the paper has 20 and 10 for the calculator and for translation. That is eight
# times the work, and on a CPU more than a minute for each text.


_TIMEOUT = 5.0  # seconds; the tools compute or search in memory
_ANSWER_TIMEOUT = 60.0  # MiniLM encodes passages for each question, and the questions of a batch run at once
_NUMBER = r"[0-9]{1,6}(\.[0-9]{1,4})?"
_TERM = rf"({_NUMBER}|\({_NUMBER} [-+*/] {_NUMBER}\))"
_QUOTED = r'"[^"\\\n\[\]]{2,80}"'
_MAX_SNIPPET = 200  # characters of a passage; it must fit into the text before the tokens that it predicts
LEAST_SIMILARITY = 0.6  # of a question and a passage that answers it; measured in bench/learn_toolformer_tools.py


class MiningTool(Value, frozen=True):
    """A tool for mining. `pattern` is a regular expression of the text between the parentheses of a call.

    `examples` are texts with calls, written without results, for the few-shot prompt. `call_probability` is the least
    probability of a call at a position (the paper's τ_s), `positions` the number of positions per text (k), `samples`
    the number of calls per position (m), `threshold` the least reduction of the loss (τ_f).
    """

    tool: FunctionTool[..., Any]
    task: str
    examples: tuple[str, ...]
    pattern: str
    call_probability: float = 0.05
    positions: int = 5
    samples: int = 5
    threshold: float = 1.0
    max_tokens: int = 48  # of one call; a longer sample is a continuation of the text, not a call

    @property
    def name(self) -> str:
        return self.tool.name

    def prompt(self, text: str) -> str:
        """Return the few-shot prompt that asks for calls in `text`. The model continues with a copy of the text."""
        lines = [self.task, ""]
        for example in self.examples:
            lines += [f"Input: {_without_calls(example)}", f"Output: {example}", ""]
        return "\n".join([*lines, f"Input: {text}", "Output:"])


def calculator_tool(**settings: Any) -> MiningTool:
    """Return the calculator: four operations, results with at most two decimals."""

    @tool(name="Calculator", effect="pure", timeout=_TIMEOUT)
    def calculate(expression: str) -> str:
        """Evaluate an arithmetic expression."""
        return format_number(evaluate(expression))

    return MiningTool(
        calculate,
        "Add calls of a calculator to a text, where a result helps to write the next number. A call is "
        "[Calculator(expression)].",
        (
            "The rent is 850 a month, so a year costs [Calculator(850 * 12)] 10200.",
            "Tom has 14 apples and buys 9 more. How many apples does he have? The answer is [Calculator(14 + 9)] 23.",
            "The hall has 480 seats and 135 were empty, so [Calculator(480 - 135)] 345 guests came.",
            "A box holds 12 pens. There are 7 boxes. How many pens are there? The answer is [Calculator(12 * 7)] 84.",
        ),
        rf"{_TERM}( [-+*/] {_TERM}){{1,2}}",
        **{"call_probability": 0.0, "threshold": 0.5, "max_tokens": 32, **settings},
    )


def calendar_tool(today: str | None = None, **settings: Any) -> MiningTool:
    """Return the calendar. It answers with the date of the text if the text has one, else with `today` (ISO 8601)."""
    default = _parse_date(today) if today else dt.datetime.now(dt.UTC).date()

    @tool(name="Calendar", effect="read", timeout=_TIMEOUT)
    def date_of_text(context: CallContext) -> str:
        """Return the current date."""
        given = context.deps.get("date") if isinstance(context.deps, Mapping) else None
        date = _parse_date(given) if given else default
        return f"Today is {date:%A, %B} {date.day}, {date.year}."

    return MiningTool(
        date_of_text,
        "Add calls of a calendar to a text, where the current date helps to write the next text. A call is [Calendar()].",
        (
            "The shop is closed today because it is [Calendar()] Sunday.",
            "The report was written in [Calendar()] March and covers the last quarter.",
            "The contract of 2019 ended [Calendar()] six years ago.",
        ),
        "",
        **settings,
    )


def convert_tool(**settings: Any) -> MiningTool:
    """Return the unit conversion."""

    @tool(name="Convert", effect="pure", timeout=_TIMEOUT)
    def convert_units(request: str) -> str:
        """Convert an amount to another unit, such as 3 miles to kilometers."""
        return convert(request)

    return MiningTool(
        convert_units,
        "Add calls of a unit converter to a text, where a converted amount helps to write the next text. A call is "
        "[Convert(amount unit to unit)].",
        (
            "The trail is 12 miles, or [Convert(12 miles to kilometers)] 19.31 kilometers, long.",
            "The parcel of 60 kilograms weighs [Convert(60 kilograms to pounds)] about 132 pounds.",
        ),
        rf"{_NUMBER} ({UNIT_PATTERN})(s|) to ({UNIT_PATTERN})(s|)",
        **settings,
    )


def search_tool(passages: Iterable[str] | PassageIndex, **settings: Any) -> MiningTool:
    """Return a search over `passages` by BM25 (extra `retrieve`). A result is the start of the best passage."""
    index = passages if isinstance(passages, PassageIndex) else PassageIndex(passages)

    @tool(name="Search", effect="read", timeout=_TIMEOUT)
    def search(query: str) -> str:
        """Find the passage about a query."""
        return index.find(query, 1)[0][:_MAX_SNIPPET]

    return MiningTool(
        search,
        'Add calls of a search to a text, where a fact helps to write the next text. A call is [Search("query")].',
        (
            'The river Elbe rises in [Search("source of the river Elbe")] the Giant Mountains.',
            'The telescope was first pointed at the moon by [Search("first telescope moon")] Thomas Harriot.',
        ),
        _QUOTED,
        **settings,
    )


def qa_tool(source: Mapping[str, str] | Iterable[str] | PassageIndex, **settings: Any) -> MiningTool:
    """Return question answering over a table of questions and answers, or over passages (`PassageIndex`).

    A question with no similar entry is an error. Passages require the encoder MiniLM.
    """
    find_answer = _table_answers(source) if isinstance(source, Mapping) else _passage_answers(source)

    @tool(name="QA", effect="read", timeout=_ANSWER_TIMEOUT)
    def answer(question: str) -> str:
        """Answer a question."""
        return find_answer(question)

    return MiningTool(
        answer,
        'Add questions to a text, where the answer helps to write the next text. A call is [QA("question")].',
        (
            'The capital of Australia is [QA("What is the capital of Australia?")] Canberra.',
            'The author of Middlemarch, [QA("Who wrote Middlemarch?")] George Eliot, was born in 1819.',
        ),
        _QUOTED,
        **settings,
    )


def translate_tool(dictionary: Mapping[str, str], **settings: Any) -> MiningTool:
    """Return translation by a dictionary, the longest entries first. A term without an entry is an error."""
    entries = {" ".join(source.lower().split()): target for source, target in dictionary.items()}
    longest = max((len(source.split()) for source in entries), default=1)

    @tool(name="Translate", effect="pure", timeout=_TIMEOUT)
    def translate(phrase: str) -> str:
        """Translate a phrase to English."""
        return _translate(phrase, entries, longest)

    return MiningTool(
        translate,
        "Add calls of a dictionary to a text, where a translation helps to write the next text. A call is "
        '[Translate("phrase")].',
        (
            'The sign at the door reads "Ausgang", which means [Translate("ausgang")] exit.',
            'The village is called Casa Branca, or [Translate("casa branca")] white house.',
        ),
        _QUOTED,
        **{"call_probability": 0.0, "threshold": 0.5, **settings},
    )


def _without_calls(example: str) -> str:
    """Remove the calls of an example, such as `[QA("…")] `."""
    before, bracket, rest = example.partition("[")
    if not bracket:
        return example
    return before + rest.partition(")] ")[2]


def _parse_date(text: str) -> dt.date:
    """Parse `2025-07-04`. Raise ConfigError for any other text."""
    try:
        return dt.date.fromisoformat(str(text)[:10])
    except ValueError:
        raise ConfigError(f"{text!r} is not a date", hint="write dates as 2025-07-04") from None


def _table_answers(answers: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that finds the answer of the most similar question; half of their terms must be equal."""
    questions = PassageIndex(answers)

    def answer(question: str) -> str:
        [best] = questions.find(question, 1)
        own, known = _words(question), _words(best)
        if len(own & known) * 2 < len(own | known):
            raise ToolError("no answer is known")
        return answers[best]

    return answer


def _passage_answers(passages: Iterable[str] | PassageIndex) -> Callable[[str], str]:
    from ...retrieve.minilm import open_minilm

    index = passages if isinstance(passages, PassageIndex) else PassageIndex(passages)
    encoder = open_minilm(adapted=False)  # the adapter is for tools, not for facts

    def answer(question: str) -> str:
        sentence, similarity = index.answer(question, encoder)
        if similarity < LEAST_SIMILARITY:
            raise ToolError("no passage is similar to the question")
        return sentence[:_MAX_SNIPPET]

    return answer


def _words(text: str) -> set[str]:
    return {"".join(filter(str.isalnum, part)) for part in text.lower().split()} - {""}


def _translate(phrase: str, entries: Mapping[str, str], longest: int) -> str:
    """Translate a phrase by the longest matching entries from the left.

    Raises `ToolError` for text without an entry.
    """
    parts = phrase.lower().split()
    translated, start = [], 0
    while start < len(parts):
        for size in range(min(longest, len(parts) - start), 0, -1):
            target = entries.get(" ".join(parts[start : start + size]))
            if target is not None:
                translated.append(target)
                start += size
                break
        else:
            raise ToolError(f"{parts[start]!r} is not in the dictionary")
    return " ".join(translated)
