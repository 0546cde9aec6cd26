"""Free memory after a peak of requests is returned to the system."""

from itertools import repeat

import pytest

from toolwire.gateway.processes.server import MemoryTrimmer


def trims(*counts):
    """Return the numbers of the samples after which memory is trimmed."""
    values = iter(counts)
    trimmer = MemoryTrimmer(lambda: next(values), lambda: None)
    return [number for number in range(len(counts)) if trimmer.sample()]


@pytest.mark.finding("OP3")
def test_memory_is_trimmed_once_after_a_peak():
    assert trims(0, 400, 300, 101, 100, 0, 0, 0, 0) == [6]
    assert trims(500, *repeat(0, 30)) == [3]


def test_few_requests_and_constant_load_are_not_trimmed():
    assert trims(15, 0, 15, 0) == []
    assert trims(*repeat(200, 50)) == []
    assert trims(*[200, 0, 0] * 20) == []


def test_bursts_are_trimmed_every_ten_samples_at_most():
    assert trims(*[100, 0, 0, 0] * 10) == [3, 15, 27, 39]
