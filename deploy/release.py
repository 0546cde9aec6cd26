"""Build the distributions twice, compare and check them, and run the README with the installed wheel.

make release                  from the last commit, into dist/: the distributions, their hashes, and an SBOM (CycloneDX)
make release PUBLISHED=yes    record in the source that the package is published: hints then name it; commit that first

Both builds use the packages of deploy/build.lock only, each in a folder of its own, with the time of the commit. The
second one is made from the unpacked source distribution of the first, so users of it get the same wheel. The
packages of deploy/requirements.lock are installed by their hashes before the wheel, which must need no others.

Nothing is uploaded: the last lines are the commands for it.
"""

import hashlib
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

from lock import EXTRAS

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
FLAG = ROOT / "src/toolwire/_extras.py"
REQUIRED = (
    "toolwire/py.typed",
    "toolwire/__init__.py",
    "toolwire/cli/main.py",
    "toolwire/gateway/config/toolwire.schema.json",
)
FORBIDDEN = re.compile(r"(^|/)(tests|\.venv|site|\.git|\.peers|__pycache__)/")


def run(*command: object, folder: Path = ROOT, **variables: str) -> None:
    """Run a command; exit with its code if it fails."""
    print("$", *command, flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # of this checkout
    words = [str(word) for word in command]
    code = subprocess.run(words, cwd=folder, check=False, env={**environment, **variables}).returncode
    if code:
        sys.exit(f"release: {command[0]} failed with exit code {code}")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


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


def make_environment(folder: Path) -> tuple[Path, list[object]]:
    """Make an empty environment. Return its Python, and the command that installs packages there."""
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install"]
    return python, [*pip]


def build_twice(folder: Path) -> None:
    """Build the last commit in one folder, and its source distribution in another; exit if the files differ."""
    commit, seconds = git("log", "-1", "--format=%H %ct").split()
    with tarfile.open(
        fileobj=subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE).stdout, mode="r|"
    ) as archive:
        archive.extractall(folder / "checkout", filter="data")
    python, install = make_environment(folder / "build")
    run(*install, "--require-hashes", "--requirement", ROOT / "deploy/build.lock")
    build = [python, "-I", "-m", "hatchling", "build", "--directory"]
    run(*build, DIST, folder=folder / "checkout", SOURCE_DATE_EPOCH=seconds)
    [source] = DIST.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "unpacked elsewhere", filter="data")
    [unpacked] = (folder / "unpacked elsewhere").iterdir()
    run(*build, folder / "second", folder=unpacked, SOURCE_DATE_EPOCH=seconds)
    compare(DIST, folder / "second")
    print(f"two builds of commit {commit} are equal")


def compare(first: Path, second: Path) -> None:
    """Print the SHA-256 hashes of both folders' files; exit if they differ."""
    hashes = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
        for folder in (first, second)
    ]
    for name in sorted({*hashes[0], *hashes[1]}):
        print(*(found.get(name, "missing").ljust(64) for found in hashes), name)
    if hashes[0] != hashes[1]:
        sys.exit("release: two builds of one commit differ")


def try_wheel(wheel: Path, version: str, folder: Path) -> None:
    """Install the locked packages and the wheel, describe them in an SBOM, and run the blocks of the README there."""
    python, install = make_environment(folder / "env")
    run(*install, "--require-hashes", "--requirement", ROOT / "deploy/requirements.lock")
    run(*install, "--no-index", f"{wheel}[{','.join(EXTRAS)}]")  # fails if the lock lacks a package
    bom = DIST / f"toolwire-{version}.cdx.json"
    generator = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--validate"]
    run(*generator, "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-file", bom, python)
    if str(folder) in bom.read_text("utf-8"):
        sys.exit("release: the SBOM names a folder of this machine")
    run(*install, f"{wheel}[{readme_extras()}]")
    run(sys.executable, "-m", "pip", "--python", python, "check", folder=folder)
    command = folder / "env/bin/toolwire"
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True, cwd=folder).stdout
    if printed.strip() != f"toolwire {version}":
        sys.exit(f"release: `toolwire --version` prints {printed!r}, not 'toolwire {version}'")
    run(command, "demo", folder=folder)
    run(python, "-E", "-s", ROOT / "tests/support/doc_blocks.py", ROOT / "README.md", folder=folder)


def set_published() -> None:
    """Set the flag by which hints and pages name the package of the index."""
    text = FLAG.read_text("utf-8")
    if "\nPUBLISHED = False\n" in text:
        FLAG.write_text(text.replace("\nPUBLISHED = False\n", "\nPUBLISHED = True\n"), "utf-8")
        sys.exit(f"release: {FLAG.relative_to(ROOT)} now says that the package is published; commit it and repeat")


def main() -> None:
    if "--published" in sys.argv:
        set_published()
    if git("status", "--porcelain"):
        sys.exit("release: there are uncommitted changes; a release is built from a commit")
    version = check_version()
    shutil.rmtree(DIST, ignore_errors=True)
    wheel, source = DIST / f"toolwire-{version}-py3-none-any.whl", DIST / f"toolwire-{version}.tar.gz"
    with tempfile.TemporaryDirectory() as name:
        build_twice(Path(name))
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
        check_contents(wheel, source)
        try_wheel(wheel, version, Path(name))
    print(f"\nReady. Nothing was uploaded. To publish version {version}:")
    print(f"  git tag v{version} && git push origin v{version}")
    print(f"  {sys.executable} -m twine upload {wheel.relative_to(ROOT)} {source.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
