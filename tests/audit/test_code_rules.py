"""Code that holds on one provider only is found, and its portable twin is left alone."""

import importlib

import pytest

import toolwire
from places import ROOT
from tables import every_case
from toolwire.audit.code_rules import CODE_CHECKS, audit_code
from toolwire.cli.main import main
from toolwire.ir import Response, Stop, Text, ToolCall, ToolResult
from toolwire.wire import get
from work_counter import assert_linear, count_work

EXAMPLES = ROOT / "examples"


def audit(name):
    return audit_code((EXAMPLES / name).read_text(encoding="utf-8"), name)


def test_every_planted_problem_is_found_at_its_line():
    assert [(finding.rule, finding.line) for finding in audit("openai_only.py")] == [
        ("TW078", 16),
        ("TW075", 22),
        ("TW080", 23),
        ("TW085", 24),
        ("TW085", 24),
        ("TW085", 24),
        ("TW074", 27),
        ("TW082", 28),
        ("TW071", 29),
        ("TW070", 30),
        ("TW076", 31),
        ("TW077", 31),
        ("TW079", 31),
        ("TW080", 32),
        ("TW073", 40),
        ("TW089", 40),
        ("TW072", 44),
    ]


def test_portable_example_has_no_findings():
    assert audit("portable.py") == ()


SNIPPETS = {
    "TW076": [
        "eval(call.function.name)",
        "getattr(module, call.name)()",
        "arguments = json.loads(call.function.arguments); exec(arguments['code'])",
        "@tool\n    def f(code): return eval(code)",
        "@mcp.tool()\n    async def f(code): return exec(code.strip(), {})",
        "T = {'name': 'calc', 'parameters': {}}\n    def calc(text): return eval(f'({text})')",
        "[vars(module)[c.name] for c in message.tool_calls]",
        "name = block['tool_use']['name']; globals()[name]()",
    ],
    "TW088": [
        "try: out = TOOLS[name](**args)\n    except Exception: out = ''",
        "try: return run(**call.arguments)\n    except ValueError: pass",
        "try: out = HANDLERS[call.function.name](**args)\n    except Exception: out = ''\n    return out",
        "try: return self.functions[name](**args)\n    except Exception: pass\n    return ''",
    ],
    "TW073": ["text += d.tool_calls[0].function.arguments", "d = chunk.choices[0].delta; run(d.tool_calls[0])"],
    "TW077": ["run(**json.loads(tool_call.function.arguments))"],
    "TW082": ["messages.append(response.choices[0].message)"],
    "TW083": ["await asyncio.gather(*[run(c) for c in message.tool_calls])"],
    "TW086": ["print 'hi'"],
    "TW072": ["response.candidates[0].content.parts[0].text"],
    "TW081": [
        "TOOLS[0]['parameters']['additionalProperties'] = False",
        "del SCHEMA['$schema']",
        "SCHEMA.pop('default', None)",
        "SCHEMA['required'].append('city')",
    ],
}


@every_case(("rule", "source"), [(rule, one) for rule, many in SNIPPETS.items() for one in many])
def test_other_spellings_of_a_problem_are_found(rule, source):
    text = f"async def f():\n    {source}\n"
    assert rule in {finding.rule for finding in audit_code(text, "f.py")}


HARMLESS = [
    "try:\n    json.loads(call.function.arguments)\nexcept ValueError:\n    pass\n",
    "while True:\n    read_line()\n",
    "getattr(module, 'name')",
    "value = items[0]\n",
    "client.create(model='m', messages=[])",
    "def f(schema):\n    schema = dict(schema)\n    schema['type'] = 'object'\n",
    "def f(names):\n    schema = {}\n    schema['required'] = names\n    return schema\n",
    "def f(schema, name):\n    return schema.get('default')\n",
    "def f(options):\n    options['title'] = 'x'\n",
    "class Tool:\n    def close(self):\n        self.schema['additionalProperties'] = False\n",
    "for schema in schema:\n    schema['type'] = 'object'\n",
]


NOT_DISPATCH = [
    "model.eval()\nsession.exec(call.name)\n",
    "def __getattr__(name):\n    return getattr(module, name)\n",
    "globals()[name] = value\n",
    "values = {f.name: getattr(value, f.name) for f in fields(value)}\n",
    "exec(compile(source, '<tool>', 'exec'), namespace)\n",
    "from interpreter import eval\neval(call.function.arguments)\n",
    "handler = getattr(self, f'run_{call.name}')\n",
]


@pytest.mark.finding("S4")
@pytest.mark.parametrize("source", NOT_DISPATCH)
def test_only_builtins_with_text_of_a_tool_call_are_an_open_namespace(source):
    assert audit_code(source, "f.py") == ()


FOREIGN = [
    "parts.append(part.content)\n",
    "history.append(payload.status.message)\n",
    "if len(message.tool_calls) == 1:\n    call = message.tool_calls[0]\n",
    "if parts and content.parts[0].text:\n    say(content.parts[0].text)\n",
    "done = finish_reason == 'tool_calls' or tool_calls\n",
    "if stop_reason == 'tool_use':\n    finish_reason = 'tool_calls'\n",
    "def lower(schema):\n    schema['additionalProperties'] = False\n",
    "def answer(args):\n    return client.acompletion(**args)\n",
    "def run(tool, arguments):\n    validate_arguments(tool, arguments)\n    return tool.run(**arguments)\n",
    "with suppress(ValueError):\n    arguments = json.loads(call.arguments)\n",
    "for chunk in stream:\n    if not chunk.choices:\n        continue\n    say(chunk.choices[0].delta.content)\n",
    "for chunk in stream:\n    if len(chunk.choices) > 0 and chunk.choices[0].delta:\n        say(chunk)\n",
    "texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]\n",
    "try:\n    value = load(path)\nexcept OSError:\n    value = None\n",
    "try:\n    out = TOOLS[name](**args)\nexcept Exception as error:\n    out = str(error)\n",
    "def on(event):\n    try:\n        HANDLERS[event](**data)\n    except Exception:\n        pass\n",
    "def f():\n    try:\n        return TOOLS[n](**a)\n    except KeyError:\n        pass\n    return {'error': 'unknown'}\n",
    "try:\n    out = TOOLS[name](**args)\nexcept OSError:\n    out = None\nif out is None:\n    out = 'error'\n",
    "for chunk in stream:\n    assert chunk.choices\n    say(chunk.choices[0].delta)\n",
    "for chunk in stream:\n    c = chunk.choices\n    if not c:\n        continue\n    say(chunk.choices[0].delta)\n",
    "for chunk in filter(lambda c: c.choices, stream):\n    say(chunk.choices[0].delta)\n",
    "def f(code):\n    return eval(code)\n",
    "@tool\ndef f(path):\n    return eval(TEMPLATE)\n",
    "client.audio.speech.create(response_format='pcm')\n",
    "while True:\n    turns += 1\n    client.create(messages=messages)\n",
]


@pytest.mark.finding("S17")
@every_case("source", FOREIGN)
def test_code_of_published_packages_has_no_findings(source):
    assert audit_code(source, "f.py") == ()


@pytest.mark.finding("S9")
@pytest.mark.parametrize(
    "line",
    [
        "    value = run(tools[0], **call.arguments)\n",
        "    for tool in tools:\n        tool['parameters']['type'] = 'object'\n",
        "    while True:\n        client.create(messages=messages)\n",
        "    a.b.c.tool_calls[0].content[0].text.pop('type')\n",
    ],
)
def test_cost_of_the_audit_is_linear_in_the_length_of_a_function(line):
    def cost(lines):
        source = "def f(tools, call):\n" + line * lines
        return len(source), count_work(lambda: audit_code(source, "f.py"))

    assert_linear([cost(20), cost(80)])


@pytest.mark.finding("S9")
def test_cost_of_the_audit_is_linear_in_the_length_of_one_expression():
    def cost(length):
        source = "x = schema" + ".tool_calls[0].pop('type')" * length + "\n"
        return len(source), count_work(lambda: audit_code(source, "f.py"))

    assert_linear([cost(50), cost(200)])


def test_mutating_the_schema_of_a_loop_variable_is_found():
    source = "def f(tools):\n    for tool in tools:\n        tool.inputSchema.pop('$schema', None)\n"
    assert [(finding.rule, finding.line) for finding in audit_code(source, "f.py")] == [("TW081", 3)]
    copied = source.replace("in tools:", "in copy.deepcopy(tools):")
    assert audit_code(copied, "f.py") == ()


@every_case("source", HARMLESS)
def test_harmless_code_has_no_findings(source):
    assert audit_code(source, "f.py") == ()


def test_every_code_rule_is_covered_by_an_example():
    seen = {finding.rule for finding in audit("openai_only.py")} | set(SNIPPETS)
    assert seen == set(CODE_CHECKS)


def test_ignore_comment_suppresses_the_named_rule():
    source = "if choice.finish_reason == 'tool_calls':  # toolwire: ignore[TW074]\n    pass\n"
    assert audit_code(source, "f.py") == ()
    assert audit_code(source.replace("TW074", "TW001"), "f.py")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\ndef (\n", 2),
        ("x = (\n", 1),
        ("\0", 1),
        ("x = " + "(" * 500, 1),
        ("x = " + "-" * 100_000 + "1", 1),
        ("if x:\n", 1),
    ],
)
def test_syntax_error_is_a_finding_at_its_line(source, line):
    (finding,) = audit_code(source, "f.py")
    assert (finding.rule, finding.file, finding.line, finding.level) == ("TW086", "f.py", line, "error")
    assert finding.message
    assert audit_code(source, "f.py", ignore=["TW086"]) == ()


def test_unparsable_file_does_not_hide_findings_in_other_files(tmp_path, capsys):
    (tmp_path / "broken.py").write_text("print 'hi'\n")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "other.py").write_text("eval(call.name)\n")
    assert main(["audit", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "TW086" in out and "broken.py:1" in out
    assert "TW076" in out and "other.py:1" in out


def test_audit_command_accepts_folders_and_files(capsys):
    assert main(["audit", str(EXAMPLES)]) == 1
    assert "TW076" in capsys.readouterr().out
    assert main(["audit", str(EXAMPLES / "portable.py")]) == 0
    assert main(["audit", str(EXAMPLES / "openai_only.py"), "--format", "sarif", "--fail-on", "none"]) == 0


@pytest.mark.parametrize("wire", toolwire.wire.names())
def test_the_portable_example_works_on_every_wire(wire, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    portable = importlib.import_module("portable")
    codec = get(wire)
    asked = []

    def ask(body):
        asked.append(codec.decode_request(body))
        said = [part for message in asked[-1].messages for part in message.parts if isinstance(part, ToolResult)]
        if not said:
            calls = (ToolCall("a", "refund", {"order": 7, "reason": "late"}), ToolCall("b", "refund", {"order": "x"}))
            return codec.encode_response(Response("r", "m", calls, Stop("tool_calls"))).body
        return codec.encode_response(
            Response("r", "m", (Text(" / ".join(one.text for one in said)),), Stop("stop"))
        ).body

    answer = portable.converse(ask, "refund order 7", wire, "m")
    assert "order 7 is refunded: late" in answer
    assert "/order: expected integer" in answer and "'reason' is missing" in answer
    assert len(asked) == 2


def rules_of(source, rule):
    return [finding.line for finding in audit_code(source, "m.py", select=[rule])]


@pytest.mark.finding("TX7")
@pytest.mark.parametrize(
    "test",
    [
        "len(m.tool_calls) > 0",
        "len(m.tool_calls) >= 1",
        "0 < len(m.tool_calls)",
        "len(m.tool_calls)",
        "not len(m.tool_calls) == 0",
    ],
)
def test_first_call_after_a_test_for_emptiness_is_reported(test):
    for statement in ("if", "while"):
        assert rules_of(f"{statement} {test}:\n    run(m.tool_calls[0])\n", "TW071") == [2]
    assert rules_of(f"assert {test}\nrun(m.tool_calls[0])\n", "TW071") == [2]


@pytest.mark.finding("TX7")
@pytest.mark.parametrize(
    "test", ["len(m.tool_calls) == 1", "len(m.tool_calls) > 1", "len(m.tool_calls) <= 1", "1 < len(m.tool_calls)"]
)
def test_first_call_of_counted_calls_is_not_reported(test):
    assert rules_of(f"if {test}:\n    run(m.tool_calls[0])\n", "TW071") == []


@pytest.mark.finding("TX7")
@pytest.mark.parametrize(
    "expression",
    [
        'raw["arguments"]',
        'raw.get("arguments")',
        'raw.get("arguments", "{}")',
        'raw["arguments"] or "{}"',
        'f()["arguments"]',
        'raw["function"]["arguments"]',
    ],
)
def test_arguments_of_a_dictionary_without_error_handling_are_reported(expression):
    assert rules_of(f"x = json.loads({expression})\n", "TW070") == [1]
    assert rules_of(f"try:\n    x = json.loads({expression})\nexcept ValueError:\n    pass\n", "TW070") == []
    assert rules_of('x = json.loads(raw["body"])\n', "TW070") == []


@pytest.mark.finding("TX7")
@pytest.mark.parametrize(
    "call",
    [
        "client.images.create(prompt=p, n=2)",
        "openai.Image.create(prompt=p, n=2)",
        "pool.create(n=4)",
        "parser.parse(text, stop=3)",
    ],
)
def test_parameters_of_other_methods_are_not_reported(call):
    assert rules_of(f"{call}\n", "TW085") == []


@pytest.mark.finding("TX7")
@pytest.mark.parametrize(
    "call",
    [
        "client.chat.completions.create(model=m, messages=x, n=2)",
        "openai.ChatCompletion.create(model=m, messages=x, n=2)",
        "litellm.completion(model=m, messages=x, stop=s)",
        "client.responses.create(model=m, input=x, seed=1)",
    ],
)
def test_parameters_of_requests_to_a_model_are_reported(call):
    assert rules_of(f"{call}\n", "TW085") == [1]
