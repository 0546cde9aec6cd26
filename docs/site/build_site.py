"""Build the documentation site into site/VERSION, without network access.

Pages of other versions in site/ are kept. site/latest redirects to the newest version that was built here.

python docs/site/build_site.py            build and check the site
python docs/site/build_site.py --check    build and check it in a temporary folder
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from check_site import problems
from stage import ROOT, read_version, stage

SITE = ROOT / "site"
REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>toolwire</title>
<meta http-equiv="refresh" content="0; url={target}">
<link rel="canonical" href="{target}">
<p><a href="{target}">{target}</a></p>
"""


def build(site: Path) -> list[str]:
    """Build the version of this checkout below `site`; return the problems that the check of the site found."""
    version = read_version()
    output = site / version
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = stage(folder, output)
        found = run_generator(settings)
        if found:
            return found
        pages = folder / "pages"
        shutil.copytree(pages, output / "markdown", ignore=shutil.ignore_patterns("*.css", "*.svg", "*.png", "*.py"))
    write_versions(site)
    return problems(output, version)


def run_generator(settings: Path) -> list[str]:
    """Run MkDocs; return its warnings and errors, of which broken links and anchors are the most frequent."""
    # MkDocs reports that the project's maintenance changed; the variable omits this notice from the output.
    environment = {"TOOLWIRE_DOCS_CACHE": str(ROOT / ".docs-cache"), **os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(  # noqa: S603 - a command without user input
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", settings],
        check=False,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # not --quiet, which would hide the warnings from --strict
    if not done.returncode:
        return []
    lines = done.stdout.splitlines()
    return [line for line in lines if line.startswith(("WARNING", "ERROR"))] or lines


def write_versions(site: Path) -> None:
    """Write the list of versions, and redirects from `latest` and from the root to the newest."""
    versions = sorted((path.name for path in site.glob("*.*.*") if path.is_dir()), key=_order, reverse=True)
    newest = versions[0]
    entries = [{"version": v, "title": v, "aliases": ["latest"] if v == newest else []} for v in versions]
    (site / "versions.json").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(target=f"{newest}/index.html"), encoding="utf-8")
    shutil.rmtree(site / "latest", ignore_errors=True)
    for page in (site / newest).rglob("*.html"):
        path = page.relative_to(site / newest)
        target = site / "latest" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            REDIRECT.format(target="../" * len(path.parts) + f"{newest}/{path.as_posix()}"), encoding="utf-8"
        )


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--check", action="store_true", help="build in a temporary folder and keep nothing")
    arguments = parser.parse_args()
    if arguments.check:
        with tempfile.TemporaryDirectory() as name:
            found = build(Path(name))
    else:
        found = build(SITE)
    for problem in found:
        print(problem, file=sys.stderr)
    if not found and arguments.check:
        print("the documentation site has no broken links, and loads nothing from other hosts")
    elif not found:
        print(f"built the site of version {read_version()}; to read it: python3 -m http.server --directory site")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
