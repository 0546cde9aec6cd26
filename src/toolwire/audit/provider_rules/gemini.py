"""Constraints of Gemini's generateContent, on the Gemini API and on Vertex AI. Fields may be in camelCase or snake_case."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ...ir.pointer import JSON, Object
from ..findings import Hit
from .constraints import CheckedBody, constraint
from .documents import hits_below, items_of, names_in, objects_of, out_of_range, repeated, short_repr
from .schema_subsets import gemini_json_schema, gemini_parameters

__all__: list[str] = []

_WIRE = "gemini"
_SDK = "google-genai 3.1.0 (2026-11): types.py"
_ISSUES = "gemini-cli issues (2025-2026)"
_THINKING = "https://ai.google.dev/gemini-api/docs/thinking (2026)"
_BUILT_IN = ("googleSearch", "codeExecution", "urlContext", "googleMaps", "fileSearch", "googleSearchRetrieval")
_MODEL_KINDS = {"calls", "model"}
_NO_MINIMAL = ("gemini-3-pro", "gemini-3.1-pro", "gemini-3.7-flash")


def _field(value: JSON, name: str) -> tuple[str, JSON]:
    """Return a field under its name in camelCase or in snake_case, with the name that the document uses."""
    if type(value) is not dict or name in value:
        return name, value.get(name) if type(value) is dict else None
    snake = re.sub(r"(?<!^)([A-Z])", lambda found: f"_{found[1].lower()}", name)
    return snake, value.get(snake)


def _object(value: JSON, name: str) -> tuple[str, Object]:
    key, found = _field(value, name)
    return key, found if type(found) is dict else {}


def _contents(checked: CheckedBody) -> list[tuple[str, Object]]:
    return list(objects_of(checked.body.get("contents"), "/contents"))


def _parts(content: Object, at: str) -> list[tuple[str, Object]]:
    return list(objects_of(content.get("parts"), f"{at}/parts"))


def _declarations(checked: CheckedBody) -> Iterator[tuple[str, Object]]:
    for at, tool in objects_of(checked.body.get("tools"), "/tools"):
        key, declared = _field(tool, "functionDeclarations")
        yield from objects_of(declared, f"{at}/{key}")


def _config(checked: CheckedBody) -> tuple[str, Object]:
    key, config = _object(checked.body, "generationConfig")
    return f"/{key}", config


def _has(part: Object, name: str) -> bool:
    return _field(part, name)[1] is not None


@constraint("TW001", _WIRE, _ISSUES, error="Duplicate function declaration found: f")
def check_unique_names(checked: CheckedBody) -> Iterator[Hit]:
    named = ((f"{at}/name", one["name"]) for at, one in _declarations(checked) if type(one.get("name")) is str)
    yield from repeated(named, "two functions have the name {!r}")


@constraint("TW004", _WIRE, f"{_SDK} FunctionDeclaration.name",
            error="Invalid function name. Must start with a letter or an underscore.")  # fmt: skip
def check_names(checked: CheckedBody) -> Iterator[Hit]:
    for at, one in _declarations(checked):
        name = one.get("name")
        if type(name) is str and not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", name):
            yield Hit(f"{at}/name", f"{short_repr(name)} must match ^[a-zA-Z_][a-zA-Z0-9_.:-]{{0,127}}$")
        elif name is None:
            yield Hit(at, "a function needs a name")


@constraint("TW010", _WIRE, "https://github.com/google-gemini/gemini-cli/issues/19083 (2026-02)",
            error="* tools[0].function_declarations: [FIELD_INVALID] At most 512 function declarations can be specified.")  # fmt: skip
def check_count(checked: CheckedBody) -> Iterator[Hit]:
    count = sum(1 for _ in _declarations(checked))
    if count > 512:
        yield Hit("/tools", f"at most 512 functions are accepted, got {count}")


@constraint("TW023", _WIRE, f"{_SDK} Schema; {_ISSUES}",
            error="Unknown name \"exclusiveMinimum\" at 'tools[0].function_declarations[0].parameters': Cannot find field.")  # fmt: skip
def check_parameters(checked: CheckedBody) -> Iterator[Hit]:
    for at, one in _declarations(checked):
        for name in ("parameters", "response"):
            hits = gemini_parameters(one.get(name), vertex=checked.provider == "vertex")
            yield from hits_below(f"{at}/{name}", hits)


@constraint("TW020", _WIRE, _ISSUES, error="parameters schema should be of type OBJECT")
def check_root_types(checked: CheckedBody) -> Iterator[Hit]:
    for at, one in _declarations(checked):
        for name in ("parameters", "parametersJsonSchema"):
            key, schema = _field(one, name)
            if type(schema) is dict and str(schema.get("type")).upper() != "OBJECT":
                yield Hit(f"{at}/{key}", f"the root must have the type object, got {short_repr(schema.get('type'))}")


@constraint("TW029", _WIRE, f"{_SDK} FunctionDeclaration.parameters_json_schema")
def check_json_schemas(checked: CheckedBody) -> Iterator[Hit]:
    for at, one in _declarations(checked):
        for name in ("parametersJsonSchema", "responseJsonSchema"):
            key, schema = _field(one, name)
            yield from hits_below(f"{at}/{key}", gemini_json_schema(schema))


@constraint("TW110", _WIRE, f"{_SDK} GenerationConfig.response_schema",
            error="Unknown name \"const\" at 'generation_config.response_schema': Cannot find field.")  # fmt: skip
def check_answer_schema(checked: CheckedBody) -> Iterator[Hit]:
    """Report unsupported keywords in the answer's schema, and a schema without a MIME type for it."""
    at, config = _config(checked)
    key, schema = _field(config, "responseSchema")
    yield from hits_below(f"{at}/{key}", gemini_parameters(schema, vertex=checked.provider == "vertex"))
    json_key, json_schema = _field(config, "responseJsonSchema")
    yield from hits_below(f"{at}/{json_key}", gemini_json_schema(json_schema))
    mime = _field(config, "responseMimeType")[1]
    if (schema is not None or json_schema is not None) and mime not in ("application/json", "text/x.enum"):
        yield Hit(
            f"{at}/{key if schema is not None else json_key}",
            f"a schema needs responseMimeType 'application/json', got {mime!r}",
        )


@constraint("TW111", _WIRE, f"{_SDK} FunctionDeclaration, GenerationConfig, ThinkingConfig; {_THINKING}",
            error="You can only set only one of thinking budget and thinking level.")  # fmt: skip
def check_exclusive(checked: CheckedBody) -> Iterator[Hit]:
    """Report pairs of fields that exclude each other in declarations, the configuration and its thinking settings."""
    at, config = _config(checked)
    key, thinking = _object(config, "thinkingConfig")
    objects = [*_declarations(checked), (at, config), (f"{at}/{key}", thinking)]
    pairs = (
        ("parameters", "parametersJsonSchema"),
        ("response", "responseJsonSchema"),
        ("responseSchema", "responseJsonSchema"),
        ("thinkingBudget", "thinkingLevel"),
    )
    for where, one in objects:
        for first, second in pairs:
            if _has(one, first) and _has(one, second):
                yield Hit(f"{where}/{_field(one, second)[0]}", f"{first} and {second} exclude each other")


@constraint("TW053", _WIRE, _ISSUES,
            error="Please set allowed_function_names only when function calling mode is ANY.")  # fmt: skip
def check_choice(checked: CheckedBody) -> Iterator[Hit]:
    """Report allowed names in a mode that ignores them, and names without a declaration."""
    key, tool_config = _object(checked.body, "toolConfig")
    inner, calling = _object(tool_config, "functionCallingConfig")
    names_key, names = _field(calling, "allowedFunctionNames")
    at = f"/{key}/{inner}/{names_key}"
    if items_of(names) and str(calling.get("mode", "")).upper() not in ("ANY", "VALIDATED"):
        yield Hit(at, f"{names_key} needs the mode ANY or VALIDATED, got {calling.get('mode')!r}")
    declared = names_in(_declarations(checked))
    for index, name in enumerate(items_of(names)):
        if declared and str(name) not in declared:
            yield Hit(f"{at}/{index}", f"no function has the name {short_repr(name)}")


@constraint("TW106", _WIRE, _ISSUES, error="Function calling config is set without function_declarations.")
def check_choice_without_tools(checked: CheckedBody) -> Iterator[Hit]:
    key, tool_config = _object(checked.body, "toolConfig")
    inner, calling = _object(tool_config, "functionCallingConfig")
    stored = _has(checked.body, "cachedContent")
    if str(calling.get("mode", "")).upper() in ("ANY", "VALIDATED") and not stored and not any(_declarations(checked)):
        yield Hit(f"/{key}/{inner}", f"the mode {calling.get('mode')!r} needs functions, and the request declares none")


@constraint("TW065", _WIRE, "https://github.com/egoist/chatwise-releases/issues/250 (2025-02)",
            error="* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.")  # fmt: skip
def check_empty(checked: CheckedBody) -> Iterator[Hit]:
    system_key, system = _object(checked.body, "systemInstruction")
    for at, content in [*_contents(checked), *([(f"/{system_key}", system)] if system else [])]:
        if not items_of(content.get("parts")):
            yield Hit(at, "a content needs at least one part")
        for where, part in _parts(content, at):
            if not part or set(part) <= {"thought", "thoughtSignature", "thought_signature"}:
                yield Hit(where, "a part needs data: text, a call, a result or media")


@constraint(
    "TW104", _WIRE, f"{_SDK} generate_content", error="* GenerateContentRequest.contents: contents is not specified"
)
def check_no_contents(checked: CheckedBody) -> Iterator[Hit]:
    if checked.body.get("contents") == []:
        yield Hit("/contents", "at least one content is required")


@constraint(
    "TW103",
    _WIRE,
    "https://github.com/langbot-app/LangBot/issues/1486 (2025-05)",
    error="Please use a valid role: user, model.",
)
def check_roles(checked: CheckedBody) -> Iterator[Hit]:
    for at, content in _contents(checked):
        role = content.get("role", "user")
        if role not in ("user", "model", "function", None):
            yield Hit(f"{at}/role", f"role must be 'user' or 'model', got {short_repr(role)}")


def _kind(content: Object, at: str) -> str:
    """Return "calls", "results", "model" or "user" for a content."""
    parts = [part for _, part in _parts(content, at)]
    if content.get("role") == "model":
        return "calls" if any(_has(part, "functionCall") for part in parts) else "model"
    return "results" if any(_has(part, "functionResponse") for part in parts) else "user"


def _turns(checked: CheckedBody) -> list[tuple[str, list[tuple[str, Object]]]]:
    """Return the turns as (kind, parts). Consecutive contents of the model, or with results, are one turn."""
    turns: list[tuple[str, list[tuple[str, Object]]]] = []
    for at, content in _contents(checked):
        kind, before = _kind(content, at), turns[-1][0] if turns else ""
        if kind == before == "results" or {kind, before} <= _MODEL_KINDS:
            parts = turns[-1][1]
            parts += _parts(content, at)
            turns[-1] = ("calls" if "calls" in (kind, before) else kind, parts)
        else:
            turns.append((kind, _parts(content, at)))
    return turns


@constraint("TW061", _WIRE, _ISSUES,
            error="Please ensure that the number of function response parts is equal to the number of function call "
                  "parts of the function call turn.")  # fmt: skip
def check_pairs(checked: CheckedBody) -> Iterator[Hit]:
    """Report calls without results in the next turn, results without calls before them, and unequal names."""
    turns = _turns(checked)
    for index, (kind, parts) in enumerate(turns):
        before = turns[index - 1] if index else ("", [])
        after = turns[index + 1] if index + 1 < len(turns) else ("", [])
        calls = [at for at, part in parts if _has(part, "functionCall")]
        if kind == "calls" and after[0] != "results":
            yield Hit(calls[0], "the calls have no results in the next turn")
        elif kind == "results" and before[0] != "calls":
            yield Hit(parts[0][0] if parts else "/contents", "the results are not directly after a turn with calls")
        elif kind == "results":
            called = [
                _object(part, "functionCall")[1].get("name") for _, part in before[1] if _has(part, "functionCall")
            ]
            yield from _compare_names(called, [(at, part) for at, part in parts if _has(part, "functionResponse")])


def _compare_names(called: list[JSON], results: list[tuple[str, Object]]) -> Iterator[Hit]:
    """Report another number of results than calls, and results whose name is not called so often."""
    if len(called) != len(results):
        yield Hit(results[0][0], f"{len(called)} calls need as many results, got {len(results)}")
    left = Counter(name for name in called if type(name) is str)
    for at, part in results:
        key, result = _object(part, "functionResponse")
        name = str(result.get("name"))
        left[name] -= 1
        if left[name] < 0:
            yield Hit(f"{at}/{key}", f"no call of the turn before has the name {short_repr(result.get('name'))}")


@constraint("TW128", _WIRE, "https://github.com/google-gemini/gemini-cli/issues/11814 (2025-10)",
            error="Please ensure that function call turn comes immediately after a user turn or after a function response turn.")  # fmt: skip
def check_call_position(checked: CheckedBody) -> Iterator[Hit]:
    turns = _turns(checked)
    for index, (kind, parts) in enumerate(turns):
        if kind == "calls" and (not index or turns[index - 1][0] not in ("user", "results")):
            yield Hit(parts[0][0], "calls must be directly after a user turn or after results")


@constraint("TW122", _WIRE, "https://github.com/NousResearch/hermes-agent/issues/55427 (2026-06)",
            error="Please ensure that multiturn requests alternate between user and model")  # fmt: skip
def check_first(checked: CheckedBody) -> Iterator[Hit]:
    contents = _contents(checked)
    if contents and _kind(contents[0][1], contents[0][0]) == "model" and not _has(checked.body, "cachedContent"):
        yield Hit(f"{contents[0][0]}/role", "the first content must have the role 'user', got 'model'")


@constraint("TW120", _WIRE, "https://github.com/crewAIInc/crewAI/pull/6973 (2026-08)")
def check_last(checked: CheckedBody) -> Iterator[Hit]:
    contents = _contents(checked)
    if contents and contents[-1][1].get("role") == "model" and checked.model.version >= (3, 0):
        if checked.model.family == "gemini":
            yield Hit(f"{contents[-1][0]}/role", f"{checked.model.name} does not continue a turn of the model")


@constraint("TW127", _WIRE, "https://ai.google.dev/gemini-api/docs/thought-signatures (2026)",
            error="Function call is missing a thought_signature in functionCall parts.")  # fmt: skip
def check_signatures(checked: CheckedBody) -> Iterator[Hit]:
    """Report the first call of a step without its signature, in the steps after the last user message.

    Only Gemini 3 and later need it.
    """
    if checked.model.family != "gemini" or checked.model.version < (3, 0):
        return
    turns = _turns(checked)
    start = max((index for index, (kind, _) in enumerate(turns) if kind == "user"), default=0)
    for kind, parts in turns[start:]:
        first = next(((at, part) for at, part in parts if _has(part, "functionCall")), None)
        if kind == "calls" and first is not None and not _has(first[1], "thoughtSignature"):
            yield Hit(first[0], f"{checked.model.name} needs the thoughtSignature of the first call of a step")


@constraint("TW114", _WIRE, _THINKING, error="Budget 0 is invalid. This model only works in thinking mode.")
def check_thinking(checked: CheckedBody) -> Iterator[Hit]:
    """Report thinking settings that the Gemini model does not have."""
    at, config = _config(checked)
    key, thinking = _object(config, "thinkingConfig")
    model, path = checked.model, f"{at}/{key}"
    budget_key, budget = _field(thinking, "thinkingBudget")
    level_key, level = _field(thinking, "thinkingLevel")
    if model.family != "gemini" or not thinking:
        return
    if budget == 0 and model.version >= (2, 5) and "pro" in model.name and "flash" not in model.name:
        yield Hit(f"{path}/{budget_key}", f"{model.name} always thinks, so the budget must not be 0")
    if level is not None and model.version < (3, 0):
        yield Hit(f"{path}/{level_key}", f"{model.name} has a thinkingBudget, not a thinkingLevel")
    elif str(level).upper() == "MINIMAL" and model.name.startswith(_NO_MINIMAL):
        yield Hit(f"{path}/{level_key}", f"{model.name} has no thinkingLevel 'minimal'")
    if model.version < (2, 5) and (budget is not None or _has(thinking, "includeThoughts")):
        yield Hit(path, f"{model.name} does not think")


@constraint("TW105", _WIRE, "https://ai.google.dev/api/generate-content#generationconfig (2026)",
            error="Unable to submit request because it has a temperature value of 3 but the supported range is from 0 to 2")  # fmt: skip
def check_ranges(checked: CheckedBody) -> Iterator[Hit]:
    """Report numbers outside their ranges."""
    at, config = _config(checked)
    for name, least, most in (
        ("temperature", 0, 2),
        ("topP", 0, 1),
        ("topK", 1, float("inf")),
        ("maxOutputTokens", 1, float("inf")),
        ("candidateCount", 1, 8),
        ("logprobs", 0, 20),
    ):
        key, value = _field(config, name)
        yield from out_of_range({key: value}, [(key, least, most)], at)


@constraint("TW108", _WIRE, "https://ai.google.dev/api/generate-content#generationconfig (2026)")
def check_stop(checked: CheckedBody) -> Iterator[Hit]:
    at, config = _config(checked)
    key, stop = _field(config, "stopSequences")
    if len(items_of(stop)) > 5:
        yield Hit(f"{at}/{key}", f"at most 5 stop sequences are accepted, got {len(stop)}")


@constraint("TW132", _WIRE, "https://ai.google.dev/gemini-api/docs/tool-combination (2026)",
            error="Function calling with a response mime type: 'application/json' is unsupported")  # fmt: skip
def check_combination(checked: CheckedBody) -> Iterator[Hit]:
    """Report functions together with built-in tools or JSON answers before Gemini 3, and tools beside a cache.

    The cached content brings its own tools and instructions.
    """
    functions = any(_declarations(checked))
    model = checked.model
    if model.family == "gemini" and model.version < (3, 0) and functions:
        at, config = _config(checked)
        key, mime = _field(config, "responseMimeType")
        if mime == "application/json":
            yield Hit(f"{at}/{key}", f"{model.name} cannot combine functions with a JSON answer")
        for where, tool in objects_of(checked.body.get("tools"), "/tools"):
            for name in _BUILT_IN:
                if _has(tool, name):
                    yield Hit(f"{where}/{_field(tool, name)[0]}", f"{model.name} cannot combine functions with {name}")
    if _has(checked.body, "cachedContent"):
        for name in ("tools", "toolConfig", "systemInstruction"):
            key, value = _field(checked.body, name)
            if value is not None:
                yield Hit(f"/{key}", f"{key} must be part of the cached content")
