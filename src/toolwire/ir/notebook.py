"""Values as small HTML tables in notebooks. IPython calls `_repr_html_`; nothing of it is imported here.

Every text may come from a model or a tool: it is shortened, escaped, and without active control characters. The tables
have no colours, scripts or references, so they have the theme of the notebook, light or dark. Notebooks render `$…$`
with MathJax, which skips elements of the classes below (its options `ignoreHtmlClass`, before version 3 `ignoreClass`).

A class names the attributes that are its columns: `_columns = "severity path detail"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

_MAX_ROWS = 200  # more are slow to lay out, and a list of them is read by a program
_MAX_TEXT = 2_000  # characters of a cell, about a screen
_CELL = 'style="text-align:left;vertical-align:top;white-space:pre-wrap"'


class Displayed(Protocol):
    """A value with columns."""

    @property
    def _columns(self) -> str: ...


class ValueTable:
    """Values of one class, such as losses or findings, as one table in a notebook.

    >>> from toolwire.ir import Loss
    >>> ValueTable([Loss("/top_k", "top_k", "dropped", "warning", "no such parameter")])
    warning  /top_k  top_k dropped: no such parameter
    """

    def __init__(self, values: Iterable[Displayed]) -> None:
        self._values = tuple(values)

    def __repr__(self) -> str:
        return "\n".join(map(str, self._values))

    def _repr_html_(self) -> str:
        return html_table(*table_of(self._values))


def repr_html(value: Displayed) -> str:
    """Return a value as a table with one row; this is the method `_repr_html_` of its class."""
    return html_table(*table_of((value,)))


def table_of(values: Sequence[Displayed]) -> tuple[list[str], list[list[object]]]:
    """Return the columns of the first value, and a row for each value."""
    columns = values[0]._columns.split() if values else []
    return columns, [[getattr(value, column) for column in columns] for value in values]


def html_table(columns: Iterable[str], rows: Sequence[Iterable[object]], text: str = "") -> str:
    """Return a table with a header and the first rows, after a text."""
    lines = [f"<p {_CELL}>{_cell(text)}</p>"] if text else []
    lines.append(f"<table><tr>{''.join(f'<th {_CELL}>{_cell(name)}</th>' for name in columns)}</tr>")
    lines += [
        f"<tr>{''.join(f'<td {_CELL}>{_cell(value)}</td>' for value in row)}</tr>" for row in islice(rows, _MAX_ROWS)
    ]
    rest = len(rows) - _MAX_ROWS
    lines.append(f"</table>{f'<p>and {rest} more</p>' if rest > 0 else ''}")
    return f'<div class="mathjax_ignore tex2jax_ignore">{"".join(lines)}</div>'


def _cell(value: object) -> str:
    """Return a value as escaped text. None and an empty list are an empty cell."""
    from html import escape

    from .terminal import neutralise_text
    from .text import shorten

    text = ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value or "")
    return escape(neutralise_text(shorten(text, _MAX_TEXT)))
