"""A small real model in this process: no key, no network (extra `local`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .model import LocalModel as LocalModel
    from .model import open_model as open_model
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"model": "LocalModel open_model"})
