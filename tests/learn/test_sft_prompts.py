"""The held-out prompts of the fine-tuning experiment and of the demonstration are really held out."""

import string
import sys

from places import ROOT

sys.path += [str(ROOT / "bench"), str(ROOT / "examples" / "learn")]

from tune_and_serve import SKILLS as DEMO_SKILLS
from tune_and_serve import held_out_examples, training_examples

from learn_sft_data import SKILLS, make_examples
from toolwire.schema import validator


def fields(template):
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_templates_and_values_of_the_experiment_are_disjoint():
    assert len(SKILLS) == 20
    for skill in SKILLS:
        assert not set(skill.train) & set(skill.test)
        for template in [*skill.train, *skill.test]:
            assert fields(template) == set(skill.slots), template
        for slot in skill.slots.values():
            if "enum" not in slot.schema and slot.schema["type"] != "boolean":
                assert not {str(one) for one in slot.train} & {str(one) for one in slot.test}


def test_experiment_has_enough_distinct_valid_examples():
    train = list(make_examples(SKILLS, 200, seed=0, held_out=False))
    test = list(make_examples(SKILLS, 10, seed=0, held_out=True))
    assert len({one.user_text for one in train}) == 4000
    assert len({one.user_text for one in test}) == 200
    for example in [*train[:400], *test]:
        [call] = example.calls
        [tool] = [tool for tool in example.tools if tool.name == call.name]
        assert validator(tool.input_schema).accepts(call.arguments)
        assert len(example.tools) == 5
    assert list(make_examples(SKILLS, 50, seed=0, held_out=False)) == train[:1000]  # a size contains the smaller ones


def test_prompts_of_the_demonstration_are_disjoint():
    train = {text for one in training_examples(60, seed=0) for text in one.user_text.splitlines()}
    held = {one.user_text for one in held_out_examples()}
    assert len(held) == 12 and not train & held
    for _, templates, values, held_templates, held_values in DEMO_SKILLS.values():
        assert not set(templates) & set(held_templates) and not set(values) & set(held_values)
