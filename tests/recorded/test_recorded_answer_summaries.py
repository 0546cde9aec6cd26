"""Summaries of recorded answers: equal to the decoded answers, and present for most answers without signatures."""

import pytest
from recorded_answers import wholes
from recorded_traffic import require_recordings
from test_any_answer_summary import WIRES, check

from toolwire.ir.text import to_bytes


@pytest.mark.parametrize("wire", WIRES)
def test_summary_of_each_recorded_answer_equals_its_decoded_answer(wire):
    require_recordings()
    recorded = [to_bytes(answer.body) for answer in wholes() if answer.wire == wire]
    assert sum(check(wire, data) for data in recorded) >= len(recorded) // 10
