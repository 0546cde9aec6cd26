"""`toolwire console`: a page in the browser that shows a document in every format."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ..ir.errors import ConfigError
from .sources.documents import read_bytes
from .terminal.options import add_command, add_flag
from .terminal.output import paint, paragraph, print_note

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_HELP = """\
Open a page that shows a request, an answer, a stream or tools in every format, with each loss at its place.

examples:
  toolwire console                        print the address of the page
  toolwire console --open                 and open it in the browser
  toolwire console --open request.json    with a document
  toolwire console answer.sse --port 8080
  toolwire convert request.json --html request.html     the same view as one file, without a server

The page needs no key and no network, and nothing leaves this machine. The printed address contains a token that its API requires.
exit codes: 0 stopped   2 wrong usage, or the port is in use
"""
_DEFAULT_PORT = 4150  # any free number would do; not the gateway's, so that both can run
_MAX_PORT_TRIES = 20  # ports, from the default one: more consoles than a person opens
_MAX_PORT = 65_535  # of TCP
_TOKEN_BYTES = 32  # as many as no one can guess


def add_to(commands: Any) -> None:
    """Register `toolwire console` with its options."""
    parser = add_command(commands, "console", "a page that shows a document in every format", _HELP, run)
    parser.add_argument("file", nargs="?", metavar="FILE", help="a document to show first; - is standard input")
    parser.add_argument(
        "--port", type=int, metavar="N", help=f"the port ({_DEFAULT_PORT} or the next free one); 0: any"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="the loopback address (127.0.0.1)")
    add_flag(parser, "--open", "open the page in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Serve the console until a signal stops it; raise `ConfigError` for an address that is not on this machine."""
    import secrets

    from ..gateway.console.api import check_file
    from ..gateway.console.app import Console
    from .mcp.http import require_http, run_server, serve_listeners

    require_http("gateway")
    opened = None
    if arguments.file is not None:
        opened = check_file(Path(arguments.file).name or arguments.file, read_bytes(arguments.file))
    listener = bind_console(arguments.host, arguments.port)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    address = console_address(listener, token, has_file=opened is not None)
    print("\n".join(paragraph(f"console at {address}")).replace(address, paint(address, "green")), flush=True)
    print_note("only this address opens it; Ctrl-C stops it", "dim")
    with _browser(address if arguments.open else ""), listener:
        run_server(serve_listeners(Console(token, opened), [listener]))
    return 0


@contextmanager
def console_in_thread() -> Iterator[str]:
    """Serve a console in a thread while the block runs, and return its address."""
    import asyncio
    import secrets
    import threading

    from ..gateway.console.app import Console
    from .mcp.http import make_server, require_http

    require_http("gateway")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with bind_console("127.0.0.1", None) as listener:
        server = make_server(Console(token))
        loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=lambda: loop.run_until_complete(server.serve([listener])), name="console", daemon=True
        )
        thread.start()
        try:
            yield console_address(listener, token)
        finally:
            loop.call_soon_threadsafe(server.stop)
            thread.join()
            loop.close()


def console_address(listener: socket.socket, token: str, *, has_file: bool = False) -> str:
    """Return the address of the page. The fragment with the token is never sent to a server."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/#{urlencode({'token': token, **({'open': 'file'} if has_file else {})})}"


def bind_console(host: str, port: int | None) -> socket.socket:
    """Listen on a loopback address, on `port` or on the first free one from the default.

    Raise ConfigError for another address, and if no port is free.
    """
    import socket

    from ..asgi.access import refuse_open

    hint = "use 127.0.0.1; forward its port with ssh -L to use it from another machine"
    refuse_open(host, without="user accounts", hint=hint)
    if port is not None and not 0 <= port <= _MAX_PORT:
        raise ConfigError(f"invalid port {port}", hint=f"use 0 to {_MAX_PORT}; 0 takes any free port")
    ports = range(_DEFAULT_PORT, _DEFAULT_PORT + _MAX_PORT_TRIES) if port is None else (port,)
    bare = host.strip("[]")
    reason = ""
    for number in ports:
        try:
            return socket.create_server((bare, number), family=socket.AF_INET6 if ":" in bare else socket.AF_INET)
        except OSError as error:
            reason = error.strerror or str(error)
    raise ConfigError(
        f"cannot listen on {host}:{ports[0]}: {reason}", hint="choose another --port; 0 takes any free one"
    )


@contextmanager
def _browser(address: str) -> Iterator[None]:
    """Open the address in the browser, by a private file: other users can read the arguments of a browser's process."""
    if not address:
        yield
        return
    import tempfile

    handle, name = tempfile.mkstemp(prefix="toolwire-console-", suffix=".html")  # readable by its owner only
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(
                '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
                f'<a href="{escape(address)}">toolwire console</a>\n'
            )
        if not _open_page(Path(name).as_uri()):
            print_note("no graphical browser found; open the address yourself", None)
        sys.stdout.flush()
        yield
    finally:
        Path(name).unlink(missing_ok=True)


_TEXT_BROWSERS = frozenset("browsh elinks links links2 lynx w3m".split())


def _open_page(url: str) -> bool:
    """Open a page in the default browser, and return whether it was started.

    A text browser would take the terminal from the server, so it is not started, whether $BROWSER names it or Debian's
    `www-browser` points to it. Another program that the standard library would wait for gets no terminal.
    """
    import shutil
    import subprocess
    import threading
    import webbrowser
    from functools import partial

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if not isinstance(browser, webbrowser.GenericBrowser):
        return browser.open(url)
    program = Path(shutil.which(browser.name) or browser.name).resolve()
    if not _TEXT_BROWSERS.isdisjoint((program.name, browser.basename)):
        return False
    if isinstance(browser, webbrowser.BackgroundBrowser):
        return browser.open(url)
    if shutil.which(browser.name) is None:
        return False
    command = [browser.name, *(argument.replace("%s", url) for argument in browser.args)]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    start = partial(subprocess.run, command, check=False, start_new_session=True, **streams)
    threading.Thread(target=start, name="browser", daemon=True).start()
    return True
