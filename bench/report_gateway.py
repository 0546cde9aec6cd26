"""Write the section of the gateway in RESULTS.md, and the tables of docs/compare.md, from the measured rounds."""

from pathlib import Path

from gateway_rounds import FIGURES, Estimate, Rounds
from reports import _table

ROOT = Path(__file__).parents[1]
COMPARE, README = ROOT / "docs" / "compare.md", ROOT / "README.md"
_COMPARED = ("pass", "cross", "burst", "paced", "added_pass", "added_cross", "start", "memory")
_TIMES = ("added_pass", "added_cross", "added_first", "start", "memory")
# the rows of the README, with the candidates beside the peers
_README_ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cross": ("gateway: CPU of a translated request", ()),
    "pass": ("gateway: CPU of a request with the same API on both sides", ("nginx",)),
}
_LINKS = "[section](../bench/RESULTS.md#the-gateway-benchgatewayrunpy), [script](../bench/gateway/run.py)"


def section(result: Rounds) -> str:
    names = list(result.head["candidates"])
    peers = ", ".join(f"{about['title']} {about['version']}" for about in result.peers.values())
    growth = result.growth or {"concurrency": [], "size": []}
    crowd = [
        (f"{one['n']:,}", f"{one['cpu']:,.0f}", f"{one['p50']:.1f}", f"{one['wall']:,.0f}")
        for one in growth["concurrency"]
    ]
    sizes = [(f"{one['bytes']:,}", f"{one['cpu']:,.0f}", f"{one['p50']:.1f}") for one in growth["size"]]
    return "\n".join(
        [
            "## The gateway (`bench/gateway/run.py`)\n",
            "One process on one core, the mock upstream and the load on the other; twenty connections. A Chat request of six messages with",
            "two tools and two parallel calls: µs of CPU per request to a Chat upstream (`pass`) and to an Anthropic upstream",
            "(`cross`; also requests per second and core), and events per second and core of a stream of tool arguments from",
            "an Anthropic upstream to a Chat client, sent all at once (burst) or one every 2 ms (paced). Every request is another conversation.",
            "toolwire runs with keys, limits, routing and metrics; the others with the smallest configuration that they allow. Its",
            "`limits.loop_delay` is raised, because the jobs use the whole CPU: it alone would refuse the excess (`overload.py`). Slow candidates",
            "(litellm, llm-rosetta, portkey, 9router, omniroute) get 100 requests in each round instead of 2,000. Three candidates are no gateways:",
            "`uvicorn` sends a fixed response, `uvicorn-client` forwards bytes with uvicorn and toolwire's HTTP client, and nginx forwards bytes.",
            (
                f"{peers}. LiteLLM is installed with older versions of certifi, litellm-proxy-extras and litellm-enterprise than it "
                "requires,\nbecause the registry has no newer ones.\n"
            ),
            (
                f"Medians of {len(result.rounds)} interleaved rounds, and in parentheses their intervals of 95 % (order statistics, "
                "`bench/gateway_rounds.py`)."
            ),
            "The answers of all candidates are checked before the rounds. No candidate has a network, only the loopback interface.\n",
            *_before(result),
            _table(
                (
                    "gateway",
                    "pass",
                    "of uvicorn-client",
                    "cross",
                    "of uvicorn-client",
                    "of toolwire",
                    "requests/s/core",
                    "events/s, burst",
                    "paced",
                ),
                [(name, *_speed(result, name)) for name in names],
            ),
            "One request at a time: milliseconds added to a request and to the first event of a paced stream; seconds from the start of a",
            "process until its first response; MB after a round.\n",
            _table(
                ("gateway", "pass", "cross", "first event", "start", "memory"),
                [(name, *_cells(result, name, *_TIMES)) for name in names],
            ),
            *_reasons(result),
            "toolwire, cross, by the number of connections, and by the size of bodies (four connections), measured once:\n",
            _table(("connections", "µs of CPU", "p50 ms", "requests/s"), crowd),
            _table(("bytes", "µs of CPU", "p50 ms"), sizes),
        ]
    )


def _before(result: Rounds) -> list[str]:
    return [f"`toolwire-before` is commit {result.head['before']}.\n"] if result.head["before"] else []


def _cells(result: Rounds, name: str, *figures: str) -> list[str]:
    return [str(result.estimate(name, figure) or "–") for figure in figures]


def _speed(result: Rounds, name: str) -> list[str]:
    def times(figure: str, other: str) -> str:
        mine, others = result.estimate(name, figure), result.estimate(other, figure)
        return f"{mine.median / others.median:.1f}×" if mine and others else ""

    cross = result.estimate(name, "cross")
    return [
        *_cells(result, name, "pass"),
        times("pass", "uvicorn-client"),
        *_cells(result, name, "cross"),
        times("cross", "uvicorn-client"),
        times("cross", "toolwire"),
        f"{1e6 / cross.median:,.0f}" if cross else "–",
        *_cells(result, name, "burst", "paced"),
    ]


def _reasons(result: Rounds) -> list[str]:
    """Return what is missing in the tables, and why."""
    lines = []
    for name, about in result.head["candidates"].items():
        by_reason: dict[str, list[str]] = {}
        for job, reason in about["skipped"].items() if about["title"] else ():
            by_reason.setdefault(reason, []).append(f"`{job}`")
        lines += [f"- {name}: no {', '.join(jobs)}: {reason}." for reason, jobs in by_reason.items()]
    lines += [f"- {name} is not measured: {reason}." for name, reason in result.head["missing"].items()]
    return ["Not measured:\n", *lines, ""] if lines else []


def update_pages(result: Rounds) -> None:
    """Replace the parts of docs/compare.md and of the README that this benchmark writes."""
    page = COMPARE.read_text(encoding="utf-8")
    for name, text in {"figures": _figures(result), "claims": _claims(result), "goals": _goals(result)}.items():
        page = _replace_part(page, name, text)
    COMPARE.write_text(page, encoding="utf-8")
    lines = README.read_text(encoding="utf-8").splitlines()
    for figure, (title, others) in _README_ROWS.items():
        number = next(number for number, line in enumerate(lines) if line.startswith(f"| {title} |"))
        lines[number] = _readme_row(result, figure, title, others)
    README.write_text(_replace_part("\n".join(lines) + "\n", "claims", _readme_claim(result)), encoding="utf-8")


def _replace_part(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- gateway {name} -->\n", "<!-- end -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"


def _with_unit(found: Estimate, figure: str) -> str:
    return f"{found} {FIGURES[figure].unit}".rstrip()


def _figures(result: Rounds) -> str:
    rows = []
    for figure in _COMPARED:
        found = {about["title"]: result.estimate(name, figure) for name, about in result.peers.items()}
        theirs = "; ".join(f"{title}: {_with_unit(median, figure)}" for title, median in found.items() if median)
        rows.append((FIGURES[figure].title, _with_unit(result.estimate("toolwire", figure), figure), theirs, _LINKS))
    versions = ", ".join(f"{about['title']} {about['version']}" for about in result.peers.values())
    about = f"Medians of {len(result.rounds)} interleaved rounds, with their intervals of 95 %: {versions}."
    return f"\n{about}\n\n{_table(('figure', 'toolwire', 'peer', 'measured in'), rows)}\n"


def _claims(result: Rounds) -> str:
    rows = []
    for figure in _COMPARED:
        verdicts = {about["title"]: result.compare(figure, name) for name, about in result.peers.items()}
        rows.append((FIGURES[figure].title, *(_titles(verdicts, wanted) for wanted in ("better", "unclear", "worse"))))
    table = _table(("figure", "toolwire is better than", "the intervals overlap", "better than toolwire"), rows)
    nginx = result.estimate("nginx", "cross")
    bound = f"nginx, which forwards bytes and translates nothing, takes {nginx} µs of CPU per request: it is the lower bound.\n\n"
    return f"\n{table}\n{bound if nginx else ''}"


def _titles(verdicts: dict[str, str | None], wanted: str) -> str:
    return ", ".join(title for title, verdict in verdicts.items() if verdict == wanted) or "–"


def _goals(result: Rounds) -> str:
    """Return the goals of bench/README.md that toolwire does not reach."""
    ours = {figure: result.estimate("toolwire", figure).median for figure in FIGURES}
    bare = {figure: result.estimate("uvicorn-client", figure).median for figure in ("pass", "cross")}
    passing, crossing = (ours[figure] / bare[figure] for figure in ("pass", "cross"))
    rate = 1e6 / ours["cross"]
    than = "times the CPU of bare uvicorn with the same HTTP client"
    goals = [
        (passing <= 2, f"takes {passing:.1f} {than} for a request that it passes through (goal: 2)"),
        (crossing <= 4, f"takes {crossing:.1f} {than} for a request that it translates (goal: 4)"),
        (rate >= 2500, f"serves {rate:,.0f} translated requests per second and core (goal: 2,500)"),
        (ours["burst"] >= 30_000, f"relays {ours['burst']:,.0f} events of a burst per second and core (goal: 30k)"),
        (
            ours["paced"] >= 20_000,
            f"relays {ours['paced']:,.0f} events of paced streams per second and core (goal: 20k)",
        ),
        (
            ours["added_cross"] <= 1,
            f"adds {result.estimate('toolwire', 'added_cross')} ms to a translated request (goal: 1)",
        ),
        (ours["memory"] <= 80, f"uses {ours['memory']:,.0f} MB (goal: 80)"),
        (ours["start"] <= 1, f"starts in {result.estimate('toolwire', 'start')} s (goal: 1)"),
    ]
    return "".join(f"- The gateway {text}.\n" for is_reached, text in goals if not is_reached)


def _readme_row(result: Rounds, figure: str, title: str, others: tuple[str, ...]) -> str:
    names = {about["title"]: name for name, about in result.peers.items()} | {name: name for name in others}
    found = {title: result.estimate(name, figure) for title, name in names.items()}
    theirs = "; ".join(f"{name} {median.shown[0]}" for name, median in found.items() if median)
    return f"| {title} | {result.estimate('toolwire', figure).shown[0]} µs | {theirs} |"


def _readme_claim(result: Rounds) -> str:
    unclear = {
        figure: _titles(
            {about["title"]: result.compare(figure, name) for name, about in result.peers.items()}, "unclear"
        )
        for figure in _README_ROWS
    }
    none = [f"{FIGURES[figure].title}: {titles}" for figure, titles in unclear.items() if titles != "–"]
    if not none:
        return "The intervals of 95 % of toolwire and of every peer are apart for both figures of the gateway.\n"
    return f"No difference is shown, because the intervals of 95 % overlap: {'; '.join(none)}.\n"
