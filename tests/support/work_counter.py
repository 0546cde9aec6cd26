"""Count the work that a call does, so that tests can judge its cost without a clock."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_work(action: Callable[[], Any]) -> int:
    """Count the lines that toolwire executes and the calls that it makes, also into C, while `action` runs.

    A scan inside one call into C is one step: use it together with a budget on what such a call may read.
    """
    steps = 0

    def on_frame(frame: FrameType, _: str, __: Any) -> Any:
        nonlocal steps
        if "toolwire" not in frame.f_code.co_filename:
            return None
        steps += 1
        return on_line

    def on_line(_: FrameType, event: str, __: Any) -> None:
        """Count a line or an exception. A result of None keeps this function for the frame."""
        nonlocal steps
        if event != "return":
            steps += 1

    def on_call(_: FrameType, event: str, __: Any) -> None:
        nonlocal steps
        if event == "c_call":
            steps += 1

    tracing, profiling = sys.gettrace(), sys.getprofile()
    gc.disable()  # finalisers of objects that other tests left are not part of the work
    sys.settrace(on_frame)
    sys.setprofile(on_call)
    try:
        action()
    finally:
        sys.setprofile(profiling)
        sys.settrace(tracing)
        gc.enable()
    return steps


def assert_linear(costs: list[tuple[int, int]], slack: float = 1.4) -> None:
    """Check (input size, steps) pairs in ascending order: steps per unit of input do not grow."""
    (first_size, first_steps), *others = costs
    for size, steps in others:
        assert steps / size <= slack * first_steps / first_size, f"cost grows faster than the input: {costs}"
