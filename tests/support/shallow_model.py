"""The small local model with few of its layers, for tests that need a real llama.cpp but no sensible words.

Tokeniser, chat template and vocabulary are those of the whole model. Grammars hold it as they hold any model, so every
constrained answer is valid.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from toolwire.local.weights import find_weights

NAME = "shallow"
_LAYERS = (0, 29)  # of 0 to 29; with 0 alone, answers are spaces and line breaks wherever JSON allows them
_ALIGNMENT = 32  # of the data in a GGUF file that states no other


@functools.cache
def shallow_file() -> Path:
    """Write the model to a folder for TOOLWIRE_MODELS, once per process; the folder is deleted at its end."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    file = Path(folder) / f"{NAME}.gguf"
    file.write_bytes(keep_layers(find_weights("smollm2").find_file().read_bytes(), _LAYERS))
    return file


def keep_layers(model: bytes, layers: Sequence[int]) -> bytes:
    """Return the GGUF file of a Llama with only those of its layers, in that order."""
    magic, version, count, settings = struct.unpack_from("<4sIQQ", model)
    first = position = model.index(_string("token_embd.weight"))  # tensors are described after the settings
    rows = []
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", model, position)
        name, position = model[position + 8 : position + 8 + length].decode(), position + 8 + length
        end = position + 4 + 8 * struct.unpack_from("<I", model, position)[0] + 4
        rows.append((*struct.unpack_from("<Q", model, end), name, model[position:end]))
        position = end + 8
    data = model[_aligned(position) :]
    rows.sort()
    numbers = {f"blk.{layer}.": f"blk.{number}." for number, layer in enumerate(layers)}
    descriptions, tensors, offset = b"", [], 0
    for (start, name, shape), end in zip(rows, [*(row[0] for row in rows[1:]), len(data)], strict=True):
        block = re.match(r"blk\.\d+\.|", name)[0]
        if not block or block in numbers:
            kept = numbers.get(block, "") + name.removeprefix(block)
            descriptions += _string(kept) + shape + struct.pack("<Q", offset)
            tensors.append(data[start:end])
            offset += end - start
    number = model.index(_string("llama.block_count")) + len(_string("llama.block_count")) + 4
    head = struct.pack("<4sIQQ", magic, version, len(tensors), settings) + model[24:number]
    head += struct.pack("<I", len(layers)) + model[number + 4 : first] + descriptions
    return head.ljust(_aligned(len(head)), b"\0") + b"".join(tensors)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT
