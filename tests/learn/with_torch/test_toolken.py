"""The mathematics of ToolkenGPT is exact on a tiny model, and nothing but W_T changes."""

import pytest
import torch
from msgspec.structs import replace
from tiny_model import tiny_model

from toolwire import Tool
from toolwire.ir.errors import ConfigError
from toolwire.learn import (
    Demonstration,
    MarkedCall,
    ToolkenHead,
    ToolkenSettings,
    add_toolkens,
    calibrate_bias,
    collect_states,
    demonstration_of_query,
    fit_toolkens,
    measure_toolkens,
    read_demonstrations,
    split_demonstrations,
    sweep_bias,
)
from toolwire.learn.run_folder import RunFolder
from toolwire.learn.toolken.head import schema_digest
from toolwire.learn.toolken.states import NO_TOOL, compute_states, hash_model, label_demonstrations
from toolwire.learn.toolken.training import train_toolkens

SETTINGS = ToolkenSettings(epochs=6, learning_rate=0.05, batch=32)
FRUIT = [
    demonstration_of_query(f"{verb} {fruit}", fruit) for verb in ("buy", "eat", "cut") for fruit in ("fig", "kiwi")
]


def snapshot(model):
    return {name: value.clone() for name, value in model.network.state_dict().items()}


def same_weights(model, before):
    after = model.network.state_dict()
    return set(after) == set(before) and all(torch.equal(after[name], before[name]) for name in before)


def test_probability_is_the_softmax_over_vocabulary_and_toolkens():
    model = tiny_model(1)
    head = ToolkenHead(32, ["a", "b", "c"], bias=0.5)
    torch.nn.init.normal_(head.W_T.weight)
    tokens = torch.tensor([model.encode("12 + 30 = ")])
    with torch.no_grad():
        h = model.hidden_states(tokens)[0, -1]
        found = head(h, model.word_logits(h)).softmax(-1)
    words = model.network.lm_head.weight.detach().double() @ h.double()
    tools = head.W_T.weight.detach().double() @ h.double() + 0.5
    expected = torch.cat([words, tools]).exp()
    assert found.shape == (264 + 3,)
    assert torch.allclose(found.double(), expected / expected.sum(), atol=1e-6)


def test_training_changes_only_the_head():
    model = tiny_model(1)
    before = snapshot(model)
    fit = fit_toolkens(model, FRUIT, FRUIT, settings=SETTINGS)
    assert same_weights(model, before)
    assert all(value.grad is None for value in model.network.parameters())
    assert fit.head.W_T.weight.abs().sum() > 0
    assert [name for name, _ in fit.head.named_parameters()] == ["W_T.weight"]
    assert fit.losses[-1] < fit.losses[0]


def test_distribution_conditional_on_a_vocabulary_token_is_unchanged():
    model = tiny_model(1)
    head = fit_toolkens(model, FRUIT, FRUIT, settings=ToolkenSettings(epochs=60, learning_rate=0.1)).head
    tokens = torch.tensor([model.encode("Request: buy fig\nTool:")])
    with torch.no_grad():
        h = model.hidden_states(tokens)[0]
        plain = model.network(tokens).logits[0].softmax(-1)
        extended = head(h, model.word_logits(h)).softmax(-1)[:, :264]
    assert extended.sum(-1).min() < 0.9  # toolkens have a share
    assert torch.allclose(extended / extended.sum(-1, keepdim=True), plain, atol=1e-6)


@pytest.mark.parametrize("rows", [None, [1]])
def test_loss_equals_the_cross_entropy_of_a_whole_forward_pass(rows):
    model = tiny_model(2)
    names = ["fig", "kiwi"]
    table = collect_states(model, FRUIT, names)
    head = ToolkenHead(32, names)
    torch.nn.init.normal_(head.W_T.weight, std=0.5)
    reference = []
    for one in label_demonstrations(model, FRUIT, names):
        with torch.no_grad():
            h = model.hidden_states(torch.tensor([one.tokens]))[0]
            logits = head(h, model.word_logits(h)).log_softmax(-1)
        for position, label, target in zip(one.positions, one.labels, one.targets, strict=True):
            reference.append(-logits[position, 264 + label if label != NO_TOOL else target])
    losses = train_toolkens(head, table, replace(SETTINGS, epochs=1, learning_rate=1e-9, batch=10_000), rows=rows)
    assert losses[0] == pytest.approx(float(torch.stack(reference).mean()), abs=1e-5)


def test_negatives_keep_the_head_from_calling_everywhere():
    model = tiny_model(1)
    settings = ToolkenSettings(epochs=60, learning_rate=0.1, batch=32)
    table = collect_states(model, FRUIT, ["fig", "kiwi"])
    rates = []
    for weight in (1.0, 0.0):
        head = ToolkenHead(32, ["fig", "kiwi"])
        train_toolkens(head, table, replace(settings, negative_weight=weight))
        rates.append(sweep_bias(head, table, [0.0])[0].precision)
    assert rates[0] > 2 * rates[1]


def test_labels_mark_the_first_token_of_a_result():
    model = tiny_model()
    text = "ab 2+3 = 15!"
    one = Demonstration(text, (MarkedCall("add", 9, 11),), begin=3)
    [found] = label_demonstrations(model, [one], ["add"])
    assert found.tokens == model.encode(text)  # one token for each character
    assert dict(zip(found.positions, found.labels, strict=True)) == {
        **dict.fromkeys((2, 3, 4, 5, 6, 7), NO_TOOL),  # they predict "2+3 = "
        8: 0,  # predicts "1"; the rest of the result is no example
        10: NO_TOOL,  # predicts "!"
    }
    assert found.targets[found.positions.index(2)] == model.encode("2")[0]
    assert found.targets[found.positions.index(8)] == NO_TOOL


def test_ignored_ranges_are_neither_positive_nor_negative():
    model = tiny_model()
    [found] = label_demonstrations(model, [Demonstration("abcdef", ignored=((2, 4),))], [])
    assert found.positions == [0, 3, 4]


def test_sampled_negatives_depend_on_the_seed_only():
    model = tiny_model()
    many = [Demonstration("a long text without any call")]
    first, again, other = (label_demonstrations(model, many, [], negatives=3, seed=seed)[0] for seed in (1, 1, 2))
    assert first == again != other
    assert len(first.positions) == 3


def test_added_row_leaves_the_others_bit_equal():
    model = tiny_model(1)
    head = fit_toolkens(model, FRUIT, FRUIT, settings=SETTINGS).head
    more = [demonstration_of_query(f"{verb} plum", "plum") for verb in ("buy", "eat", "cut")]
    before = snapshot(model)
    added = add_toolkens(model, head, [*more, *FRUIT], [*more, *FRUIT], settings=SETTINGS).head
    assert added.names == ("fig", "kiwi", "plum")
    assert torch.equal(added.W_T.weight[:2], head.W_T.weight)
    assert added.W_T.weight[2].abs().sum() > 0
    assert added.bias == head.bias
    assert same_weights(model, before)
    with pytest.raises(ConfigError, match="no new tool"):
        add_toolkens(model, added, more, more, settings=SETTINGS)


def test_interrupted_training_ends_with_the_same_head(tmp_path):
    model = tiny_model(1)
    table = collect_states(model, FRUIT, ["fig", "kiwi"])
    whole = ToolkenHead(32, ["fig", "kiwi"])
    expected = train_toolkens(whole, table, SETTINGS)

    class Stop(Exception):
        pass

    def stop(done, total):
        if done == 3:
            raise Stop

    run = RunFolder.create(tmp_path / "run", {"seed": 0})
    with pytest.raises(Stop):
        train_toolkens(ToolkenHead(32, ["fig", "kiwi"]), table, SETTINGS, run=run, progress=stop)
    resumed = ToolkenHead(32, ["fig", "kiwi"])
    run = RunFolder.create(tmp_path / "run", {"seed": 0}, resume=True)
    assert train_toolkens(resumed, table, SETTINGS, run=run) == expected
    assert torch.equal(resumed.W_T.weight, whole.W_T.weight)


def test_whitening_changes_the_path_of_the_optimiser_and_not_the_loss():
    table = collect_states(tiny_model(1), FRUIT, ["fig", "kiwi"])
    final = []
    for power in (0.0, 1.0):
        head = ToolkenHead(32, ["fig", "kiwi"])
        torch.manual_seed(0)
        torch.nn.init.normal_(head.W_T.weight)
        once = replace(SETTINGS, epochs=1, learning_rate=1e-9, whitening=power)
        first = train_toolkens(head, table, once)
        final.append((first[0], train_toolkens(head, table, replace(SETTINGS, whitening=power))[-1]))
    (start, plain), (same_start, balanced) = final
    assert start == pytest.approx(same_start, abs=1e-4)
    assert balanced != plain


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_cached_states_equal_computed_ones(tmp_path, monkeypatch, dtype):
    model = tiny_model(1)
    labelled = label_demonstrations(model, FRUIT, ["fig", "kiwi"])
    computed = compute_states(model, labelled, dtype=dtype)
    monkeypatch.setattr("toolwire.learn.toolken.states._PART_ROWS", 40)
    first = compute_states(model, labelled, cache=tmp_path, dtype=dtype)
    parts = sorted(tmp_path.rglob("part-*"))
    assert len(parts) > 1
    parts[-1].unlink()  # as if the run had been interrupted
    passes = []
    model.network.get_decoder().register_forward_hook(lambda *_: passes.append(1))
    again = compute_states(model, labelled, cache=tmp_path, dtype=dtype)
    assert len(passes) == 1
    for column, other, third in zip(first, again, computed, strict=True):
        assert torch.equal(column, other)
        assert torch.allclose(column, third, atol=1e-3 if dtype == "float16" else 1e-5)


def test_cache_is_not_shared_between_models_or_used_in_training(tmp_path):
    model, other = tiny_model(1), tiny_model(2)
    labelled = label_demonstrations(model, FRUIT, ["fig", "kiwi"])
    first = compute_states(model, labelled, cache=tmp_path)
    second = compute_states(other, labelled, cache=tmp_path)
    assert not torch.equal(first.states, second.states)
    assert len(list(tmp_path.iterdir())) == 2
    model.network.train()
    with pytest.raises(ConfigError, match="training mode"):
        compute_states(model, labelled, cache=tmp_path)


def test_hash_of_a_model_does_not_depend_on_the_type_of_its_numbers():
    model = tiny_model(1)
    model.network.to(torch.bfloat16)
    half = hash_model(model)
    model.network.to(torch.float32)
    assert hash_model(model) == half
    with torch.no_grad():
        model.network.lm_head.weight[0, 0] += 1
    assert hash_model(model) != half


def test_calibrated_bias_has_the_highest_f1_of_all():
    model = tiny_model(1)
    fit = fit_toolkens(model, FRUIT[:4], FRUIT, settings=SETTINGS)
    table = collect_states(model, FRUIT, fit.head.names)
    found = calibrate_bias(fit.head, table)
    grid = sweep_bias(fit.head, table, [number / 50 for number in range(-1000, 1000)])
    assert found.f1 >= max(point.f1 for point in grid) - 1e-9
    [point] = sweep_bias(fit.head, table, [found.bias])
    assert (point.precision, point.recall) == pytest.approx((found.precision, found.recall))
    assert fit.head.bias == found.bias == fit.head.calibration.bias


def test_score_counts_right_tools_at_calls():
    model = tiny_model(1)
    fit = fit_toolkens(model, FRUIT, FRUIT, settings=ToolkenSettings(epochs=60, learning_rate=0.1))
    score = measure_toolkens(fit.head, collect_states(model, FRUIT, fit.head.names))
    assert score.accuracy == 1.0 and score.positions == 6
    assert score.by_tool == {"fig": (1.0, 3), "kiwi": (1.0, 3)}


def test_saved_head_is_read_back(tmp_path):
    model = tiny_model(1)
    tools = [Tool("fig", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}}), Tool("kiwi")]
    shown = [demonstration_of_query("buy 3 fig", "fig", {"n": 3}), *FRUIT]
    head = fit_toolkens(model, shown, shown, tools=tools, settings=SETTINGS).head
    head.save(tmp_path / "head")
    again = ToolkenHead.load(tmp_path / "head", model)
    assert torch.equal(again.W_T.weight, head.W_T.weight)
    assert (again.tools, again.bias, again.calibration) == (head.tools, head.bias, head.calibration)
    assert again.tools[0].digest == schema_digest(tools[0])
    assert again.tools[0].examples[0].arguments == {"n": 3}
    again.require_tools(tools)
    with pytest.raises(ConfigError, match="schema of 'fig'"):
        again.require_tools([Tool("fig", input_schema={"type": "object"}), Tool("kiwi")])
    with pytest.raises(ConfigError, match="'kiwi', which is not among"):
        again.require_tools(tools[:1])
    with pytest.raises(ConfigError, match="trained on the model"):
        ToolkenHead.load(tmp_path / "head", tiny_model(2))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "head.json").unlink(), "cannot read the head"),
        (lambda folder: (folder / "head.json").write_text("{}"), "not the file of a head"),
        (lambda folder: (folder / "head.safetensors").write_bytes(b"x"), "is not the file that"),
        (
            lambda folder: (folder / "head.json").write_text(
                (folder / "head.json").read_text().replace('"version": 1', '"version": 9')
            ),
            "version 9",
        ),
    ],
)
def test_damaged_head_is_refused(tmp_path, damage, message):
    ToolkenHead(8, ["a"]).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ConfigError, match=message):
        ToolkenHead.load(tmp_path)


def test_split_keeps_equal_texts_together():
    many = [demonstration_of_query(f"query {number % 20}", f"tool{number % 3}") for number in range(200)]
    train, dev = split_demonstrations(many, 0.2, seed=3)
    assert len(train) + len(dev) == 200 and dev
    assert not {one.text for one in train} & {one.text for one in dev}
    assert split_demonstrations(many, 0.2, seed=3) == (train, dev) != split_demonstrations(many, 0.2, seed=4)


def test_rows_are_read_from_a_file(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        '{"text": "2 + 3 = 5.", "calls": [{"tool": "add", "start": 8, "end": 9, "arguments": {"a": 2, "b": 3}}]}\n\n'
        '{"query": "rain in Rome", "tool": "get_weather"}\n'
    )
    first, second = read_demonstrations(file, prompt="Q: {query} A:")
    assert first == Demonstration("2 + 3 = 5.", (MarkedCall("add", 8, 9, {"a": 2, "b": 3}),))
    assert second.text == "Q: rain in Rome A:" and second.calls[0].start == len(second.text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "line 1"),
        ("[1]", "line 1 is not an object"),
        ("{}", "line 1 has neither"),
        ('{"text": "ab", "calls": [{"start": 1}]}', "call 1 has no tool"),
        ('{"text": "ab", "calls": [{"tool": "t", "start": -1}]}', "start must be the number of a character"),
        ('{"text": "ab", "calls": [{"tool": "t", "start": 1, "end": 7}]}', "range 1 to 7"),
        ('{"text": "ab", "calls": [{"tool": "t", "start": 0, "end": 1}]}', "beginning of the text"),
        ('{"text": "ab", "calls": [{"tool": "t", "start": 1, "arguments": []}]}', "arguments must be an object"),
        ('{"text": "ab", "ignored": [3]}', "ignored must be"),
        ("", "has no rows"),
    ],
)
def test_bad_row_is_named(tmp_path, line, message):
    file = tmp_path / "pairs.jsonl"
    file.write_text(line)
    with pytest.raises(ConfigError, match=message):
        read_demonstrations(file)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda model: ToolkenHead(8, []), "tools with different names"),
        (lambda model: ToolkenHead(8, ["a", "a"]), "tools with different names"),
        (lambda model: fit_toolkens(model, [Demonstration("text")], FRUIT), "no demonstration has a call"),
        (lambda model: fit_toolkens(model, FRUIT, [Demonstration("text")], settings=SETTINGS), "has no calls"),
        (lambda model: fit_toolkens(model, FRUIT, FRUIT, settings=ToolkenSettings(epochs=0)), "epochs and batch"),
        (
            lambda model: fit_toolkens(model, FRUIT, FRUIT, settings=ToolkenSettings(learning_rate=0)),
            "learning_rate must be",
        ),
        (lambda model: fit_toolkens(model, FRUIT, FRUIT, tools=[Tool("fig")]), "'kiwi' is called but"),
        (lambda model: collect_states(model, FRUIT, ["fig"]), "which the head does not have"),
        (lambda model: collect_states(model, [Demonstration("")], ["fig"]), "has 0 tokens"),
        (lambda model: compute_states(model, [], dtype="int8"), "dtype must be"),
        (lambda model: split_demonstrations(FRUIT[:1]), "only one text"),
        (lambda model: split_demonstrations(FRUIT, 1.5), "between 0 and 1"),
    ],
)
def test_wrong_use_is_refused(run, message):
    with pytest.raises(ConfigError, match=message):
        run(tiny_model(1))
