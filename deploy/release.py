"""Build the distributions, check them, and run the README with the installed wheel in a clean environment.

make release

Nothing is uploaded: the last lines are the commands for it.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
REQUIRED = ("toolwire/py.typed", "toolwire/__init__.py", "toolwire/cli/main.py")
FORBIDDEN = re.compile(r"(^|/)(tests|\.venv|site|\.git|\.peers|__pycache__)/")


def run(*command: object, folder: Path = ROOT) -> None:
    """Run a command; exit with its code if it fails."""
    print("$", *command, flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # of this checkout
    code = subprocess.run([str(word) for word in command], cwd=folder, check=False, env=environment).returncode
    if code:
        sys.exit(f"release: {command[0]} failed with exit code {code}")


def check_version() -> str:
    """Return the version, which must be the same in pyproject.toml and in the package, and have notes in CHANGELOG.md."""
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
    source = (ROOT / "src/toolwire/__init__.py").read_text("utf-8")
    if f'__version__ = "{version}"' not in source:
        sys.exit(f"release: src/toolwire/__init__.py has another version than pyproject.toml ({version})")
    if f"\n## {version}" not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        print(
            f"release: warning: CHANGELOG.md has no section {version}; rename the section Unreleased before the upload"
        )
    return version


def check_contents(wheel: Path, source: Path) -> None:
    """Check that the wheel has the package and nothing else, and that the source distribution has the tests and docs."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = [name for name in REQUIRED if name not in names]
    foreign = [name for name in names if FORBIDDEN.search(name) or not name.startswith("toolwire")]
    if missing or foreign:
        sys.exit(f"release: the wheel lacks {missing} and should not contain {foreign[:5]}")
    with tarfile.open(source) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    lacking = {
        "README.md",
        "LICENSE",
        "Makefile",
        "CHANGELOG.md",
        "docs/README.md",
        "tests/support/doc_blocks.py",
    } - members
    if lacking:
        sys.exit(f"release: the source distribution lacks {sorted(lacking)}")


def readme_extras() -> str:
    """Return the extras that the commands of the README install, separated by commas."""
    found = re.findall(r"'\.\[([a-z,]+)\]'", (ROOT / "README.md").read_text("utf-8"))
    return ",".join(sorted({extra for extras in found for extra in extras.split(",")}))


def try_readme(wheel: Path, version: str) -> None:
    """Install the wheel in a new environment and run the blocks of the README there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env/bin/python"
        quiet = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        run(python, *quiet, f"{wheel}[{readme_extras()}]")
        run(python, "-m", "pip", "check", folder=folder)
        printed = subprocess.run(
            [folder / "env/bin/toolwire", "--version"], capture_output=True, text=True, check=True, cwd=folder
        ).stdout.strip()
        if printed != f"toolwire {version}":
            sys.exit(f"release: `toolwire --version` prints {printed!r}, not 'toolwire {version}'")
        run(folder / "env/bin/toolwire", "demo", folder=folder)
        run(python, "-I", ROOT / "tests/support/doc_blocks.py", ROOT / "README.md", folder=folder)


def main() -> None:
    version = check_version()
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    wheel, source = DIST / f"toolwire-{version}-py3-none-any.whl", DIST / f"toolwire-{version}.tar.gz"
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    check_contents(wheel, source)
    try_readme(wheel, version)
    print(f"\nReady. Nothing was uploaded. To publish version {version}:")
    print(f"  git tag v{version} && git push origin v{version}")
    print(f"  {sys.executable} -m twine upload {wheel.relative_to(ROOT)} {source.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
