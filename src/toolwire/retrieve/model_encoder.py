"""An encoder of a provider or server, for indexes of tools.

index = ToolIndex(encoder=ModelEncoder(ModelClient("openai/text-embedding-3-small"), dimensions=512))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.errors import ConfigError
from ..net.model.client import ModelClient
from ..net.threads import run_blocking
from .vectors import ProgressCallback, Vectors

_BATCH = 96  # texts of a request: Cohere accepts so many, Gemini 100, OpenAI 2,048


class ModelEncoder:
    """Vectors of length 1 by a model. `dimensions` are those of its vectors; models that can shorten them do so.

    `name` identifies the model for an index; by default, it is the model's name and the number of dimensions.
    """

    def __init__(self, client: ModelClient, dimensions: int, *, name: str = "") -> None:
        self.name = name or f"{client.endpoint.vendor.name}/{client.endpoint.model}@{dimensions}"
        self.dimensions = dimensions
        self._client = client

    def encode(self, texts: Sequence[str], progress: ProgressCallback | None = None) -> Vectors:
        """Encode texts in batches. Raise the errors of the client, and ConfigError for vectors of another size."""
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = [text or " " for text in texts[start : start + _BATCH]]  # providers refuse empty texts
            made = run_blocking(self._client.embed(batch, dimensions=self.dimensions)).vectors
            found = {len(vector) for vector in made}
            if found != {self.dimensions}:
                message = f"{self.name} returned vectors of {sorted(found)} dimensions, not {self.dimensions}"
                raise ConfigError(message, hint="pass the dimensions of the model's vectors")
            vectors[start : start + len(made)] = made
            if progress is not None:
                progress(start + len(made), len(texts))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.maximum(lengths, np.finfo(np.float32).tiny)
        return vectors
