"""Send requests over a given number of keep-alive connections; each response is read to its end."""

import asyncio
import time
from dataclasses import dataclass, field

from workload import numbered


@dataclass
class Loaded:
    seconds: float = 0.0
    done: int = 0
    failed: int = 0
    latencies: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)


async def send_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> tuple[int, float]:
    """Return the status, and the seconds to the first byte of the body."""
    began = time.perf_counter()
    writer.write(message)
    top = await reader.readuntil(b"\r\n\r\n")
    status = int(top[9:12])
    low = top.lower()
    if b"transfer-encoding: chunked" in low:
        first = 0.0
        while True:
            line = await reader.readuntil(b"\r\n")
            length = int(line, 16)
            await reader.readexactly(length + 2)
            first = first or time.perf_counter() - began
            if not length:
                return status, first
    at = low.find(b"content-length:")
    length = int(low[at + 15 : low.find(b"\r", at)])
    await reader.readexactly(length)
    return status, time.perf_counter() - began


def head_of(path: str, size: int, port: int, headers: dict[str, str]) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "content-type: application/json",
        f"content-length: {size}",
    ]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def load(port: int, path: str, body: bytes, *, requests: int, at_once: int, headers: dict[str, str]) -> Loaded:
    head = head_of(path, len(body), port, headers)
    loaded = Loaded()
    left = requests

    async def worker() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        used = False
        while left > 0:
            left -= 1
            message = head + numbered(body)
            began = time.perf_counter()
            try:
                status, first = await send_request(reader, writer, message)
            except (ConnectionError, asyncio.IncompleteReadError, OSError) as error:
                if used and not getattr(error, "partial", b""):
                    left += 1  # some servers close after every response without announcing it
                else:
                    loaded.failed += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
                used = False
                continue
            used = True
            if status == 200:
                loaded.done += 1
                loaded.latencies.append(time.perf_counter() - began)
                loaded.first.append(first)
            else:
                loaded.failed += 1
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    loaded.seconds = time.perf_counter() - began
    return loaded
