"""Measure a fresh process that imports the library and translates one request: CPU time, compared with a bare interpreter."""

import json
import os
import resource
import subprocess
import sys

BODY = '{"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]}'
PROGRAMS = {
    "a bare interpreter": "pass",
    "import msgspec (all that toolwire needs)": "import msgspec",
    "import toolwire": "import toolwire",
    "import toolwire, translate": f"""
import toolwire
toolwire.translate({BODY!r}, source="openai_chat", target="anthropic")
""",
    "import litellm, translate": f"""
import json, logging, os
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
logging.disable(logging.CRITICAL)
from litellm.llms.anthropic.chat.transformation import AnthropicConfig
from litellm.utils import get_optional_params
body = json.loads({BODY!r})
optional = get_optional_params(model="claude-sonnet-4-5", custom_llm_provider="anthropic", tools=body["tools"], messages=body["messages"])
AnthropicConfig().transform_request("claude-sonnet-4-5", body["messages"], optional, {{}}, {{}})
""",
    "import llm_rosetta, translate": f"""
import json, llm_rosetta
llm_rosetta.convert(json.loads({BODY!r}), "anthropic", "openai_chat")
""",
}


def main() -> dict:
    return {"rows": [{"program": name, "seconds": _cpu(program)} for name, program in PROGRAMS.items()]}


def _cpu(program: str) -> float:
    """Return seconds of CPU, user and system, the best of several runs; the first one only fills caches."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], check=True, env=environment, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


if __name__ == "__main__":
    print(json.dumps(main()))
