"""Command R states by a call of `directly_answer` that it needs no tool."""

import pytest

from toolwire.ir.tools import Tool
from toolwire.text import get

TEXT = {
    "cohere_rplus": 'Action:\n```json\n[{"tool_name": "directly_answer", "parameters": {}}]\n```',
    "cohere_action": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "directly_answer", "parameters": {}}]<|END_ACTION|>',
}


@pytest.mark.finding("TX9")
@pytest.mark.parametrize("name", TEXT)
def test_direct_answer_is_a_call_only_of_an_offered_tool(name):
    schema = {"type": "object", "properties": {}}
    other, own = Tool("search", "Search.", schema), Tool("directly_answer", "Answer.", schema)
    assert [call.name for call in get(name).parse(TEXT[name], [own]).calls] == ["directly_answer"]
    parsed = get(name).parse(TEXT[name], [other])
    assert (parsed.calls, parsed.text) == ((), "")
    assert [note.code for note in parsed.diagnostics] == ["direct_answer"]
