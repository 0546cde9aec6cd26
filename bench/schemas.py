"""Measure how much of a schema's meaning lowering preserves, for toolwire and the peers, on the same schemas.

Perfect: no crash, the dialect accepts the schema, every value of the original can be written and comes back, and no value comes
back that the original forbids (toolwire.testing.preservation). Peers do not lift arguments, so the identity is used for them.

    TOOLWIRE_SCHEMAS    a folder of *.jsonl with `input_schema`; the tests' own vectors otherwise

A second corpus, the functions of a leaderboard, is measured if its wheel is installed (bfcl.py).
"""

import copy
import json
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path

from bfcl import PACKAGE, functions
from toolwire.schema import DIALECTS, lower
from toolwire.testing.preservation import check_preservation

HERE = Path(__file__).parent
FOLDERS = (os.environ.get("TOOLWIRE_SCHEMAS"), HERE.parent.parent / "shared/data/tool_schemas")


def schemas() -> list[tuple[str, dict]]:
    for folder in FOLDERS:
        if folder and Path(folder).is_dir():
            lines = [
                json.loads(line)
                for file in sorted(Path(folder).glob("*.jsonl"))
                for line in file.read_text(encoding="utf-8").splitlines()
            ]
            return [(tool["source"] + tool["name"], tool["input_schema"]) for tool in lines]
    vectors = json.loads((HERE.parent / "tests/vectors/schema/schemas.json").read_text(encoding="utf-8"))
    return [(vector["about"], vector["schema"]) for vector in vectors]


def peers() -> list[tuple[str, str, object]]:
    """Return peer, dialect and function of the installed peers."""
    makers = (_openai, _agents, _pydantic_ai, _anthropic, _genai, _genai_mcp, _litellm, _langchain)
    found = []
    for maker in makers:
        try:
            found += maker()
        except ImportError:
            continue
    return found


def _openai() -> list:
    from openai import __version__
    from openai.lib._pydantic import _ensure_strict_json_schema

    return [(f"openai {__version__}", "openai_strict", lambda s: _ensure_strict_json_schema(s, path=(), root=s))]


def _agents() -> list:
    from agents.strict_schema import ensure_strict_json_schema
    from agents.version import __version__

    return [(f"openai-agents {__version__}", "openai_strict", ensure_strict_json_schema)]


def _pydantic_ai() -> list:
    from pydantic_ai import __version__
    from pydantic_ai.profiles.google import GoogleOpenAPISchemaTransformer
    from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

    name = f"PydanticAI {__version__}"
    return [
        (name, "openai_strict", lambda s: OpenAIJsonSchemaTransformer(s, strict=True).walk()),
        (name, "gemini", lambda s: GoogleOpenAPISchemaTransformer(s).walk()),
    ]


def _anthropic() -> list:
    from anthropic import __version__, transform_schema

    return [(f"anthropic {__version__}", "anthropic_strict", transform_schema)]


def _genai() -> list:
    from google.genai import Client, __version__, _transformers

    client = Client(api_key="none")._api_client

    def process(schema: dict) -> dict:
        _transformers.process_schema(schema, client)
        return _camel(schema)

    return [(f"google-genai {__version__} process_schema", "gemini", process)]


def _genai_mcp() -> list:
    import mcp.types
    from google.genai import __version__, _mcp_utils

    def convert(schema: dict) -> dict:
        tool = _mcp_utils.mcp_to_gemini_tool(mcp.types.Tool(name="f", inputSchema=schema))
        return _plain(tool.function_declarations[0].parameters)

    return [(f"google-genai {__version__} mcp_to_gemini_tool", "gemini", convert)]


def _litellm() -> list:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    from importlib.metadata import version

    from litellm.llms.vertex_ai.common_utils import _build_vertex_schema

    return [(f"LiteLLM {version('litellm')}", "gemini", _build_vertex_schema)]


def _langchain() -> list:
    from importlib.metadata import version

    from langchain_google_genai._function_utils import _dict_to_genai_schema

    name = f"langchain-google-genai {version('langchain-google-genai')}"
    return [(name, "gemini", lambda s: _plain(_dict_to_genai_schema(s)))]


def _camel(value: object) -> object:
    """Return the keyword that it adds, as the client sends it."""
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {"propertyOrdering" if k == "property_ordering" else k: _camel(one) for k, one in value.items()}


def _plain(value: object) -> dict:
    """Convert a provider's own schema object to JSON Schema."""
    return _lower_case(value.model_dump(mode="json", exclude_none=True, by_alias=True))


def _lower_case(value: object) -> object:
    if isinstance(value, list):
        return [_lower_case(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: one.lower() if key == "type" and isinstance(one, str) else _lower_case(one) for key, one in value.items()
    }


def measure(name: str, dialect: str, function: object, corpus: list[tuple[str, dict]]) -> dict:
    counts: Counter[str] = Counter()
    for seed, schema in corpus:
        given = copy.deepcopy(schema)
        lift = encode = _same
        told = False
        try:
            if function is None:
                lowered = lower(given, dialect)
                written, lift, encode = lowered.schema, lowered.lift, lowered.encode
                told = any(loss.severity != "info" for loss in lowered.losses)
            else:
                written = function(given)
                written = json.loads(json.dumps(written))
        except Exception:
            counts["tested"] += 1
            counts["crashed"] += 1
            continue
        counts["changed its input"] += function is not None and given != schema and written is not given
        verdict = check_preservation(
            schema, written, DIALECTS[dialect], lift=lift, encode=encode, reported=told, seed=seed
        )
        if verdict is None:
            continue
        counts["tested"] += 1
        counts["perfect"] += verdict.is_perfect
        counts["not conformant"] += not verdict.conforms
        counts["incomplete"] += not verdict.complete
        counts["unsound"] += not verdict.sound
        counts["unreported"] += not verdict.is_honest
    return {"name": name, "dialect": dialect, **counts}


def _same(value: object) -> object:
    return value


def speed(corpus: list[tuple[str, dict]]) -> list[dict]:
    """Measure lowering a thousand schemas, for the first time and again."""
    from toolwire.schema.lowering import lowered as lowering

    rows = []
    some = [schema for _, schema in corpus[:1000]]
    for dialect in ("openai_strict", "anthropic_strict", "gemini"):
        lowering._lower_cached.cache_clear()
        row = {"dialect": dialect, "schemas": len(some)}
        for turn in ("first", "again"):
            start = time.process_time()
            for schema in some:
                lower(schema, dialect)
            row[turn] = time.process_time() - start
        rows.append(row)
    return rows


def main() -> dict:
    logging.disable(logging.CRITICAL)
    ours = [("toolwire", dialect, None) for dialect in ("openai_strict", "anthropic_strict", "gemini")]
    only = sys.argv[1:]
    chosen = [row for row in [*ours, *peers()] if not only or any(row[0].startswith(name) for name in only)]
    published = schemas()
    corpora = []
    for about, corpus in (("that real servers publish", published), (f"of {PACKAGE}", functions())):
        rows = []
        for name, dialect, function in chosen if corpus else ():
            print(f"schemas {about}: {name} → {dialect} …", file=sys.stderr, flush=True)
            rows.append(measure(name, dialect, function, corpus))
        corpora.append({"about": about, "count": len(corpus), "rows": rows})
    return {"corpora": corpora, "speed": speed(published)}


if __name__ == "__main__":
    print(json.dumps(main()))
