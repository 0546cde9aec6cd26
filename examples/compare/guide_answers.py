"""The answers of the scripted provider for each migration guide, in the order of the requests of its programs."""

from scripted_answers import Reply, answer, call, typed
from toolwire import Request, Response
from toolwire.ir import Fault

WEATHER: tuple[Reply, ...] = (answer(call("get_weather", city="Oslo")), answer("It is sunny in Oslo."))
CITY = typed({"name": "Oslo", "population": 717710})
CONVERSATION: tuple[Reply, ...] = (answer("Hello Ann."), answer("Your name is Ann."))
DEPENDENCIES: tuple[Reply, ...] = (answer(call("user_name")), answer("You are Ann."))
APPROVAL: tuple[Reply, ...] = (answer(call("delete_file", path="a.txt")), answer("The file is deleted."))


def to_spanish(request: Request) -> Response:
    """Call the subagent with its only parameter, which the libraries name differently."""
    schema = request.tools[0].input_schema or {}
    return answer(call("to_spanish", **dict.fromkeys(schema["properties"], "hello")))


ANSWERS: dict[str, tuple[Reply, ...]] = {
    "litellm": (
        answer("Paris."),
        *WEATHER,
        answer("Once upon a time."),
        CITY,
        answer("Hello!"),
        Fault("invalid_request", "no such model", 400),
    ),
    "pydantic-ai": (
        *WEATHER,
        *DEPENDENCIES,
        CITY,
        answer(call("order_status", order="7")),
        answer(call("order_status", order="A7")),
        answer("It has been shipped."),
        *CONVERSATION,
        *APPROVAL,
    ),
    "openai-agents": (
        *WEATHER,
        *DEPENDENCIES,
        CITY,
        *CONVERSATION,
        answer(call("transfer_to_billing")),
        answer("Which invoice do you mean?"),
        to_spanish,
        answer("Hola."),
        answer("Hola."),
        *APPROVAL,
    ),
}
