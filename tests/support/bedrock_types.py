"""botocore's model of Bedrock's runtime as judge of what we send: its shapes, its client, its parser of event streams."""

import json
from functools import cache
from typing import Any

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer
from botocore.model import Shape
from botocore.validate import ParamValidator


@cache
def _shape(operation: str, direction: str) -> Shape:
    model = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model(operation)
    return getattr(model, direction)


def _validate(value: Any, shape: Shape) -> None:
    report = ParamValidator().validate(value, shape)
    assert not report.has_errors(), report.generate_report()


def validate_request(body: dict) -> None:
    """AssertionError if the shape of the request does not have a field, or a value is out of range."""
    _validate({"modelId": "m", **body}, _shape("Converse", "input_shape"))


def validate_response(body: dict) -> None:
    """AssertionError if the shape of the answer does not have a field; only Bedrock knows the metrics of the model."""
    _validate({"metrics": {"latencyMs": 0}, **body}, _shape("Converse", "output_shape"))


def validate_events(data: bytes) -> None:
    """Validate each event of a stream, and each exception, by its own shape."""
    shapes = _shape("ConverseStream", "output_shape").members["stream"].members
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    for message in buffer:
        payload = json.loads(message.payload)
        kind = message.headers.get(":event-type") or message.headers[":exception-type"]
        _validate({"metrics": {"latencyMs": 0}, **payload} if kind == "metadata" else payload, shapes[kind])


def calls_by_client(url: str, stream: bool) -> list[tuple[str, Any]]:
    """Return the name and the arguments of the calls that botocore's client reads."""
    config = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
    client = botocore.session.get_session().create_client(
        "bedrock-runtime", "us-east-1", endpoint_url=url, config=config
    )
    ask: dict[str, Any] = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    try:
        if not stream:
            content = client.converse(**ask)["output"]["message"]["content"]
            return [(block["toolUse"]["name"], block["toolUse"]["input"]) for block in content if "toolUse" in block]
        names, texts = {}, {}
        for event in client.converse_stream(**ask)["stream"]:
            block = event.get("contentBlockStart") or event.get("contentBlockDelta") or {}
            index = block.get("contentBlockIndex")
            if "toolUse" in block.get("start", {}):
                names[index] = block["start"]["toolUse"]["name"]
            elif "toolUse" in block.get("delta", {}):
                texts[index] = texts.get(index, "") + block["delta"]["toolUse"]["input"]
        return [(name, json.loads(texts.get(index) or "{}")) for index, name in names.items()]
    finally:
        client.close()
