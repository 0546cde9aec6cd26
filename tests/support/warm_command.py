"""`toolwire` commands without the time for imports: each is forked from a process that has imported the package.

    WARM     begins the command line of such a process, in place of `sys.executable -m toolwire`

Its process is a client, which passes its arguments, environment, folder and files to a server. The server forks the
command, and the client waits for it, forwards signals and ends as it did. The server imports the modules of the package
that earlier commands have imported. Not for tests of a new process: its imports, the encoding of its terminal or its
process group.

    python warm_command.py SOCKET serve        the server; it ends when its standard input is closed
    python warm_command.py SOCKET run ...      a client
"""

import gc
import json
import os
import signal
import socket
import sys

_SIZE = 8  # bytes of a number between client and server
# for servers, which are killed: they do not report their imports
_PRELOADED = {
    "serve": ("toolwire.cli.serve.command", "toolwire.gateway.processes.server", "toolwire.asgi.server"),
    "mcp": (
        "toolwire.cli.mcp.command",
        "toolwire.cli.mcp.http",
        "toolwire.cli.mcp.inspect",
        "toolwire.cli.mcp.serve",
        "toolwire.mcp.server.request_log",
        "toolwire.mcp.server.server",
        "toolwire.mcp.server.stdio",
        "toolwire.net.stores.memory",
        "toolwire.run.traces.sanitise",
    ),
}


def run(path: str, arguments: list[str]) -> None:
    """Run a command as its client. It imports no more than it needs, which takes 20 ms."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        header = [arguments, os.getcwd(), dict(os.environ)]  # noqa: PTH109
        data = json.dumps(header).encode()
        socket.send_fds(connection, [len(data).to_bytes(_SIZE, "big")], [0, 1, 2])
        connection.sendall(data)
        process = int.from_bytes(connection.recv(_SIZE), "big")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _frame: os.kill(process, received))
        status = int.from_bytes(connection.recv(_SIZE), "big", signed=True)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


class Server:
    """Forks a process for each client. A forked process has one thread, as the server has."""

    def __init__(self, path: str) -> None:
        from selectors import EVENT_READ, DefaultSelector

        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._running: dict[int, tuple[int, socket.socket]] = {}
        self._reads = EVENT_READ
        self._watched = DefaultSelector()
        self._watched.register(self._listener, EVENT_READ, "client")
        self._watched.register(0, EVENT_READ, "end")

    def serve(self) -> int:
        """Return the exit status of this process, which may be a forked one."""
        _infer_schema()
        while True:
            for key, _ in self._watched.select():
                if key.data == "end":
                    return 0
                if key.data == "client":
                    command = self._start()
                    if command is not None:
                        return _execute(*command, self._path)
                elif key.data == "process":
                    self._finish(key.fd)
                else:  # the client was killed
                    self._watched.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def _start(self):
        """Fork a process for a client. Return its command in the new process, and None in the server."""
        connection = self._listener.accept()[0]
        size, files, *_ = socket.recv_fds(connection, _SIZE, 3)
        data = b""
        while len(data) < int.from_bytes(size, "big"):
            data += connection.recv(2**20)
        for name in _PRELOADED.get(next(iter(json.loads(data)[0]), ""), ()):
            __import__(name)
        gc.freeze()  # a collection in the new process would copy every page
        process = os.fork()
        if not process:
            for target, file in enumerate(files):
                os.dup2(file, target)
            self._close(*files, connection)
            return json.loads(data)
        for file in files:
            os.close(file)
        connection.sendall(process.to_bytes(_SIZE, "big"))
        ended = os.pidfd_open(process)
        self._running[ended] = process, connection
        self._watched.register(ended, self._reads, "process")
        self._watched.register(connection, self._reads, process)
        return None

    def _close(self, *more) -> None:
        self._watched.close()
        self._listener.close()
        for ended, (_, connection) in self._running.items():
            more = (*more, ended, connection)
        for opened in more:
            os.close(opened) if isinstance(opened, int) else opened.close()

    def _finish(self, ended: int) -> None:
        import importlib
        from pathlib import Path

        process, connection = self._running.pop(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        self._watched.unregister(ended)
        os.close(ended)
        if connection.fileno() in self._watched.get_map():
            self._watched.unregister(connection)
            connection.sendall(status.to_bytes(_SIZE, "big", signed=True))
        connection.close()
        imported = Path(f"{self._path}-{process}")
        if imported.exists():
            for name in imported.read_text(encoding="utf-8").split():
                importlib.import_module(name)
            imported.unlink()


def _infer_schema() -> None:
    """Infer the schema of a function once: it imports pydantic and reads its plugins, which takes 0.15 s."""
    import jsonschema_rs  # noqa: F401

    from toolwire.schema.inference.tools import infer_tool

    def function(number: int, name: str = "") -> str:
        """Do nothing."""
        return name * number

    infer_tool(function)


def _execute(arguments: list[str], folder: str, environment: dict[str, str], path: str) -> int | str | None:
    """Run a command as `python -m toolwire` does, and note the modules that it imported."""
    import runpy
    from pathlib import Path

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background of a script
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    known = set(sys.modules)
    errors = {0: "strict", 1: "strict", 2: "backslashreplace"}
    is_unbuffered = "PYTHONUNBUFFERED" in environment
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(
            file,
            "w" if file else "r",
            1 if file == 2 or is_unbuffered or os.isatty(file) else -1,
            "utf-8",
            kind,
            closefd=False,
        )
        for file, kind in errors.items()
    )
    sys.path[0] = folder
    sys.argv = ["toolwire", *arguments]
    try:
        runpy.run_module("toolwire", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code
    finally:
        names = (name for name in set(sys.modules) - known if name.startswith("toolwire."))
        Path(f"{path}-{os.getpid()}").write_text("\n".join(names), encoding="utf-8")
    return 0


def _start_server() -> str:
    """Start the server of this process, and return its address."""
    import atexit
    import subprocess
    import tempfile
    import time
    from pathlib import Path

    folder = tempfile.TemporaryDirectory(prefix="toolwire-")
    address = Path(folder.name) / "socket"
    server = subprocess.Popen([sys.executable, __file__, str(address), "serve"], stdin=subprocess.PIPE)

    def stop() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(stop)
    while not address.exists():
        assert server.poll() is None
        time.sleep(0.01)
    return str(address)


class _Warm:
    """The beginning of a command line. The first command starts the server."""

    def __init__(self) -> None:
        self._address = ""

    def __iter__(self):
        self._address = self._address or _start_server()
        return iter((sys.executable, "-IS", __file__, self._address, "run"))


WARM = _Warm()

if __name__ == "__main__":
    if sys.argv[2] == "serve":
        sys.exit(Server(sys.argv[1]).serve())
    run(sys.argv[1], sys.argv[3:])
