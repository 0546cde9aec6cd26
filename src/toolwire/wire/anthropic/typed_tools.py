"""Anthropic's tools that the client runs: bash, the text editor, memory and the computer.

    {"type": "bash_20250124", "name": "bash"}
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10000}
    {"type": "memory_20250818", "name": "memory"}
    {"type": "computer_20251124", "name": "computer", "display_width_px": 1024, "display_height_px": 768, …}

    {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": false}}}
        one call: {"type": "tool_use", "name": "left_click", "toolset_name": "computer", "input": {…}}

The declaration has no schema, because the models were trained on these tools. On other wires they are functions with the
schemas below. A call is an ordinary `tool_use` block of that name, so it needs no conversion, except for the toolset: its
actions are names of blocks, and an argument of the function. Sources: anthropic 2.10.0,
ToolBash20250124Param and its siblings; for `insert_text`, anthropics/anthropic-sdk-python#1155.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from ...ir.parts import ToolCall
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ..typed_tools import array, choice, closed, integer, text

_NAME = "anthropic"
_TYPE = re.compile(r"(bash|text_editor|memory|computer)_(\d{8})").fullmatch
_LAST_UNDO = "20250124"  # the last version of the editor with `undo_edit`, and with `new_str` for inserted text
_MORE_ACTIONS = "20250124"  # the first version of the computer with scrolling, dragging by steps and waiting
_ZOOM = "20251124"  # the first version with zoom


def read_typed_tool(raw: Object) -> Tool | None:
    """Return the tool of a declaration, or None for a tool that Anthropic runs, or that is unknown."""
    kind = raw.get("type")
    if kind == TOOLSET:
        description, schema = _toolset(raw)
        return Tool(_COMPUTER, description, schema, kind="typed", extra={_NAME: raw})
    match = _TYPE(kind) if type(kind) is str else None
    if match is None:
        return None
    family, version = match.groups()
    name, describe = _FAMILIES[family]
    if family == "text_editor" and version <= _LAST_UNDO:
        name = "str_replace_editor"
    given = raw.get("name")
    description, schema = describe(raw, version)
    return Tool(given if type(given) is str else name, description, schema, kind="typed", extra={_NAME: raw})


def _bash(raw: Object, version: str) -> tuple[str, Object]:
    del raw, version
    description = (
        "Run a command in a bash session on the user's machine and return its output. The session keeps its state "
        "(working directory, variables, background processes) from call to call. Commands cannot read from a terminal."
    )
    schema = closed(
        {
            "command": text("The command line to run. Required unless `restart` is true."),
            "restart": {"type": "boolean", "description": "True to end the session and start a new one."},
        }
    )
    return description, schema


def _text_editor(raw: Object, version: str) -> tuple[str, Object]:
    """Describe the editor; its versions differ in undo, in a field of `insert` and in the limit of `view`."""
    has_undo = version <= _LAST_UNDO
    commands = ["view", "create", "str_replace", "insert", *(["undo_edit"] if has_undo else [])]
    limit = raw.get("max_characters")
    shown = f" At most {limit} characters of a file are shown." if type(limit) is int else ""
    inserted = "new_str" if has_undo else "insert_text"
    description = (
        f"View and edit text files. `view` shows a file with line numbers, or lists a directory.{shown} `create` writes "
        "a new file with `file_text`. `str_replace` replaces `old_str`, which must occur exactly once in the file, by "
        f"`new_str`. `insert` adds `{inserted}` after the line `insert_line`."
    )
    if has_undo:
        description += " `undo_edit` reverts the last edit of a file."
    properties: Object = {
        "command": choice(commands, "The operation."),
        "path": text("The path of the file or directory."),
        **_EDIT_PROPERTIES,
    }
    if not has_undo:
        properties["insert_text"] = _INSERT_TEXT
    return description, closed(properties, "command", "path")


_LINE_RANGE = array(
    integer("A line number, counted from 1."),
    "For `view` of a file: the first and the last line to show. -1 as the last line is the end of the file.",
)
_EDIT_PROPERTIES: Object = {
    "view_range": _LINE_RANGE,
    "file_text": text("For `create`: the content of the new file."),
    "old_str": text("For `str_replace`: the text to replace, exactly as it is in the file."),
    "new_str": text("The new text."),
    "insert_line": integer("For `insert`: the number of the line after which the text is added; 0 is the start."),
}
_INSERT_TEXT = text("For `insert`: the text to add.")


def _memory(raw: Object, version: str) -> tuple[str, Object]:
    del raw, version
    description = (
        "Read and write files under /memories, which outlive this conversation. View the directory before you begin a "
        "task, because it may contain notes about earlier work, and note progress while you work. `view` shows a file or "
        "lists a directory, `create` writes a file, `str_replace` replaces `old_str`, which must occur once, `insert` "
        "adds `insert_text` after a line, `delete` removes a file or a directory, `rename` moves `old_path` to `new_path`."
    )
    schema = closed(
        {
            "command": choice(["view", "create", "str_replace", "insert", "delete", "rename"], "The operation."),
            "path": text("The path under /memories, for every command except `rename`."),
            **_EDIT_PROPERTIES,
            "insert_text": _INSERT_TEXT,
            "old_path": text("For `rename`: the present path."),
            "new_path": text("For `rename`: the new path."),
        },
        "command",
    )
    return description, schema


TOOLSET = "computer_toolset_20260801"
_COMPUTER = "computer"  # the name of the function, and of the toolset in its blocks
_ACTIONS = (
    "key type mouse_move left_click left_click_drag right_click middle_click double_click screenshot cursor_position"
).split()
_LATER_ACTIONS = "left_mouse_down left_mouse_up scroll hold_key wait triple_click".split()


def _computer(raw: Object, version: str) -> tuple[str, Object]:
    """Describe the computer with the size of its display, which positions refer to."""
    actions = [*_ACTIONS, *(_LATER_ACTIONS if version >= _MORE_ACTIONS else [])]
    if version >= _ZOOM and raw.get("enable_zoom") is True:
        actions.append("zoom")
    return _describe_actions(
        actions, _display(raw.get("display_width_px"), raw.get("display_height_px"), raw.get("display_number"))
    )


def _toolset(raw: Object) -> tuple[str, Object]:
    return _describe_actions(_enabled_actions(raw), "")


def _enabled_actions(raw: Object) -> list[str]:
    """Return the actions of a toolset; each is enabled unless its configuration disables it."""
    configs: JSON = raw.get("configs")
    configs = configs if type(configs) is dict else {}
    disabled = {name for name, config in configs.items() if type(config) is dict and config.get("enabled") is False}
    return [name for name in (*_ACTIONS, *_LATER_ACTIONS, "zoom") if name not in disabled]


def _describe_actions(actions: list[str], display: str) -> tuple[str, Object]:
    hints = ""
    properties: Object = {
        "coordinate": _point("The position (x, y), for `mouse_move`, clicks, `scroll` and the end of a drag."),
        "text": text("For `type`: the text to type. For `key` and `hold_key`: the keys, such as ctrl+s."),
        "start_coordinate": _point("For `left_click_drag`: the position (x, y) at which the drag begins."),
    }
    if not {*_LATER_ACTIONS}.isdisjoint(actions):
        hints = " For clicks and `scroll`, `text` may name keys to hold."
        properties |= {
            "scroll_direction": choice(["up", "down", "left", "right"], "For `scroll`: the direction."),
            "scroll_amount": integer("For `scroll`: the number of steps of the wheel."),
            "duration": {"type": "number", "description": "For `hold_key` and `wait`: the time in seconds."},
        }
    if "zoom" in actions:
        corner = integer("A coordinate in pixels.")
        properties["region"] = array(corner, "For `zoom`: the area (x0, y0, x1, y1) to enlarge.")
    description = (
        f"Control a computer with mouse and keyboard.{display} Positions are in pixels from the top left corner. "
        "`screenshot` returns a picture of the display. Take one to see the result of an action, and before a click, to "
        f"find its position.{hints}"
    )
    return description, closed({"action": choice(actions, "The action."), **properties}, "action")


def _display(width: JSON, height: JSON, number: JSON) -> str:
    size = f" The display has {width} x {height} pixels." if type(width) is int and type(height) is int else ""
    return size + (f" It is the X11 display :{number}." if type(number) is int else "")


def _point(description: str) -> Object:
    return array(integer("A coordinate in pixels."), description)


_FAMILIES: dict[str, tuple[str, Callable[[Object, str], tuple[str, Object]]]] = {
    "bash": ("bash", _bash),
    "text_editor": ("str_replace_based_edit_tool", _text_editor),
    "memory": ("memory", _memory),
    "computer": ("computer", _computer),
}
# Fields that the description of the function includes; `allowed_callers` is only then without effect.
_DESCRIBED = frozenset(
    {"type", "configs", "max_characters", "display_width_px", "display_height_px", "display_number", "enable_zoom"}
)
_DIRECT = {"allowed_callers": ["direct"]}


def other_fields(tool: Tool) -> Object:
    """Return the fields of a declaration that any tool of Anthropic may have, such as `cache_control`."""
    raw = tool.extra.get(_NAME, {})
    return {field: value for field, value in raw.items() if field not in _DESCRIBED and _DIRECT.get(field) != value}


def fit_item(tool: Tool) -> Callable[[Object], Object | None] | None:
    """Return the check of a call of the toolset: its action must be enabled. None for any other tool."""
    raw = tool.extra.get(_NAME, {})
    if raw.get("type") != TOOLSET:
        return None
    actions = frozenset(_enabled_actions(raw))

    def fit(arguments: Object) -> Object | None:
        is_enabled = type(arguments.get("action")) is str and arguments["action"] in actions
        return {name: value for name, value in arguments.items() if value is not None} if is_enabled else None

    return fit


def write_member(call: ToolCall) -> Object:
    """Return the block for a call of the toolset, whose name is the action."""
    fields = dict(call.arguments or {})
    name = fields.pop("action", call.name)
    direct = {"type": "direct"}
    return {
        "type": "tool_use",
        "id": call.id,
        "name": name,
        "input": fields,
        "toolset_name": call.name,
        "caller": direct,
    }


def read_member(call: ToolCall) -> ToolCall | None:
    """Return the call of the function for a call of the toolset, or None for any other call."""
    own = call.extra.get(_NAME, {})
    if own.get("toolset_name") != _COMPUTER or call.arguments is None:
        return None
    others = {name: value for name, value in own.items() if name != "toolset_name" and value != {"type": "direct"}}
    extra = {name: fields for name, fields in call.extra.items() if name != _NAME}
    arguments = {"action": call.name, **call.arguments}
    return replace(
        call, name=_COMPUTER, arguments=arguments, raw=None, extra={**extra, _NAME: others} if others else extra
    )
