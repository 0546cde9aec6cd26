"""Answer the prompts of `gorilla.py --prompts` with the weights of the local model on a GPU, greedily, in float32.

    python bench/gorilla_gpu.py SmolLM2-135M-Instruct.Q4_1.gguf prompts.jsonl answers.jsonl

Needs torch, transformers and gguf. The local model of `toolwire.local` reads about 20 tokens per second on the machine of
the benchmarks, so all 8,900 prompts would take a day there. Put the answers into
`bench/.cache-retrieval/answers-smollm2-gpu.jsonl`; `gorilla.py` reports them, and how many agree with the local model's.
"""

import json
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MAX_TOKENS = 64
BATCH_TOKENS = 120_000


def main(weights: str, prompts: str, answers: str) -> None:
    started = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder, file = Path(weights).parent, Path(weights).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).to(device).eval()
    lines = [json.loads(line) for line in Path(prompts).read_text("utf-8").splitlines()]
    tokens = [tokenizer(render(line["messages"]), add_special_tokens=False)["input_ids"] for line in lines]
    print(
        f"{len(lines)} prompts, {sum(map(len, tokens))} tokens, loaded in {time.monotonic() - started:.0f} s",
        flush=True,
    )
    order = sorted(range(len(lines)), key=lambda number: len(tokens[number]))
    with Path(answers).open("w", encoding="utf-8") as out:
        for batch in make_batches(order, tokens):
            out.writelines(
                json.dumps({"key": lines[number]["key"], "answer": answer}) + "\n"
                for number, answer in zip(
                    batch, generate(model, tokenizer, [tokens[one] for one in batch], device), strict=True
                )
            )
            out.flush()
            print(f"{len(batch)} of length {len(tokens[batch[-1]])}, {time.monotonic() - started:.0f} s", flush=True)


def render(messages: list[dict]) -> str:
    """Return the chat format of the model; the last message is the beginning of its answer."""
    *before, begun = messages
    turns = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in before)
    return f"{turns}<|im_start|>assistant\n{begun['content']}"


def make_batches(order: list[int], tokens: list[list[int]]) -> list[list[int]]:
    batches: list[list[int]] = [[]]
    for number in order:
        if (len(batches[-1]) + 1) * (len(tokens[number]) + MAX_TOKENS) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(number)
    return batches


@torch.inference_mode()
def generate(model, tokenizer, prompts: list[list[int]], device: str) -> list[str]:
    """Return the answers up to the first line break."""
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    width = max(map(len, prompts))
    ids = torch.tensor([[end] * (width - len(one)) + one for one in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts], device=device)
    written = model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=MAX_TOKENS,
        do_sample=False,
        eos_token_id=end,
        pad_token_id=end,
    )
    texts = tokenizer.batch_decode(written[:, width:], skip_special_tokens=True)
    return [text.partition("\n")[0] for text in texts]


if __name__ == "__main__":
    main(*sys.argv[1:])
