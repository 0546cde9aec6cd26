"""Requests that two wires could claim, and requests without the fields that most have."""

from tables import every_case
from toolwire.bridge.translation.detection import Detected, detect

USER = {"role": "user", "content": "hi"}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
REQUESTS = [
    ("anthropic", {"anthropic_version": "vertex-2023-10-16", "messages": [USER], "max_tokens": 5}),
    ("anthropic", {"model": "claude-opus-4", "messages": [USER], "max_tokens": 5}),
    ("anthropic", {"model": "us.anthropic.claude-opus-4", "messages": [USER], "max_tokens": 5}),
    ("anthropic", {"model": "m", "messages": [USER], "max_tokens": 5, "thinking": {"type": "adaptive"}, "system": "x"}),
    ("openai_chat", {"model": "anthropic/claude-3.7-sonnet", "messages": [USER], "max_tokens": 5}),
    ("openai_chat", {"model": "glm-4.6", "messages": [USER], "max_tokens": 5, "thinking": {"type": "disabled"}}),
    ("openai_chat", {"model": "magistral", "messages": [USER, {"role": "assistant", "content": [THOUGHT]}, USER]}),
    ("openai_chat", {"model": "gpt-5.1", "messages": []}),
    ("openai_responses", {"model": "gpt-5.1", "prompt": {"id": "pmpt_1"}}),
    ("openai_responses", {"model": "gpt-5.1", "previous_response_id": "resp_1"}),
    ("gemini", {"contents": {"parts": {"text": "hi"}}}),
]


@every_case(("wire", "request_body"), REQUESTS)
def test_request_is_detected_by_fields_unique_to_its_wire(wire, request_body):
    assert detect(request_body) == Detected(wire, "request")


def test_loss_path_has_no_index_where_the_client_sent_a_single_value():
    import toolwire

    body = {
        "contents": {"role": "user", "parts": {"text": "hi"}},
        "tools": {"function_declarations": {"name": "f", "parameters_json_schema": {"type": "object"}, "note": 1}},
        "generation_config": {"response_modalities": ["TEXT"], "top_k": "40"},
    }
    losses = toolwire.translate(body, source="gemini", target="openai_chat", model="gemini-3-pro").losses
    paths = {loss.path for loss in losses}
    assert paths >= {"/tools/function_declarations/note", "/generation_config/response_modalities"}
    assert "/generation_config/top_k" in paths
