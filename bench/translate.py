"""Translate a request and a response between all pairs of wires: CPU time per document, for toolwire and the peers."""

import json
from functools import partial

import toolwire
from bodies import request, response
from measure import best_micros
from peers import WIRES, LiteLLM, Rosetta, copy


def main() -> dict:
    peers = [LiteLLM(), Rosetta()]
    rows = [
        row
        for kind, body_of in (("request", request), ("response", response))
        for source in WIRES
        for target in WIRES
        if source != target
        for row in [_row(kind, source, target, body_of(source), peers)]
    ]
    return {"rows": rows, "versions": {peer.name: peer.version for peer in peers}}


def _row(kind: str, source: str, target: str, body: dict, peers: list) -> dict:
    data = json.dumps(body).encode()
    ours = partial(
        toolwire.translate, body, source=source, target=target, kind=kind, model="m" if kind == "request" else None
    )
    candidates = {
        "toolwire": ours,
        "toolwire, bytes to bytes": lambda: bytes(toolwire.translate(data, source=source, target=target, kind=kind)),
        "copy": partial(copy, body),
    }
    for peer in peers:
        run = partial(_with_copy, getattr(peer, kind), source, target, body)
        try:
            run()
        except Exception:
            continue  # the peer does not support the pair, or raises
        candidates[peer.name] = run
    micros = best_micros(candidates)
    for peer in peers:
        if peer.name in micros:
            micros[peer.name] -= micros["copy"]
    return {"kind": kind, "source": source, "target": target, "micros": micros}


def _with_copy(run, source: str, target: str, body: dict) -> object:
    return run(source, target, copy(body))


if __name__ == "__main__":
    print(json.dumps(main()))
