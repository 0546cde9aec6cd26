"""Results are written as models' own chat templates write them."""

import pytest

import toolwire
from tables import every_case

# The text of a result inside its message, as rendered by the templates of llama.cpp's models/templates.
RENDERED = {
    "cohere_rplus": "<results>\n22 degrees</results>",
    "deepseek_dsml_v4": "<tool_result>22 degrees</tool_result>",
    "deepseek_dsml_v32": "<function_results>\n<result>22 degrees</result>\n</function_results>",
    "deepseek_v3": "<｜tool▁output▁begin｜>22 degrees<｜tool▁output▁end｜>",
    "gemma4": '<|tool_response>response:get_weather{value:<|"|>22 degrees<|"|>}<tool_response|>',
    "glm45": "<|observation|>\n<tool_response>\n22 degrees\n</tool_response>",
    "glm47": "<|observation|><tool_response>22 degrees</tool_response>",
    "hermes": "<tool_response>\n22 degrees\n</tool_response>",
    "kimi_k2": "## Return of call00000\n22 degrees",
    "lfm2": "<|tool_response_start|>22 degrees<|tool_response_end|>",
    "llama3_json": "22 degrees",
    "minimax_m1": "tool name: get_weather\ntool result: 22 degrees",
    "minimax_m2": "<response>22 degrees</response>",
    "minimax_m3": "<response>22 degrees</response>",
    "mistral_v11": "[TOOL_RESULTS]22 degrees[/TOOL_RESULTS]",
    "mistral_v11_callid": "[TOOL_RESULTS]call00000[TOOL_CONTENT]22 degrees[/TOOL_RESULTS]",
    "muse_glimmer": '<tool_output name="get_weather">\n22 degrees\n</tool_output>',
    "nemotron_v2": "<TOOL_RESPONSE>[22 degrees]</TOOL_RESPONSE>",
    "qwen3_xml": "<tool_response>\n22 degrees\n</tool_response>",
}


@pytest.mark.finding("T16")
@every_case("name", RENDERED)
def test_result_is_written_as_the_template_writes_it(name):
    result = toolwire.ToolCall("call00000", "get_weather", {}).result("22 degrees")
    assert toolwire.text.get(name).render_result(result) == RENDERED[name]
