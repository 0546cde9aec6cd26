"""The real stores with which the fake ones are compared, and the end of what a schedule leaves."""

import gc
import sys
from collections.abc import Iterator

import pytest

from stores.conftest import server, servers, store, store_url

__all__ = ["server", "servers", "store", "store_url"]


@pytest.fixture(autouse=True)
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collect the coroutines of killed processes, which are never awaited: else a later test would be warned of them."""
    yield
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    gc.collect()
