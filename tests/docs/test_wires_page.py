"""docs/wires.md agrees with the codecs on deferred tools."""

import pytest
from msgspec.structs import replace

from places import ROOT
from toolwire import Tool
from toolwire.bridge import prepare
from toolwire.ir import Message, Request, Text
from toolwire.wire import get, names

PAGE = ROOT / "docs/wires.md"
LOOKUP = Tool("lookup", input_schema={"type": "object", "properties": {}}, deferred=True)
SEARCH = Tool(
    "search",
    kind="builtin",
    extra={
        "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        "openai_responses": {"type": "tool_search"},
    },
)
REQUEST = Request("m", (Message("user", (Text("hi"),)),))


def cells(row):
    """Return the cells of a row of the requests' table, by wire."""
    table = PAGE.read_text(encoding="utf-8").partition("## Requests")[2].partition("\n## ")[0]
    (header,) = [line for line in table.splitlines() if line.startswith("| |")]
    (found,) = [line for line in table.splitlines() if line.startswith(f"| {row} |")]
    return dict(zip(*([cell.strip() for cell in line.split("|")[2:-1]] for line in (header, found)), strict=True))


@pytest.mark.finding("U16")
@pytest.mark.parametrize(
    ("row", "others"),
    [("tool.deferred, beside a search tool", (SEARCH,)), ("tool.deferred, without a search tool", ())],
)
def test_page_names_the_wires_that_carry_a_deferred_tool(row, others):
    carried = set()
    for name in names():
        prepared = prepare(replace(REQUEST, tools=(*others, LOOKUP)), get(name))
        body, losses = get(name).encode_request(prepared.request)
        is_carried = any(tool.get("defer_loading") for tool in body.get("tools") or body["toolConfig"]["tools"])
        assert is_carried != any(loss.concept == "deferred loading" for loss in (*prepared.losses, *losses))
        carried |= {name} if is_carried else set()
    assert carried == ({"anthropic", "openai_responses"} if others else set())
    assert {wire for wire, cell in cells(row).items() if cell == "`/tools/*/defer_loading`"} == carried
    assert {wire for wire, cell in cells(row).items() if cell == "–"} == set(names()) - carried
