"""`toolwire convert`: translate a request, a response, a stream or the tools of any source to another wire."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ..ir.errors import ConfigError, ProtocolError, ToolwireError
from ..ir.losses import Loss, LossError, require_lossless
from ..ir.terminal import neutralise_json, neutralise_line
from .sources.documents import name_file, read_bytes, replace_file
from .sources.tool_source import SOURCE_HELP, add_source_options, read_declared, source_kind
from .terminal.options import add_command, add_flag, add_model
from .terminal.output import columns, json_text, paint, print_losses, print_note

if TYPE_CHECKING:
    from ..ir.tools import Tool

_ToTarget: TypeAlias = Callable[[str], tuple[Any, tuple[Loss, ...]]]  # from a target to the result and its losses

_HELP = """\
Translate a request, a response, a stream or tools to another wire, and list the losses.

examples:
  toolwire convert request.json --to anthropic
  toolwire convert tool.json --to all              all wires side by side, including MCP's declaration
  toolwire convert tools.py --to gemini            your functions as declarations
  toolwire convert pets.yaml --to anthropic        the operations of an OpenAPI document
  toolwire convert "npx -y @modelcontextprotocol/server-everything" --to openai_chat       tools of an MCP server
  curl … | toolwire convert - --to gemini          wire and kind are detected
  toolwire convert answer.sse --to openai_chat     a stream, event by event
  toolwire convert request.json --to gemini --strict && echo lossless
  toolwire convert request.json --html request.html        all formats side by side, as a page without a server

The result goes to standard output and the losses to standard error, so that a pipe gets only the result.
exit codes: 0 done   1 lossy, under --strict   2 wrong usage or unreadable input
"""
_KINDS = ("request", "response", "stream", "tools", "error")


def add_to(commands: Any) -> None:
    """Register `toolwire convert` with its options."""
    parser = add_command(commands, "convert", "translate requests, answers, streams and tools", _HELP, run)
    parser.add_argument(
        "file", nargs="?", default="-", metavar="SOURCE", help=f"JSON, a stream, or {SOURCE_HELP}; - is standard input"
    )
    parser.add_argument("--from", dest="source", metavar="WIRE", help="the wire of the input (detected)")
    parser.add_argument("--to", dest="target", metavar="WIRE", default="all", help="the target wire, or all")
    parser.add_argument("--kind", choices=_KINDS, help="the kind of the input (detected)")
    add_model(parser, "the model name for requests")
    add_flag(parser, "--strict", "print no result and exit with 1 if anything is lost")
    add_flag(parser, "--json", "one JSON document with results and losses")
    parser.add_argument(
        "--html", metavar="FILE", help="write one page that shows all formats, with the losses at their places"
    )
    add_source_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Translate the input to each target and print the results; return the exit code.

    With several targets, a failure of a target does not prevent the others; 2 means that all failed. Raises
    `ToolwireError` if the only target fails.
    """
    if arguments.html:
        return _write_page(arguments)
    source, kind, convert = _read_input(arguments)
    targets = _target_names(arguments.target, source, kind)
    results: dict[str, tuple[Any, tuple[Loss, ...]]] = {}
    failures: dict[str, str] = {}
    for target in targets:
        try:
            results[target] = convert(target)
        except ToolwireError as error:
            if len(targets) == 1:
                if isinstance(error, ProtocolError):
                    name_file(arguments.file, error)
                raise
            failures[target] = str(error)
    lossy = _is_lossy(results)
    if arguments.json:
        _print_json(source, kind, results, failures)
    else:
        _print_results(source, kind, results, failures, silent=arguments.strict and lossy)
    if failures and not results:
        return 2
    return 1 if arguments.strict and (lossy or failures) else 0


def _write_page(arguments: argparse.Namespace) -> int:
    """Write the translations as one HTML file; return 1 with `--strict` if anything is lost, 2 if all of them failed.

    The page may be passed on, so texts that look like keys are removed from the input.
    """
    from ..bridge.comparison import compare
    from ..gateway.console.single_file import TARGETS, write_page
    from ..run.traces.redact import Redactor

    source, kind, text = _read_text(arguments)
    cleaned = Redactor()(text)
    if cleaned != text:
        print_note("keys were removed from the input", None)
    targets = TARGETS if arguments.target == "all" else (arguments.target,)
    comparison = compare(cleaned, source=source, kind=kind, targets=targets, model=arguments.model)
    if arguments.target == "all" and comparison.kind in ("stream", "error"):  # no text format has them
        wires = tuple(output for output in comparison.outputs if output.family == "wire")
        comparison = msgspec.structs.replace(comparison, outputs=wires)
    failed = {output.name: output.error.message for output in comparison.outputs if output.error is not None}
    for name, message in failed.items():
        print_note(f"{name}: {message}")
    if len(failed) == len(comparison.outputs):
        return 2
    replace_file(arguments.html, write_page(comparison))
    losses = {output.name: tuple(placed.loss for placed in output.losses) for output in comparison.outputs}
    print_note(
        f"{comparison.source.name} {comparison.kind} in {len(losses) - len(failed)} formats: {arguments.html}", None
    )
    lossy = failed or _is_lossy({name: (None, found) for name, found in losses.items()})
    return 1 if arguments.strict and lossy else 0


def _read_text(arguments: argparse.Namespace) -> tuple[str | None, str | None, str]:
    """Return the wire and the kind of the input as given, and its text; tools of another source as MCP lists them."""
    file: str = arguments.file
    source_type = "declarations" if file == "-" or arguments.source else source_kind(file)
    if source_type not in ("declarations", "recording"):
        from ..wire import mcp

        _require_tools_kind(arguments)
        declared, _ = mcp.encode_tools(read_declared(file, arguments))
        return mcp.NAME, "tools", json_text({"tools": declared})
    return arguments.source, arguments.kind, read_bytes(file).decode("utf-8", "replace")


def _read_input(arguments: argparse.Namespace) -> tuple[str, str, _ToTarget]:
    """Return the source, the kind of the document, and the function that converts it to a target.

    The source is a wire, or the kind of a source of tools. Raises `ConfigError` for a --kind that the source does not
    have, and `ProtocolError` if the wire is not recognised.
    """
    file: str = arguments.file
    source_type = "declarations" if file == "-" or arguments.source else source_kind(file)
    if source_type not in ("declarations", "recording"):
        _require_tools_kind(arguments)
        return source_type, "tools", partial(_encode_tools, read_declared(file, arguments))
    data = read_bytes(file)
    try:
        source, kind = _detect_wire(data, arguments)
    except ProtocolError as error:
        if source_type != "recording" or arguments.kind not in (None, "tools"):
            raise name_file(file, error) from None
        return source_type, "tools", partial(_encode_tools, read_declared(file, arguments))
    return source, kind, partial(_convert, data, source, kind, arguments.model)


def _require_tools_kind(arguments: argparse.Namespace) -> None:
    if arguments.kind not in (None, "tools"):
        raise ConfigError(f"{arguments.file} contains tools, not a {arguments.kind}", hint="leave out --kind")


def _detect_wire(data: bytes, arguments: argparse.Namespace) -> tuple[str, str]:
    """Return the wire and the kind of the input: as given, otherwise detected.

    Raises `ConfigError` for a single message, and `ProtocolError` if nothing is detected.
    """
    if arguments.source and arguments.kind:
        return arguments.source, arguments.kind
    from ..bridge.translation.detection import detect

    detected = detect(data)
    if detected.kind == "message":
        message = f"the document is a message of {detected.wire} without its response"
        raise ConfigError(message, hint="convert the whole response, or a request that contains the message")
    return arguments.source or detected.wire, arguments.kind or detected.kind


def _target_names(target: str, source: str, kind: str) -> list[str]:
    """Return the wires to translate to; `all` leaves out the source, and includes MCP only for tools.

    Raises `ConfigError` for an unknown wire, and for MCP with anything but tools.
    """
    from ..wire import get, mcp, names

    if target != "all":
        if target != mcp.NAME:
            get(target)
        elif kind != "tools":
            raise ConfigError("MCP has only tools, no conversations", hint="use --kind tools")
        return [target]
    others = [name for name in names() if name != source.partition("@")[0]]
    return [*others, mcp.NAME] if kind == "tools" and source != mcp.NAME else others


def _encode_tools(tools: tuple[Tool, ...], target: str) -> tuple[Any, tuple[Loss, ...]]:
    from ..bridge.translation.tool_lists import encode_tools

    translated = encode_tools(tools, target)
    return translated.body, translated.losses


def _convert(data: bytes, source: str, kind: str, model: str | None, target: str) -> tuple[Any, tuple[Loss, ...]]:
    """Translate the input to a target, and return the result (text for a stream) and the losses.

    Raises `ToolwireError` if that fails, also in the middle of a stream.
    """
    from ..bridge.translation.documents import translate, translate_stream

    if kind == "stream":
        translation = translate_stream(source=source, target=target)
        out = translation.feed(data) + translation.close()
        if translation.error is not None:
            raise translation.error
        return out.decode(), tuple(translation.losses)
    translated = translate(data, source=source, target=target, kind=kind, model=model)  # type: ignore[arg-type]
    return translated.body, translated.losses


def _is_lossy(results: dict[str, tuple[Any, tuple[Loss, ...]]]) -> bool:
    """Return True if any result fails `require_lossless`, which ignores losses of severity `info`."""
    try:
        for _, losses in results.values():
            require_lossless(losses)
    except LossError:
        return True
    return False


def _print_json(
    source: str, kind: str, results: dict[str, tuple[Any, tuple[Loss, ...]]], failures: dict[str, str]
) -> None:
    """Print a JSON document with the body and the losses for each target, and the failed targets if any."""
    document = {
        "source": source,
        "kind": kind,
        "targets": {
            target: {"body": body, "losses": [msgspec.to_builtins(loss) for loss in losses]}
            for target, (body, losses) in results.items()
        },
    }
    if failures:
        document["failures"] = failures
    print(json_text(document))


def _print_results(
    source: str,
    kind: str,
    results: dict[str, tuple[Any, tuple[Loss, ...]]],
    failures: dict[str, str],
    *,
    silent: bool,
) -> None:
    """Print the results to standard output and the losses to standard error. `silent`: no results (`--strict`)."""
    texts = {
        target: neutralise_json(body) if isinstance(body, str) else json_text(body)
        for target, (body, _) in results.items()
    }
    if not silent:
        if len(texts) == 1:
            print(next(iter(texts.values())), end="" if kind == "stream" else "\n")
        else:
            print("\n".join(columns(texts)))
        sys.stdout.flush()
    print_note(f"input: {source} {kind}", "dim")
    for target, (_, losses) in results.items():
        print_losses(f"{paint(target, 'bold', sys.stderr)}: ", losses)
    for target, reason in failures.items():
        print(
            f"\n{paint(target, 'bold', sys.stderr)}: {paint('rejected', 'red', sys.stderr)}: {neutralise_line(reason)}",
            file=sys.stderr,
        )
