"""Write an adapter of peft as a GGUF file, which llama.cpp applies to a model of the Llama architecture.

write_adapter(Path("run/adapter"), model.network.config, Path("run/adapter.gguf"))
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError
from .gguf_files import PERMUTED, gguf_name, permute_rows
from .run_folder import require_installed

_PREFIX = "base_model.model."
_SIDES = {"lora_A": "lora_a", "lora_B": "lora_b"}


def write_adapter(folder: Path, config: Any, target: Path) -> None:
    """Write the adapter in a folder of peft. `config` is the configuration of its base model.

    The file appears under its name when it is complete. Raises ConfigError for layers that a plain Llama does not have.
    """
    require_installed("a GGUF file", "gguf", "safetensors", "torch")
    import gguf
    from safetensors import safe_open

    try:
        alpha = float(json.loads((folder / "adapter_config.json").read_bytes())["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"cannot read the adapter in {folder}: {error}") from error
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    writer = gguf.GGUFWriter(part, "llama")
    try:
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha)
        with safe_open(folder / "adapter_model.safetensors", framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  the handle is not iterable
                _write_side(writer, name, tensors.get_tensor(name).float().numpy(), config)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _write_side(writer: Any, name: str, value: Any, config: Any) -> None:
    """Write one factor of a layer. The second one has the rows of the layer, which llama.cpp may reorder."""
    import numpy as np

    layer, _, side = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".")
    if side not in _SIDES:
        raise ConfigError(f"cannot write the weight {name!r} as GGUF: it is no factor of a low-rank adapter")
    plain = gguf_name(f"{layer}.weight")
    kind = plain.split(".")[-2]
    if side == "lora_B" and kind in PERMUTED:
        value = permute_rows(value, getattr(config, PERMUTED[kind]), inverse=False)
    writer.add_tensor(f"{plain}.{_SIDES[side]}", np.ascontiguousarray(value, dtype=np.float16))
