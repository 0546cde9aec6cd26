"""The page's files without a browser: vendored modules, and nothing that would set HTML or load from elsewhere."""

import hashlib
import json
import re
from pathlib import Path

STATIC = Path(__file__).parents[2] / "src/toolwire/gateway/console/static"
VENDOR = STATIC / "vendor"
OWN = sorted(path for path in STATIC.glob("*") if path.suffix in {".js", ".css", ".html"})

# Functions that turn data into HTML or code, or send requests to other machines.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\b|new Function|createContextualFragment|DOMParser"
    r"|srcdoc|javascript:|setAttribute\(|https?://(?!127\.0\.0\.1:PORT)|sendBeacon|XMLHttpRequest|WebSocket|EventSource|@import|url\("
)
INLINE = re.compile(r"\sstyle=(?!\$\{)|\son[a-z]+=[\"']|<style|<script(?![^>]*\ssrc=)")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hash_rows():
    return [
        line.split()
        for line in (VENDOR / "HASHES").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]


def test_vendored_files_have_their_recorded_hashes():
    rows = hash_rows()
    assert {row[0] for row in rows} == {path.name for path in VENDOR.iterdir()} - {"HASHES"} - {
        path.name for path in VENDOR.glob("*.d.mts")
    }
    for name, expected, *_ in rows:
        assert digest(VENDOR / name) == expected, name


def test_vendored_modules_are_those_of_the_packages_but_for_their_imports_and_exports():
    """Undo the changes that HASHES describes: the rest is the published file, byte for byte."""
    for name, _, _, path, expected in hash_rows():
        text = (VENDOR / name).read_text(encoding="utf-8")
        if name == "htm.mjs":
            text = text.replace("\nfunction htm(", "export default function(").replace("\nexport {htm};\n", "")
        elif name.endswith(".mjs"):
            text = text.replace('import {options as n} from "./preact.mjs";\n', 'import{options as n}from"preact";')
            text = re.sub(
                r"\nexport \{(.*)\};\n",
                lambda found: f"export{{{found[1].replace(', ', ',')}}};\n//# sourceMappingURL={Path(path).name}.map\n",
                text,
            )
        assert hashlib.sha256(text.encode()).hexdigest() == expected, name


def test_own_files_set_no_html_and_load_nothing_from_elsewhere():
    assert {path.name for path in OWN} >= {"app.js", "index.html", "style.css"}
    found = [
        f"{path.name}: {match[0]}" for path in OWN for match in FORBIDDEN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_pages_have_no_inline_script_or_style():
    found = [
        f"{path.name}: {match[0]}"
        for path in OWN
        if path.suffix != ".css"
        for match in INLINE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_own_modules_are_type_checked():
    assert [
        path.name
        for path in OWN
        if path.suffix == ".js" and not path.read_text(encoding="utf-8").startswith("// @ts-check\n")
    ] == []


def test_exported_modules_are_listed_after_what_they_import():
    """`convert --html` puts these modules into one script in this order."""
    listed = json.loads((STATIC / "export.json").read_text(encoding="utf-8"))["modules"]
    for at, name in enumerate(listed):
        text = (STATIC / name).read_text(encoding="utf-8")
        imported = re.findall(r'^import \{[^}]*\} from "\./(.+)";$', text, re.MULTILINE)
        folder = name.rpartition("/")[0]
        paths = [f"{folder}/{path}" if folder else path for path in imported]
        assert set(paths) <= set(listed[:at]), name
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)  # a type in a comment may import
        assert not re.search(r"\bimport\(|\bimport\.meta|^export default|^import (?!\{)", text, re.MULTILINE), name


def test_own_modules_are_of_a_size_that_a_reader_can_survey():
    assert {
        path.name: lines
        for path in OWN
        if path.suffix == ".js" and (lines := path.read_text(encoding="utf-8").count("\n")) > 450
    } == {}  # a module is one idea
