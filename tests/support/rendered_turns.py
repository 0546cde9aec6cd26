"""The turns that models' own chat templates render, as vectors, and the check that reads one back.

tests/vectors/rendered_turns.json has an entry per template:

    source       the origin of the template
    format       the format that is detected by the name of the model
    by_template  the format that is detected by the text of the template
    turns        case (tests/support/conversations.py), text, the token that ends the turn, whether the prompt opened the
                 reasoning; calls, content and reasoning only where the template did not write those of the case
    omitted      case → the reason why the template does not write it
"""

import msgspec

from conversations import CASES, TOOLS
from places import TESTS
from toolwire import Tool, ToolCall
from toolwire.ir.parts import Reasoning
from toolwire.testing import same
from toolwire.text import detect, detect_template, get

__all__ = [
    "LLAMA_CPP",
    "PATH",
    "TemplateVectors",
    "TurnVector",
    "check_turn",
    "load_vectors",
    "render_turn",
    "save_vectors",
    "vectors_of_template",
]

LLAMA_CPP = "llama.cpp models/templates"
PATH = TESTS / "vectors" / "rendered_turns.json"
_TOOLS = [
    Tool(function["name"], function["description"], function["parameters"])
    for function in (tool["function"] for tool in TOOLS)
]
_CASES = {case.name: case for case in CASES}


class TurnVector(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rendered turn; the fields are described in the module docstring."""

    case: str
    text: str
    end: str = ""
    reasoning_open: bool = False
    calls: tuple[tuple[str, dict], ...] | None = None
    content: str | None = None
    reasoning: str | None = None

    def expected(self):
        """Return the calls, the text and the reasoning that the turn contains."""
        case = _CASES[self.case]
        return (
            case.calls if self.calls is None else self.calls,
            case.text if self.content is None else self.content,
            case.reasoning if self.reasoning is None else self.reasoning,
        )


class TemplateVectors(msgspec.Struct, frozen=True, omit_defaults=True):
    """All turns of one template; the fields are described in the module docstring."""

    source: str
    format: str | None
    by_template: str | None
    turns: tuple[TurnVector, ...] = ()
    omitted: dict[str, str] = {}


def vectors_of_template(name, template, source):
    """Render the conversations with a template and detect its format."""
    from rendering import render_template  # needs jinja2, which reading the vectors does not

    rendered = render_template(template)
    turns = tuple(_vector(case, found) for case, found in rendered.cases.items())
    omitted = rendered.omitted if turns else dict([next(iter(rendered.omitted.items()))])
    return TemplateVectors(source, detect(name), detect_template(template), turns, omitted)


def _vector(name, found):
    case = _CASES[name]
    return TurnVector(
        name,
        *found.turn,
        calls=None if found.calls == case.calls else found.calls,
        content=None if found.content == case.text else found.content,
        reasoning=None if found.reasoning == case.reasoning else found.reasoning,
    )


def check_turn(name, turn):
    """Read a turn whole, by character, and with its end token; return the differences from the rendered turn.

    Templates put white space around text and reasoning, so it is ignored at their edges.
    """
    if name is None:
        return ["no format is detected"]
    form = get(name)
    whole = form.parse(turn.text, _TOOLS, reasoning=turn.reasoning_open)
    pieces = form.parse_pieces(turn.text, _TOOLS, reasoning=turn.reasoning_open)
    found = _differences(turn, whole)
    if pieces != whole:
        found.append(f"by character: {pieces.parts}")
    if turn.end and not found:
        ended = form.parse(turn.text + turn.end, _TOOLS, reasoning=turn.reasoning_open)
        found += [f"with {turn.end}: {difference}" for difference in _differences(turn, ended)]
    return found


def render_turn(name, turn):
    """Write the calls of a turn with our own format, in the place of the template."""
    calls = [
        ToolCall(f"functions.{call}:{number}" if name == "kimi_k2" else f"call{number:05}", call, arguments)
        for number, (call, arguments) in enumerate(turn.expected()[0])
    ]
    return get(name).render_calls(calls, _TOOLS)


def _differences(turn, parsed):
    calls, content, reasoning = turn.expected()
    read = "".join(part.text for part in parsed.parts if isinstance(part, Reasoning))
    found = []
    expected_calls = [[name, arguments, "complete"] for name, arguments in calls]
    if not same([[call.name, call.arguments, call.state] for call in parsed.calls], expected_calls):
        found.append(f"calls: {parsed.calls}")
    if parsed.text.strip() != content:
        found.append(f"text: {parsed.text!r}")
    if read.strip() != reasoning:
        found.append(f"reasoning: {read!r}")
    return [f"{difference} in {turn.text!r}" for difference in found]


def load_vectors():
    """Load the vectors by the name of the template."""
    return msgspec.json.decode(PATH.read_bytes(), type=dict[str, TemplateVectors])


def save_vectors(templates, source):
    """Replace the vectors of a source."""
    others = {name: template for name, template in load_vectors().items() if template.source != source}
    encoded = msgspec.json.format(msgspec.json.encode(dict(sorted({**others, **templates}.items()))), indent=1)
    PATH.write_bytes(encoded + b"\n")
