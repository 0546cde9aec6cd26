"""Write the results of the benchmarks of retrieval, one function per section of RESULTS.md."""

from report_catalogues import CATALOGUE_REPORTS
from reports import _table

NAMES = {"anthropic": "Anthropic", "openai_responses": "Responses", "openai_chat": "Chat"}


def _prompt_cache(result: dict) -> str:
    parts = [
        "## Repeated beginning of prompts (`bench/prompt_cache.py`)\n",
        (
            f"{result['conversations']} conversations of 20 turns, joined from recorded exchanges of real providers; {result['catalogue']} tools, and a "
            "lexical index. Means over turns 2 to 20."
        ),
        "Share: of the tokens of a prompt (tools, system, messages), how many repeat the beginning of the previous prompt. Kept: of the tokens of",
        "the previous prompt, how many are repeated; only this depends on the selection. The rest is new text, whose share is larger in a smaller",
        "prompt. Four bytes of the body are a token. The goal is a share of at least 95 % of that with all tools. A selection of 16 reaches it on each",
        "wire; on Chat, which has no deferred loading, a search that finds tools loses the repeated beginning after the tools. 16 was chosen on",
        "these conversations, so it is not confirmed on others; selections of 5 and 8 miss the goal with short system prompts, and on Chat.\n",
    ]
    for key, about in (("short", "With the recorded system prompts"), ("long", "With a system prompt of 28 KB")):
        measured = result[key]
        parts += [
            (
                f"{about}; with a selection of {result['k']}, the model searched {measured['searches']} times, and {measured['growth']} of "
                f"{measured['turns']} turns added tools:\n"
            ),
            _shares(measured["rows"]),
        ]
    parts += [
        (
            f"The 20th prompt (Chat) and the stored state of a run with {result['k']} selected tools and those that the conversation calls, by the size of "
            f"the catalogue; means of {result['grown']} conversations; the last columns are of one. Tools"
        ),
        "beyond 400 of real servers are copies with other names. Each row offers the same number of tools; a real tool has 46 to 900 tokens (5th to 95th percentile),",
        "so the prompts differ by the sizes of the selected tools, by more than the goal of 10 %. With tools of equal size they are equal (`tests/net/agent/test_retrieval_agent.py`).\n",
        _growth(result["growth"]),
    ]
    return "\n".join(parts)


def _shares(measured: list[dict]) -> str:
    best = {row["wire"]: row["share"] for row in measured if row["offer"] == "all tools"}
    rows = [
        (
            NAMES[row["wire"]],
            row["offer"],
            f"{100 * row['share']:.1f}",
            f"{100 * row['share'] / best[row['wire']]:.1f}",
            f"{100 * row['kept']:.1f}",
            f"{row['tokens']:,.0f}",
            f"{row['new']:,.0f}",
        )
        for row in measured
    ]
    headers = ("wire", "offer", "share %", "% of all tools", "kept %", "tokens per prompt", "of them not repeated")
    return _table(headers, rows)


def _growth(measured: list[dict]) -> str:
    rows = [
        (
            f"{row['tools']:,}",
            f"{row['tokens']:,.0f}",
            f"{row['state']:,.0f}",
            f"{row['all tokens']:,.0f}",
            f"{row['all state']:,.0f}",
        )
        for row in measured
    ]
    headers = (
        "tools",
        "tokens, selection",
        "bytes of state, selection",
        "tokens, all tools",
        "bytes of state, all tools",
    )
    return _table(headers, rows)


def _quality(result: dict) -> str:
    methods = tuple(result["rows"][0]["means"])
    columns = ("R@1", "R@5", "R@10", "NDCG@10")
    rows = [
        (
            f"{row['corpus']} ({row['queries']:,})",
            row["within"],
            *(" / ".join(f"{row['means'][method][column]:.1f}" for column in columns) for method in methods),
            f"{row['difference']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}] over {row['best']}",
        )
        for row in result["rows"]
    ]
    return "\n".join(
        [
            "## Right tools among 9,856 (`bench/retrieval_quality.py`)\n",
            f"{' / '.join(columns)} in percent for the {result['split']} queries, within the tools of their own corpus and within all tools. `toolwire` is one",
            "configuration for all corpora: `ToolIndex(open_minilm())`. The last column is the difference of its R@10 to the best baseline, with",
            "the 95 % interval of a paired bootstrap. Goals for R@10 within all tools: bfcl 86, metatool 66, stabletoolbench 73, apibench 28; for",
            "R@1 of metatool within its own corpus 62.\n",
            _table(("queries", "within", *methods, "difference of R@10"), rows),
        ]
    )


def _rerank(result: dict) -> str:
    rows = [
        (
            f"{row['name']} ({row['queries']})",
            row["within"],
            *(" / ".join(f"{rate:.1f}" for rate in row[order].values()) for order in ("plain", "reranked")),
            *("{:+.1f} [{:+.1f}, {:+.1f}]".format(*row["difference"][cut]) for cut in ("1", "3")),
        )
        for row in result["rows"]
    ]
    cpu = result["cpu"]
    return "\n".join(
        [
            "## The order of the best tools, with a reranker (`bench/retrieval_rerank.py`)\n",
            f"R@1 / R@3 / R@5 / R@10 in percent of `ToolIndex(open_minilm())`, and with `reranker=open_reranker()`, which orders the best {result['count']} tools of each",
            "search again. A sample of the test queries; the platform and the hubs of APIBench count a query as found if a right tool, or the reference API",
            "itself, is among the first k. Differences have the 95 % interval of a paired bootstrap.\n",
            _table(("queries", "within", "search", "with the reranker", "difference of R@1", "of R@3"), rows),
            f"Median CPU of one thread: {cpu['search']:.0f} ms for a search with the embedding of its query; the reranker adds {cpu['warm']:.0f} ms, and {cpu['cold']:.0f} ms if it has read none of the",
            "tools before.\n",
        ]
    )


def _cache_marks(result: dict) -> str:
    rows = [
        (
            row["traffic"],
            f"{row['requests']}",
            f"{row['tokens']:,}",
            f"{100 * row['read'] / row['tokens']:.1f}",
            f"{100 * row['read'] / row['best']:.1f}" if row["best"] else "–",
            f"{row['plain cost']:,.0f}",
            f"{row['cost']:,.0f}",
            f"{100 * row['cost'] / row['plain cost']:.1f}",
        )
        for row in result["rows"]
    ]
    headers = ("traffic", "requests", "tokens", "read %", "% of the best", "cost without marks", "with marks", "%")
    return "\n".join(
        [
            "## Cost of input with and without cache marks (`bench/cache_marks.py`)\n",
            "Requests of Chat and Responses that are translated to Anthropic, sent to a model of its prompt cache in which nothing expires. Costs are in units",
            "of a plain input token: one that is written to the cache costs 1.25, one that is read 0.1. The best is an entry after each block. The agents are",
            "recorded sessions; one-shot requests have the prompt of opencode and a question of 500 tokens. Requests without tools are not marked before",
            'the first answer. The last row is the worst case, in which nothing is ever sent again: there, `cache = "client"` of the upstream saves a fifth.\n',
            _table(headers, rows),
        ]
    )


RETRIEVAL_REPORTS = {
    "retrieval_quality": _quality,
    "retrieval_rerank": _rerank,
    "prompt_cache": _prompt_cache,
    "cache_marks": _cache_marks,
    **CATALOGUE_REPORTS,
}
