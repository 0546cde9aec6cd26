"""Public names of a package that are loaded on first use, so that importing the package costs nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_exports(
    package: str,
    exports: Mapping[str, str],
    packages: str = "",
    own: str = "",
    extras: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package. Lists of names are texts, separated by spaces.

    `exports` maps a module of the package to the names that it defines. `packages` are subpackages that are imported
    on first use. `own` are public names that the package defines itself. `extras` maps a module that may be missing to
    the extra that installs it; if that import fails, `__getattr__` raises MissingExtra with the install command.

    Type checkers cannot evaluate this `__all__`. For them, a package imports each name `as` itself below
    `if TYPE_CHECKING`, which marks it as exported (typing specification, "Library interface").
    """
    homes = {name: module for module, names in exports.items() for name in names.split()}
    public = sorted([*homes, *own.split()])

    def import_home(name: str) -> object:
        from importlib import import_module

        try:
            return import_module(f"{package}.{homes[name]}")
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            extra = (extras or {}).get(missing)
            if extra is None:
                raise
            from ._extras import install_command
            from .ir.errors import MissingExtra

            raise MissingExtra(f"{package}.{name} requires {missing}", hint=install_command(extra)) from None

    def load(name: str) -> object:
        from importlib import import_module

        if name in homes:
            value = getattr(import_home(name), name)
        elif name in packages.split():
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(  # with `name` and `obj` the interpreter suggests a similar name
                f"module {package!r} has no attribute {name!r}", name=name, obj=import_module(package)
            )
        setattr(import_module(package), name, value)  # later accesses find the attribute itself
        return value

    return load, lambda: public, public
