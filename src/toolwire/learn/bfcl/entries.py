"""The leaderboard's entries as canonical values: messages, tools and expected calls.

They are read from the wheel `bfcl-eval`. Parameter types, which are names of Python, Java and JavaScript types, become
JSON Schema, and go back to the types that the leaderboard's checker expects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...ir.errors import ConfigError, MissingExtra
from ...ir.parts import Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import dumps
from ...ir.tools import Tool
from ...ir.value import Value
from ..formats.type_names import base_type, standard_schema

# The files of the wheel `bfcl-eval`: the data of the leaderboard as JSON Lines, one file per category.


PACKAGE = "bfcl_eval"
_INSTALL = "pip install --no-deps bfcl-eval"
_CLASS_FILES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""The file of the functions of each class that multi-turn entries name."""


def find_data() -> Path:
    """Return the folder of the data; raise MissingExtra if the wheel is not installed. Nothing of it is imported."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.origin:
        raise MissingExtra("the leaderboard's data require the wheel bfcl-eval", hint=_INSTALL)
    folder = Path(spec.origin).parent / "data"
    if not folder.is_dir():
        raise MissingExtra(f"the installed wheel bfcl-eval has no folder {folder.name}", hint=_INSTALL)
    return folder


def answer_rows(category: str, folder: Path) -> Iterator[Object]:
    """Yield the ground truth of a category; nothing for a category without one."""
    file = folder / "possible_answer" / _file_name(category, folder)
    return _rows(file) if file.is_file() else iter(())


def class_rows(name: str, folder: Path) -> Iterator[Object]:
    """Yield the functions of a class of the multi-turn categories. Raise ConfigError for an unknown class."""
    if name not in _CLASS_FILES:
        raise ConfigError(f"unknown class {name!r} of the leaderboard", hint=f"known are {', '.join(_CLASS_FILES)}")
    return _rows(folder / "multi_turn_func_doc" / f"{_CLASS_FILES[name]}.json")


def _file_name(category: str, folder: Path) -> str:
    """Return the file name of a category; it contains the version of the leaderboard.

    Raise ConfigError for an unknown category.
    """
    for file in sorted(folder.glob(f"BFCL_v*_{category}.json"), reverse=True):
        if file.stem.partition("_v")[2].partition("_")[2] == category:
            return file.name
    raise ConfigError(f"the data of the leaderboard have no category {category!r}", hint=f"see the files in {folder}")


def _rows(file: Path) -> Iterator[Object]:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=dict)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{file}, line {number}: {error}", hint=f"reinstall the wheel: {_INSTALL}") from None


_ANY = ("any", "Any", "")


def parameter_schema(parameters: Object, *, any_type: str | None = None) -> Object:
    """Return the JSON Schema of a function's parameters.

    A parameter of any type has no `type`, or `any_type` if that is given: the leaderboard presents it as a string.
    """

    def find_type(name: str) -> str | None:
        return any_type if name in _ANY else base_type(name) or name

    found: Object = standard_schema(parameters, find_type)
    return found


# Expected calls, from the two forms of the leaderboard's ground truth.
#
# A single-turn entry lists the alternatives of every argument; "" among them means that the argument may be omitted.
# A multi-turn entry has Python calls as text.


# characters; Python's parser takes time and memory for the syntax tree of a call, and the text is a model's
_LONGEST_CALL = 100_000


def choose_call(alternatives: Object, parameters: Mapping[str, Object], call_id: str) -> ToolCall:
    """Return one call that the ground truth accepts: the first alternative of every argument.

    `alternatives` maps the function's name to the alternatives of its arguments, `parameters` the names of functions to
    their declared parameters. An optional argument is written if it is declared, because a call with more arguments
    tests more.
    """
    ((name, arguments),) = alternatives.items()
    declared = parameters.get(name) or {}
    chosen: Object = {}
    for parameter, values in arguments.items():
        given = [value for value in values if value != ""]
        required = parameter in (declared.get("required") or ())
        if given and ("" not in values or parameter in (declared.get("properties") or {})):
            chosen[parameter] = _without_alternatives(given[0])
        elif not given and required:
            chosen[parameter] = ""
    return ToolCall(call_id, name, chosen)


def _without_alternatives(value: JSON) -> JSON:
    """Choose the first alternatives inside an object, or inside the objects of a list. Deeper ones have none."""
    if isinstance(value, dict):
        return _first_of_each(value)
    if isinstance(value, list):
        return [_first_of_each(one) if isinstance(one, dict) else one for one in value]
    return value


def _first_of_each(alternatives: Object) -> Object:
    chosen: Object = {}
    for key, values in alternatives.items():
        if not isinstance(values, list):
            chosen[key] = values
        elif given := [value for value in values if value != ""]:
            chosen[key] = given[0]
    return chosen


def parse_call(text: str, parameters: Mapping[str, Sequence[str]], call_id: str) -> ToolCall:
    """Parse `name(1, key="text")` without evaluating it; arguments must be literals.

    `parameters` are the parameter names of each function, in order, for positional arguments. Raises `ConfigError` for
    other text, an unknown function and unsuitable arguments.
    """
    if len(text) > _LONGEST_CALL:
        raise ConfigError(f"a call must have at most {_LONGEST_CALL:,} characters, got {len(text):,}")
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"not a Python call: {text[:200]!r}", hint=str(error)) from None
    if not isinstance(call, ast.Call):
        raise ConfigError(f"not a Python call: {text[:200]!r}")
    name = ast.unparse(call.func)
    names = parameters.get(name)
    if names is None:
        raise ConfigError(f"the call {text[:200]!r} is of an unknown function {name!r}")
    if len(call.args) > len(names):
        raise ConfigError(f"the call {text[:200]!r} has {len(call.args)} positional arguments, {name} {len(names)}")
    arguments = dict(zip(names, (_literal(one, text) for one in call.args), strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ConfigError(f"the call {text[:200]!r} unpacks or repeats an argument")
        arguments[keyword.arg] = _literal(keyword.value, text)
    return ToolCall(call_id, name, arguments)


def _literal(node: ast.expr, text: str) -> Any:
    """Return the JSON value of a Python literal. Raise ConfigError if it has none."""
    try:
        return _as_json(ast.literal_eval(node))
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ConfigError(f"an argument of {text[:200]!r} is not a JSON value") from None


def _as_json(value: Any) -> JSON:
    """Return a literal as JSON: tuples become lists. Raise TypeError for a value that JSON does not have."""
    if isinstance(value, (list, tuple)):
        return [_as_json(one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(one) for key, one in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(type(value).__name__)


CALL_CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "simple_java",
    "simple_javascript",
)
"""One turn, one or several expected calls."""
RELEVANCE_CATEGORIES = ("irrelevance", "live_irrelevance", "live_relevance")
"""One turn; the model should call nothing, or, for `live_relevance`, anything."""
MULTI_TURN_CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
"""Several turns with the calls of each."""
BFCL_CATEGORIES = CALL_CATEGORIES + RELEVANCE_CATEGORIES + MULTI_TURN_CATEGORIES
"""All categories that `read_bfcl` reads. Those that need the network or a stored memory are absent."""


class BFCLScenario(Value, frozen=True):
    """The simulated classes of a multi-turn entry: their names, their first state, and the calls that lead to the last.

    `withheld` are the functions that are offered only from a turn on, by the number of that turn. `truth` are the
    expected calls of each turn as Python text, for the leaderboard's checker.
    """

    classes: tuple[str, ...]
    initial_config: Object
    truth: tuple[tuple[str, ...], ...]
    withheld: dict[int, tuple[str, ...]] = {}


class BFCLEntry(Value, frozen=True):
    """One entry: the messages of each turn, the tools, and the expected calls of each turn.

    `calls` are one accepted choice; `answers` is the ground truth with all alternatives and `functions` the
    declarations in the leaderboard's types, both for its checker. `scenario` is set for multi-turn entries.
    """

    id: str
    category: str
    turns: tuple[tuple[Message, ...], ...]
    tools: tuple[Tool, ...]
    calls: tuple[tuple[ToolCall, ...], ...] = ()
    answers: tuple[Object, ...] = ()
    functions: tuple[Object, ...] = ()
    scenario: BFCLScenario | None = None

    @property
    def language(self) -> Literal["python", "java", "javascript"]:
        """The programming language of the functions' types."""
        if self.category == "simple_java":
            return "java"
        return "javascript" if self.category == "simple_javascript" else "python"

    @property
    def all_calls(self) -> list[ToolCall]:
        """The expected calls of all turns."""
        return [call for turn in self.calls for call in turn]


def read_bfcl(categories: Iterable[str] = CALL_CATEGORIES, *, folder: Path | None = None) -> Iterator[BFCLEntry]:
    """Yield the entries of `categories`, in the order of their files.

    The data are in the wheel `bfcl-eval`, which is installed without its dependencies; `folder` is another copy of its
    folder `data`. Raises `ConfigError` for an unknown category.
    """
    source = folder or find_data()
    for category in categories:
        if category not in BFCL_CATEGORIES:
            hint = f"use one of {', '.join(BFCL_CATEGORIES)}"
            raise ConfigError(f"unknown category of the leaderboard {category!r}", hint=hint)
        truths = {row["id"]: row["ground_truth"] for row in answer_rows(category, source)}
        for row in _rows(source / _file_name(category, source)):
            truth = truths.get(row["id"], [])
            if category in MULTI_TURN_CATEGORIES:
                yield _multi_turn_entry(row, category, truth, source)
            else:
                yield _single_turn_entry(row, category, truth)


def function_tool(function: Object) -> Tool:
    """Return a function's declaration as a canonical tool. The result schema is omitted: models do not see it."""
    return Tool(function["name"], function.get("description"), parameter_schema(function["parameters"]))


def _single_turn_entry(row: Object, category: str, truth: list[Object]) -> BFCLEntry:
    """Return a row as an entry.

    `truth` lists the accepted argument values of each call; the expected calls take a choice of them.
    """
    functions = row["function"]
    parameters = {one["name"]: one["parameters"] for one in functions}
    calls = tuple(choose_call(one, parameters, f"call_{number}") for number, one in enumerate(truth))
    return BFCLEntry(
        row["id"],
        category,
        _turns(row["question"]),
        tuple(map(function_tool, functions)),
        (calls,),
        tuple(truth),
        tuple(functions),
    )


def _multi_turn_entry(row: Object, category: str, truth: list[list[str]], source: Path) -> BFCLEntry:
    """Return a row of several turns as an entry.

    Its expected calls are parsed from Python expressions, and its tools are the methods of the involved classes.
    """
    functions = [one for name in row["involved_classes"] for one in _class_functions(name, source)]
    parameters = {one["name"]: list(one["parameters"]["properties"]) for one in functions}
    calls = []
    number = 0
    for turn in truth:
        calls.append(tuple(parse_call(text, parameters, f"call_{number + at}") for at, text in enumerate(turn)))
        number += len(turn)
    tools = tuple(tool for name in row["involved_classes"] for tool in _class_tools(name, source))
    scenario = BFCLScenario(
        tuple(row["involved_classes"]),
        row.get("initial_config") or {},
        tuple(map(tuple, truth)),
        {int(turn): tuple(names) for turn, names in (row.get("missed_function") or {}).items()},
    )
    return BFCLEntry(row["id"], category, _turns(row["question"]), tools, tuple(calls), (), tuple(functions), scenario)


@cache
def _class_functions(name: str, source: Path) -> tuple[Object, ...]:
    return tuple(class_rows(name, source))


@cache
def _class_tools(name: str, source: Path) -> tuple[Tool, ...]:
    return tuple(map(function_tool, _class_functions(name, source)))


def _turns(question: list[list[Any]]) -> tuple[tuple[Message, ...], ...]:
    return tuple(tuple(Message(one["role"], (Text(one["content"]),)) for one in turn) for turn in question)


# The tools of an entry as a model sees them, in the types that the leaderboard's checker expects.
#
# A parameter of any type is a string. Functions of Java and JavaScript take every argument as text, a literal of that
# language, so that a model of any wire can write values such as `new ArrayList<>(…)`.


_LANGUAGES = {"java": "Java", "javascript": "JavaScript"}


def offered_tools(entry: BFCLEntry) -> tuple[Tool, ...]:
    """Return the tools to offer to a model for this entry."""
    language = _LANGUAGES.get(entry.language)
    return tuple(_offered_tool(function, language) for function in entry.functions)


def _offered_tool(function: Object, language: str | None) -> Tool:
    parameters = function["parameters"]
    description = function.get("description") or ""
    if language is None:
        return Tool(function["name"], description, parameter_schema(parameters, any_type="string"))
    properties = {key: _literal_schema(schema, language) for key, schema in parameters["properties"].items()}
    schema = {"type": "object", "properties": properties, "required": parameters.get("required") or []}
    return Tool(function["name"], f"{description} The function is written in {language}.", schema)


def _literal_schema(schema: Object, language: str) -> Object:
    """Return a parameter's schema as text: a literal of `language`, with type, items and fields in its description."""
    kind = schema.get("type") or "any"
    items = schema.get("items") or {}
    notes = [schema.get("description") or "", f"Write a {language} literal of the type {kind} as text."]
    if items.get("type"):
        notes.append(f"Its items have the type {items['type']}.")
    if schema.get("properties"):
        notes.append(f"Its fields are {dumps(schema['properties'])}.")
    return {"type": "string", "description": " ".join(filter(None, notes))}
