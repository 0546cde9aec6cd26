"""Count the steps of a computation instead of timing it: the same on every machine, however busy it is."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], Any]) -> int:
    """The number of lines and calls of Python that `work` executes."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def assert_linear(costs: list[tuple[int, int]], slack: float = 1.4) -> None:
    """Check (input size, steps) pairs in ascending order: steps per unit of input do not grow."""
    (first_size, first_steps), *others = costs
    for size, steps in others:
        assert steps / size <= slack * first_steps / first_size, f"cost grows faster than the input: {costs}"
