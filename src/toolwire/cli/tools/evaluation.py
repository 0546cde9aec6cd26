"""`toolwire tools eval`: measure how often a search finds the right tools."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError, ProtocolError
from ...ir.terminal import count_of, neutralise_line
from ..sources.documents import read_bytes, replace_file
from ..terminal.bar_chart import Bar, BarGroup, check_plot_path, draw_bars, render_plot
from ..terminal.options import add_command, add_executor, open_executor, percentage, positive_number, whole_number
from ..terminal.output import ProgressBar, json_text, paint, print_note, table
from .groups import INDEX_HELP, add_index_options, open_index, require_numpy

if TYPE_CHECKING:
    from ...retrieve.evaluation import LabelledQuery, Method, MethodComparison


# all are held in memory and searched; far beyond the 50 that the documentation asks for. Not measured
_MAX_QUERIES = 100_000
_HELP = """\
Measure how often a search finds the right tools, beside words alone and meaning alone.

examples:
  toolwire tools eval tools.index queries.jsonl
  toolwire tools eval tools.index queries.jsonl --plot recall.svg
  toolwire tools eval pets.yaml queries.jsonl --words-only --fail-under 80

Each line of QUERIES: {"query": "find a pet", "gold": ["find_pet"], "group": "pets"}. gold: names of tools, or
server/name; group (or corpus) is optional.
R@k: share of the gold tools among the first k, in percent. NDCG@10: also counts their ranks.
words: BM25 alone. meaning: vectors alone. ranks: plain fusion of both. search: the order that toolwire returns.
[low, high]: 95 % interval of the difference to search, by a paired bootstrap over the queries.
exit codes: 0 done   1 R@10 of search is below --fail-under   2 wrong usage, or unreadable file
"""


def add_eval(actions: Any) -> None:
    """Register `toolwire tools eval` with its options."""
    parser = add_command(actions, "eval", "measure how often a search finds the right tools", _HELP, _evaluate)
    parser.add_argument("source", metavar="FILE|SOURCE", help=INDEX_HELP)
    parser.add_argument("queries", metavar="QUERIES", help="JSON Lines of queries with their gold tools")
    parser.add_argument("--plot", metavar="FILE", help="write a chart to FILE.svg or FILE.html")
    parser.add_argument("--seed", type=whole_number, default=0, metavar="NUMBER", help="seed of the bootstrap (0)")
    parser.add_argument(
        "--rounds", type=positive_number, default=10_000, metavar="NUMBER", help="rounds of the bootstrap (10000)"
    )
    parser.add_argument("--fail-under", type=percentage, metavar="PERCENT", help="exit with 1 if R@10 is lower")
    add_index_options(parser)
    add_executor(parser)


def _evaluate(arguments: argparse.Namespace) -> int:
    """Measure the search methods on labelled queries, print tables, and with --plot write a chart.

    Returns 1 if R@10 is below --fail-under. Raises `ConfigError` if no gold tool is in the index.
    """
    check_plot_path(arguments.plot)
    require_numpy()
    from ...retrieve.evaluation import compare_methods, missing_gold

    queries = read_queries(arguments.queries)  # before the index, which may take minutes
    executor = open_executor(arguments)
    index = open_index(arguments.source, arguments)
    missing = missing_gold(index, queries)
    if len(missing) == len({name for query in queries for name in query.gold}):
        names = ", ".join(indexed.tool.name for indexed in islice(index, 3))
        raise ConfigError("none of the gold tools is in the index", hint=f"the index has names such as {names}")
    if missing:
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        print_note(f"{count_of(len(missing), 'gold tool')} not in the index, counted as not found: {some}")
    with ProgressBar("searching") as bar:
        compared = compare_methods(index, queries, bar, executor=executor)
    if arguments.json:
        print(json_text(_document(compared, arguments)))
    else:
        _print_tables(compared, arguments)
    if arguments.plot:
        replace_file(arguments.plot, render_plot(arguments.plot, "R@10 in percent", _chart(compared), 100), mode=0o666)
        print_note(f"wrote {arguments.plot}", None)
    return int(arguments.fail_under is not None and 100 * compared.mean("search", "R@10") < arguments.fail_under)


def read_queries(file: str) -> list[LabelledQuery]:
    """Return the queries of a file of JSON Lines.

    Raises `ConfigError`, with the line, for an invalid line, no queries or too many.
    """
    from ...retrieve.evaluation import LabelledQuery
    from ...stream.strict import parse

    queries: list[LabelledQuery] = []
    for number, line in enumerate(read_bytes(file).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            given = parse(line)
        except ProtocolError as error:
            raise ConfigError(f"{file}, line {number}: {error.message}", hint=_LINE) from None
        query, gold = (given.get("query"), given.get("gold")) if type(given) is dict else (None, None)
        names = (gold,) if type(gold) is str else tuple(gold) if type(gold) is list else ()
        if type(query) is not str or not names or not all(type(name) is str for name in names):
            raise ConfigError(f"{file}, line {number} has no query with gold tools", hint=_LINE)
        if len(queries) == _MAX_QUERIES:
            raise ConfigError(f"{file} has more than {_MAX_QUERIES} queries", hint="use a part of them")
        group = given.get("group", given.get("corpus", ""))
        queries.append(LabelledQuery(query, names, group if type(group) is str else str(group)))
    if not queries:
        raise ConfigError(f"{file} has no queries", hint=_LINE)
    return queries


_LINE = 'write lines such as {"query": "find a pet", "gold": ["find_pet"]}'


def _print_tables(compared: MethodComparison, arguments: argparse.Namespace) -> None:
    """Print a table per group, and the chart."""
    for title, group in _groups(compared):
        count = len(compared.select("search", "R@10", group))
        print(paint(neutralise_line(f"{title}: {count} {'query' if count == 1 else 'queries'}"), "bold"))
        print("\n".join(table(_rows(compared, group, arguments), _headers(compared))))
        print()
    print("R@10 in percent")
    print("\n".join(draw_bars(_chart(compared), 100)))


def _headers(compared: MethodComparison) -> tuple[str, ...]:
    from ...retrieve.evaluation import MEASURES

    return ("method", *MEASURES, "search is better by (R@10)") if len(compared.values) > 1 else ("method", *MEASURES)


def _rows(compared: MethodComparison, group: str | None, arguments: argparse.Namespace) -> list[tuple[str, ...]]:
    """Return a row per method: the measures and, with several methods, the difference of `search` to it."""
    from ...retrieve.evaluation import MEASURES

    rows = []
    for method in compared.values:
        means = (f"{100 * compared.mean(method, measure, group):.1f}" for measure in MEASURES)
        if len(compared.values) == 1:
            rows.append((method, *means))
            continue
        difference = ""
        if method != "search":
            mean, low, high = (100 * value for value in _difference(compared, method, "R@10", group, arguments))
            difference = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
        rows.append((method, *means, difference))
    return rows


def _difference(
    compared: MethodComparison, baseline: Method, measure: str, group: str | None, arguments: argparse.Namespace
) -> tuple[float, float, float]:
    return compared.difference(baseline, measure, group, seed=arguments.seed, rounds=arguments.rounds)


def _groups(compared: MethodComparison) -> list[tuple[str, str | None]]:
    """Return titles and names of the groups, all queries last. Queries without a group have no title of their own."""
    names = sorted(set(compared.groups))
    return [*((name or "no group", name) for name in names if len(names) > 1), ("all queries", None)]


def _chart(compared: MethodComparison) -> list[BarGroup]:
    """Return bars of R@10 for each group of queries and method."""
    charted = []
    for title, group in _groups(compared):
        bars = []
        for kind, method in enumerate(compared.values):
            value = 100 * compared.mean(method, "R@10", group)
            bars.append(Bar(method, value, f"{value:.1f}", kind))
        charted.append(BarGroup(title, bars))
    return charted


def _document(compared: MethodComparison, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return means and differences as JSON, for all queries and for each group."""
    from ...retrieve.evaluation import MEASURES

    def describe(group: str | None) -> dict[str, Any]:
        """Return the means of each method and the differences of `search` to the others, in percent."""
        baselines = [method for method in compared.values if method != "search"]
        return {
            "queries": len(compared.select("search", "R@10", group)),
            "methods": {
                method: {measure: round(100 * compared.mean(method, measure, group), 4) for measure in MEASURES}
                for method in compared.values
            },
            "search_minus": {
                baseline: {
                    measure: dict(
                        zip(
                            ("mean", "low", "high"),
                            (
                                round(100 * value, 4)
                                for value in _difference(compared, baseline, measure, group, arguments)
                            ),
                            strict=True,
                        )
                    )
                    for measure in MEASURES
                }
                for baseline in baselines
            },
        }

    named = {title: group for title, group in _groups(compared) if group is not None}
    return {
        "seed": arguments.seed,
        "rounds": arguments.rounds,
        "all": describe(None),
        "groups": {title: describe(group) for title, group in named.items()},
    }
