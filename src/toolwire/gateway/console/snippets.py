r"""A request as a program to copy: curl, Python or TypeScript.

The document comes from anywhere, and the program runs in the user's shell. So every text in it is a literal that no
other reading can end, and is written by rules that are simpler than the languages:

    curl          JSON text between single quotes, on one line. `'` and `!` are \u escapes inside JSON strings, the only
                  place where they can be, so that the quotes never end and no shell expands a history.
    Python        a literal by `repr`, which escapes everything that is not printable
    TypeScript    JSON, which is a literal of the language, except for the key `__proto__`, which would set a prototype,
                  and for numbers that the language cannot hold: then the body is a string with the JSON text

Characters that do not print, such as direction marks, are escaped in all three. Keys are variables of the environment.
Texts of the document that look like keys are removed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

from ...ir.errors import ConfigError, ProtocolError
from ...ir.parts import Text
from ...ir.pointer import JSON
from ...ir.request import Message, Params, Request
from ...ir.text import dumps
from ...run.traces.redact import REMOVED, Redactor
from ...stream.strict import parse
from ...wire import get
from ...wire.models import vendors
from .messages import SnippetAnswer, SnippetRequest

_VENDORS = {
    "anthropic": "anthropic",
    "cohere": "cohere",
    "gemini": "gemini",
    "gemini_interactions": "gemini",
    "ollama": "ollama",
    "openai_chat": "openai",
    "openai_responses": "openai",
}
_SECRET_FIELDS = frozenset(
    "api_key apikey api-key x-api-key x-goog-api-key authorization proxy-authorization cookie token access_token "
    "authorization_token secret client_secret password".split()
)
_NUMBER = 2**53 - 1
"""The largest integer up to which JavaScript holds all integers, `Number.MAX_SAFE_INTEGER`."""
_QUESTION = Request("MODEL", (Message("user", (Text("QUESTION"),)),), params=Params(max_tokens=1_024))
"""The request around a list of tools. One wire requires a limit; this one is in its documentation's examples."""
_INDENT = 2  # spaces, as in the documents of the page


def snippet_view(request: SnippetRequest) -> SnippetAnswer:
    """Return a program that sends a request, or a question with a list of tools; raise `ToolwireError` for other documents."""
    document = parse(request.document)
    codec = get(request.wire)
    if type(document) is list and document:  # every other wire has the tools of a request in the field `tools`
        tools: JSON = {"tools": document}
        where = {"toolConfig": tools} if codec.name == "bedrock" else tools
        document = {**codec.encode_request(_QUESTION).body, **where}
    if type(document) is not dict:
        raise ProtocolError("a request is a JSON object", hint="copy the request or the tools of a wire")
    vendor = vendors.find(_VENDORS.get(codec.name, "openai"))
    model = request.model or (document.get("model") if type(document.get("model")) is str else "") or "MODEL"
    url = _check_url(request.url) if request.url else vendor.base_url + codec.path(model, stream=request.stream)
    key = vendor.keys[0] if vendor.keys and not vendor.keyless else None
    headers = {"content-type": "application/json", **codec.headers}
    secret = None if key is None else (key.header, key.prefix, key.variable)
    clean = _redact(document, Redactor())
    write = {"curl": _curl, "python": _python, "typescript": _typescript}[request.language]
    return SnippetAnswer(write(url, headers, secret, clean))


def _check_url(url: str) -> str:
    """Return an HTTP address without user, password and fragment, which may be secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"invalid URL {url!r}", hint="give an http or https address")
    return Redactor()(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl())


def _redact(value: JSON, redactor: Redactor) -> JSON:
    """Return a copy of a document without keys: values of fields named like one, and texts with the shape of one."""
    if type(value) is dict:
        return {
            key: REMOVED if key.lower() in _SECRET_FIELDS and type(inner) is str else _redact(inner, redactor)
            for key, inner in value.items()
        }
    if type(value) is list:
        return [_redact(inner, redactor) for inner in value]
    return redactor(value) if type(value) is str else value


_Secret = tuple[str, str, str] | None  # header, prefix and variable of the key


def _curl(url: str, headers: Mapping[str, str], secret: _Secret, document: JSON) -> str:
    body = escape_unprintable(dumps(document)).replace("'", "\\u0027").replace("!", "\\u0021")
    lines = [f"curl -sS -N {shlex.quote(url)}"]
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    if secret is not None:
        name, prefix, variable = secret
        lines.append(f'-H "{name}: {prefix}${variable}"')
    lines.append(f"--data-binary '{body}'")
    return " \\\n  ".join(lines) + "\n"


def _python(url: str, headers: Mapping[str, str], secret: _Secret, document: JSON) -> str:
    lines = [f"    {name!a}: {value!a}," for name, value in headers.items()]
    if secret is not None:
        name, prefix, variable = secret
        value = f'os.environ["{variable}"]'
        lines.append(f"    {name!r}: {f'{prefix!r} + ' if prefix else ''}{value},")
    return "\n".join(
        [
            "import json",
            *(["import os"] if secret is not None else []),
            "import urllib.request",
            "",
            f"body = {_python_literal(document, 0)}",
            "headers = {",
            *lines,
            "}",
            f"request = urllib.request.Request({url!a}, json.dumps(body).encode(), headers)",
            "with urllib.request.urlopen(request) as response:",
            "    for line in response:",
            '        print(line.decode("utf-8", "replace"), end="")',
            "",
        ]
    )


def _python_literal(value: JSON, indent: int) -> str:
    """Write a JSON value as a Python literal. `repr` escapes unprintable characters."""
    outer, inner = " " * indent, " " * (indent + 2 * _INDENT)
    if type(value) is dict and value:
        items = [f"{inner}{key!r}: {_python_literal(item, indent + 2 * _INDENT)}," for key, item in value.items()]
        return "\n".join(["{", *items, f"{outer}}}"])
    if type(value) is list and value:
        items = [f"{inner}{_python_literal(item, indent + 2 * _INDENT)}," for item in value]
        return "\n".join(["[", *items, f"{outer}]"])
    return repr(value)


def _typescript(url: str, headers: Mapping[str, str], secret: _Secret, document: JSON) -> str:
    lines = [f"    {_script_text(name)}: {_script_text(value)}," for name, value in headers.items()]
    if secret is not None:
        name, prefix, variable = secret
        lines.append(f"    {_script_text(name)}: {_script_text(prefix)} + process.env.{variable},")
    literal = f"JSON.stringify({_script_literal(document, _INDENT)})"
    body = literal if _is_exact(document) else _script_text(dumps(document))
    return "\n".join(
        [
            f"const response = await fetch({_script_text(url)}, {{",
            '  method: "POST",',
            "  headers: {",
            *lines,
            "  },",
            f"  body: {body},",
            "});",
            "console.log(await response.text());",
            "",
        ]
    )


def _is_exact(value: JSON) -> bool:
    """Return whether JavaScript keeps all numbers of a document, and their text."""
    if type(value) is dict:
        return all(map(_is_exact, value.values()))
    if type(value) is list:
        return all(map(_is_exact, value))
    if type(value) is float:
        return not value.is_integer()  # 1.0 would become 1
    return type(value) is not int or -_NUMBER <= value <= _NUMBER


def _script_literal(value: JSON, indent: int) -> str:
    outer, inner = " " * indent, " " * (indent + _INDENT)
    if type(value) is dict and value:
        items = [
            f"{inner}{_script_key(key)}: {_script_literal(item, indent + _INDENT)}," for key, item in value.items()
        ]
        return "\n".join(["{", *items, f"{outer}}}"])
    if type(value) is list and value:
        items = [f"{inner}{_script_literal(item, indent + _INDENT)}," for item in value]
        return "\n".join(["[", *items, f"{outer}]"])
    return _script_text(value) if type(value) is str else dumps(value)


def _script_key(key: str) -> str:
    return f"[{_script_text(key)}]" if key == "__proto__" else _script_text(key)


def _script_text(text: str) -> str:
    """Return a string literal. `<` is escaped, because it may be pasted into a page."""
    return escape_unprintable(dumps(text)).replace("<", "\\u003c")


_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def escape_unprintable(text: str) -> str:
    r"""Write characters that do not print as \u escapes. The text is JSON, where they can only be inside strings."""
    if text.isascii() and text.isprintable():
        return text
    return _UNPRINTABLE.sub(_escape_character, text)


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
