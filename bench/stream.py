"""Measure translated streams: argument deltas per second and core, in a burst and frame by frame, and the growth of the cost."""

import json
import time

import toolwire
from toolwire.ir import CallDelta, CallEnd, CallStart, ResponseEnd, ResponseStart, Stop
from toolwire.wire import get

WIRES = ("anthropic", "openai_chat", "openai_responses")
DELTAS = 50_000


def stream(wire: str, deltas: int) -> list[bytes]:
    """Return the frames of a response with one call whose argument has `deltas` pieces of four characters."""
    encoder = get(wire).stream_encoder()
    events = [ResponseStart("answer", "m", 1), CallStart(0, "call_1", "write_file"), CallDelta.of(0, '{"text": "')]
    events += [CallDelta.of(0, "abc ")] * deltas
    arguments = {"text": "abc " * deltas}
    events += [CallDelta.of(0, '"}'), CallEnd(0, arguments, None), ResponseEnd((Stop("tool_calls"),))]
    return [data for data in map(encoder.feed, events) if data]


def main() -> dict:
    rows = [_row(source, target) for source in WIRES for target in WIRES if source != target]
    return {"rows": rows, "deltas": DELTAS}


def _row(source: str, target: str) -> dict:
    frames = stream(source, DELTAS)
    data = b"".join(frames)
    bursts = [data[start : start + 65536] for start in range(0, len(data), 65536)]
    early, late = _marginal(source, target, frames)
    return {
        "source": source,
        "target": target,
        "burst": DELTAS / min(_feed(source, target, bursts) for _ in range(3)),
        "frame by frame": DELTAS / min(_feed(source, target, frames) for _ in range(3)),
        "micros after 100": early,
        "micros after 50,000": late,
    }


def _feed(source: str, target: str, pieces: list[bytes]) -> float:
    translation = toolwire.translate_stream(source=source, target=target)
    started = time.process_time()
    for piece in pieces:
        translation.feed(piece)
    translation.close()
    return time.process_time() - started


def _marginal(source: str, target: str, frames: list[bytes]) -> tuple[float, float]:
    """Return microseconds per delta after 100 deltas and after 50,000, the best of several rounds."""
    best = [float("inf"), float("inf")]
    for _ in range(5):
        translation = toolwire.translate_stream(source=source, target=target)
        for number, (start, end) in enumerate(((100, 2100), (len(frames) - 2050, len(frames) - 50))):
            for frame in frames[0 if number == 0 else 2100 : start]:
                translation.feed(frame)
            started = time.process_time()
            for frame in frames[start:end]:
                translation.feed(frame)
            best[number] = min(best[number], (time.process_time() - started) / (end - start) * 1e6)
    return best[0], best[1]


if __name__ == "__main__":
    print(json.dumps(main()))
