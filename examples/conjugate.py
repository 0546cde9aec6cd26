"""English verbs, conjugated: one tool, published everywhere.

toolwire mcp serve examples/conjugate.py                       for a client that starts it
toolwire mcp serve examples/conjugate.py --http :8000          at http://127.0.0.1:8000/mcp

What a model can do wrong comes back in words that it can act on: a verb that is not known is the tool's own answer, a missing
argument is the validator's. Only a tool that does not exist is an error of the protocol.
"""

from typing import Literal

import toolwire
from toolwire.run.failures import ToolError

VERBS = {"eat": ("ate", "eaten"), "go": ("went", "gone"), "see": ("saw", "seen"), "write": ("wrote", "written")}
Tense = Literal["present_simple", "past_simple", "present_perfect", "future_simple"]
Person = Literal["1sg", "2sg", "3sg", "1pl", "2pl", "3pl"]


@toolwire.tool(effect="pure")
def conjugate(verb: str, tense: Tense, person: Person) -> str:
    """Return the conjugated form of an English verb.

    Args:
        verb: the infinitive, without "to"
        tense: which tense
        person: person and number, as in 3sg
    """
    if verb not in VERBS:
        raise ToolError(f"verb {verb!r} is out of scope; known are {', '.join(VERBS)}")
    past, participle = VERBS[verb]
    third = person == "3sg"
    if tense == "past_simple":
        return past
    if tense == "future_simple":
        return f"will {verb}"
    if tense == "present_perfect":
        return f"{'has' if third else 'have'} {participle}"
    return verb + ("es" if verb.endswith("o") else "s") if third else verb


if __name__ == "__main__":
    print(conjugate("eat", "past_simple", "3sg"))
