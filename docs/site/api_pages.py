"""Write the API reference: one page per public package, with an entry for each name of its `__all__`."""

import ast
from collections.abc import Mapping
from pathlib import Path

__all__ = ["api_pages", "public_names"]

SOURCE = Path(__file__).parents[2] / "src/toolwire"
_PRIVATE = {"cli"}  # the commands are documented by their `--help`


def public_names() -> dict[str, list[str]]:
    """Return the names that each package exports, by package; nothing is imported."""
    found: dict[str, list[str]] = {"toolwire": _exported(SOURCE / "__init__.py")}
    for package in sorted(path for path in SOURCE.iterdir() if (path / "__init__.py").exists()):
        if package.name not in _PRIVATE:
            found[f"toolwire.{package.name}"] = _exported(package / "__init__.py")
    return {package: names for package, names in found.items() if names}


def _exported(path: Path) -> list[str]:
    """Return the names that a package imports `as` themselves, the names in `own=`, or else its literal `__all__`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom():
                found.update(alias.name for alias in node.names if alias.asname == alias.name)
            case ast.keyword(arg="own", value=ast.Constant(value=str() as own)):
                found.update(own.split())
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                found.update(ast.literal_eval(node.value))
    return sorted(found)


def api_pages() -> dict[str, str]:
    """Return the text of each page, by its path on the site; the first is the index."""
    names = public_names()
    pages = {f"api/{package}.md": _package_page(package, names) for package in names}
    index = [
        "# API reference",
        "",
        "Every public name, by package. Import from `toolwire` or from one of these packages.",
        "",
    ]
    index += ["| package | purpose | names |", "|---|---|---|"]
    index += [f"| [{package}]({package}.md) | {_summary(package)} | {len(names[package])} |" for package in names]
    return {"api/index.md": "\n".join([*index, ""]), **pages}


def _package_page(package: str, names: Mapping[str, list[str]]) -> str:
    lines = [f"# {package}", "", _docstring(package), ""]
    for name in names[package]:
        path = f"{package}.{name}"
        if path in names:  # a package that is exported as a name
            lines += [f"## {name}", "", f"The package [{path}]({path}.md).", ""]
        else:
            lines += [f"::: {path}", ""]
    return "\n".join(lines)


def _docstring(package: str) -> str:
    folder = SOURCE.joinpath(*package.split(".")[1:])
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""


def _summary(package: str) -> str:
    return _docstring(package).partition("\n")[0].replace("|", "\\|")
