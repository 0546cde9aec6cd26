"""The inputs that fuzzing found, and mutations of them that every run repeats; `make fuzz` searches for new ones."""

from contextlib import suppress
from random import Random
from threading import Event

import engine
import pytest
from engine import Failure, Target, execute, mutate, shrink
from targets import TARGETS

from run import load_corpus

MUTATIONS = 50


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_kept_inputs_and_mutations_violate_nothing(target):
    corpus = [*target.seeds, *load_corpus(target.name)]
    for data in corpus:
        execute(target, data)
    random = Random(target.name)
    for _ in range(MUTATIONS):
        execute(target, mutate(random.choice(corpus), corpus, target.tokens, random))


def test_hang_is_found_also_if_the_target_handles_errors(monkeypatch):
    def run(_data, _random):
        with suppress(Exception):
            Event().wait()

    monkeypatch.setattr(engine, "HANGS_AFTER", 0.01)
    with pytest.raises(TimeoutError):
        execute(Target("hang", run, [b"x"], [b"x"]), b"x")


def test_failing_input_is_shrunk_to_what_fails():
    def run(data, _random):
        assert not (b"{" in data and b"}" in data)

    target = Target("braces", run, [b"x"], [b"x"])
    data = b'["{", 1, 2, {"a": "b"}, 3]'
    with pytest.raises(AssertionError) as caught:
        execute(target, data)
    assert shrink(target, Failure(data, caught.value)).data in (b"{}", b"}{")
