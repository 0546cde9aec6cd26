"""Mining is reproducible, resumable, and independent of the workers that share it."""

import re

import msgspec
import pytest
import torch
from tiny_model import tiny_model

from toolwire.ir.errors import ConfigError
from toolwire.learn import (
    CorpusText,
    MiningSettings,
    calculator_tool,
    calendar_tool,
    mine_toolformer_data,
    propose_insertion_points,
    sample_calls,
)
from toolwire.learn.run_folder import RunFolder
from toolwire.learn.toolformer.candidates import call_start_tokens, propose_positions
from toolwire.learn.toolformer.corpus import AugmentedText, InlineCall, corpus_rows
from toolwire.learn.toolformer.mining import CallCandidate, decide, mine_texts
from toolwire.learn.toolformer.mining_run import mine_corpus

TEXTS = [
    "Mary has 8 cups and uses 2. The answer is 6.",
    "There are 14 apples and 9 pears. The answer is 23.",
    "A naïve text — with 日本 in it, and 3 + 4 = 7.",
    "12 boxes hold 7 pens each: 84 pens.",
    "Ten.",
]
SMALL = {
    "positions": 2,
    "samples": 2,
    "max_tokens": 10,
    "pattern": "[0-9]{1,2} [-+*/] [0-9]{1,2}",
    "examples": ("1 + 2 = [Calculator(1 + 2)] 3.",),
    "task": "Add.",
}


def small_tool(**changes):
    return msgspec.structs.replace(calculator_tool(), **{**SMALL, **changes})


def test_positions_are_those_with_the_most_probable_call():
    model, tool = tiny_model(1), small_tool()
    text = TEXTS[2]
    found = propose_positions(model, [text], tool, k=3)[0]
    chances = {}
    prompt, tokens = model.encode(tool.prompt(text)), model.encode(f" {text}")
    for place in range(1, len(tokens)):
        before = model.decode(tokens[:place])[1:]
        if not before or not text.startswith(before):
            continue  # inside of a character
        with torch.no_grad():
            logits = model.network(torch.tensor([prompt + tokens[:place]])).logits[0, -1]
        chances[len(before)] = float(torch.softmax(logits.double(), -1)[call_start_tokens(model)].sum())
    best = sorted(chances, key=chances.get, reverse=True)[:3]
    assert [one.position for one in found] == best
    assert [one.probability for one in found] == pytest.approx([chances[place] for place in best], rel=1e-4)
    assert propose_insertion_points(model, text, tool, k=3) == sorted(best)


def test_positions_below_the_probability_are_left_out():
    model = tiny_model(1)
    found = propose_positions(model, TEXTS, small_tool(), k=1)
    least = sorted(row[0].probability for row in found)[2]
    kept = propose_positions(model, TEXTS, small_tool(), k=1, call_probability=least, batch_tokens=1)
    assert sum(map(len, kept)) == 3


def test_sampled_calls_fit_the_pattern():
    model, tool = tiny_model(1), small_tool()
    calls = sample_calls(model, TEXTS[0], 41, n=6, tool=tool, seed=3)
    assert calls == sample_calls(model, TEXTS[0], 41, n=6, tool=tool, seed=3)
    assert calls
    for call in calls:
        assert re.fullmatch(rf"Calculator\({tool.pattern}\)", call), call


def test_tool_without_input_has_one_call():
    assert sample_calls(tiny_model(1), TEXTS[0], 5, tool=calendar_tool("2025-07-04")) == ["Calendar()"]


def test_shards_give_the_candidates_of_their_texts_only():
    model, tool = tiny_model(2), small_tool()
    settings = MiningSettings(batch_tokens=2048)
    texts = [CorpusText(text) for text in TEXTS]
    first, again = (mine_texts(model, texts[:2], [tool], settings) for _ in range(2))
    assert first == again
    moved = mine_texts(model, texts[:2], [tool], settings, first=10)
    assert {one.text for one in moved} == {10, 11}
    assert all(one.losses is not None for one in first if one.result is not None)


def test_mined_calls_pass_the_filter():
    model, tool = tiny_model(2), small_tool()
    settings = MiningSettings(threshold=-100.0, batch_tokens=2048)
    mined = mine_toolformer_data(model, TEXTS[:3], tool, k=2, settings=settings)
    assert mined
    assert len({(one.passage, one.i) for one in mined}) == len(mined)
    assert not mine_toolformer_data(model, TEXTS[:1], tool, settings=msgspec.structs.replace(settings, threshold=100.0))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("rule", ["paper", "rank"])
def test_interrupted_run_continues_with_identical_results(tmp_path, rule):
    model, tool = tiny_model(2), small_tool()
    settings = MiningSettings(filter=rule, threshold=-0.05, batch_tokens=2048, share=0.5)
    texts = [CorpusText(text) for text in TEXTS]

    def run(name, progress=None):
        folder = RunFolder.create(tmp_path / name, msgspec.to_builtins(settings), resume=True)
        return mine_corpus(model, texts, [tool], settings, folder, shard_size=2, progress=progress)

    def interrupt(done, total):
        if done == 2:
            raise Interrupted

    whole = run("whole")
    with pytest.raises(Interrupted):
        run("part", interrupt)
    assert run("part") == whole
    for name in ("candidates.jsonl", "corpus.jsonl", "report.json"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    [counts] = whole.tools
    assert whole.texts == 5
    assert counts.candidates == counts.kept + sum(counts.reasons.values())
    rows = [
        msgspec.json.decode(line, type=AugmentedText)
        for line in (tmp_path / "whole" / "corpus.jsonl").read_bytes().splitlines()
    ]
    assert [row.source for row in rows] == [0, 1, 2, 3, 4]
    assert sum(bool(row.calls) for row in rows) == whole.augmented
    assert all(row.text == TEXTS[row.source] for row in rows if not row.calls)


def test_long_text_is_not_mined():
    model = tiny_model(2)
    settings = MiningSettings(max_length=10, batch_tokens=2048)
    assert mine_texts(model, [CorpusText(TEXTS[0])], [small_tool()], settings) == []


def test_rows_train_every_token_or_all_but_the_results():
    model = tiny_model(0)
    row = AugmentedText("It is [C(1 + 2)] → 3 3.", 0, (InlineCall(5, "C(1 + 2)", "3"),))
    [paper] = corpus_rows(model, [row])
    [masked] = corpus_rows(model, [row], "masked")
    assert paper.tokens == masked.tokens
    assert paper.labels == paper.tokens
    ignored = [token for token, label in zip(masked.tokens, masked.labels, strict=True) if label != token]
    assert model.decode(ignored) == " → 3"
    assert paper.tokens[-1] == model.end_token
    with pytest.raises(ConfigError, match="unknown objective 'other'"):
        corpus_rows(model, [row], "other")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0}, "samples must be positive, got 0"),
        ({"filter": "best"}, "unknown filter 'best'"),
        ({"positions": 0}, "positions must be positive, got 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        mine_texts(tiny_model(0), [CorpusText("a")], [small_tool()], MiningSettings(**settings))


def test_two_tools_with_one_name_are_refused():
    with pytest.raises(ConfigError, match="different tools, got Calculator, Calculator"):
        mine_texts(tiny_model(0), [CorpusText("a")], [small_tool(), small_tool()], MiningSettings())


def test_candidates_survive_serialisation():
    one = CallCandidate(1, 2, "Calculator", "Calculator(1 + 1)", 0.5, 2, "2")
    assert msgspec.json.decode(msgspec.json.encode(one), type=CallCandidate) == one
    assert decide([one], [small_tool()], MiningSettings(filter="none")) == [one]
