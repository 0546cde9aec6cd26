"""Read a folder of API specs as tools.

    specs = load_api_specs("api_zoo/")
    for file in specs.files:
        index.add(file.tools, server=file.name)
    for problem in specs.problems:
        print(problem)                               # the file, the position, the fix

A file with `.json` or `.jsonl` contains specs of the API zoo, `{name, signature, doc}`, tools of any wire, or a request
that declares some. A file or an entry that cannot be read is reported and does not affect the others. Other documents
need a reader, because this package and `toolwire.openapi` do not import each other:

    def read_openapi(path, data):
        document = parse_document(data)
        return read_operations(document).tools if "openapi" in document else None

    load_api_specs("apis/", readers=[read_openapi])

A spec is an entry of the API zoo, `{name, signature, doc}`, or `{name, description, parameters}`.

    {"name": "get_weather", "signature": "get_weather(city: str, days: int = 3)", "doc": "Get the weather of a city"}
    {"api_name": "Zoom API - listUsers", "api_call": "GET /users", "api_arguments": {"page": "integer: The page"}, …}

Types and required parameters are taken from the spec where it has them; a parameter without a recognised type accepts
any value. The name, the call and the id as the spec writes them are in `extra["api_spec"]`.
"""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from ..bridge.translation.detection import detect
from ..ir.errors import ConfigError, ProtocolError, SchemaError, ToolwireError
from ..ir.pointer import JSON, Object
from ..ir.tools import Effect, Tool
from ..stream.repair import repair_json
from ..stream.strict import parse
from ..wire import get, mcp

MAX_SIGNATURE = 4_000  # characters that Python's parser reads; a longer text is not a signature
_MAX_NAME = 64  # the longest tool name that all providers accept
_MAX_PARAMETERS = 500  # per object; beyond the largest APIs, a file with more is damaged or hostile
_MAX_DEPTH = 4  # objects inside arguments; deeper ones become objects without properties
_TYPES = {
    "string": "string",
    "str": "string",
    "integer": "integer",
    "int": "integer",
    "number": "number",
    "float": "number",
    "double": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "array": "array",
    "list": "array",
    "object": "object",
    "dict": "object",
}
_TYPED_TEXT = re.compile(r"\s*(?:([A-Za-z]+)\s*(?::|\(|$))?\s*(.*)", re.DOTALL)
_REQUIRED = re.compile(r"(?<!\s)\s*+\[required\]\s*+", re.IGNORECASE)
_READ_REQUEST = re.compile(r"\s*(GET|HEAD)\s+/")


def is_spec(value: JSON) -> bool:
    """Return True for an object with the fields of a spec."""
    if type(value) is not dict or ("name" not in value and "api_name" not in value):
        return False
    return "api_name" in value or "signature" in value or "doc" in value or type(value.get("parameters")) is list


def spec_tool(spec: Mapping[str, Any]) -> Tool:
    """Convert a spec. Raise SchemaError if it has no name, or a field has the wrong type."""
    is_zoo = "api_name" in spec
    title = _read_text(spec, "api_name" if is_zoo else "name")
    if not title.strip():
        raise SchemaError("the spec has no name", hint="add `name`, or `api_name` as in the API zoo")
    call = _read_text(spec, "api_call" if is_zoo else "signature")
    if is_zoo:
        description = ". ".join(
            filter(None, (title, *(_read_text(spec, key) for key in ("functionality", "description"))))
        )
        schema = _arguments_schema(spec.get("api_arguments"))
    else:
        description = _read_text(spec, "doc") or _read_text(spec, "description")
        schema = _list_schema(spec["parameters"]) if "parameters" in spec else _signature_schema(call)
    effect: Effect = "read" if _READ_REQUEST.match(call) else "write"
    original = {"name": title, "call": call, "id": spec.get("id")}
    original = {key: value for key, value in original.items() if type(value) is str and value}
    return Tool(spec_name(title), description or None, schema, effect=effect, extra={"api_spec": original})


def spec_name(title: str) -> str:
    """Return a name that every provider accepts: letters, digits, `_`, `-` and `.`; long ones end in a hash."""
    name = re.sub(r"[^A-Za-z0-9.]+", lambda found: "-" if found.group() == "-" else "_", title)
    name = re.sub(r"(?<!_)_*+\.[_.]*+", ".", name).strip("_.-")
    if name and len(name) <= _MAX_NAME:
        return name
    return f"{name[: _MAX_NAME - 9] or 'api'}_{sha256(title.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _read_text(spec: Mapping[str, Any], key: str) -> str:
    value = spec.get(key)
    if value is None:
        return ""
    if type(value) is list and all(type(part) is str for part in value):
        return ", ".join(value)
    if type(value) is not str:
        raise SchemaError(f"{key} must be a text, got {type(value).__name__}", pointer=f"/{key}")
    return value


def _arguments_schema(arguments: Any, depth: int = 0) -> Object:
    """Convert the arguments of an entry of the API zoo: a text, a list of values, or an object per parameter."""
    if type(arguments) is not dict:  # "N/A", a list of names, or nothing
        arguments = dict.fromkeys(map(str, arguments)) if type(arguments) is list else {}
    properties: Object = {}
    required: list[str] = []
    for name, argument in list(arguments.items())[:_MAX_PARAMETERS]:
        properties[name], is_required = _convert_argument(argument, depth)
        if is_required:
            required.append(name)
    schema: Object = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _convert_argument(argument: Any, depth: int) -> tuple[Object, bool]:
    if type(argument) is str:
        is_required = bool(_REQUIRED.match(argument))
        matched = _TYPED_TEXT.fullmatch(_REQUIRED.sub("", argument, count=1))
        kind, rest = matched.groups() if matched else (None, argument)
        known = _TYPES.get((kind or "").lower())
        text = rest if known else argument
        return _describe({"type": known} if known else {}, text.strip(" ()")), is_required
    if type(argument) is list:
        return ({"enum": argument} if argument else {}), False
    if type(argument) is dict and ("data_type" in argument or "description" in argument):
        kind = _TYPES.get(str(argument.get("data_type", "")).lower())
        values = argument.get("possible_values") or argument.get("valid_values") or argument.get("options")
        schema: Object = {"type": kind} if kind else {}
        if (
            kind == "string"
            and type(values) is list
            and all(type(value) is str and ":" not in value for value in values)
        ):
            schema["enum"] = values
        return _describe(schema, argument.get("description")), argument.get("required") is True
    if type(argument) is dict and depth < _MAX_DEPTH:
        return _arguments_schema(argument, depth + 1), False
    return {}, False


def _list_schema(parameters: Any) -> Object:
    """Convert a list of `{name, description, type}`."""
    if type(parameters) is not list:
        raise SchemaError(f"parameters must be a list, got {type(parameters).__name__}", pointer="/parameters")
    named = [one for one in parameters[:_MAX_PARAMETERS] if type(one) is dict and type(one.get("name")) is str]
    converted = {
        one["name"]: _convert_argument({"description": "", "data_type": one.get("type"), **one}, 0) for one in named
    }
    schema: Object = {"type": "object", "properties": {name: argument for name, (argument, _) in converted.items()}}
    required = [name for name, (_, is_required) in converted.items() if is_required]
    return {**schema, "required": required} if required else schema


def _describe(schema: Object, text: Any) -> Object:
    return {**schema, "description": text} if type(text) is str and text else schema


def _signature_schema(signature: str) -> Object:
    """Read a Python signature. One that cannot be read accepts any arguments."""
    definition = _parse_signature(signature)
    if definition is None:
        return {"type": "object"}
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    properties: Object = {}
    for argument, default in pairs:
        schema = _annotation_schema(argument.annotation)
        value = None if default is None else _literal(default)
        properties[argument.arg] = schema if value is None else {**schema, "default": value}
    required = [argument.arg for argument, default in pairs if default is None]
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if arguments.kwarg is None:
        schema["additionalProperties"] = False
    return schema


def _parse_signature(signature: str) -> ast.FunctionDef | None:
    text = signature.strip().removeprefix("def ").rstrip(":")
    name, parenthesis, rest = text.partition("(")
    if not parenthesis or len(signature) > MAX_SIGNATURE:
        return None
    name = name.replace(".", "_").strip()
    try:
        (definition,) = ast.parse(f"def {name}({rest}: ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return definition if isinstance(definition, ast.FunctionDef) else None


def _annotation_schema(annotation: ast.expr | None) -> Object:
    match annotation:
        case ast.Name(id=name) if name in _TYPES:
            return {"type": _TYPES[name]}
        case ast.Constant(value=str(name)) if name in _TYPES:
            return {"type": _TYPES[name]}
        case ast.Subscript(value=ast.Name(id="list" | "List"), slice=item):
            return {"type": "array", "items": _annotation_schema(item)}
        case ast.Subscript(value=ast.Name(id="dict" | "Dict")):
            return {"type": "object"}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=item):
            values = item.elts if isinstance(item, ast.Tuple) else [item]
            return {"enum": [_literal(value) for value in values]}
        case ast.Subscript(value=ast.Name(id="Optional"), slice=item):
            return {"anyOf": [_annotation_schema(item), {"type": "null"}]}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return {"anyOf": [_annotation_schema(left), _annotation_schema(right)]}
        case ast.Constant(value=None):
            return {"type": "null"}
        case _:
            return {}


def _literal(value: ast.expr) -> JSON:
    """Return the value of a JSON literal, None for any other expression."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if type(found) in (bool, int, float, str) else None


MAX_FILES = 10_000  # a folder with more is most likely the wrong one, such as a home directory
MAX_FILE_SIZE = 64 << 20  # bytes; a parsed document takes several times its size in memory
MAX_TOTAL_SIZE = 1 << 30  # bytes of all files; their tools are in memory together
_MAX_PROBLEMS = 1_000  # a file of lines in another form has a problem in each line
_MAX_REPAIRED = 4 << 20  # bytes; a repair reads character by character in Python, a large file would take minutes
_HINT = "give specs of the API zoo, {name, signature, doc}, or a list of tools"

SpecReader: TypeAlias = Callable[[Path, bytes], Iterable[Tool] | None]
"""Returns the tools of a file, or None for a file of another kind. It is asked before the built-in readers."""


class ApiSpecError(ConfigError):
    """A file, or an entry of a file, that was left out. `path` is relative to the folder."""

    def __init__(self, path: str, message: str, *, pointer: str = "", hint: str = "") -> None:
        super().__init__(f"{path}: {message}", pointer=pointer, hint=hint)
        self.path = path


class SpecFile(NamedTuple):
    """The tools of one file. `name` is its path without the suffix; names of tools are unique within the file."""

    name: str
    path: str
    tools: tuple[Tool, ...]


class ApiSpecs(NamedTuple):
    """The tools of a folder by file, and the problems."""

    files: tuple[SpecFile, ...]
    problems: tuple[ApiSpecError, ...] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools. Names may repeat in different files."""
        return tuple(tool for file in self.files for tool in file.tools)


def load_api_specs(folder: str | Path, *, readers: Sequence[SpecReader] = ()) -> ApiSpecs:
    """Read all specs of a folder and its subfolders, or of one file. Raise ConfigError if there is neither.

    Links to other places and special files are left out. Files are read up to 64 MB each and 1 GB together.
    """
    root = Path(folder)
    if not root.exists():
        raise ConfigError(f"there is no folder {folder}", hint="give a folder or a file of JSON specs")
    files: list[SpecFile] = []
    problems: list[ApiSpecError] = []
    total = 0
    for number, path in enumerate(_list_files(root)):
        name = path.relative_to(root if path != root else root.parent).as_posix()
        try:
            if number >= MAX_FILES or total >= MAX_TOTAL_SIZE:
                raise ApiSpecError(
                    name, "the folder has more files than are read", hint="split it into several folders"
                )
            data = _read_bytes(path, name)
            total += len(data)
            tools = _read_file(path, data, name, readers, problems)
        except ApiSpecError as error:
            problems.append(error)
            if number >= MAX_FILES:
                break
            continue
        if tools:
            files.append(SpecFile(name.rpartition(".")[0] or name, name, tuple(_make_unique(tools))))
    return ApiSpecs(tuple(files), tuple(problems[:_MAX_PROBLEMS]))


def _list_files(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        yield root
    for parent, folders, names in os.walk(root):  # does not follow links to folders
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent) / name for name in sorted(names) if not name.startswith("."))


def _read_bytes(path: Path, name: str) -> bytes:
    try:
        if path.is_symlink():
            raise ApiSpecError(name, "it is a link", hint="copy the file into the folder")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ApiSpecError(name, "it is not a regular file")
        if status.st_size > MAX_FILE_SIZE:
            raise ApiSpecError(name, f"it has {status.st_size} bytes, more than {MAX_FILE_SIZE}", hint="split it")
        with path.open("rb") as file:
            return file.read(MAX_FILE_SIZE)
    except OSError as error:
        raise ApiSpecError(name, f"cannot be read: {error.strerror}") from None


def _read_file(
    path: Path, data: bytes, name: str, readers: Sequence[SpecReader], problems: list[ApiSpecError]
) -> Sequence[Tool]:
    """Return the tools of a file; report entries that cannot be read. Files with other suffixes have none."""
    try:
        for reader in readers:
            tools = reader(path, data)
            if tools is not None:
                return tuple(tools)
        suffix = path.suffix.lower()
        if suffix == ".jsonl":
            return list(_read_entries(_parse_lines(data, name, problems), name, problems))
        return _read_document(_parse_document(data), name, problems) if suffix == ".json" else ()
    except ApiSpecError:
        raise
    except ToolwireError as error:
        raise ApiSpecError(name, error.message, pointer=error.pointer, hint=error.hint) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ApiSpecError(name, f"not JSON: {error}") from None


def _parse_document(data: bytes) -> JSON:
    """Parse JSON, also with errors that have only one correction, such as a comma after the last item."""
    try:
        return parse(data)
    except ProtocolError:
        if len(data) > _MAX_REPAIRED:
            raise
        return repair_json(data.decode()).value


def _parse_lines(data: bytes, name: str, problems: list[ApiSpecError]) -> Iterator[tuple[int, JSON]]:
    for number, line in enumerate(data.split(b"\n")):
        if line.strip():
            try:
                yield number, parse(line)
            except ProtocolError as error:
                problems.append(ApiSpecError(name, error.message, pointer=f"/{number}"))


def _read_document(document: JSON, name: str, problems: list[ApiSpecError]) -> Sequence[Tool]:
    tools = _read_wire_tools(document)
    if tools is not None:
        return tools
    entries = document if type(document) is list else [document]
    if not any(map(is_spec, entries)):
        raise ApiSpecError(name, "contains no API specs", hint=_HINT)
    return list(_read_entries(enumerate(entries), name, problems))


def _read_entries(entries: Iterable[tuple[int, JSON]], name: str, problems: list[ApiSpecError]) -> Iterator[Tool]:
    for number, entry in entries:
        try:
            if is_spec(entry):
                yield spec_tool(entry)
            elif (tools := _read_wire_tools(entry)) is not None:
                yield from tools
            else:
                problems.append(ApiSpecError(name, "not an API spec", pointer=f"/{number}", hint=_HINT))
        except ToolwireError as error:
            problems.append(ApiSpecError(name, error.message, pointer=f"/{number}{error.pointer}", hint=error.hint))


def _read_wire_tools(document: JSON) -> Sequence[Tool] | None:
    """Return the tools of a tool list or a request of any wire; None for another document."""
    try:
        found = detect(document)
    except ProtocolError:
        return None
    body: Any = document
    if found.kind == "request" and found.wire != mcp.NAME:
        return get(found.wire).decode_request(body).tools
    if found.kind != "tools":
        return None
    if found.wire == mcp.NAME:
        return mcp.list_tools([body] if type(body) is dict and "inputSchema" in body else body)
    return get(found.wire).decode_tools(body.get("tools", [body]) if type(body) is dict else body)


def _make_unique(tools: Iterable[Tool]) -> Iterator[Tool]:
    """Add a number to names that repeat."""
    seen: dict[str, int] = {}
    for tool in tools:
        count = seen[tool.name] = seen.get(tool.name, 0) + 1
        yield tool if count == 1 else replace(tool, name=f"{tool.name}_{count}")
