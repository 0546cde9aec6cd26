"""Run one example program unchanged, once for each wire, and print one line of JSON for each.

    python run_program.py SDK PATH WIRES [SECTION_FILE]

The program constructs its client itself, so the default of `http_client` (google-genai: of `http_options`) is replaced,
as a user would pass it. Nothing else is changed.
"""

import ast
import asyncio
import builtins
import contextlib
import io
import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Optional

from toolwire.adapters import async_transport, transport


def main(sdk: str, path: str, wires: str, section: str = "") -> None:
    for target in json.loads(wires):
        options = {"base_url": target["url"], "key": "the-key", "wire": target["wire"]}
        _set_defaults(sdk, target["model"], options)
        started, output, error = time.monotonic(), io.StringIO(), ""
        with contextlib.redirect_stdout(output):
            try:
                if section:
                    _run_section(section)
                else:
                    runpy.run_path(path, run_name="__main__")
            except SystemExit as stop:
                error = f"exit status {stop.code}" if stop.code else ""
            except BaseException as failure:
                frames = traceback.extract_tb(failure.__traceback__)
                place = next(
                    (f"line {one.lineno}" for one in reversed(frames) if one.filename in (path, "README.md")), ""
                )
                error = f"{type(failure).__name__}: {str(failure)[:300]} ({place})"
        result = {"wire": target["wire"], "error": error, "printed": len(output.getvalue())}
        print(json.dumps({**result, "seconds": round(time.monotonic() - started, 2)}), flush=True)


def _set_defaults(sdk: str, model: str, options: dict[str, Any]) -> None:
    if sdk == "google-genai":
        _patch_genai(model, options)
    elif sdk == "openai":
        import openai

        for kind, make in ((openai.OpenAI, transport), (openai.AsyncOpenAI, async_transport)):
            _patch(kind, make, model, options)
    else:
        import anthropic

        for kind, make in ((anthropic.Anthropic, transport), (anthropic.AsyncAnthropic, async_transport)):
            _patch(kind, make, model, options)


def _patch(kind: Any, make: Any, model: str, options: dict[str, Any]) -> None:
    original = getattr(kind.__init__, "original", kind.__init__)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("http_client") is None:
            kwargs["http_client"] = make(model, **options)
        original(self, *args, **kwargs)

    init.original = original  # type: ignore[attr-defined]
    kind.__init__ = init


def _patch_genai(model: str, options: dict[str, Any]) -> None:
    from google import genai
    from google.genai import types

    original = getattr(genai.Client.__init__, "original", genai.Client.__init__)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = kwargs.get("http_options") or types.HttpOptions()
        given = types.HttpOptions(**given) if isinstance(given, dict) else given.model_copy()
        given.httpx_client = transport(model, **options)
        given.httpx_async_client = async_transport(model, **options)
        original(self, *args, **{**kwargs, "http_options": given})

    init.original = original  # type: ignore[attr-defined]
    genai.Client.__init__ = init  # type: ignore[method-assign]


def _run_section(file: str) -> None:
    """Run code of a README after its own imports and client; `await` is allowed at the top level, as in a notebook."""
    from google import genai
    from google.genai import types

    code = compile(Path(file).read_text(), "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"genai": genai, "types": types, "client": genai.Client(), "__name__": "__main__"}
    names |= {"MODEL_ID": "gemini-3-pro", "Optional": Optional, "List": list}  # names that the README does not define
    if code.co_flags & 0x80:  # a coroutine

        async def work() -> None:
            await eval(code, names)

        asyncio.run(work())
    else:
        exec(code, names)


if __name__ == "__main__":
    os.environ.update(
        dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AZURE_OPENAI_API_KEY"), "unused")
    )
    builtins.input = lambda *_: "y"
    main(*sys.argv[1:])
