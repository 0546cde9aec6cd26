"""OpenAI's tools that the client runs, on Responses: shells, patches of files, and the computer.

    declaration                     item of a call                                 item of its result
    {"type": "local_shell"}         local_shell_call{action: {command, env, …}}    local_shell_call_output{id, output}
    {"type": "shell"}               shell_call{action: {commands, …}}              shell_call_output{output: […]}
    {"type": "apply_patch"}         apply_patch_call{operation: {type, path, …}}   apply_patch_call_output{status, output}
    {"type": "computer"}            computer_call{actions: […]}                    computer_call_output{output: image}
    {"type": "computer_use_preview", "display_width", …}    computer_call{action: {…}}, one action per call

The arguments of the function on another wire are the object or list in the item of a call. `shell` with a container in
`environment` is run by the provider, so it is no typed tool. Sources: openai 3.51.0, response_function_shell_tool_call.py
and its siblings; for the lines of a patch, openai-agents 0.24, apply_diff.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.errors import ProtocolError
from ...ir.parts import Extra, Media, Opaque, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...ir.tools import Tool
from ...ir.value import Value
from ..fields import read_extra
from ..typed_tools import FitArguments, TypedCodec, array, choice, closed, integer, text
from .content import NAME, read_part
from .typed_arguments import (
    ACTIONS,
    BUTTONS,
    OPERATIONS,
    fit_action,
    fit_computer,
    fit_local_shell,
    fit_patch,
    fit_shell,
)

_FORM = "openai_responses~"  # the key of `extra` for the source's spelling


class _TypedTool(Value, frozen=True, eq=False):
    """One typed tool: its declaration, and the form of its calls."""

    describe: Callable[[Object], tuple[str, Object]]  # the description and the schema for a declaration
    described: frozenset[str]  # the fields of the declaration that the description includes
    item: str  # the type of the item of a call
    id_prefix: str
    field: str  # the field of the item that has the arguments
    fit: Callable[[Object], Object | None]  # the arguments as the item holds them, or None if it cannot
    fixed: Object = {}  # other fields of an item


def read_typed_tool(raw: Object) -> Tool | None:
    """Return the tool of a declaration, or None for a tool that OpenAI runs, or that is unknown."""
    kind: JSON = raw.get("type")
    row = _ROWS.get(kind) if type(kind) is str else None
    if row is None or (kind == "shell" and not _is_local(raw.get("environment"))):
        return None
    description, schema = row.describe(raw)
    return Tool(kind, description, schema, kind="typed", extra={NAME: raw})


def _is_local(environment: JSON) -> bool:
    return environment is None or (type(environment) is dict and environment.get("type") == "local")


def _as_function(tool: Tool) -> Tool:
    described = _ROWS[tool.name].described
    raw = tool.extra.get(NAME, {})
    others = {
        field: value for field, value in raw.items() if field not in described and value not in (None, ["direct"])
    }
    return Tool(tool.name, tool.description, tool.input_schema, extra={NAME: others} if others else {})


# shells


def _describe_shell(raw: Object) -> tuple[str, Object]:
    """Describe the shell with the skills in its environment."""
    description = (
        "Run shell commands on the user's machine, in order, and return the output and the exit code of each. Separate "
        "commands may run in separate shells: join dependent steps with && in one command. Commands cannot read from a "
        f"terminal.{_list_skills(raw.get('environment'))}"
    )
    schema = closed(
        {
            "commands": array({"type": "string"}, "The command lines, in the order in which they are run."),
            "timeout_ms": integer("The time limit of the commands in milliseconds."),
            "max_output_length": integer("The maximum number of characters of output to return."),
        },
        "commands",
    )
    return description, schema


def _list_skills(environment: JSON) -> str:
    skills: JSON = environment.get("skills") if type(environment) is dict else None
    lines = [
        f"\n- {skill.get('name')} ({skill.get('path')}): {skill.get('description')}"
        for skill in (skills if type(skills) is list else ())
        if type(skill) is dict
    ]
    return (
        f" Instructions for some tasks are in these folders; read SKILL.md in them first:{''.join(lines)}"
        if lines
        else ""
    )


def _describe_local_shell(raw: Object) -> tuple[str, Object]:
    del raw
    description = (
        "Run one program on the user's machine and return its output. No shell interprets the arguments; for pipes and "
        'variables use ["bash", "-lc", "…"]. The program cannot read from a terminal.'
    )
    schema = closed(
        {
            "command": array({"type": "string"}, "The program and its arguments."),
            "working_directory": text("The directory in which it is run."),
            "env": {"type": "object", "description": "Environment variables to add: texts by name."},
            "timeout_ms": integer("The time limit in milliseconds."),
            "user": text("The user who runs it."),
        },
        "command",
    )
    return description, schema


# patches


def _describe_patch(raw: Object) -> tuple[str, Object]:
    del raw
    description = (
        "Create, change or delete one file in the user's workspace. In `diff` of `create_file`, every line begins with "
        "+. In `diff` of `update_file`, unchanged lines begin with a space, removed ones with - and added ones with +; "
        "show about three unchanged lines before and after each change, and begin each group of changes with a line @@, "
        "or @@ and the line of the class or function that contains it. There are no line numbers and no file names in a "
        "diff. `delete_file` has no diff."
    )
    schema = closed(
        {
            "type": choice([*OPERATIONS], "The operation."),
            "path": text("The path of the file, relative to the workspace."),
            "diff": text("The lines of the change, for `create_file` and `update_file`."),
        },
        "type",
        "path",
    )
    return description, schema


# the computer

_POINT = closed({"x": integer("Pixels from the left."), "y": integer("Pixels from the top.")}, "x", "y")
_ACTION = closed(
    {
        "type": choice([*ACTIONS], "The action."),
        "x": integer("Pixels from the left edge, for `click`, `double_click`, `move` and `scroll`."),
        "y": integer("Pixels from the top edge, for the same actions."),
        "button": choice(BUTTONS, "The mouse button of a `click`."),
        "path": array(_POINT, "The positions of a `drag`, from its start to its end."),
        "keys": array({"type": "string"}, "The keys of a `keypress`; for other actions, keys to hold."),
        "scroll_x": integer("The distance of a `scroll` to the right, in pixels."),
        "scroll_y": integer("The distance of a `scroll` downwards, in pixels."),
        "text": text("The text of `type`."),
    },
    "type",
)
_COMPUTER = (
    "Control a computer with mouse and keyboard. The result is a screenshot, taken after the last action. Positions are "
    "in pixels of the latest screenshot, from its top left corner; begin with the action `screenshot`."
)


def _describe_computer(raw: Object) -> tuple[str, Object]:
    del raw
    return f"{_COMPUTER} Actions are done in order.", closed(
        {"actions": array(_ACTION, "The actions, in the order in which they are done.")}, "actions"
    )


def _describe_preview(raw: Object) -> tuple[str, Object]:
    width, height, system = (raw.get(name) for name in ("display_width", "display_height", "environment"))
    size = f" The display has {width} x {height} pixels." if type(width) is int and type(height) is int else ""
    kind = f" Its environment is {system}." if type(system) is str else ""
    return f"{_COMPUTER} A call does one action.{size}{kind}", _ACTION


_ROWS: dict[str, _TypedTool] = {
    "local_shell": _TypedTool(
        _describe_local_shell, frozenset({"type"}), "local_shell_call", "lsh", "action", fit_local_shell
    ),
    "shell": _TypedTool(_describe_shell, frozenset({"type", "environment"}), "shell_call", "sh", "action", fit_shell),
    "apply_patch": _TypedTool(_describe_patch, frozenset({"type"}), "apply_patch_call", "apc", "operation", fit_patch),
    "computer": _TypedTool(
        _describe_computer,
        frozenset({"type"}),
        "computer_call",
        "cu",
        "actions",
        fit_computer,
        {"pending_safety_checks": []},
    ),
    "computer_use_preview": _TypedTool(
        _describe_preview,
        frozenset({"type", "display_width", "display_height", "environment"}),
        "computer_call",
        "cu",
        "action",
        fit_action,
        {"pending_safety_checks": []},
    ),
}
_NAMES = {"local_shell_call": "local_shell", "shell_call": "shell", "apply_patch_call": "apply_patch"}
_COMPLETE_ACTIONS: dict[str, Object] = {  # fields that the item has, and the arguments may lack
    "local_shell": {"type": "exec", "env": {}, "timeout_ms": None, "user": None, "working_directory": None},
    "shell": {"timeout_ms": None, "max_output_length": None},
}


def typed_prefix(name: str) -> str:
    """Return the prefix of the id of a call's item."""
    row = _ROWS.get(name)
    return "fc" if row is None else row.id_prefix


def _fit_item(tool: Tool) -> FitArguments:
    return _ROWS[tool.name].fit


def write_typed_call(call: ToolCall) -> Object | None:
    """Return the item of a call without its id, or None for a call that is incomplete or that no item can hold."""
    row = _ROWS.get(call.name)
    arguments = None if row is None or call.arguments is None else row.fit(call.arguments)
    if row is None or arguments is None or call.state != "complete":
        return None
    value: JSON = arguments["actions"] if row.field == "actions" else arguments
    if call.name in _COMPLETE_ACTIONS:
        value = {**_COMPLETE_ACTIONS[call.name], **arguments}
    return {"type": row.item, "call_id": call.id, row.field: value, **row.fixed, "status": "completed"}


def _read_call(part: Opaque) -> ToolCall | None:
    """Return the call of a function for an item; None for an item without the usual content."""
    item = part.value
    name = _NAMES.get(part.type) or ("computer" if type(item.get("actions")) is list else "computer_use_preview")
    row = _ROWS[name]
    content: JSON = item.get(row.field)
    content = {"actions": content} if row.field == "actions" else content
    arguments = row.fit(content) if type(content) is dict else None
    call_id = item.get("call_id") or item.get("id")
    if arguments is None or type(call_id) is not str:
        return None
    return ToolCall(call_id, name, arguments, extra=_rest(item, ("type", "call_id", row.field)))


def _rest(item: Object, known: tuple[str, ...]) -> Extra:
    """Return the fields of an item that the call or the result of the function lacks, without empty ones."""
    extra = read_extra(item, known, NAME)
    return {NAME: extra[NAME]} if NAME in extra else {}


def read_typed_part(part: Opaque) -> ToolCall | ToolResult | None:
    """Return the call or the result of a function for an item of a typed tool, or None for any other item."""
    if part.type in _NAMES or part.type == "computer_call":
        return _read_call(part) if type(part.value) is dict else None
    read_output = _OUTPUTS.get(part.type)
    if read_output is None:
        return None
    item = part.value
    call_id: JSON = item.get("call_id") or item.get("id")
    result = read_output(item) if type(call_id) is str else None
    if result is None:
        return None
    content, is_error = result
    known = ("type", "output", "call_id") if "call_id" in item else ("type", "output", "id")
    return ToolResult(call_id, None, (content,), is_error=is_error, extra=_rest(item, (*known, "max_output_length")))


def _read_shell_output(item: Object) -> tuple[Text | Media | Opaque, bool] | None:
    """Return the output of all commands as one text, each with its errors and, if it failed, its outcome."""
    chunks: JSON = item.get("output")
    if type(chunks) is not list:
        return None
    texts = [_chunk_text(chunk) for chunk in chunks if type(chunk) is dict]
    return Text("\n".join(texts) or _NO_OUTPUT), False


_NO_OUTPUT = "(no output)"


def _chunk_text(chunk: Object) -> str:
    outcome: JSON = chunk.get("outcome")
    outcome = outcome if type(outcome) is dict else {}
    lines: list[str] = [str(chunk["stdout"]).removesuffix("\n")] if chunk.get("stdout") else []
    if chunk.get("stderr"):
        lines.append(f"[stderr]\n{chunk['stderr']}".removesuffix("\n"))
    if outcome.get("type") == "timeout":
        lines.append("[timed out]")
    elif outcome.get("exit_code") not in (0, None):
        lines.append(f"[exit code {outcome['exit_code']}]")
    return "\n".join(lines) or _NO_OUTPUT


def _read_text_output(item: Object) -> tuple[Text | Media | Opaque, bool] | None:
    output: JSON = item.get("output")
    content = output if type(output) is str else dumps(output) if output else ""
    return Text(content or _NO_OUTPUT), False


def _read_patch_output(item: Object) -> tuple[Text | Media | Opaque, bool] | None:
    status, output = item.get("status"), item.get("output")
    content = output if type(output) is str and output else f"The patch {status or 'completed'}."
    return Text(content), status == "failed"


def _read_screenshot(item: Object) -> tuple[Text | Media | Opaque, bool] | None:
    """Return the image of a screenshot, or None if there is none."""
    output: JSON = item.get("output")
    if type(output) is not dict:
        return None
    fields = {name: output[name] for name in ("image_url", "file_id", "detail") if output.get(name)}
    try:
        content = read_part({"type": "input_image", **fields})
    except ProtocolError:
        return None
    if not isinstance(content, Media):
        return None
    form = {name: scope for name, scope in content.extra.items() if name != _FORM}
    return Media(
        "image",
        content.media_type,
        content.data,
        content.url,
        content.file_id,
        detail=content.detail,
        owner=content.owner,
        extra=form,
    ), False


_OUTPUTS: dict[str, Callable[[Object], tuple[Text | Media | Opaque, bool] | None]] = {
    "local_shell_call_output": _read_text_output,
    "shell_call_output": _read_shell_output,
    "apply_patch_call_output": _read_patch_output,
    "computer_call_output": _read_screenshot,
}

TYPED = TypedCodec(as_function=_as_function, read_part=read_typed_part, fit_item=_fit_item)
