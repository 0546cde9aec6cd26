"""A small tokenizer for masks: every byte, some merged tokens, and an end token."""

from functools import lru_cache

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from toolwire.mask import MaskTokenizer

MERGED = ("abc", "ab", '"}', '",', '{"', '": "', "}}", "]]", "true", "false", "null", "10", "verb", "eat", "past")


@lru_cache(2)
def make_tokenizer(merged=MERGED):
    """Return a tokenizer of bytes and of the texts in `merged`."""
    return MaskTokenizer.from_tokenizer(make_backend(merged), 300)


def make_backend(texts=MERGED):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merged = list(texts)
    for text in texts:  # a merge needs its parts in the vocabulary
        merged += [text[:end] for end in range(2, len(text))]
    merged = sorted({text.replace(" ", "Ġ") for text in merged}, key=lambda text: (len(text), text))
    vocabulary = {text: number for number, text in enumerate([*letters, *merged])}
    merges = [(text[:-1], text[-1]) for text in merged]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>"])
    return tokenizer


def allowed_tokens(state):
    return np.flatnonzero(np.unpackbits(state.allowed().view(np.uint8), bitorder="little")).tolist()


def accepts(mask, text):
    """Return True if the whole text is allowed and may end."""
    state = mask.start()
    for token in mask.tokenizer.encode(text):
        if token not in allowed_tokens(state):
            return False
        state.accept(token)
    return state.is_complete


def random_text(mask, rng, max_tokens):
    """Generate with random allowed tokens, favouring the end tokens of strings; return the state."""
    state = mask.start(max_tokens)
    for _ in range(max_tokens):
        if state.is_finished:
            break
        state.accept(rng.choice(allowed_tokens(state)))
    return state
