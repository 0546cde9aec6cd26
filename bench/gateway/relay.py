"""Measure the memory of a gateway that relays large files: an upload as a form, and a download, of 1 GB each.

    python bench/gateway/relay.py
    python bench/gateway/relay.py --megabytes 4096 --at-once 4

The gateway runs in a process of its own, whose largest resident size the kernel reports; the upstream and the clients run
in this one, and hold one piece at a time. Exits with 1 above 100 MB.
"""

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from pathlib import Path

MEGABYTE = 1024 * 1024
LIMIT = 100  # MB of the process, with Python and the package, which take 60
_SETTINGS = """
[upstreams.up]
base_url = "http://127.0.0.1:{upstream}"
wire = "openai_chat"
[responses]
store = "{folder}/objects.db"
[relay]
max_bytes = 8589934592
[log]
to = "nowhere"
"""
_START = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
_END = b"\r\n--b--\r\n"
_PIECE = os.urandom(256 * 1024)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    """Answer requests: an upload with a file's description, a request for content with `size` bytes."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            remaining = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            while remaining:
                remaining -= len(await reader.read(min(remaining, len(_PIECE))))
            if head.startswith(b"post"):
                body = b'{"id":"file-1","object":"file"}'
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
            else:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
                for _ in range(size // len(_PIECE)):
                    writer.write(_PIECE)
                    await writer.drain()
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _upload(port: int, size: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = len(_START) + size + len(_END)
    writer.write(b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=b\r\n")
    writer.write(b"content-length: %d\r\n\r\n%b" % (length, _START))
    for _ in range(size // len(_PIECE)):
        writer.write(_PIECE)
        await writer.drain()
    writer.write(_END)
    answer = await reader.readuntil(b"}")
    assert b" 200 " in answer, answer
    writer.close()


async def _download(port: int, size: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/files/file-1/content HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head, head
    received = 0
    while data := await reader.read(len(_PIECE)):
        received += len(data)
    assert received == size, received
    writer.close()


def _largest_size(pid: int) -> float:
    """Return the largest resident size of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def _wait_until_ready(port: int) -> None:
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise TimeoutError("the gateway does not listen")


async def measure(size: int, at_once: int) -> float:
    """Print the times and sizes, and return the largest size of the gateway in MB."""
    server = await asyncio.start_server(lambda r, w: _serve(r, w, size), "127.0.0.1", 0, limit=len(_PIECE))
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "toolwire.toml"
        file.write_text(_SETTINGS.format(upstream=server.sockets[0].getsockname()[1], folder=folder), "utf-8")
        command = [sys.executable, "-m", "toolwire", "serve", "--config", str(file), "--port", str(port)]
        gateway = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
        try:
            await _wait_until_ready(port)
            await _upload(port, MEGABYTE)
            print(f"after 1 MB: {_largest_size(gateway.pid):.0f} MB")
            for name, transfer in (("upload", _upload), ("download", _download)):
                began = time.perf_counter()
                await asyncio.gather(*(transfer(port, size) for _ in range(at_once)))
                seconds = time.perf_counter() - began
                print(
                    f"{name}: {at_once} x {size // MEGABYTE} MB in {seconds:.1f} s, {_largest_size(gateway.pid):.0f} MB"
                )
            return _largest_size(gateway.pid)
        finally:
            gateway.terminate()
            await gateway.wait()
            await asyncio.sleep(0.1)  # for the ends of its connections
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the memory of a gateway that relays large files.")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--at-once", type=int, default=1, help="transfers at a time (default: 1)")
    options = parser.parse_args()
    largest = asyncio.run(measure(options.megabytes * MEGABYTE, options.at_once))
    sys.exit(f"more than {LIMIT} MB" if largest > LIMIT else None)


if __name__ == "__main__":
    main()
