"""The plugin file for vLLM's `--tool-parser-plugin` and `--reasoning-parser-plugin`.

It registers `toolwire_FORMAT` for every text format, and `toolwire`, which detects the format by the chat template or the
model's name.
`python -m toolwire.adapters.vllm_plugin` prints the path of this file. vLLM imports it by its path under the name
`vllm_plugin`, so its imports are absolute.
"""

from __future__ import annotations

import argparse

from toolwire import text


def register() -> list[str]:
    """Register the parsers of all formats with vLLM; return their names."""
    from toolwire.adapters.vllm_parsers import parser_classes  # first, because it reports a missing vLLM

    from vllm.reasoning import ReasoningParserManager  # isort: skip
    from vllm.tool_parsers import ToolParserManager  # isort: skip

    registered = {"toolwire": "", **{f"toolwire_{name}": name for name in text.names()}}
    for name, format_name in registered.items():
        reasoning, tool = parser_classes(format_name)
        ReasoningParserManager.register_module(name, module=reasoning)
        ToolParserManager.register_module(name, module=tool)
    return list(registered)


if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m toolwire.adapters.vllm_plugin",
        description="Print the path of the plugin, for vllm serve --tool-parser-plugin.",
    ).parse_args()
    print(__file__)  # noqa: T201 - the output of the command
else:
    register()
