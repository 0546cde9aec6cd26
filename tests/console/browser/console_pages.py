"""Documents for the tests of the console's page, and functions that enter them in a view."""

import json

SAFETY = 90_000  # milliseconds until a condition that never becomes true fails a test
VIEWS = {"translate": "Translate", "streams": "Streams", "formats": "Text formats", "tools": "Tools"}

IMAGE_REQUEST = {
    "model": "claude-sonnet-5",
    "max_tokens": 1024,
    "tools": [
        {
            "name": "get_map",
            "description": "Draw a map.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        }
    ],
    "messages": [
        {"role": "user", "content": "Where is Paris?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_01", "name": "get_map", "input": {"city": "Paris"}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_01",
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://maps.example/paris.png"}}],
                }
            ],
        },
    ],
}


def chat_stream(*arguments, text="Let me look."):
    """A streamed answer of OpenAI Chat with a text and one call, whose arguments come in pieces."""
    deltas = [{"role": "assistant", "content": ""}, {"content": text}]
    deltas.append(
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_map", "arguments": ""}}
            ]
        }
    )
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in arguments]
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    return "".join(f"data: {json.dumps({**head, 'choices': [chunk]})}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


STREAM = chat_stream('{"ci', 'ty": "Pa', 'ris"}')

MODEL_TEXT = '<think>A map is needed.</think>\nHere it is.\n<tool_call>\n{"name": "get_map", "arguments": {"city": "Paris"}}\n</tool_call>'


def put(page, view, text):
    """Put a text into the editor of a view."""
    panel = page.locator(f"#view-{view}")
    if view == "formats":
        panel.get_by_role("radio", name="Edit").click()
    elif panel.locator("textarea").count() == 0:
        panel.get_by_role("button", name="Edit", exact=True).click()
    panel.locator("textarea").fill(text)
    wait_until_shown(page, view)


def wait_until_shown(page, view):
    """Wait until the view shows the answer to its last change."""
    page.locator(f"#view-{view} > .view[aria-busy=false]").wait_for()


def finish_editing(page, view):
    panel = page.locator(f"#view-{view}")
    if view == "formats":
        panel.get_by_role("radio", name="Read").click()
    else:
        panel.get_by_role("button", name="Done").click()
    panel.locator(".source .viewer .row").first.wait_for()


def show(page, view, text):
    put(page, view, text)
    finish_editing(page, view)


def read_clipboard(page):
    return page.evaluate("navigator.clipboard.readText()")


def wait_for_clipboard(page, start):
    """Wait until the clipboard's text begins in this way, and return it."""
    page.wait_for_function("start => navigator.clipboard.readText().then(text => text.startsWith(start))", arg=start)
    return read_clipboard(page)


def count_nodes(page):
    return page.evaluate("document.querySelectorAll('*').length")
