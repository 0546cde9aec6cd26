"""Everything that the official conformance suite asks a server for: its tools, resources and prompts, by its names."""

import asyncio
import json

from toolwire import Media, Text, Tool, tool
from toolwire.mcp import current_exchange, prompt, resource
from toolwire.run.calls.context import ToolError
from toolwire.run.tools.toolbox import Entry

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
read = tool(effect="read")


def embedded(uri, media_type, text):
    return Text(text, extra={"mcp/resource": {"uri": uri, "mimeType": media_type}})


def form(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


@read
def test_simple_text() -> str:
    """Words."""
    return "This is a simple text response for testing."


@read
def test_image_content():
    """An image."""
    return Media("image", "image/png", PNG)


@read
def test_audio_content():
    """Sound."""
    return Media("audio", "audio/wav", WAV)


@read
def test_embedded_resource():
    """A resource in full."""
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@read
def test_multiple_content_types():
    """Words, an image and a resource."""
    held = embedded("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123}))
    return [Text("Multiple content types test:"), Media("image", "image/png", PNG), held]


@read
async def test_tool_with_logging() -> str:
    """Logs while it works."""
    exchange = current_exchange()
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        exchange.log("info", words)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@read
async def test_tool_with_progress() -> str:
    """Tells how far it is."""
    exchange = current_exchange()
    for done in (0, 50, 100):
        exchange.report(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return str(exchange.meta.progress_token)


@read
def test_error_handling() -> str:
    """Fails."""
    raise ToolError("This tool intentionally returns an error for testing")


@read
async def test_sampling(prompt: str) -> str:
    """Asks the client's model."""
    words = {"role": "user", "content": {"type": "text", "text": prompt}}
    answer = await current_exchange().sample([words], max_tokens=100)
    return f"LLM response: {answer['content']['text']}"


@read
async def test_elicitation(message: str) -> str:
    """Asks the user."""
    answer = await current_exchange().elicit(
        message, form(response={"type": "string", "description": "User's response"})
    )
    return f"User response: action={answer['action']}, content={json.dumps(answer.get('content') or {})}"


DEFAULTS = {
    "name": {"type": "string", "description": "User name", "default": "John Doe"},
    "age": {"type": "integer", "description": "User age", "default": 30},
    "score": {"type": "number", "description": "User score", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "description": "Verification status", "default": True},
}


@read
async def test_elicitation_sep1034_defaults() -> str:
    """Asks with defaults."""
    answer = await current_exchange().elicit(
        "Please review", {"type": "object", "properties": DEFAULTS, "required": []}
    )
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content') or {})}"


TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
PLAIN = ["option1", "option2", "option3"]
CHOICES = {
    "untitledSingle": {"type": "string", "enum": PLAIN},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "enum": PLAIN}},
    "titledMulti": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"anyOf": TITLED}},
}


@read
async def test_elicitation_sep1330_enums() -> str:
    """Asks to choose."""
    answer = await current_exchange().elicit("Please select", {"type": "object", "properties": CHOICES, "required": []})
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content') or {})}"


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _echo_arguments(**arguments) -> str:
    return f"JSON Schema 2020-12 tool called with: {json.dumps(arguments)}"


json_schema_2020_12_tool = Entry(
    Tool("json_schema_2020_12_tool", "A schema with everything in it", SCHEMA_2020_12, effect="read"), _echo_arguments
)


test_custom_header = Entry(
    Tool(
        "test_custom_header",
        "An argument that stands in a header, too",
        {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
            "required": ["region"],
        },
        effect="read",
    ),
    lambda region: f"region: {region}",
)


# ── input that a stateless call asks for ──────────────────────────────────────────────────────────────────────────────────


@read
async def test_missing_capability() -> str:
    """Cannot do without the client's model."""
    await current_exchange().sample([], max_tokens=1)
    return "Success"


@read
async def test_input_required_result_elicitation() -> str:
    """Asks for a name."""
    answer = await current_exchange().elicit("What is your name?", form(name={"type": "string"}), key="user_name")
    return f"Hello, {answer['content']['name']}!"


CAPITAL = [{"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}]


@read
async def test_input_required_result_sampling() -> str:
    """Asks the client's model."""
    answer = await current_exchange().sample(CAPITAL, max_tokens=100, key="capital_question")
    return f"Sampling result: {answer['content']['text']}"


@read
async def test_input_required_result_list_roots() -> str:
    """Asks for directories."""
    return f"Found {len(await current_exchange().roots(key='client_roots'))} root(s)"


@read
async def test_input_required_result_request_state() -> str:
    """Gives its state away."""
    await current_exchange().elicit("Please confirm", form(ok={"type": "boolean"}), key="confirm")
    return "state-ok: requestState validated"


@read
async def test_input_required_result_multiple_inputs() -> str:
    """Asks for three things at once."""
    found = await current_exchange().ask_all(
        {
            "user_name": (
                "elicitation/create",
                {"message": "What is your name?", "requestedSchema": form(name={"type": "string"})},
            ),
            "greeting": ("sampling/createMessage", {"messages": CAPITAL, "maxTokens": 50}),
            "client_roots": ("roots/list", {}),
        }
    )
    return f"Name: {found['user_name']['content']['name']}; Roots: {len(found['client_roots']['roots'])}"


@read
async def test_input_required_result_multi_round() -> str:
    """Asks twice."""
    exchange = current_exchange()
    name = await exchange.elicit("Step 1: What is your name?", form(name={"type": "string"}), key="step1")
    color = await exchange.elicit("Step 2: What is your favorite color?", form(color={"type": "string"}), key="step2")
    return f"Multi-round complete for {name['content']['name']} who likes {color['content']['color']}"


@read
async def test_input_required_result_tampered_state() -> str:
    """Trusts only what it signed."""
    await current_exchange().elicit("Please confirm", form(ok={"type": "boolean"}), key="confirm")
    return "integrity-ok: state verified"


@read
async def test_input_required_result_capabilities() -> str:
    """Asks for what the client can do."""
    exchange = current_exchange()
    questions = {}
    if exchange.can("elicitation"):
        wanted = {"message": "Elicitation input", "requestedSchema": form(value={"type": "string"})}
        questions["elicit_input"] = ("elicitation/create", wanted)
    if exchange.can("sampling"):
        questions["sample_input"] = ("sampling/createMessage", {"messages": CAPITAL, "maxTokens": 50})
    found = await exchange.ask_all(questions)
    return f"capabilities-ok: received {','.join(found)}"


@read
async def test_streaming_elicitation() -> str:
    """Tells how far it is, and asks."""
    exchange = current_exchange()
    exchange.report(50, 100)
    await exchange.elicit("Go on?", form(ok={"type": "boolean"}))
    return "Streaming complete"


@read
async def test_logging_tool() -> str:
    """Logs, for who wants to hear it."""
    current_exchange().log("info", "Diagnostic trace logging activated")
    return "Logging evaluated"


@read
async def test_trigger_tool_change() -> str:
    """Says that the list of tools has changed."""
    current_exchange().listeners.changed("tools")
    return "Mutation triggered"


@read
async def test_trigger_prompt_change() -> str:
    """Says that the list of prompts has changed."""
    current_exchange().listeners.changed("prompts")
    return "Mutation triggered"


@resource("test://static-text", name="static-text", title="Static Text Resource", media_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", name="static-binary", title="Static Binary Resource", media_type="image/png")
def static_binary():
    """An image."""
    return Media("image", "image/png", PNG)


@resource("test://template/{id}/data", name="template", title="Resource Template", media_type="application/json")
def template(id: str):  # noqa: A002  # the suite's name for it
    """Data by their id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@resource("test://watched-resource", name="watched-resource", title="Watched Resource", media_type="text/plain")
def watched() -> str:
    """A text that changes."""
    return "Watched resource content"


@prompt(title="Simple Test Prompt")
def test_simple_prompt() -> str:
    """No arguments."""
    return "This is a simple prompt for testing."


@prompt(title="Prompt With Arguments")
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Two arguments.

    Args:
        arg1: First test argument
        arg2: Second test argument
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt(title="Prompt With Embedded Resource")
def test_prompt_with_embedded_resource(resourceUri: str):
    """A resource in full.

    Args:
        resourceUri: URI of the resource to embed
    """
    held = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [held, "Please process the embedded resource above."]


@prompt(title="Prompt With Image")
def test_prompt_with_image():
    """An image."""
    return [Media("image", "image/png", PNG), "Please analyze the image above."]


@prompt
async def test_input_required_result_prompt() -> str:
    """Asks before it says anything."""
    asked = form(context={"type": "string"})
    answer = await current_exchange().elicit("What context should the prompt use?", asked, key="user_context")
    return f"Prompt with context: {answer['content']['context']}"


if __name__ == "__main__":
    import sys

    import uvicorn

    from toolwire.mcp import HttpApp, Server
    from toolwire.mcp.server.offers import find_offers
    from toolwire.run.tools.toolbox import Toolbox

    module = sys.modules[__name__]
    resources, prompts = find_offers(module)
    server = Server(Toolbox(module), resources=resources, prompts=prompts, name="everything")
    uvicorn.run(HttpApp(server), port=int(sys.argv[1]), log_level="warning")
