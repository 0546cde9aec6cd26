"""Masks of a batch equal the masks of its outputs."""

import random

import numpy as np
import pytest

from byte_tokenizer import make_backend, make_tokenizer
from toolwire.ir.errors import ConfigError
from toolwire.mask import BatchMask, JSONSchemaMask, MaskTokenizer, RegexMask

SCHEMA = {"type": "array", "items": {"enum": ["a", 10, True]}}


def test_batch_equals_single_masks_until_all_outputs_are_finished():
    tokenizer = make_tokenizer()
    masks = [JSONSchemaMask(SCHEMA, tokenizer), RegexMask("(ab|c)+", tokenizer), RegexMask("x", tokenizer)]
    batch = BatchMask(masks, max_tokens=30, threads=2)
    single = [mask.start(max_tokens=30) for mask in masks]
    rng = random.Random(5)
    for _ in range(31):
        rows = batch.allowed()
        assert np.array_equal(rows, [state.allowed() for state in single])
        bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
        tokens = [rng.choice(np.flatnonzero(row).tolist()) for row in bits]
        batch.accept(tokens)
        for state, token in zip(single, tokens, strict=True):
            state.accept(token)
        if batch.is_finished:
            break
    assert batch.is_finished
    assert [state.finish() for state in batch.states] == [state.finish() for state in single]


def test_wrong_batches_are_refused():
    mask = RegexMask("a", make_tokenizer())
    with pytest.raises(ConfigError, match="at least one"):
        BatchMask([])
    with pytest.raises(ConfigError, match="expected 1 tokens, got 2"):
        BatchMask([mask]).accept([1, 2])
    with pytest.raises(ConfigError, match="the same width"):
        BatchMask([mask, RegexMask("a", MaskTokenizer.from_tokenizer(make_backend(), 364))])
