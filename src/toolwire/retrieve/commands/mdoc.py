"""Plain text of a line of `mdoc` macros, such as `.Op Fl p Ar port`: `[-p <port>]`.

Separate because `mdoc` describes the meaning of words, where the `man` macros describe their fonts.
"""

from __future__ import annotations

from .roff_text import plain_text, split_arguments

__all__ = ["MDOC_MACROS", "mdoc_text"]

_ENCLOSURES = {"Op": "[]", "Oo": "[", "Oc": "]", "Bq": "[]", "Pq": "()", "Dq": '""', "Sq": "''", "Qq": '""', "Aq": "<>"}
_PLAIN = {"Cm", "Ic", "Em", "Sy", "Pa", "Ev", "Dv", "Va", "Li", "Xr", "No", "Tn", "Ql", "Er", "Cd", "Ad", "Lk", "Nd"}
MDOC_MACROS = frozenset({"Fl", "Ar", "Nm", "Ns", "Pf", "Sm", "Ap", "Xo", "Xc", *_ENCLOSURES, *_PLAIN})
_CLOSING = frozenset(".,;:)]?!")


def mdoc_text(line: str, name: str) -> str:
    """Return the text of a line that consists of macros and their arguments. `name`: the value of `.Nm`."""
    parts: list[str] = []
    closing: list[str] = []
    macro, joins, words_of_macro = "", False, 0
    for word in [*split_arguments(line), ""]:
        if word in MDOC_MACROS or not word:
            parts += _default_text(macro, words_of_macro, name)
            if word == "Ns" and parts:
                joins = True
                continue
            macro, words_of_macro = word, 0
            if word in _ENCLOSURES:
                pair = _ENCLOSURES[word]
                parts.append(pair[0])
                closing += pair[1:]
            continue
        words_of_macro += 1
        if macro == "Nd" and words_of_macro == 1:
            parts.append("-")
        text = _style(plain_text(word), macro)
        if parts and (joins or word in _CLOSING):
            parts[-1] += text
        else:
            parts.append(text)
        joins = macro == "Pf" and words_of_macro == 1
    return _join([*parts, *reversed(closing)])


def _default_text(macro: str, words: int, name: str) -> list[str]:
    """Return the text of a macro that has no arguments."""
    if words:
        return []
    return {"Nm": [name] if name else [], "Ar": ["<file>", "..."], "Fl": ["-"]}.get(macro, [])


def _style(word: str, macro: str) -> str:
    if macro == "Fl" and word not in _CLOSING and word != "|":
        return f"-{word}"
    if macro == "Ar" and word not in ("...", "|") and word not in _CLOSING:
        return f"<{word}>"
    return word


def _join(parts: list[str]) -> str:
    text = " ".join(part for part in parts if part)
    for opening in "([":
        text = text.replace(f"{opening} ", opening)
    for end in ")],":
        text = text.replace(f" {end}", end)
    return text.strip()
