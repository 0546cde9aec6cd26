"""Import a package whose heavy dependencies are not installed: they are replaced by modules whose attributes are stubs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from pydantic_core import core_schema

__all__ = ["install_stubs"]


class _StubType(type):
    """A class that is whatever the importing code does with it: a base class, a decorator, an annotation, a value."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs and not isinstance(args[0], _StubType):
            return args[0]  # a decorator
        return super().__call__()

    def __or__(cls, other: object) -> Any:
        return cls

    def __ror__(cls, other: object) -> Any:
        return cls

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class _Stub:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        return core_schema.any_schema()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else _stub("result")()


def _stub(name: str) -> _StubType:
    return _StubType(name, (_Stub,), {})


class _StubModule(ModuleType):
    def __init__(self, name: str, attributes: Mapping[str, object]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _stub(name)
        setattr(self, name, value)
        return value


class _StubDistribution(Distribution):
    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 99.0\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return path


class _StubFinder(MetaPathFinder, Loader):
    def __init__(self, names: Iterable[str], attributes: Mapping[str, Mapping[str, object]]) -> None:
        self._names = frozenset(names)
        self._attributes = attributes

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self._names):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> Any:
        if context.name in self._names:
            yield _StubDistribution(context.name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StubModule(spec.name, self._attributes.get(spec.name, {}))

    def exec_module(self, module: ModuleType) -> None:
        pass


def install_stubs(
    own: Iterable[str], optional: Iterable[str], attributes: Mapping[str, Mapping[str, object]] | None = None
) -> None:
    """Replace the modules `own` of the package, and those of `optional` that are not installed."""
    missing = [name for name in optional if find_spec(name) is None]
    sys.meta_path.insert(0, _StubFinder([*own, *missing], attributes or {}))
