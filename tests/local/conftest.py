"""The models that tests of this folder share."""

from collections.abc import Iterator

import pytest

from shallow_model import NAME, shallow_file
from toolwire.local import LocalModel, open_model


@pytest.fixture(scope="module")
def shallow() -> Iterator[LocalModel]:
    """The model with one layer, which is `local/shallow` for clients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLWIRE_MODELS", str(shallow_file().parent))
        model = open_model(NAME, threads=1)
        yield model
        model.close()


@pytest.fixture(scope="module")
def whole() -> Iterator[LocalModel]:
    """The model with all layers, for tests that need its choice of words."""
    model = open_model("smollm2", threads=1)
    yield model
    model.close()
