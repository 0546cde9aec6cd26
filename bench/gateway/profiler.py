"""Run a Python program and sample the stack of its main thread, by CPU time.

    python profiler.py FILE SCRIPT ARGUMENTS…
    python profiler.py FILE -m MODULE ARGUMENTS…

SIGUSR1 starts the sampling. SIGUSR2 stops it and writes FILE: one line per stack with its number of samples, the
format of flame graphs. The time of a C function counts for the Python function that calls it.
"""

import runpy
import signal
import sys
from collections import Counter
from pathlib import Path

INTERVAL = 0.001  # seconds of CPU time


class Sampler:
    def __init__(self, file):
        self.file = Path(file)
        self.stacks = Counter()

    def install(self):
        signal.signal(signal.SIGPROF, self.sample)
        signal.signal(signal.SIGUSR1, self.start)
        signal.signal(signal.SIGUSR2, self.write)

    def start(self, *_):
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def sample(self, _, frame):
        stack = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        self.stacks[tuple(reversed(stack))] += 1

    def write(self, *_):
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [f"{';'.join(map(label_of, stack))} {count}" for stack, count in self.stacks.most_common()]
        written = self.file.with_suffix(".part")
        written.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written.replace(self.file)


def label_of(code):
    path = Path(code.co_filename)
    place = "/".join(path.parts[-2:]) if path.is_absolute() else path.name
    return f"{place.removesuffix('.py')}:{code.co_qualname}"


def report_of(text, microseconds):
    """Format the samples of a file: functions and modules by their own time, and functions by time with callees."""
    own, modules, total = Counter(), Counter(), Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        labels = stack.split(";")
        own[labels[-1]] += int(count)
        modules[labels[-1].partition(":")[0]] += int(count)
        total.update(dict.fromkeys(labels, int(count)))
    samples = sum(own.values())
    lines = [f"{samples} samples; µs of {microseconds:.0f} per request, and the share"]
    for title, counter, rows in (("own time", own, 45), ("modules", modules, 25), ("with callees", total, 60)):
        lines.append(f"\n{title}")
        lines += [
            f"{microseconds * count / samples:8.1f} {count / samples:6.1%}  {label}"
            for label, count in counter.most_common(rows)
        ]
    return "\n".join(lines)


def run_program(program):
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path.insert(0, str(Path(program[0]).parent))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    file, *program = sys.argv[1:]
    Sampler(file).install()
    run_program(program)
