"""Write the mean of two adapters as one of the same rank.

    python bench/tool_calls/mean.py first.gguf second.gguf src/toolwire/local/smollm2-calls.gguf

The mean of two products of rank 16 has rank 32. Its best approximation of rank 16 keeps 99.4 % of it for the shipped adapter, and
`mean` prints that share.
"""

import sys

import gguf
import numpy as np

ALPHA = 32.0
RANK = 16


def read(path):
    return {
        tensor.name: np.array(tensor.data).astype(np.float32).reshape([int(size) for size in reversed(tensor.shape)])
        for tensor in gguf.GGUFReader(path).tensors
    }


def main(first_path, second_path, target):
    first, second = read(first_path), read(second_path)
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", ALPHA)
    kept = []
    for name in (name.removesuffix(".lora_a") for name in first if name.endswith(".lora_a")):
        right = np.concatenate([first[f"{name}.lora_a"], second[f"{name}.lora_a"]])
        left = np.concatenate([first[f"{name}.lora_b"], second[f"{name}.lora_b"]], axis=1) / 2
        outer, outer_factor = np.linalg.qr(left)
        inner, inner_factor = np.linalg.qr(right.T)
        u, sizes, v = np.linalg.svd(outer_factor @ inner_factor.T)
        kept.append((sizes[:RANK] ** 2).sum() / (sizes**2).sum())
        roots = np.sqrt(sizes[:RANK])
        half = np.ascontiguousarray((roots[:, None] * v[:RANK]) @ inner.T, dtype=np.float16)
        writer.add_tensor(f"{name}.lora_a", half)
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray((outer @ u[:, :RANK]) * roots, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"mean share {np.mean(kept):.4f}, least {min(kept):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
