"""Translate the hints of errors into the terms of the surface that shows them.

The library writes hints for Python programs: `pass insecure=True`. The command line and the gateway show the same errors,
where the same setting is an option or a key of a TOML file, or does not exist. They translate a hint once, where they
show the error:

    translate_hint("use https, or pass insecure=True if you trust the network", "setting")
    →               use https, or set insecure = true if you trust the network
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

HintSurface: TypeAlias = Literal["option", "api_option", "setting"]
"""Options of a command, options of a command for an OpenAPI document, keys of the gateway's TOML file."""


class PhraseTranslation(NamedTuple):
    """A phrase on each surface. Empty: the surface has no such setting."""

    option: str
    api_option: str
    setting: str


def _everywhere(option: str, setting: str) -> PhraseTranslation:
    return PhraseTranslation(option, option, setting)


PHRASES: dict[str, PhraseTranslation] = {
    ", or pass insecure=True if you trust the network": PhraseTranslation(
        "", ", or add --api-insecure if you trust the network", ", or set insecure = true if you trust the network"
    ),
    "pass key=… instead": PhraseTranslation(
        "add --key-env NAME instead", "add --api-auth-env NAME instead", 'set key_env = "NAME" instead'
    ),
    "or pass key=… or key_command=…": _everywhere("or add --key-env NAME", "or set key_env or key_command"),
    "or pass the address of the server: base_url=…": _everywhere("or add --base-url URL", "or set base_url"),
    'pass the URL of the API: base_url="https://api.example.com"': _everywhere(
        "add --api-url URL", 'set base_url = "https://api.example.com"'
    ),
    "check base_url=…": _everywhere("check --base-url", "check base_url"),
    "pass its key: key=…": _everywhere("add --key-env NAME", "set key_env"),
    "check the key that you passed": _everywhere("check the key in the variable of --key-env", "check its key"),
    "name its wire and kind": _everywhere("add --from WIRE and --kind KIND", ""),
    "pass store=open_store(…)": _everywhere("add --store URL", "set a store"),
    "raise limit=…": _everywhere("", ""),
    'pass via="completions"': _everywhere("add --via completions", 'set via = "completions"'),
    "pass a token in headers, or a login": _everywhere(
        "add --header 'Authorization=Bearer ${TOKEN}', or --login", 'set "headers" of the server'
    ),
    "pass client_id, and a secret if there is one, to Login": _everywhere(
        "use a token instead: --header 'Authorization=Bearer ${TOKEN}'", 'use a token in "headers" of the server'
    ),
    "pass pypi=…, url=…, or both": _everywhere("add --pypi PACKAGE, --url URL, or both", ""),
    'pass version="1.0.0"': _everywhere("use --version 1.0.0", ""),
    "pass a shorter description=…": _everywhere(
        "add --description, or shorten the first line of the file's docstring", ""
    ),
    ", or pass choose=choose_by_words to prepare()": _everywhere("", ", or set retrieve = true for the model"),
    "pass key_variable=… for it": _everywhere("name the variable of its key by --key-env", ""),
    "pass key_command=…, or export": _everywhere("add --key-command COMMAND, or export", ""),
    "check deps=…": _everywhere("check --deps", ""),
    "check files=…": _everywhere("check --files", ""),
    "leave out repository=…": _everywhere("leave out --repository", ""),
}
"""Phrases of hints of the library, in Python terms."""


def translate_hint(hint: str, surface: HintSurface) -> str:
    """Replace the Python terms of a hint by the terms of a surface.

    >>> translate_hint("write PROVIDER/MODEL, or pass the address of the server: base_url=…", "option")
    'write PROVIDER/MODEL, or add --base-url URL'
    """
    for phrase, terms in PHRASES.items():
        if phrase in hint:
            hint = hint.replace(phrase, getattr(terms, surface)).strip(" ,;")
    return hint
