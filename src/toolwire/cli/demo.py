"""`toolwire demo`: three screens of 80 columns and 24 lines, offline, without a key. Everything is done live.

1. A call in five formats: the losses of the translation are at their places.
2. A stream that is cut at random a thousand times: each cutting is decoded, and the results are counted.
3. A payment: a child process is killed between the charge and its record; this process resumes the run from the store.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import accumulate, chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..ir import Request, Response, Stop, Text, ToolCall, ToolResult, fold, unfold
from ..ir.errors import ToolwireError
from ..ir.pointer import resolve
from ..ir.text import dumps
from ..stream.strict import parse
from .terminal.input import read_key
from .terminal.layout import wrap_text
from .terminal.options import add_command, add_flag
from .terminal.output import ProgressBar, clear_screen, paint, table, terminal_width

if TYPE_CHECKING:
    from ..ir.losses import Loss
    from ..net.agent.agent import Agent
    from ..run.values.records import Store

_HELP = """\
Show a call in five formats, a stream that is cut anywhere, and a payment that survives kill -9, in a few seconds.

Offline, no key, nothing leaves this machine.

examples:
  toolwire demo --all          with the details: every wire, all pairs of wires, figures
  toolwire demo --seed 7       reproducible cuts
  toolwire demo --serve        a gateway with a small real model; with DEMO_ONCE=1 it exits after the requests
"""
_WIDTH = 80  # columns; a screen is planned for the smallest usual terminal, 80 × 24
_MAX_LINES = 23  # of a screen; the last line of the terminal is for the key
_SCREENS = 3  # one message each
_NEXT = [
    ("next", "toolwire demo --all", "every wire and all pairs of wires"),
    ("next", "toolwire doctor", "check keys, extras and servers"),
    ("", "toolwire chat", "talk to a small model, offline"),
]
_WITH_DETAILS = 6  # the screens, and the three tables of `--all`


def add_to(commands: Any) -> None:
    parser = add_command(commands, "demo", "a translation, a cut stream, a killed payment: offline", _HELP, run)
    add_flag(parser, "--all", "also print the details: every wire, all pairs of wires, figures")
    parser.add_argument("--seed", type=int, help="seed of the random cuts")
    add_flag(parser, "--serve", "ask a real model in this process through a gateway, in four protocols")


def run(arguments: argparse.Namespace) -> int:
    """Show the screens one after the other; a terminal waits for a key between them. Return 1 if a result is wrong."""
    if arguments.serve:
        from .console import console_in_thread
        from .serve.demo_gateway import serve_and_ask

        with console_in_thread() as address:
            print(f"every format side by side in the console: {paint(address, 'green')}\n", flush=True)
            return asyncio.run(serve_and_ask())
    random = Random(arguments.seed)
    screens: list[Callable[[], tuple[list[str], bool]]] = [
        _call_screen,
        lambda: _stream_screen(random),
        _payment_screen,
    ]
    total = _WITH_DETAILS if arguments.all else _SCREENS
    waits = sys.stdin.isatty() and sys.stdout.isatty()
    healthy = True
    for number, screen in enumerate(screens, 1):
        (title, *lines), is_right = screen()
        healthy &= is_right
        if waits:
            if number > 1:
                print()  # a terminal that cannot be cleared shows the screens one below the other
            clear_screen()
        print(f"{paint(f'{number}/{total}', 'dim')}  {title}", *lines, sep="\n", end="\n" if waits else "\n\n")
        if waits and (number < _SCREENS or arguments.all) and not _is_continued():
            return 0 if healthy else 1
    if arguments.all:
        from .demo_details import show_details

        healthy &= show_details(random)
    if waits and _width() == _WIDTH:  # narrower screens have more lines, and 24 at most
        print()
    print("\n".join(table(_NEXT[arguments.all :])))
    return 0 if healthy else 1


def _is_continued() -> bool:
    """Wait for a key, and return whether the next screen is wanted."""
    print(paint("Enter: next   q: quit ", "dim"), end="", flush=True)
    try:
        while (key := read_key()) not in ("", "\n", "\r", " ", "q", "Q", "\x1b", "\x04"):
            pass
    finally:  # also after Ctrl-C
        print("\r\x1b[K", end="", flush=True)
    return key in ("\n", "\r", " ")


def _title(text: str, about: str) -> list[str]:
    gap = [""] if _width() == _WIDTH else []  # narrower screens have more lines, and 24 at most
    return [paint(text, "bold"), *gap, *wrap_text(about, _width()), ""]


def _width() -> int:
    return min(terminal_width(), _WIDTH)


# Screen 1: a call in five formats.

_LABEL = 18  # columns; the longest name of a wire, openai_responses, and two spaces
_SOURCE = "anthropic"
_FORMATS = frozenset({"anthropic", "gemini", "ollama", "openai_chat", "openai_responses"})  # that have room
_PARTS = [
    {"type": "thinking", "thinking": "I look.", "signature": "c2ln"},
    {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Paris"}},
]
_QUESTION: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "messages": [
        {"role": "user", "content": "Weather in Paris?"},
        {
            "role": "assistant",
            "content": _PARTS,
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "22 degrees"}]},
    ],
}
_CLOSERS = 2  # brackets, or a comma, that follow a field on its line
_TURN = "/messages/1/content/"  # of the assistant
_FIELD = re.compile(r'"\w+":("(?:[^"\\]|\\.)*"|\{[^{}]*\})')  # lines are wrapped between fields
_COLOURS = {"c0.id": "yellow", "c0.name": "cyan", "c0.args": "green"}  # of the elements of the call, in all formats


def _call_screen() -> tuple[list[str], bool]:
    """Show a call with its reasoning in every format, and each loss where it happened.

    The result is right if every format has the call's id, name and arguments.
    """
    from ..bridge import compare
    from ..stream.positions import find_places
    from ..wire import get

    about = "One colour per field; ✗ marks a lost part, ~ a changed one."
    lines = _title("One tool call in five formats", about)
    is_right = True
    formats: dict[str, list[str]] = {}
    explained: set[str] = set()
    comparison = compare(dumps(_QUESTION), source=_SOURCE, kind="request", model="m")
    for document in (comparison.source, *(output for output in comparison.outputs if output.name in _FORMATS)):
        request = parse(document.text or "")
        losses = [placed.loss for placed in document.losses]
        thought, call = [_losses_at(losses, f"{_TURN}{number}", explained) for number in range(2)]
        (arrived,) = [
            part
            for m in get(document.name).decode_request(request).messages
            for part in m.parts
            if type(part) is ToolCall
        ]
        is_right &= (arrived.id, arrived.name, arrived.arguments) == ("call_1", "get_weather", {"city": "Paris"})
        pointers = {place.id: place.pointer or "" for place in document.places}
        text = dumps(resolve(request, pointers["c0"]))
        fields = {pointers[name].removeprefix(pointers["c0"]): colour for name, colour in _COLOURS.items()}
        colours = {place.member: fields[pointer] for pointer, place in find_places(text, fields).items()}
        shown = _coloured(dumps(_PARTS[0]), {}) if document is comparison.source else thought
        block = [*shown, *_coloured(text, colours), *call]
        title = paint(document.name.ljust(_indent()), "bold")
        if _indent() < _LABEL:  # 60 columns have 24 lines, too: a loss without its reason is beside the name
            is_beside = document is not comparison.source and len(thought) == 1
            formats[document.name] = [f"{title}  {block.pop(0)}" if is_beside else title]
            title = " " * _indent()
        rows = formats.setdefault(document.name, [])
        rows += [title + block[0], *(" " * _indent() + line for line in block[1:])]
    return [*lines, *_fit_formats(formats, _MAX_LINES - len(lines))], is_right


def _fit_formats(formats: dict[str, list[str]], height: int) -> list[str]:
    """Return the lines of the formats. The last formats that have no room on the screen are only named."""
    hidden: list[str] = []
    note: list[str] = []
    while sum(map(len, formats.values())) + len(note) > height and len(formats) > 1:
        hidden.insert(0, formats.popitem()[0])
        about = f"not shown: {', '.join(hidden)} (a wider terminal shows {'it' if len(hidden) == 1 else 'them'})"
        note = [paint(line, "dim") for line in wrap_text(about, _width())]
    return [*chain.from_iterable(formats.values()), *note]


def _indent() -> int:
    """Return the column of a format's lines; on a narrow terminal its name has a line of its own."""
    return _LABEL if _width() == _WIDTH else 2


def _losses_at(losses: Iterable[Loss], path: str, explained: set[str]) -> list[str]:
    """Return a line per loss of a part; the first loss of a concept with its reason."""
    lines = []
    for loss in losses:
        if loss.path == path:
            mark, colour = ("✗", "red") if loss.action == "dropped" else ("~", "yellow")
            text = f"{loss.concept} {loss.action}"
            text += "" if loss.concept in explained else f": {loss.detail}"
            explained.add(loss.concept)
            first, *others = wrap_text(text, _width() - _indent() - 2)
            lines += [paint(line, colour) for line in (f"{mark} {first}", *(f"  {other}" for other in others))]
    return lines


def _coloured(text: str, colours: Mapping[int, str]) -> list[str]:
    """Wrap JSON between its fields, and paint the fields that begin at some positions."""
    lines, used, end = [""], 0, 0
    for field in _FIELD.finditer(text):
        for piece, colour in ((text[end : field.start()], None), (field[0], colours.get(field.start()))):
            if used and used + len(piece) + _CLOSERS > _width() - _indent():
                lines.append(" ")
                used = 1
            lines[-1] += paint(piece, colour)
            used += len(piece)
        end = field.end()
    lines[-1] += text[end:]
    return lines


# Screen 2: a stream that is cut anywhere.

_CUTS = 1000  # one of them cuts the character ü; they take a second
_SHOWN = 5  # cuttings that are drawn first; a cut inside a character and the last one follow
_PIECES = 200  # at most, per cutting: one per five bytes
_CALL = ToolCall("call_1", "get_weather", {"city": "Zürich"})
_COLOUR_PAIR = ("cyan", "yellow")  # of a chunk and the next one


def _stream_screen(random: Random) -> tuple[list[str], bool]:
    """Cut a stream a thousand times, decode each cutting, and show some of them and the number of different results.

    The result is right if there is one, the answer that was encoded.
    """
    from ..testing import random_chunks
    from ..testing.stream_checks import decode_stream, merge_deltas
    from ..wire import get

    answer = Response("answer-1", "m", (Text("I look. "), _CALL), Stop("tool_calls"))
    wire = get("openai_chat")
    encoder = wire.stream_encoder()
    data = b"".join(encoder.feed(event) for event in unfold(answer))
    lines = _title(f"One stream, cut in {_CUTS:,} ways", "A network cuts an answer anywhere; the same call arrives.")
    start, half = data.index(b'"arguments":"{'), data.index("ü".encode()) + 1
    results: dict[str, list[ToolCall]] = {}
    pieces, last = 0, 0
    for number in _count_shown(_CUTS):
        chunks = random_chunks(data, random, random.randint(2, _PIECES))
        pieces += len(chunks)
        events = merge_deltas(decode_stream(wire, chunks))
        results[repr(events)] = list(fold(events).calls)
        is_half = half in accumulate(map(len, chunks)) and not any("c3" in line for line in lines)
        if number <= _SHOWN or is_half or number == _CUTS:
            lines += ["     ⋮"] if number > last + 1 else []
            lines.append(f"{number:6,}  {_draw_chunks(chunks, start, _width() - 8)}")
            last = number
    (calls, *others) = results.values()
    (call,) = calls
    is_right = not others and call.arguments == _CALL.arguments
    count = f"{_CUTS:,} random cuttings, {pieces:,} pieces → {len(results)} {'result' if not others else 'results'}"
    mark = paint("✓", "green") if is_right else paint("✗", "red")
    return [*lines, "", f"{mark} {paint(count, 'bold')}", "", f"  {call.name}({dumps(call.arguments)})"], is_right


def _count_shown(total: int) -> Iterator[int]:
    """Count from 1 to `total` with a progress bar."""
    with ProgressBar("cutting") as bar:
        for number in range(1, total + 1):
            bar(number, total)
            yield number


def _draw_chunks(chunks: list[bytes], start: int, width: int) -> str:
    """Draw the bytes from `start` with `│` at the ends of the chunks; a character that is cut is drawn as its bytes."""
    text, used, at, number = "", 0, 0, 0
    for chunk in chunks:
        shown = chunk[max(start - at, 0) :]
        at += len(chunk)
        if not shown:
            continue
        piece = "".join(char if char.isprintable() else "·" for char in shown.decode("utf-8", "backslashreplace"))
        piece = ("│" if used else "") + piece
        text += paint(piece[: width - used], _COLOUR_PAIR[number % 2])
        used, number = used + len(piece), number + 1
        if used >= width:
            break
    return text


# Screen 3: a payment, killed and resumed. The child process runs this module as a program.

_LEASE = 0.5  # seconds after which the claim of a dead process ends; a living one renews it
_INVOICE = {"invoice": "A-17", "euros": 40}


def _payment_screen() -> tuple[list[str], bool]:
    """Start the payment in a process, kill it after the charge, resume the run here, and show the bank's ledger.

    The result is right if the ledger has one charge and the run has ended with an answer.
    """
    from ..net.stores import open_store

    about = (
        "The process dies at the worst moment, right after the charge; another one continues and does not charge again."
    )
    lines = _title("One payment, killed with -9, charged once", about)
    with TemporaryDirectory() as folder:
        status, process_id = _kill_while_paying(folder)
        with closing(open_store(f"{folder}/runs.db")) as store:
            (run,) = store.runs.list()
            store.runs.release(run.run_id, run.token)  # at once: its process is known to be dead
            (record,) = store.records()
            answer = _make_payer(store, Path(folder, "ledger")).resume_sync(run.run_id)
        charges = Path(folder, "ledger").read_text(encoding="utf-8").splitlines()
    is_right = len(charges) == 1 and answer.finished and status != 0
    result = paint("✓ charged once", "green") if is_right else paint(f"✗ {len(charges)} charges", "red")
    first = [("the model", f"pay({dumps(_INVOICE)})"), ("the bank", f"charges {charges[0]}")]
    first.append((f"kill -9 {process_id}", f"exit status {status}"))
    second = [
        ("the store", f"pay has begun ({record.state}): it is not run again"),
        ("the bank, asked", f"has a charge with the key of this call: {record.key.rpartition(':')[2]}"),
        ("the model", answer.text),
    ]
    lines += [paint(f"process {process_id}", "bold"), *table(first, indent="  "), ""]
    lines += [paint(f"process {os.getpid()} resumes the run", "bold"), *table(second, indent="  "), ""]
    lines += [paint("the ledger of the bank", "bold"), *(f"  {charge}" for charge in charges), "", result]
    return lines, is_right


def _kill_while_paying(folder: str) -> tuple[int, int]:
    """Start a payment in a process, and kill it once the bank has charged. Return its exit status and its number."""
    command = [sys.executable, "-m", "toolwire.cli.demo", folder]
    # Its own session: Ctrl-C is for this process, which kills the child.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:  # noqa: S603
        try:
            assert child.stdout is not None
            if child.stdout.readline() != b"charged\n":
                raise ToolwireError("the process of the payment ended before the charge")
        finally:
            child.kill()
    return child.returncode, child.pid


def _make_payer(store: Store, ledger: Path, on_charge: Callable[[], object] = lambda: None) -> Agent:
    """Make an agent with a tool that charges: it appends a line to the ledger. Its model is a script."""
    from .. import Agent, Runner, tool
    from ..testing import ScriptedModel, says

    def find_charge(key: str, _: dict[str, Any]) -> str | None:
        return next((line for line in ledger.read_text(encoding="utf-8").splitlines() if key in line), None)

    @tool(effect="write", key=lambda arguments: str(arguments["invoice"]), reconcile=find_charge)
    def pay(invoice: str, euros: int) -> str:
        """Pay an invoice."""
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{invoice}   {euros} EUR\n")
        on_charge()
        return "paid"

    def script(request: Request) -> Response:
        if any(type(part) is ToolResult for part in request.messages[-1].parts):
            return says("The invoice is paid.")
        return says(ToolCall("call_1", "pay", _INVOICE))

    return Agent(ScriptedModel([script, script]), Runner(pay, store=store, lease=_LEASE))


def _pay_until_killed(folder: str) -> None:
    """Run the payment of the child process. It waits after the charge, as for a slow bank, until it is killed."""
    from ..net.stores import open_store

    def wait() -> None:
        print("charged", flush=True)
        sys.stdin.read()  # until the parent has ended, should it die before the kill

    with closing(open_store(f"{folder}/runs.db")) as store:
        _make_payer(store, Path(folder, "ledger"), wait).run_sync("Pay the invoice A-17.")


if __name__ == "__main__":
    _pay_until_killed(sys.argv[1])
