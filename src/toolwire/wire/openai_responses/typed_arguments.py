"""The arguments of typed tools on Responses, as the items of their calls hold them.

Models of other providers call a function, and deviate from its schema in known ways: one command as a text, positions as
fractions, the item's own field around the arguments. Such arguments are converted. Others would make an incomplete item,
which a client would run, so the caller ends the answer in a fault.
"""

from __future__ import annotations

from ...ir.pointer import JSON, Object


def fit_shell(arguments: Object) -> Object | None:
    commands = _strings(arguments.get("commands"))
    limits = {name: _whole_number(arguments.get(name)) for name in ("timeout_ms", "max_output_length")}
    return {"commands": commands, **_without_none(limits)} if commands else None


def fit_local_shell(arguments: Object) -> Object | None:
    """Return the action of a call; a command in one text is run by a shell."""
    command: JSON = arguments.get("command")
    command = ["bash", "-lc", command] if type(command) is str and command else _strings(command)
    if not command:
        return None
    env: JSON = arguments.get("env")
    variables = {name: str(value) for name, value in env.items()} if type(env) is dict else {}
    options: Object = {
        "timeout_ms": _whole_number(arguments.get("timeout_ms")),
        "user": _text_or_none(arguments.get("user")),
        "working_directory": _text_or_none(arguments.get("working_directory")),
    }
    return {"command": command, **({"env": variables} if variables else {}), **_without_none(options)}


OPERATIONS = ("create_file", "update_file", "delete_file")


def fit_patch(arguments: Object) -> Object | None:
    """Return the operation of a call. Some models write the item's field `operation` around it."""
    inner: JSON = arguments.get("operation")
    operation = inner if type(inner) is dict else arguments
    kind, path, diff = operation.get("type"), operation.get("path"), operation.get("diff")
    if kind not in OPERATIONS or type(path) is not str or not path:
        return None
    if kind == "delete_file":
        return {"type": kind, "path": path}
    return {"type": kind, "path": path, "diff": diff} if type(diff) is str else None


BUTTONS = ("left", "right", "wheel", "back", "forward")
_POSITION: Object = {"x": int, "y": int}
# The fields of each action by type; `keys` of others than `keypress` are keys to hold, and optional.
ACTIONS: dict[str, Object] = {
    "click": {"button": str, **_POSITION},
    "double_click": _POSITION,
    "drag": {"path": list},
    "keypress": {"keys": list},
    "move": _POSITION,
    "screenshot": {},
    "scroll": {**_POSITION, "scroll_x": int, "scroll_y": int},
    "type": {"text": str},
    "wait": {},
}
_HOLDS_KEYS = frozenset({"click", "double_click", "drag", "move", "scroll"})


def fit_computer(arguments: Object) -> Object | None:
    given: JSON = arguments.get("actions", [arguments])  # some models write a single action without the list
    actions = [fit_action(action) for action in (given if type(given) is list else [given])]
    return {"actions": actions} if actions and None not in actions else None


def fit_action(action: JSON) -> Object | None:
    """Return an action with the fields of its type, or None if one of them is missing or has another type."""
    kind: JSON = action.get("type") if type(action) is dict else None
    if type(kind) is not str or kind not in ACTIONS:
        return None
    fitted: Object = {"type": kind}
    for name, expected in ACTIONS[kind].items():
        value = _fit_field(name, action.get(name), expected)
        if value is None:
            return None
        fitted[name] = value
    held = _strings(action.get("keys")) if kind in _HOLDS_KEYS else []
    return {**fitted, "keys": held} if held else fitted


def _fit_field(name: str, value: JSON, expected: type) -> JSON:
    """Return the value of a field of an action, or None if it has another type."""
    if expected is int:
        return _whole_number(0 if value is None and name.startswith("scroll_") else value)
    if name == "button":
        return value if value in BUTTONS else "left" if value is None else None
    if name == "keys":
        return _strings(value) or None
    if name == "path":
        points = [_fit_point(point) for point in value] if type(value) is list else []
        return points if points and None not in points else None
    return value if type(value) is str else None


def _fit_point(point: JSON) -> Object | None:
    if type(point) is list and len(point) == 2:
        point = {"x": point[0], "y": point[1]}
    if type(point) is not dict:
        return None
    x, y = _whole_number(point.get("x")), _whole_number(point.get("y"))
    return None if x is None or y is None else {"x": x, "y": y}


def _strings(value: JSON) -> list[JSON]:
    """Return a list of texts, or a text as a list of one; nothing for any other value."""
    if type(value) is str:
        return [value] if value else []
    return value if type(value) is list and all(type(item) is str for item in value) else []


def _whole_number(value: JSON) -> int | None:
    """Return a number, rounded: models write positions also as fractions and as text."""
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is float:
        return round(value) if abs(value) < 2**53 else None
    return value if type(value) is int else None


def _text_or_none(value: JSON) -> str | None:
    return value if type(value) is str and value else None


def _without_none(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value is not None}
