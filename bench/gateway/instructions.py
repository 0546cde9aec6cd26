"""Run a Python program and count the bytecode instructions and calls of its main thread.

    python instructions.py FILE SCRIPT ARGUMENTS…
    python instructions.py FILE -m MODULE ARGUMENTS…

SIGUSR1 starts the counting. SIGUSR2 stops it and writes FILE, as JSON: instructions, calls of Python functions, and calls
of C functions, each by function. Unlike times, the counts do not depend on the load of the machine.
"""

import json
import signal
import sys
from collections import Counter
from pathlib import Path

from profiler import label_of, run_program


class InstructionCounter:
    def __init__(self, file):
        self.file = Path(file)
        self.instructions, self.calls, self.c_calls = Counter(), Counter(), Counter()

    def install(self):
        signal.signal(signal.SIGUSR1, self.start)
        signal.signal(signal.SIGUSR2, self.write)

    def start(self, *_):
        sys.setprofile(self.count_call)
        if sys.version_info >= (3, 12):  # its trace functions get no instructions of functions that are already running
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.DEBUGGER_ID, "instructions")
            monitoring.register_callback(monitoring.DEBUGGER_ID, monitoring.events.INSTRUCTION, self.count_instruction)
            monitoring.set_events(monitoring.DEBUGGER_ID, monitoring.events.INSTRUCTION)
        else:
            sys.settrace(self.enter)

    def count_call(self, frame, event, _argument):
        if event == "call":
            self.calls[frame.f_code] += 1
        elif event == "c_call":
            self.c_calls[frame.f_code] += 1

    def count_instruction(self, code, _offset):
        self.instructions[code] += 1

    def enter(self, frame, _event, _argument):
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self.trace

    def trace(self, frame, event, _argument):
        if event == "opcode":
            self.instructions[frame.f_code] += 1
        return self.trace

    def stop(self):
        sys.setprofile(None)
        sys.settrace(None)
        if sys.version_info >= (3, 12):
            sys.monitoring.free_tool_id(sys.monitoring.DEBUGGER_ID)

    def write(self, *_):
        self.stop()
        counters = {"instructions": self.instructions, "calls": self.calls, "c_calls": self.c_calls}
        counts = {name: sum_by_label(counter) for name, counter in counters.items()}
        written = self.file.with_suffix(".part")
        written.write_text(json.dumps(counts), encoding="utf-8")
        written.replace(self.file)


def sum_by_label(counter):
    counts = Counter()
    for code, count in counter.items():
        counts[label_of(code)] += count
    return counts


def report_of_counts(counts, requests):
    """Format the counts of a file: the sums per request, then functions and modules by instructions."""
    sums = {name: sum(counter.values()) / requests for name, counter in counts.items()}
    lines = ["{instructions:.0f} instructions, {calls:.0f} calls, {c_calls:.0f} calls of C functions".format(**sums)]
    modules = Counter()
    for label, count in counts["instructions"].items():
        modules[label.partition(":")[0]] += count
    lines.append("\ninstructions, calls, function")
    lines += [
        f"{count / requests:8.1f} {counts['calls'].get(label, 0) / requests:6.1f}  {label}"
        for label, count in Counter(counts["instructions"]).most_common(80)
    ]
    lines.append("\ninstructions, module")
    lines += [f"{count / requests:8.1f}  {module}" for module, count in modules.most_common(40)]
    return "\n".join(lines)


if __name__ == "__main__":
    file, *program = sys.argv[1:]
    InstructionCounter(file).install()
    run_program(program)
