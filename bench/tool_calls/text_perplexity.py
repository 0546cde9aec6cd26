"""Compare the general answers of the local model with and without its adapter, which is applied to the choice of a call alone.

    python bench/tool_calls/text_perplexity.py --texts 8

A grammar makes the model write a held text as its answer, and the engine reports the probability of each token without the
grammar. The texts are solutions of GSM8K's test set, which no row of the training has. Three lines are printed: the weights
without an adapter, the model as it answers texts, and, for comparison, with the adapter applied to texts.
"""

import argparse
import asyncio
import json
import os
import re
from math import exp

from evaluate import read

from retrieval_data import DATA
from toolwire.local import open_model
from toolwire.local.weights import find_weights


async def measure(model, lines, fields):
    """Return the perplexity of the answers, and the number of their tokens."""
    total = count = 0
    for line in lines:
        answer = re.sub("<<.*?>>", "", line["answer"]).partition("\n####")[0]
        body = {
            "messages": [{"role": "user", "content": line["question"]}],
            "grammar": f"%llguidance {{}}\nstart: {json.dumps(answer)}",
            "logprobs": True,
            "top_logprobs": 1,
            "temperature": 0,
            **fields,
        }
        async for chunk in model.chat.chunks(body):
            for choice in json.loads(chunk).get("choices") or ():
                tokens = (choice.get("logprobs") or {}).get("content") or ()
                total, count = total - sum(token["logprob"] for token in tokens), count + len(tokens)
    return {"perplexity": round(exp(total / count), 4), "tokens": count}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=8)
    given = parser.parse_args()
    lines = read(DATA / "math" / "gsm8k_test.jsonl")[: given.texts]
    weights = find_weights("smollm2").path()
    os.environ["TOOLWIRE_MODELS"] = str(weights.parent)
    conditions = {
        "without an adapter": (weights.stem, {}),
        "texts of the local model": ("smollm2", {}),
        "with the adapter applied": ("smollm2", {"lora": [{"id": 0, "scale": 1.0}]}),
    }
    for condition, (name, fields) in conditions.items():
        model = open_model(name, threads=1)
        print(json.dumps({"condition": condition, **asyncio.run(measure(model, lines, fields))}), flush=True)


if __name__ == "__main__":
    main()
