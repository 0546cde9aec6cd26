"""Write a translation as one HTML file that needs no server: the page's modules, styles and data in it.

The file's content security policy allows exactly its own script and style, by their hashes, and no address. The data is
in a block that no browser runs, and `<` is escaped in it, so that no text can end the block.

There is no build tool: each module becomes a function that returns its exports. The page's modules use these forms only,
each at the start of a line, and `static/export.json` lists them in the order of their imports:

    import {a, b as c} from "./x.js";    import * as x from "./x.js";
    export {a, b as c};                  export const|function|async function|class NAME …
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import PurePosixPath

import msgspec

from ...bridge.comparison import Comparison
from .api import title_of
from .messages import TranslateAnswer
from .static_files import static_files
from .translation import encode_comparison

_FORMATS = ("hermes", "qwen3_xml", "llama3_json", "mistral_v11", "deepseek_v31", "harmony")
"""Text formats of a file: one of each notation that is common. All of them would be a megabyte for a small request."""
TARGETS = ("wires", *_FORMATS)

_import = re.compile(r'^import\s*(\{[^{}]*\}|\* as [\w$]+)\s*from\s*"([^"]+)";', re.MULTILINE)
_export_list = re.compile(r"^export\s*\{([^{}]*)\};?", re.MULTILINE)
_export_name = re.compile(r"^export\s+((?:const|let|async function\*?|function\*?|class)\s+([\w$]+))", re.MULTILINE)
_left_over = re.compile(r"^[ \t]*(?:import\b(?!\()|export\b)", re.MULTILINE)


class ExportedTranslation(TranslateAnswer, kw_only=True):
    """The data of the file. `titles` has the titles of the wires and formats in it."""

    titles: dict[str, str]


def write_page(comparison: Comparison) -> str:
    """Return the HTML file of a comparison."""
    answer = encode_comparison(comparison)
    names = [answer.source.name, *(output.name for output in answer.outputs)]
    data = ExportedTranslation(
        answer.source, answer.outputs, answer.elements, answer.left_out, titles={name: title_of(name) for name in names}
    )
    pages = static_files()
    listed = msgspec.json.decode(pages["export.json"].body)
    style = "\n".join(pages[name].body.decode() for name in listed["css"])
    script = bundle({name: pages[name].body.decode() for name in listed["modules"]})
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            "<title>toolwire</title>",
            '<link rel="icon" href="data:,">',
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            '<div id="app"><noscript>This page needs JavaScript. It loads nothing.</noscript></div>',
            f'<script type="application/json" id="toolwire-data">{_escape(msgspec.json.encode(data).decode())}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _escape(data: str) -> str:
    """Escape `<` in JSON, where it can only be in strings, and line separators that old scripts end at."""
    return data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def bundle(modules: dict[str, str]) -> str:
    """Return one script of modules, by their paths, in the order of their imports.

    Raise ValueError for a form that this function does not read: the page's own test calls it.
    """
    variables = {name: f"$module{index}" for index, name in enumerate(modules)}
    parts = ['"use strict";']
    for name, source in modules.items():
        parts.append(f"const {variables[name]} = (() => {{\n{_as_function(name, source, variables)}\n}})();")
    script = "\n".join(parts)
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise ValueError("a module contains the end of a script")
    return script


def _as_function(name: str, source: str, variables: dict[str, str]) -> str:
    """Return the body of the function of a module."""
    exports: list[str] = []

    def replace_import(match: re.Match[str]) -> str:
        names, address = match.groups()
        path = _resolve(name, address)
        if path not in variables:
            raise ValueError(f"{name} imports {path}, which is not listed before it")
        if names.startswith("*"):
            return f"const {names.removeprefix('* as ')} = {variables[path]};"
        return f"const {names.replace(' as ', ': ')} = {variables[path]};"

    def replace_list(match: re.Match[str]) -> str:
        for item in filter(None, (part.strip() for part in match[1].split(","))):
            local, _, public = item.partition(" as ")
            exports.append(f"{public.strip() or local}: {local.strip()}")
        return ""

    def replace_name(match: re.Match[str]) -> str:
        exports.append(match[2])
        return match[1]

    body = _import.sub(replace_import, source)
    body = _export_list.sub(replace_list, body)
    body = _export_name.sub(replace_name, body)
    if match := _left_over.search(body):
        raise ValueError(f"{name}: unknown form {body[match.start() : match.start() + 80]!r}")
    return f"{body}\nreturn {{{', '.join(exports)}}};"


def _resolve(name: str, address: str) -> str:
    """Return the path of a module that the module `name` imports."""
    parts: list[str] = []
    for part in (PurePosixPath(name).parent / address).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
