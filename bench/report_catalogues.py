"""Write the results of the benchmarks of large catalogues: growth, Gorilla's table, and the platform of 14 services."""

from reports import _table

CONDITIONS = ("no retrieval", "BM25, k = 1", "BM25, k = 3", "toolwire, k = 1", "toolwire, k = 3")
HUBS = ("torchhub", "huggingface", "tensorflow")
MODELS = {
    "oracle": "The oracle, all tasks",
    "gpu": "SmolLM2-135M (the weights of the local model, float32 on a GPU), all tasks",
    "local": "SmolLM2-135M through `toolwire.local` on this machine, a sample",
}


def report_growth(result: dict) -> str:
    rows = result["rows"]
    queries = [
        (
            f"{row['size']:,}",
            _times(row["ours"]["query"]),
            _times(row["ours"]["filtered"]),
            _times(row["ours"]["loaded"]["query"]),
            _times(row["peer"]["query"]),
            f"{row['ours']['query']['p50'] / row['peer']['query']['p50']:.1f}×",
            _times(row["ours"]["embedding"]),
        )
        for row in rows
    ]
    sizes = [
        (
            f"{row['size']:,}",
            f"{row['ours']['build']:.1f}",
            f"{row['size'] * row['ours']['encoding']:,.0f}",
            f"{row['peer']['build']:.1f}",
            _megabytes(row["ours"]["resident"]),
            _megabytes(row["peer"]["resident"]),
            _megabytes(row["ours"]["file"]),
            f"{row['ours']['save']:.2f}",
            f"{row['ours']['loaded']['load'] * 1e3:.0f}",
            f"{row['ours']['loaded']['first'] * 1e3:.0f}",
            f"{_megabytes(row['ours']['loaded']['memory']['own'])} + {_megabytes(row['ours']['loaded']['memory']['shared'])}",
        )
        for row in rows
    ]
    changes = [
        (
            f"{row['size']:,}",
            count,
            *(f"{measured[kind] * 1e3:.1f}" for kind in ("update", "remove", "add", "worst")),
            f"{int(count) * row['ours']['encoding'] * 1e3:,.0f}",
        )
        for row in rows
        for count, measured in row["ours"]["changes"].items()
    ]
    return "\n".join(
        [
            "## Growth of an index of tools (`bench/retrieval_growth.py`)\n",
            "1,000 and 9,856 real tools, encoded (their vectors may come from the cache of an earlier run). 10,000 and 100,000 are filled up with perturbed copies: a fifth of the",
            "words of each description is replaced, and the vector is the original's with noise (cosine about 0.9), not an encoding of the new text.",
            (
                f"{result['queries']} real queries, k = {result['k']}, one thread, ms of CPU: the median / the 99th percentile. The query's embedding is measured apart, "
                "for the whole query; a query of several sentences"
            ),
            "encodes these too. The peer is a numpy product over all vectors, bm25s and reciprocal rank fusion; it compares no sentences, and has no",
            "filters, reasons or updates. Goals: ≤ 5 ms at 10,000 and ≤ 30 ms at 100,000.\n",
            _table(("tools", "query", "with a filter", "loaded from a file", "peer", "of the peer (median)", "embedding"), queries),
            "Seconds of CPU to build, without the encoding, and the encoding (one thread, extrapolated from 60 tools); MB; a loaded index has its own",
            "memory, and pages of the file, which processes share. The first query of a loaded index checks the vectors.\n",
            _table(
                ("tools", "build s", "encoding s", "peer's build s", "MB", "peer's MB", "file MB", "save s", "load ms", "first query ms", "MB loaded"),
                sizes,
            ),
            f"A change of 1, 10 and 100 tools without their encoding, ms of CPU: the median of {result['rounds']} rounds.\n",
            _table(("tools", "changed", "update", "remove", "add", "slowest update", "encoding"), changes),
        ]
    )  # fmt: skip


def _times(measured: dict) -> str:
    return f"{measured['p50']:.1f} / {measured['p99']:.1f}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f}"


def report_gorilla(result: dict) -> str:
    found = {(row["model"], row["hub"], row["condition"]): row for row in result["rows"]}
    parts = [
        "## Gorilla's table (`bench/gorilla.py`)\n",
        "APIBench by the matching of the paper, written anew (`bench/gorilla_calls.py`): accuracy (an API of the task's domain) / of these the reference",
        "API itself / hallucination (a call that is not in the database), in %. The prompt is the seed's form: signatures and the beginning of",
        "the descriptions. The oracle picks the right card if it was offered and invents a call otherwise. "
        + ", ".join(
            f"{name}: {one['cards']} cards, {one['tasks']} tasks ({one['matched']} of their references match the database)"
            for name, one in result["catalogues"].items()
        )
        + ". A card drawn at random has the task's domain in "
        + " / ".join(f"{one['random']:.1f}" for one in result["catalogues"].values())
        + " % of the tasks: most cards of torchhub belong to one domain.\n",
    ]
    for model, title in MODELS.items():
        rows = [
            (condition, *(_shares(found.get((model, hub, condition))) for hub in HUBS))
            for condition in CONDITIONS
            if any((model, hub, condition) in found for hub in HUBS)
        ]
        if rows:
            tasks = sorted({row["tasks"] for row in result["rows"] if row["model"] == model})
            counted = f" (n = {tasks[0]} per hub and condition)" if model == "local" else ""
            if model == "gpu":
                asked = sum(row["tasks"] for row in result["rows"] if row["model"] == "oracle")
                answered = sum(row["tasks"] for row in result["rows"] if row["model"] == "gpu")
                counted = f" ({answered:,} of {asked:,} prompts; equal BM25 scores were ordered differently there)"
            parts += [f"{title}{counted}:\n", _table(("", *HUBS), rows)]
    both, equal = result["agreement"]
    if both:
        parts.append(f"Of {both} prompts that both answered, the local model and the GPU gave {equal} equal answers.\n")
    return "\n".join(parts)


def _shares(row: dict | None) -> str:
    return "–" if row is None else f"{row['accuracy']:.1f} / {row['exact']:.1f} / {row['hallucination']:.1f}"


def report_platform(result: dict) -> str:
    small, large = result["rows"]
    names = {"declarations": "declarations of a Chat request", "form": "the seed's prompt form"}
    tokens = [
        (
            f"{row['endpoints']:,}",
            names[kind],
            f"{row['all'][kind]:,}",
            *(f"{row['tokens'][k][kind]['mean']:,.0f} (at most {row['tokens'][k][kind]['most']:,})" for k in ("1", "3", "5")),
        )
        for row in (small, large)
        for kind in ("declarations", "form")
    ]  # fmt: skip
    rates = [
        (f"{row['endpoints']:,}", name, *(f"{found[k]:.1f}" for k in ("1", "3", "5")))
        for row in (small, large)
        for name, found in row["rates"].items()
    ]
    last = result["growth"][-1]["tokens"]
    growth = [
        (
            f"{row['endpoints']:,}",
            names[kind],
            *(
                f"{row['tokens'][k][kind]['mean']:,.0f} ({row['tokens'][k][kind]['mean'] / last[k][kind]['mean'] - 1:+.0%})"
                for k in ("1", "3", "5")
            ),
            f"{row['tokens']['3'][kind]['median']:,.0f}",
        )
        for kind in ("form", "declarations")
        for row in result["growth"]
    ]
    return "\n".join(
        [
            "## A platform of 14 services (`bench/platform_catalogue.py`)\n",
            (
                f"{small['endpoints']} endpoints of {small['services']} real REST services, chosen by a fixed seed, and {result['requests']} requests that were written by hand for endpoints drawn at random, "
                "before any retriever ran on them"
            ),
            f"(`bench/platform_data.py`); {large['endpoints']:,} are those, others of the same services, and three more services. Prompt tokens (estimated) with all",
            "endpoints, and the mean with the k best of ToolIndex:\n",
            _table(("endpoints", "tokens of", "all", "k = 1", "k = 3", "k = 5"), tokens),
            "Requests with the right endpoint among the k best, in %:\n",
            _table(("endpoints", "retriever", "k = 1", "k = 3", "k = 5"), rates),
            "Growth by 100×: the mean prompt of catalogues that are drawn from the 5,000 (ten draws of 50 and of 500, so that all have the same mixture), and",
            "its difference to that of 5,000. The mean of declarations depends on a few very long ones (up to 11,000 tokens), so the median is given too.\n",
            _table(("endpoints", "tokens of", "k = 1", "k = 3", "k = 5", "median at k = 3"), growth),
        ]
    )


CATALOGUE_REPORTS = {
    "retrieval_growth": report_growth,
    "gorilla": report_gorilla,
    "platform_catalogue": report_platform,
}
