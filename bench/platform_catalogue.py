"""The seed's platform: 520 endpoints of 14 services, with and without retrieval, and its growth to 5,000 endpoints.

Prompt tokens are estimated (`toolwire.audit.tokens`), for the declarations in a Chat request and for the seed's prompt form
(`toolwire.retrieve.api_call`). An endpoint is found if it is among the k that are offered. Catalogue and requests are in
`platform_data.py`. For the growth, catalogues of 50 and 500 are drawn from the 5,000, ten of each, so that all sizes have the
same mixture of short and long declarations; all requests are asked each time, also those whose endpoint was not drawn.
"""

import json
import random
import statistics
import sys

from platform_data import CATALOGUE, SEED, Endpoint, load_catalogue, load_large_catalogue, load_requests
from retrieval_data import Bm25, CachedEncoder, baseline_text, best_numbers, has_data, open_encoder
from toolwire.audit.tokens import count_tokens, declaration_tokens
from toolwire.retrieve import ToolIndex, open_minilm
from toolwire.retrieve.api_call import make_prompt

COUNTS = (1, 3, 5)
DRAWN = (50, 500)
DRAWS = 10


def index_endpoints(endpoints: list[Endpoint], encoder) -> ToolIndex:
    index = ToolIndex(encoder)
    for service in dict.fromkeys(endpoint.service for endpoint in endpoints):
        index.add([one.tool for one in endpoints if one.service == service], server=service)
    return index


def search_index(index: ToolIndex, query: str) -> list[Endpoint]:
    return [Endpoint(hit.server, hit.tool) for hit in index.search(query, max(COUNTS))]


def rate(found: list[list[Endpoint]], requests: list[dict]) -> dict:
    """Return the share of requests with a right endpoint among the first k, in percent."""
    return {
        str(k): 100
        * statistics.mean(
            any(endpoint.id in request["endpoints"] for endpoint in one[:k])
            for one, request in zip(found, requests, strict=True)
        )
        for k in COUNTS
    }


def compare_retrievers(endpoints: list[Endpoint], requests: list[dict], encoder, plain) -> dict:
    """Return the rates of right endpoints of each retriever, and the endpoints that ours found."""
    queries = [request["request"] for request in requests]
    texts = [f"{one.service} {baseline_text(one.tool)}" for one in endpoints]
    words, own = Bm25(texts), index_endpoints(endpoints, None)
    found = {
        "BM25 (bm25s)": [[endpoints[number] for number in words.search(query, max(COUNTS))] for query in queries],
        "ToolIndex, words alone": [search_index(own, query) for query in queries],
    }
    if plain is not None:
        vectors = plain.encode(texts)
        scores = plain.encode(queries) @ vectors.T
        found["MiniLM alone"] = [[endpoints[number] for number in best_numbers(row, max(COUNTS))] for row in scores]
        plain.save()
    index = index_endpoints(endpoints, encoder)
    ours = [search_index(index, query) for query in queries]
    encoder.save()
    found["ToolIndex"] = ours
    return {"rates": {name: rate(one, requests) for name, one in found.items()}, "found": ours}


def prompt_tokens(found: list[list[Endpoint]], requests: list[dict]) -> dict:
    """Return the mean and the largest prompt for each k: declarations of a Chat request, and the seed's form."""
    result = {}
    for k in COUNTS:
        offered = [[endpoint.tool for endpoint in one[:k]] for one in found]
        chat = [sum(declaration_tokens(tool, "openai_chat") for tool in one) for one in offered]
        form = [
            count_tokens(make_prompt(request["request"], one)) for one, request in zip(offered, requests, strict=True)
        ]
        result[str(k)] = {
            name: {"mean": statistics.mean(values), "median": statistics.median(values), "most": max(values)}
            for name, values in (("declarations", chat), ("form", form))
        }
    return result


def measure_growth(large: list[Endpoint], requests: list[dict], encoder) -> list[dict]:
    """Return the mean prompt of catalogues that are drawn from the large one, for each size and k."""
    rows = []
    for size in (*DRAWN, len(large)):
        draws = [
            random.Random(f"{SEED} {number}").sample(large, size) for number in range(DRAWS if size in DRAWN else 1)
        ]
        measured = []
        for endpoints in draws:
            index = index_endpoints(endpoints, encoder)
            found = [search_index(index, request["request"]) for request in requests]
            measured.append(prompt_tokens(found, requests))
        means = {
            str(k): {
                name: {
                    kind: statistics.mean(one[str(k)][name][kind] for one in measured) for kind in ("mean", "median")
                }
                for name in ("declarations", "form")
            }
            for k in COUNTS
        }
        rows.append({"endpoints": size, "draws": len(draws), "tokens": means})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    requests = load_requests()
    catalogue, large = load_catalogue(), load_large_catalogue()
    encoder, plain = open_encoder(), CachedEncoder(open_minilm(adapted=False))
    rows = []
    for endpoints in (catalogue, large):
        compared = compare_retrievers(endpoints, requests, encoder, plain if len(endpoints) == CATALOGUE else None)
        tools = [endpoint.tool for endpoint in endpoints]
        row = {
            "endpoints": len(endpoints),
            "services": len({endpoint.service for endpoint in endpoints}),
            "all": {
                "declarations": sum(declaration_tokens(tool, "openai_chat") for tool in tools),
                "form": count_tokens(make_prompt("", tools)),
            },
            "tokens": prompt_tokens(compared["found"], requests),
            "rates": compared["rates"],
        }
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    growth = measure_growth(large, requests, encoder)
    print(json.dumps({"rows": rows, "growth": growth, "requests": len(requests), "encoder": encoder.name}))


if __name__ == "__main__":
    if has_data("apizoo", "tool_schemas"):
        main()
