"""Tables in notebooks: small, escaped, without scripts and references; shown by a real kernel."""

import subprocess
import sys
from html.parser import HTMLParser

import nbclient
import nbformat
import pytest

from toolwire import Answer, Loss, Message, Response, Text, Tool, Toolbox, ToolCall, ToolResult, tool
from toolwire.audit import Finding, audit_tools
from toolwire.ir import ValueTable
from waiting import SAFETY

HOSTILE = (
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "<style>body{display:none}</style>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "&lt;script&gt; &amp; <!-- -->",
    "<svg/onload=alert(1)>",
    "]]><![CDATA[<b>",
    "\x1b[31mred\x07 \u202egnp.exe",
    "x" * 100_000,
)
TAGS = {"div": {"class"}, "p": {"style"}, "table": set(), "tr": set(), "th": {"style"}, "td": {"style"}}


class Page(HTMLParser):
    """The texts of a page, which may have the tags and attributes of our tables only."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.texts, self.open = [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert {name for name, _ in attributes} <= TAGS[tag]
        assert "url" not in str(attributes)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = unknown_decl = handle_pi = handle_comment


def values(text):
    """One value of each class with a table, in which every text is `text`."""
    call, result = ToolCall("1", text, {"a": text}), ToolResult("1", text, (Text(text),))
    messages = (Message("assistant", (call,)), Message("tool", (result,)))
    declared = Toolbox(tool(lambda: "", name="f", description=text))
    return [
        Answer(text, None, None, messages),
        Response("r", "m", (Text(text), call)),
        call,
        result,
        Tool(text, text),
        declared,
        Loss(text, text, "dropped", "warning", text, text),
        Finding("TW001", "error", ("openai",), text, text, text, text),
        ValueTable([call, call]),
    ]


@pytest.mark.finding("NU9")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_stay_texts(text):
    for value in values(text):
        html = value._repr_html_()
        shown = "".join(Page(html).texts)
        assert "\x1b" not in shown and "\u202e" not in shown
        assert len(html) < 40_000
        if len(text) < 100 and text.isprintable():
            assert text in shown or text.replace('"', '\\"') in shown


def test_long_tables_are_cut():
    page = Page(ValueTable([ToolCall("1", "f", {})] * 300)._repr_html_())
    assert page.texts.count("f") == 200
    assert page.texts[-1] == "and 100 more"


def test_empty_table_and_plain_text():
    assert Page(ValueTable([])._repr_html_()).texts == []
    assert str(ValueTable(audit_tools([Tool("a b")]))) != ""


CELLS = (
    """
import sys
from toolwire import Agent, Loss, Response, Text, Tool, ToolCall, Toolbox, tool
from toolwire.audit import audit_tools
from toolwire.ir import ValueTable
from toolwire.testing import ScriptedModel, says

@tool
def weather(city: str) -> str:
    "Find $\\\\href{javascript:alert(1)}{weather}$ in <b>a city</b>."
    return f"<i>22 degrees in {city}</i>"

Toolbox(weather)
""",
    """
model = ScriptedModel([says(ToolCall("1", "weather", {"city": "</td>"})), says("<script>")])
await Agent(model, [weather]).run("Weather?")
""",
    """Loss("/a", "seed", "dropped", "warning", "<script>")""",
    """ValueTable(audit_tools([Tool("<b>", "<i>")]))""",
)


@pytest.mark.finding("NU9")
def test_kernel_shows_tables(tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=SAFETY, startup_timeout=SAFETY, kernel_name="python3").execute()
    shown = [cell.outputs[0]["data"] for cell in notebook.cells]
    assert all("text/plain" in data for data in shown)
    pages = [Page(data["text/html"]).texts for data in shown]
    assert pages[0][-1].endswith("in <b>a city</b>.")
    assert pages[1] == [
        "<script>",
        "call",
        "arguments",
        "result",
        "weather",
        '{"city":"</td>"}',
        "<i>22 degrees in </td></i>",
    ]
    assert pages[2][-1] == "<script>"
    assert "<b>" in pages[3]


def test_nothing_of_a_notebook_is_imported():
    program = (
        "import sys, toolwire; toolwire.Loss('/a', 'b', 'dropped', 'info', 'c')._repr_html_();"
        "assert not {'IPython', 'ipykernel', 'nbformat'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=SAFETY)
