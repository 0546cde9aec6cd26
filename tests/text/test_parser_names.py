"""The page that maps parser names of serving stacks to formats names only formats that exist, and all parsers."""

import re

import pytest

from places import ROOT
from toolwire.text import names

PAGE = ROOT / "docs" / "parser-names.md"
CODE = re.compile(r"`([^`]+)`").findall

# The registries of vLLM 0.32.0, SGLang 0.5.23, Ollama (August 2026) and llama.cpp (October 2026).
REGISTRIES = {
    "vLLM `--tool-call-parser`": """
        apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 dots ernie45
        functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc granite4 hermes hf hunyuan_a13b hy_v3 hy_v4 inkling
        internlm jamba k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3_json llama4_json llama4_pythonic longcat mimo minicpm5
        minimax_m2 minimax_m3 mistral muse_glimmer olmo3 openai phi4_mini_json plamo3 poolside_v1 pythonic qwen3_coder
        qwen3_json qwen3_xml seed_oss step3 step3p5 xlam""",
    "vLLM `--reasoning-parser`": """
        cohere_command3 cohere_command4 deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 ernie45 gemma4 glm45 glm47 granite
        granite_thinking_parser hf holo2 hunyuan_a13b hy_v3 hy_v4 inkling k2_horizon kimi_k2 kimi_k3 ling3 mimo minicpmv
        minimax_m2 minimax_m2_append_think minimax_m3 mistral muse_glimmer nemotron_v3 olmo3 openai_gptoss plamo3 poolside_v1
        qwen3 seed_oss step3 step3p5""",
    "SGLang `--tool-call-parser`": """
        apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots glm glm45 glm47 gpt-oss
        k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo minicpm5 mistral muse poolside_v1 pythonic qwen qwen25 qwen3_coder
        spark25 step3 step3p5 minimax-m2 minimax-m3 nanbeige trinity interns1 hermes hunyuan gigachat3 gigachat35 gemma4
        inkling iquest_q1 response_template""",
    "SGLang `--reasoning-parser`": """
        apertus2509 beam deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 dots glm45 ling3 hunyuan gpt-oss k2_horizon kimi
        kimi_k2 kimi_k3 mimo muse poolside_v1 qwen3 qwen3-thinking minimax minimax-append-think minimax-m3 nanbeige step3
        step3p5 mistral nemotron_3 granite_thinking_parser interns1 gemma4 gigachat35 inkling iquest_q1 cohere_command4
        response_template""",
    "Ollama `PARSER`": """
        qwen3 qwen3-thinking qwen3.5 ornith qwen3-coder qwen3-vl-instruct qwen3-vl-thinking ministral passthrough harmony cogito
        deepseek3 olmo3 olmo3-think nemotron-3-nano nemotron-3.5-nano functiongemma glm-4.7 gemma4 gemma4-no-thinking glm-ocr
        lfm2 lfm2-thinking laguna poolside-v1 cohere glimmer""",
    "llama.cpp": """
        cohere2moe deepseek functionary-v3-2 gemma4 gigachat-v3 gpt-oss k2-horizon kimi-k2 kimi-k3 lfm2 ling3 llm-jp-harmony
        minicpm5 minimax-m3 ministral3 muse-glimmer qwen3-coder translate-gemma""",
}


def _tables():
    """Return the cells of the two tables on the page: formats with parsers, and parsers without a format."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]
    return [row for row in rows if len(row) > 2], [row for row in rows if len(row) == 2]


def test_every_format_on_the_page_exists():
    listed = [CODE(row[0])[0] for row in _tables()[0][1:]]
    assert len(listed) == len(set(listed)) > 40
    assert set(listed) <= set(names())


@pytest.mark.parametrize("column", range(6))
def test_every_parser_of_a_stack_is_on_the_page(column):
    (head, *rows), others = _tables()
    title = head[column + 1]
    registry = set(REGISTRIES[title].split())
    listed = {name for row in rows for name in CODE(row[column + 1])}
    stack = title.split()[0]
    without_format = {
        name for row in others for part in row[0].split(", ") if part.startswith(stack) for name in CODE(part)
    }
    assert listed <= registry
    assert registry - listed <= without_format
