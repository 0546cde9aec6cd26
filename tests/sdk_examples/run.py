"""Run the examples of the official SDKs unchanged over every wire, in front of a scripted model.

    python tests/sdk_examples/run.py FOLDER [SDK …]

The source distribution of each installed SDK is downloaded from PyPI and unpacked in FOLDER. Print a table, and exit
with 1 if a program fails that is not in `_KNOWN_FAILURES`.
"""

import asyncio
import hashlib
import json
import os
import re
import sys
import tarfile
import tempfile
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import urlopen

from scripted_model import EndlessScript, answer
from selection import Program, find_programs

from toolwire.testing import Upstream

_HERE = Path(__file__).parent
_SDKS = ("openai", "anthropic", "google-genai")
_MODELS = {
    "openai_chat": "openai/gpt-5.1",
    "openai_responses": "openai/gpt-5.1",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-3-pro",
    "ollama": "ollama/qwen3",
}
_TIMEOUT = 180.0
# (SDK, program, wire or "*"): the reason
_UNKNOWN_MODE = (
    "adds the mode COMPOSITIONAL to the body, which is not in the API; the request is refused with status 400"
)
_ONE_MODEL = "asks for the second page of models; a transport has one model"
_KNOWN_FAILURES: dict[tuple[str, str, str], str] = {
    ("google-genai", "README: List Base Models", "*"): _ONE_MODEL,
    ("google-genai", "README: List Base Models (Asynchronous)", "*"): _ONE_MODEL,
    ("google-genai", "README: Extra Request Body", "*"): _UNKNOWN_MODE,
}


def unpack(sdk: str, folder: Path) -> Path:
    """Download and unpack the source distribution of the installed version; its hash is that of the index."""
    release = version(sdk)
    target = folder / f"{sdk.replace('-', '_')}-{release}"
    if target.is_dir():
        return target
    index = f"https://pypi.org/simple/{sdk}/"
    with urlopen(index, timeout=60) as page:
        links = re.findall(r'href="([^"]+)"', page.read().decode())
    link = next(one for one in links if f"-{release}.tar.gz#sha256=" in one)
    with urlopen(urljoin(index, link.partition("#")[0]), timeout=120) as source:
        data = source.read()
    if hashlib.sha256(data).hexdigest() != link.partition("#sha256=")[2]:
        raise SystemExit(f"the hash of {link} does not match")
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{sdk}.tar.gz"
    archive.write_bytes(data)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    return target


async def run_program(program: Program, upstreams: dict[str, Upstream]) -> dict[str, str]:
    """Run a program over every wire. Return the error for each wire, empty if it succeeded."""
    wires = [{"wire": wire, "model": _MODELS[wire], "url": upstream.url} for wire, upstream in upstreams.items()]
    for upstream in upstreams.values():
        upstream.requests.clear()
    with tempfile.TemporaryDirectory() as work:
        arguments = [program.sdk, str(program.path), json.dumps(wires)]
        if program.code:
            section = Path(work) / "section.py"
            section.write_text(program.code)
            arguments.append(str(section))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_HERE / "run_program.py"),
            *arguments,
            cwd=work,
            env={**os.environ, "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            printed, problems = await asyncio.wait_for(process.communicate(), _TIMEOUT)
        except TimeoutError:
            process.kill()
            printed, problems = await process.communicate()
    lines = [json.loads(line) for line in printed.decode().splitlines() if line.startswith('{"wire"')]
    errors = {one["wire"]: one["error"] for one in lines}
    for wire, upstream in upstreams.items():
        if wire not in errors:
            errors[wire] = f"did not finish: {problems.decode()[-300:]}"
        elif (
            not errors[wire]
            and not any(one.wire == wire for one in upstream.requests)
            and "models" not in program.name.lower()
        ):
            errors[wire] = "no request reached the model"
    return errors


async def main(folder: Path, sdks: list[str]) -> int:
    upstreams = {wire: Upstream() for wire in _MODELS}
    for upstream in upstreams.values():
        upstream.script = EndlessScript([answer])
        await upstream.__aenter__()
    failures = []
    try:
        for sdk in sdks or _SDKS:
            failures += await _run_sdk(sdk, find_programs(sdk, unpack(sdk, folder)), upstreams)
    finally:
        for upstream in upstreams.values():
            await upstream.__aexit__()
    return 1 if failures else 0


async def _run_sdk(sdk: str, programs: list[Program], upstreams: dict[str, Upstream]) -> list[str]:
    """Run the programs of one SDK, print their table, and return the unexpected failures."""
    runnable = [one for one in programs if not one.excluded]
    print(f"\n{sdk} {version(sdk)}: {len(runnable)} of {len(programs)} programs need only a model\n")
    print("| program | " + " | ".join(upstreams) + " |")
    print("|---|" + "---|" * len(upstreams))
    unexpected, passed = [], dict.fromkeys(upstreams, 0)
    notes: list[str] = []
    for program in runnable:
        errors = await run_program(program, upstreams)
        cells = []
        for wire, error in errors.items():
            known = _KNOWN_FAILURES.get((sdk, program.name, wire)) or _KNOWN_FAILURES.get((sdk, program.name, "*"))
            passed[wire] += not error
            cells.append("✓" if not error else "known" if known else "✗")
            if error:
                notes.append(f"{program.name} over {wire}: {error}" + (f" [{known}]" if known else ""))
            if bool(error) != bool(known):
                unexpected.append(f"{program.name} over {wire}: {error or 'succeeds, but is a known failure'}")
        print(f"| {program.name} | {' | '.join(cells)} |", flush=True)
    print("| **passed** | " + " | ".join(f"{count} of {len(runnable)}" for count in passed.values()) + " |")
    for note in notes:
        print(f"- {note}")
    for reason, group in groupby(sorted(programs, key=lambda one: one.excluded), lambda one: one.excluded):
        if reason:
            print(f"- not run ({reason}): {', '.join(one.name for one in group)}")
    return unexpected


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(Path(sys.argv[1]).resolve(), sys.argv[2:])))
