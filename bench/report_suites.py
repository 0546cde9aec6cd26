"""Write the counts of schema_suites.py as a section of RESULTS.md."""

from collections import Counter

from reports import _table
from suite_checks import (
    AGREES,
    BUDGET,
    CARRIED,
    CRASHED,
    LIMITS,
    LOSSES,
    NULL,
    PERFECT,
    READS_AS_VALID,
    REFUSED,
    REJECTED,
    REPORTED,
    UNREPORTED,
    WRONG_VERDICT,
)

_KNOWN = {CARRIED, REPORTED, NULL, UNREPORTED, CRASHED}


def report(result: dict) -> str:
    parts = [
        "## Public schema suites (`bench/schema_suites.py`)\n",
        "Third-party schemas and instances: the JSON-Schema-Test-Suite (drafts 4 to 2020-12; the validator supports neither",
        "draft 3 nor v1) and JSONSchemaBench with the instances of MaskBench. Perfect: no loss above `info`. A valid instance is",
        "carried if its encoded form is valid under the lowered schema and lifts back to an equal value. Crashes, unreported",
        "differences and wrong verdicts are defects.\n",
    ]
    for suite in result["suites"]:
        parts += [_verdicts(suite), _lowered(suite), _instances(suite)]
    return "\n".join(parts)


def _sums(suite: dict, *keys: str) -> Counter:
    """Sum the counts by the given keys of a row."""
    found: Counter = Counter()
    for row in suite["counts"]:
        found[tuple(row[key] for key in keys)] += row["count"]
    return found


def _verdicts(suite: dict) -> str:
    found = _sums(suite, "group", "subject", "outcome")
    rows = []
    groups = list(dict.fromkeys(row["group"] for row in suite["counts"]))
    for group in groups:
        refused = sum(count for (name, subject, _), count in found.items() if (name, subject) == (group, "refused"))
        verdicts = {what: n for (name, subject, what), n in found.items() if (name, subject) == (group, "verdict")}
        agrees, differs = verdicts.pop(AGREES, 0), verdicts.pop(WRONG_VERDICT, 0)
        named = sum(verdicts.values())
        cells = (found[group, "schema", "all"], refused, agrees + differs + named, agrees, named, differs)
        rows.append((f"`{group}`", *(f"{cell:,}" for cell in cells)))
    by_reason = _sums(suite, "subject", "outcome")
    reasons = [
        f"{count:,} {reason}"
        for (subject, reason), count in sorted(by_reason.items(), key=lambda pair: -pair[1])
        if subject in ("refused", "verdict") and reason not in (AGREES, WRONG_VERDICT)
    ]
    headers = ("", "schemas", "refused by the validator", "instances", "verdict agrees", "differs, named", "differs")
    total = sum(found[group, "schema", "all"] for group in groups)
    version = f" ({suite['version']})" if suite.get("version") else ""
    return f"{suite['name']}{version}, {total:,} schemas:\n\n{_table(headers, rows)}\nNamed: {'; '.join(reasons) or 'none'}.\n"


def _lowered(suite: dict) -> str:
    found = _sums(suite, "dialect", "outcome")
    outcomes = (PERFECT, LOSSES, LIMITS, REFUSED, CRASHED, BUDGET)
    rows = [(name, *(f"{found[name, what]:,}" for what in outcomes)) for name in suite["dialects"]]
    times = suite["milliseconds"]
    lower, compiled = times["lower"], times["compile"]
    return (
        _table(("dialect", *outcomes[:5], "hit a budget"), rows)
        + f"\nMilliseconds a schema: read and lowered to {len(suite['dialects'])} dialects p50 {lower['p50']:.2f}, p99 "
        f"{lower['p99']:.0f}, max {lower['max']:.0f}; compiled for the validator p50 {compiled['p50']:.2f}, p99 "
        f"{compiled['p99']:.0f}, max {compiled['max']:.0f}. {found['', BUDGET]:,} schemas hit a budget in some dialect.\n"
    )


def _instances(suite: dict) -> str:
    found = _sums(suite, "dialect", "subject", "outcome")
    rows = []
    for name in suite["dialects"]:
        valid = {what: n for (dialect, subject, what), n in found.items() if (dialect, subject) == (name, "valid")}
        invalid = {what: n for (dialect, subject, what), n in found.items() if (dialect, subject) == (name, "invalid")}
        cells = (
            sum(valid.values()),
            *(valid.get(what, 0) for what in (CARRIED, REPORTED, NULL)),
            _readings(found, name).total(),
            valid.get(UNREPORTED, 0) + valid.get(CRASHED, 0) + found[name, "schema", UNREPORTED],
            sum(invalid.values()),
            *(invalid.get(what, 0) for what in (REJECTED, NULL, READS_AS_VALID, UNREPORTED)),
        )
        rows.append((name, *(f"{cell:,}" for cell in cells)))
    headers = ("dialect", "valid", "carried", "loss", "null as absent", "reading", "unreported")
    headers += ("invalid", "rejected", "null as absent", "text read as its value", "unreported")
    most, reasons = max(((name, _readings(found, name)) for name in suite["dialects"]), key=lambda one: one[1].total())
    told = "; ".join(f"{count:,} {what}" for what, count in reasons.most_common())
    return f"{_table(headers, rows)}\nReadings of {most}: {told or 'none'}.\n"


def _readings(found: Counter, name: str) -> Counter:
    return Counter(
        {
            what: count
            for (dialect, subject, what), count in found.items()
            if (dialect, subject) == (name, "valid") and what not in _KNOWN
        }
    )
