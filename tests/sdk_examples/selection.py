"""The example programs of the official SDKs: those that run here, and the reasons for those that do not."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["Program", "find_programs"]


class Program(NamedTuple):
    """A file, or `code`, that of one section of a README. `excluded`: the reason for not running it."""

    sdk: str
    name: str
    path: Path
    code: str = ""
    excluded: str = ""


_EXCLUDED_FILES = {
    "openai": {
        "audio.py": "audio endpoints",
        "azure_ad.py": "azure-identity and an Azure account",
        "bedrock.py": "an AWS account",
        "bedrock_runtime.py": "an AWS account",
        "browser/": "a browser",
        "browser-use-demo/": "a browser",
        "computer-desktop/": "a desktop",
        "httpx2_client.py": "constructs its own HTTP client, which is the subject of the example",
        "image_stream.py": "image endpoints",
        "live/": "audio over WebSocket",
        "module_client.py": "its base URL is a placeholder (https://...)",
        "mtls_": "client certificates",
        "picture.py": "image endpoints",
        "realtime/": "audio over WebSocket",
        "responses/__init__.py": "empty",
        "responses/background": "background responses, which the provider runs and stores",
        "responses/multi_agent_websocket.py": "WebSocket",
        "responses/websocket.py": "WebSocket",
        "responses_input_tokens.py": "the token-count endpoint",
        "responses_websocket.py": "WebSocket",
        "speech_to_text.py": "audio endpoints",
        "text_to_speech.py": "audio endpoints",
        "uploads.py": "file endpoints",
        "video.py": "video endpoints",
        "x509_": "client certificates",
    },
    "anthropic": {
        "agents": "managed agents, which the provider runs",
        "azure.py": "an Azure account",
        "batch_results.py": "batch endpoints",
        "bedrock.py": "an AWS account",
        "google_cloud.py": "a Google Cloud account",
        "managed-agents": "managed agents, which the provider runs",
        "mcp_tool_runner.py": "downloads a server with npx",
        "memory/": "an interactive program",
        "vertex.py": "a Google Cloud account",
        "workload_identity.py": "an identity provider",
    },
}
# blocks of google-genai's README; the first pattern that matches the code or the heading is the reason
_EXCLUDED_BLOCKS = (
    (r"(?i)image output|imagen|edit_image|upscale|generate_images|recontext|segment_image", "image endpoints"),
    (r"(?i)audio / speech|response_modalities", "audio output"),
    (r"(?i)veo|generate_videos", "video endpoints"),
    (
        r"client\.(aio\.)?(files|caches|batches|tunings|operations)|gs://|file_uri|cached_content|tuning_job|query_base",
        "files, caches, batches or tuning",
    ),
    (r"count_tokens|compute_tokens|embed_content|Tokenizer", "token-count and embedding endpoints"),
    (r"(?i)enterprise\s*=|vertexai\s*=|\bcredentials\b|project=", "a Google Cloud account"),
    (r"client\.(aio\.)?(live|interactions|webhooks|agents)", "endpoints without a model's answer, or WebSocket"),
    (r"open\(|\.read_bytes\(|YOUR_IMAGE", "a file that the reader supplies"),
    (r"stdio_client|ClientSession", "a server that is downloaded"),
    (r"base_url|proxy|client_args|os\.environ", "network settings, which are the subject of the example"),
)
_CONVERSATION = re.compile(r"generate_content|chats\.create|models\.list")
_SECTION_LEVEL = 3
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def find_programs(sdk: str, folder: Path) -> list[Program]:
    """List the programs of an unpacked source distribution."""
    return _readme_programs(sdk, folder / "README.md") if sdk == "google-genai" else _file_programs(sdk, folder)


def _file_programs(sdk: str, folder: Path) -> list[Program]:
    programs = []
    for path in sorted((folder / "examples").rglob("*.py")):
        name = path.relative_to(folder / "examples").as_posix()
        reason = next((why for prefix, why in _EXCLUDED_FILES[sdk].items() if name.startswith(prefix)), "")
        programs.append(Program(sdk, name, path, excluded=reason))
    return programs


def _readme_programs(sdk: str, path: Path) -> list[Program]:
    """List the sections of a README with code. Each is a program after the sections above it under the same heading."""
    programs = []
    earlier = ""  # code of runnable sections under the same heading of the third level
    definitions = ""  # functions and imports of the sections above
    for section in re.split(r"^(?=#{2,6} )", path.read_text(), flags=re.MULTILINE):
        marks, heading = section.partition("\n")[0].split(" ", 1) if section.startswith("##") else ("", "")
        earlier = "" if len(marks) <= _SECTION_LEVEL else earlier
        code = "\n".join(_BLOCK.findall(section))
        if not _CONVERSATION.search(code):
            continue
        reason = next((why for pattern, why in _EXCLUDED_BLOCKS if re.search(pattern, f"{heading}\n{code}")), "")
        programs.append(Program(sdk, f"README: {heading.strip()}", path, definitions + earlier + code, reason))
        earlier += "" if reason else f"{code}\n"
        definitions += "" if reason else _definitions(code)
    return programs


def _definitions(code: str) -> str:
    """Return the functions and imports of a section, which later sections of the README use."""
    nodes = [one for one in ast.parse(code).body if isinstance(one, (ast.FunctionDef, ast.Import, ast.ImportFrom))]
    return "".join(f"{ast.get_source_segment(code, one)}\n" for one in nodes)
