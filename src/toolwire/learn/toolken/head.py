"""The trainable part of ToolkenGPT: a matrix with one row for each tool, and its file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
import torch
from msgspec.structs import replace
from safetensors.torch import load, save
from torch import nn

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.tools import Tool
from ...ir.value import Value
from ..run_folder import write_atomically
from .states import hash_model

if TYPE_CHECKING:
    from ..language_model import LanguageModel

MANIFEST = "head.json"
_WEIGHTS = "head.safetensors"
_VERSION = 1  # of the file; raise it when an older reader would misread a newer file


class ArgumentExample(Value, frozen=True):
    """The text before a call and the call's arguments: one line of the prompt in argument mode."""

    text: str
    arguments: Object


class ToolkenTool(Value, frozen=True):
    """A tool of a head. `digest` identifies its schema: arguments for another schema would be wrong."""

    name: str
    digest: str = ""
    examples: tuple[ArgumentExample, ...] = ()


class Calibration(Value, frozen=True):
    """The bias that maximises F1 on a development set, and precision and recall there."""

    bias: float
    precision: float
    recall: float
    f1: float
    positions: int


class _HeadManifest(Value, frozen=True):
    version: int
    model: str
    hidden_dim: int
    bias: float
    tools: tuple[ToolkenTool, ...]
    weights: str
    calibration: Calibration | None = None
    model_name: str = ""
    is_chat: bool = False


class ToolkenHead(nn.Module):
    """Adds a trainable logit for each tool to the logits of a frozen model: p = softmax([W_LM h; W_T h + bias]).

    `bias` is added to all toolken logits. It does not change the choice between tools, only between calling and
    writing; `calibrate_bias` finds it on a development set. `model_hash` identifies the frozen model, and `model_name`
    opens it again. `is_chat`: the head was trained on conversations in the model's chat template, as it is served.
    """

    def __init__(
        self, hidden_dim: int, tools: Sequence[ToolkenTool | str], *, bias: float = 0.0, model_hash: str = ""
    ) -> None:
        """Create a head with zero weights. Raises `ConfigError` without tools and for duplicate names."""
        super().__init__()
        described = tuple(ToolkenTool(tool) if isinstance(tool, str) else tool for tool in tools)
        names = [tool.name for tool in described]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"a head needs tools with different names, got {names[:20]}")
        self.tools = described
        self.bias = float(bias)
        self.model_hash = model_hash
        self.model_name = ""
        self.is_chat = False
        self.calibration: Calibration | None = None
        self.W_T = nn.Linear(hidden_dim, len(described), bias=False)
        nn.init.zeros_(self.W_T.weight)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in the order of the rows."""
        return tuple(one.name for one in self.tools)

    @property
    def hidden_dim(self) -> int:
        return int(self.W_T.in_features)

    def forward(self, h: torch.Tensor, frozen_word_logits: torch.Tensor) -> torch.Tensor:
        """Return the logits of the vocabulary followed by the logits of the toolkens: (…, V + T), in float32."""
        return torch.cat([frozen_word_logits.float(), self.tool_logits(h)], dim=-1)

    def tool_logits(self, h: torch.Tensor) -> torch.Tensor:
        """Return the logits of the toolkens with the bias, in float32."""
        logits: torch.Tensor = self.W_T(h.to(self.W_T.weight.dtype)).float() + self.bias
        return logits

    def extend(self, tools: Sequence[ToolkenTool | str]) -> ToolkenHead:
        """Return a head with further rows of zeros. The existing rows are copied bit by bit."""
        larger = ToolkenHead(self.hidden_dim, [*self.tools, *tools], bias=self.bias, model_hash=self.model_hash)
        larger.to(self.W_T.weight.device)
        larger.calibration = self.calibration
        larger.model_name, larger.is_chat = self.model_name, self.is_chat
        with torch.no_grad():
            larger.W_T.weight[: len(self.tools)] = self.W_T.weight
        return larger

    def save(self, folder: str | Path) -> None:
        """Write `head.safetensors` and `head.json`. The second has the hash of the first, so that both belong together.

        It is written last: a server that reads the head again when `head.json` changes finds both.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        content = save({"W_T": self.W_T.weight.detach().float().cpu().contiguous()})
        manifest = _HeadManifest(
            _VERSION,
            self.model_hash,
            self.hidden_dim,
            self.bias,
            self.tools,
            hashlib.sha256(content).hexdigest(),
            self.calibration,
            self.model_name,
            self.is_chat,
        )
        write_atomically(target / _WEIGHTS, content)
        write_atomically(target / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")

    @classmethod
    def load(cls, folder: str | Path, model: LanguageModel | None = None) -> Self:
        """Read a head.

        With `model`, a head that was trained on another model is refused. Raises `ConfigError` then, and for files that
        are missing, damaged, of another version or do not belong together.
        """
        source = Path(folder)
        try:
            manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=_HeadManifest)
            content = (source / _WEIGHTS).read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the head in {source}: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{source / MANIFEST} is not the file of a head: {error}") from None
        if manifest.version != _VERSION:
            raise ConfigError(f"{source} has the version {manifest.version} of heads", hint="train the head again")
        if hashlib.sha256(content).hexdigest() != manifest.weights:
            raise ConfigError(f"{source / _WEIGHTS} is not the file that {MANIFEST} describes", hint="copy both files")
        head = cls(manifest.hidden_dim, manifest.tools, bias=manifest.bias, model_hash=manifest.model)
        weight = load(content)["W_T"]
        if weight.shape != head.W_T.weight.shape:
            raise ConfigError(f"{source / _WEIGHTS} has the shape {tuple(weight.shape)}, not {len(head.tools)} rows")
        with torch.no_grad():
            head.W_T.weight.copy_(weight)
        head.calibration = manifest.calibration
        head.model_name, head.is_chat = manifest.model_name, manifest.is_chat
        if model is not None:
            head.require_model(model)
        return head

    def require_model(self, model: LanguageModel) -> None:
        """Raise ConfigError if the head was not trained on this model."""
        self.require_hash(hash_model(model))

    def require_hash(self, found: str) -> None:
        """Raise ConfigError if the head was not trained on the model with this hash."""
        if found != self.model_hash:
            raise ConfigError(
                f"the head was trained on the model {self.model_hash[:12] or 'unknown'}, this model is {found[:12]}",
                hint="use the same weights and tokenizer, or train a head for this model",
            )

    def require_tools(self, tools: Sequence[Tool]) -> None:
        """Raise ConfigError if a tool of the head is missing, or has another schema than in training."""
        digests = {tool.name: schema_digest(tool) for tool in tools}
        for own in self.tools:
            if own.name not in digests:
                raise ConfigError(f"the head calls {own.name!r}, which is not among the tools", hint="add the tool")
            if own.digest and own.digest != digests[own.name]:
                raise ConfigError(
                    f"the schema of {own.name!r} is not the one that the head was trained with",
                    hint="use the earlier schema, or train the head again",
                )


def schema_digest(tool: Tool) -> str:
    """Return a hash of the input schema, independent of the order of keys."""
    return hashlib.sha256(msgspec.json.encode(tool.input_schema, order="deterministic")).hexdigest()[:32]


def describe_tools(
    names: Sequence[str], tools: Sequence[Tool] = (), examples: Mapping[str, Sequence[ArgumentExample]] | None = None
) -> tuple[ToolkenTool, ...]:
    """Return the tools of a head with the digests of their schemas and their examples for argument mode.

    Raise ConfigError if a tool is not given.
    """
    known = {tool.name: tool for tool in tools}
    missing = [name for name in names if name not in known] if tools else []
    if missing:
        raise ConfigError(f"{missing[0]!r} is called but is not among the tools", hint="add the tool")
    found = (ToolkenTool(name, schema_digest(known[name]) if name in known else "") for name in names)
    return tuple(replace(one, examples=tuple((examples or {}).get(one.name, ()))) for one in found)
