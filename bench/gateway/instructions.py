"""Run a Python program and count the bytecode instructions and calls of its main thread.

    python instructions.py FILE SCRIPT ARGUMENTS…
    python instructions.py FILE -m MODULE ARGUMENTS…

SIGUSR1 starts the counting. SIGUSR2 stops it and writes FILE, as JSON: instructions, calls of Python functions, and calls
of C functions, each by function, and instructions by phase of a request. Unlike times, the counts do not depend on the load
of the machine.
"""

import json
import signal
import sys
from collections import Counter
from pathlib import Path

from profiler import label_of, run_program

# The phases of a request, with the modules and functions that begin them. The longest prefix of a function's name counts.
# A function without a prefix, such as a parser, counts for its caller.
OTHER = "other"
PHASES = {
    "server": ("toolwire.asgi.", "uvicorn."),
    "admission and identity": (
        "toolwire.asgi.access.",
        "toolwire.asgi.admission.",
        "toolwire.gateway.app.",
        "toolwire.gateway.keys.",
        "toolwire.gateway.request.routes.match_route",
    ),
    "reading the request": ("toolwire.gateway.request.reader.", "toolwire.gateway.request.client_request."),
    "routing and preparation": (
        "toolwire.gateway.answer.",
        "toolwire.gateway.routing.",
        "toolwire.gateway.usual_request.",
        "toolwire.net.model.",
    ),
    "upstream": (
        "toolwire.net.http.",
        "toolwire.net.model.replies.",
        "toolwire.net.model.upstream_exchange.",
        "toolwire.gateway.answer.attempt.Attempt._send",
    ),
    "translating the request": (
        "toolwire.gateway.answer.preparation.RequestPreparation.make_outbound",
        "toolwire.gateway.answer.translated.TranslatedRequest.__init__",
        "toolwire.gateway.request.client_request.ClientRequest._decode_body",
        "toolwire.gateway.request.client_request.ClientRequest.request",
        "toolwire.net.model.endpoint_request.EndpointRequest.__init__",
    ),
    "translating the answer": (
        "toolwire.gateway.answer.pass_through.PassThroughRequest.accept",
        "toolwire.gateway.usual_request._summarise",
        "toolwire.gateway.answer.translated.",
        "toolwire.gateway.answer.work.AnswerWork.decode_answer",
        "toolwire.gateway.answer.work.AnswerWork.encode_answer",
        "toolwire.net.model.endpoint_request.",
    ),
    "delivery": (
        "toolwire.gateway.answer.attempt.Attempt._announce",
        "toolwire.gateway.answer.attempt.Attempt._finish_answer",
        "toolwire.gateway.answer.attempt.Attempt._store",
        "toolwire.gateway.answer.delivery.",
        "toolwire.gateway.answer.work.AnswerWork.save_turn",
    ),
    "logs and metrics": (
        "toolwire.gateway.answer.work.AnswerWork.end_attempt",
        "toolwire.gateway.app.Gateway._end_request",
        "toolwire.gateway.observe.",
    ),
    "": ("toolwire.testing.",),  # of the mock upstream, in a test; not counted
}
_INHERITED = ("toolwire.asgi.interruption.", "toolwire.asgi.offload.")
_prefixes = {prefix: phase for phase, prefixes in PHASES.items() for prefix in prefixes}
_prefixes.update(dict.fromkeys(_INHERITED))


class PhaseFinder:
    """Finds the phase of a frame: its function's, or else its callers'."""

    def __init__(self):
        self._by_code = {}

    def find(self, frame):
        while frame is not None:
            code = frame.f_code
            if code not in self._by_code:
                name = f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}"
                found = max(filter(name.startswith, _prefixes), key=len, default="")
                self._by_code[code] = _prefixes.get(found)
            phase = self._by_code[code]
            if phase is not None:
                return phase
            frame = frame.f_back
        return OTHER


class InstructionCounter:
    """Counts instructions by function and by phase, and calls by function."""

    def __init__(self):
        self.instructions, self.calls, self.c_calls, self.phases = Counter(), Counter(), Counter(), Counter()
        self._finder = PhaseFinder()

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
        self.phases[self._finder.find(sys._getframe(1))] += 1

    def enter(self, frame, _event, _argument):
        """Trace the instructions of a function from its call, or of a coroutine from its continuation."""
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        code, phase = frame.f_code, self._finder.find(frame)

        def trace(_, event, __):
            if event == "opcode":
                self.instructions[code] += 1
                self.phases[phase] += 1
            return trace

        return trace

    def stop(self):
        sys.setprofile(None)
        sys.settrace(None)
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.set_events(monitoring.DEBUGGER_ID, monitoring.events.NO_EVENTS)  # freeing the id stops none
            monitoring.free_tool_id(monitoring.DEBUGGER_ID)

    def counts(self):
        """Return the counts by label and by phase."""
        counters = {"instructions": self.instructions, "calls": self.calls, "c_calls": self.c_calls}
        return {**{name: sum_by_label(counter) for name, counter in counters.items()}, "phases": self.phases}


def install(counter, file):
    """Count between two signals, and then write the file."""

    def write(*_):
        counter.stop()
        written = file.with_suffix(".part")
        written.write_text(json.dumps(counter.counts()), encoding="utf-8")
        written.replace(file)

    signal.signal(signal.SIGUSR1, counter.start)
    signal.signal(signal.SIGUSR2, write)


def sum_by_label(counter):
    counts = Counter()
    for code, count in counter.items():
        counts[label_of(code)] += count
    return counts


def report_of_counts(counts, requests):
    """Format the counts of a file: the sums per request, then phases, functions and modules by instructions."""
    sums = {name: sum(counter.values()) / requests for name, counter in counts.items()}
    lines = ["{instructions:.0f} instructions, {calls:.0f} calls, {c_calls:.0f} calls of C functions".format(**sums)]
    lines.append("\ninstructions, phase")
    lines += [f"{counts['phases'].get(phase, 0) / requests:8.1f}  {phase}" for phase in (*filter(None, PHASES), OTHER)]
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
    install(InstructionCounter(), Path(file))
    run_program(program)
