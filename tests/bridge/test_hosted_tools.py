"""Hosted tools between wires: declarations, runs, results and citations, in answers and in histories."""

import json
from itertools import permutations
from random import Random

import pytest

import toolwire
from hosted_answers import CITED, KINDS, MODELS, PAGE, RUNS, TEXT, WIRES, answer, document, request, stream
from sdk_validation import validate_chunks, validate_request, validate_response
from tables import every_case
from toolwire.ir.hosted import HostedRun, HostedTool, Location, WebPage
from toolwire.ir.parts import Opaque, Text
from toolwire.testing.stream_checks import bytewise, decode_stream, random_chunks
from toolwire.wire import get

PAIRS = list(permutations(WIRES, 2))


def translate(body, source, target):
    return toolwire.translate_response(body, source=source, target=target, request=request(target))


def runs_of(response, wire):
    """The runs of an answer, read with the codec of its wire."""
    codec = get(wire).hosted
    read = [codec.read_run(part) for part in response.parts if isinstance(part, Opaque)]
    if codec.read_end is not None:
        from toolwire.ir.folding import unfold_end

        read += codec.read_end(unfold_end(response), text_of(response))[0]
    inputs = [run.inputs for run in read if run.phase == "call"]
    return [run if run.phase == "whole" else HostedRun(run.id, run.kind, inputs.pop(0), run.sources, run.output, run.error)
            for run in read if run.phase != "call"]  # fmt: skip


def text_of(response):
    return "".join(part.text for part in response.parts if isinstance(part, Text))


def citations_of(response, wire):
    from toolwire.ir.folding import unfold_end

    codec = get(wire).hosted
    if codec.read_text is None:
        return codec.read_end(unfold_end(response), text_of(response))[1][0]
    return [
        citation for part in response.parts if isinstance(part, Text) for citation in codec.read_text(part.extra)[0]
    ]


@every_case(("source", "target"), PAIRS)
@every_case("kind", KINDS)
def test_declarations_are_mapped_or_lost_with_a_reason(kind, source, target):
    if kind not in get(source).hosted.kinds or (source, kind) == ("openai_responses", "web_fetch"):
        return  # Responses fetches pages by its search
    body = request(source, (kind,))
    translated = toolwire.translate_request(body, source=source, target=target, model=MODELS[target])
    validate_request(target, translated.body)
    declared = get(target).decode_request(translated.body)
    # on Chat, only some models search
    if kind in get(target).hosted.kinds:
        assert "hosted tool" in {loss.concept for loss in translated.losses if loss.action == "rewritten"}
        assert declared.tools or "web_search_options" in translated.body
    else:
        assert [(loss.concept, loss.severity) for loss in translated.losses if loss.action == "dropped"] == [
            ("hosted tool", "error")
        ]
        assert not declared.tools


@every_case(("source", "target"), PAIRS)
@every_case("kinds", [(kind,) for kind in KINDS] + [KINDS])
def test_answers_are_mapped_with_results_and_citations(kinds, source, target):
    translated = translate(document(source, kinds), source, target)
    validate_response(target, translated.body)
    read = get(target).decode_response(translated.body)
    shown = [kind for kind in kinds if kind in get(source).hosted.shows & get(target).hosted.shows]
    assert sorted(run.kind for run in runs_of(read, target)) == sorted(shown)
    for run in runs_of(read, target):
        expected = RUNS[run.kind]
        assert run.inputs == expected.inputs
        assert run.output == expected.output
        assert [found.url for found in run.sources] == [found.url for found in expected.sources]
    lost = [kind for kind in kinds if kind in get(source).hosted.shows and kind not in get(target).hosted.shows]
    assert {f"{kind} of the answer" for kind in lost} == {
        loss.concept
        for loss in translated.losses
        if loss.concept.endswith("of the answer") and loss.action == "dropped"
    }
    (citation,) = citations_of(read, target)
    assert (citation.url, citation.title) == (PAGE.url, PAGE.title)
    if get(target).hosted.covers_text:
        assert text_of(read) == TEXT
    else:
        whole = get(source).hosted.covers_text
        assert text_of(read)[citation.start : citation.end] == (TEXT if whole else CITED)


@every_case(("source", "target"), PAIRS)
@every_case("kinds", [(kind,) for kind in KINDS] + [KINDS])
def test_streams_are_the_same_answers_in_any_chunks(kinds, source, target):
    data = stream(source, kinds)
    whole = translate(document(source, kinds), source, target)
    expected = get(target).decode_response(whole.body)
    for chunks in ([data], bytewise(data), random_chunks(data, Random(1), 7), random_chunks(data, Random(2), 40)):
        translation = toolwire.translate_stream(source=source, target=target, request=request(target))
        written = b"".join([translation.feed(chunk) for chunk in chunks]) + translation.close()
        assert translation.error is None
        validate_chunks(target, written)
        read = toolwire.fold(decode_stream(get(target), [written]))
        assert text_of(read) == text_of(expected)
        assert [strip(run) for run in runs_of(read, target)] == [strip(run) for run in runs_of(expected, target)]
        assert citations_of(read, target) == citations_of(expected, target)


def strip(run):
    return (run.kind, run.inputs, run.sources, run.output, run.error)


@every_case("wire", WIRES)
def test_own_wire_is_unchanged(wire):
    body = document(wire)
    assert get(wire).encode_response(get(wire).decode_response(body)).body == body


@every_case(("source", "target"), PAIRS)
def test_history_of_another_wire_becomes_text(source, target):
    codec = get(source).hosted
    if codec.write_run is None:
        return
    parts = [part for run in RUNS.values() for part in codec.write_run(run, run.id)]
    said = [*parts, Text(TEXT)]
    history = (
        toolwire.Message("user", (Text("hi"),)),
        toolwire.Message("assistant", tuple(said)),
        toolwire.Message("user", (Text("and then?"),)),
    )
    body = get(source).encode_request(toolwire.Request(MODELS[source], history)).body
    translated = toolwire.translate_request(body, source=source, target=target, model=MODELS[target])
    validate_request(target, translated.body)
    sent = json.dumps(translated.body, ensure_ascii=False)
    assert TEXT in sent
    assert "print(6 * 7)" in sent and "42" in sent
    if source != "gemini":
        assert PAGE.url in sent and "longest fjord" in sent
    assert not [loss for loss in translated.losses if loss.severity == "error"]


def test_fields_that_only_one_provider_has_are_losses():
    tool = HostedTool("web_search", 3, ("a.org",), ("b.org",), Location(city="Oslo", country="NO"), "low")
    declared, held = get("anthropic").hosted.write_tool(tool)
    assert held == {"max_uses", "allowed_domains", "blocked_domains", "location"}
    body = request("anthropic", ())
    body["tools"] = [declared.extra["anthropic"] | {"x_new": 1}]
    translated = toolwire.translate_request(body, source="anthropic", target="openai_responses", model="gpt-5")
    assert translated.body["tools"] == [
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a.org"]},
            "user_location": {"type": "approximate", "city": "Oslo", "country": "NO"},
        }
    ]
    assert {loss.concept for loss in translated.losses if loss.action == "dropped"} == {
        "max_uses of web_search",
        "x_new",
    }


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-3-pro"])
def test_gemini_combines_hosted_tools_with_functions_since_version_3(model):
    body = request("anthropic", ("web_search",))
    body["tools"].append({"name": "look", "input_schema": {"type": "object", "properties": {}}})
    translated = toolwire.translate_request(body, source="anthropic", target="gemini", model=model)
    has_search = any("googleSearch" in tool for tool in translated.body["tools"])
    assert has_search == (model == "gemini-3-pro")
    assert (translated.body.get("toolConfig", {}).get("includeServerSideToolInvocations") is True) == has_search
    if not has_search:
        assert any("beside functions" in loss.detail for loss in translated.losses)


def test_forced_search_is_forced_where_the_target_can():
    body = request("anthropic", ("web_search",), tool_choice={"type": "tool", "name": "web_search"})
    responses = toolwire.translate_request(body, source="anthropic", target="openai_responses", model="gpt-5")
    assert responses.body["tool_choice"] == {"type": "web_search"}
    gemini = toolwire.translate_request(body, source="anthropic", target="gemini", model="gemini-3-pro")
    assert "toolConfig" not in gemini.body
    assert "tool choice" in {loss.concept for loss in gemini.losses}


def test_chat_model_without_search_loses_it():
    translated = toolwire.translate_request(
        request("anthropic", ("web_search",)), source="anthropic", target="openai_chat", model="gpt-5"
    )
    assert "web_search_options" not in translated.body
    assert [loss.detail for loss in translated.losses if loss.severity == "error"] == [
        "the target does not run web_search"
    ]


def test_failed_runs_keep_their_error():
    failed = {
        "web_search": HostedRun("r", "web_search", ("q",), error="max_uses_exceeded"),
        "web_fetch": HostedRun("r", "web_fetch", ("https://e.org",), error="url_not_accessible"),
        "code_execution": HostedRun("r", "code_execution", ("1/0",), error="ZeroDivisionError"),
    }
    for kind, run in failed.items():
        for wire in ("anthropic", "openai_responses", "gemini"):
            codec = get(wire).hosted
            parts = codec.write_run(run, "r") if codec.write_run is not None else []
            read = [codec.read_run(part) for part in parts]
            if read and not (wire == "openai_responses" and kind == "code_execution"):  # its output has the error
                assert read[-1].error is not None, (wire, kind)


def test_usage_counts_runs_for_anthropic():
    translated = translate(document("openai_responses", ("web_search",)), "openai_responses", "anthropic")
    assert translated.body["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}


def test_content_of_sources_returns_to_the_model():
    """Search results that were written for Anthropic's clients hold their excerpt, and the next turn reads it."""
    (_, result) = get("anthropic").hosted.write_run(RUNS["web_search"], "r")
    read = get("anthropic").hosted.read_run(result)
    assert read.sources == RUNS["web_search"].sources
    encrypted = {"type": "web_search_result", "url": "https://e.org", "title": "E", "encrypted_content": "EtweCioI"}
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [encrypted]}
    read = get("anthropic").hosted.read_run(Opaque("anthropic", "web_search_tool_result", block))
    assert read.sources == (WebPage("https://e.org", "E"),)


def test_answer_of_the_source_without_a_request_is_mapped():
    """Perplexity and OpenRouter cite pages also if the request has no hosted tool."""
    body = document("openai_chat", ("web_search",))
    translated = toolwire.translate_response(body, source="openai_chat", target="anthropic")
    assert [block["citations"][0]["url"] for block in translated.body["content"]] == [PAGE.url]
    plain = request("anthropic", ())
    translated = toolwire.translate_response(body, source="openai_chat", target="anthropic", request=plain)
    assert [block["citations"][0]["url"] for block in translated.body["content"]] == [PAGE.url]


def test_answers_of_the_support_module_have_runs():
    assert [len(answer(wire).parts) for wire in WIRES] == [7, 4, 3, 1]
