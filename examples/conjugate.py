"""Conjugate English verbs: one tool, published to every MCP client.

toolwire mcp serve examples/conjugate.py                       stdio, for a client that starts the server
toolwire mcp serve examples/conjugate.py --http :8000          at http://127.0.0.1:8000/mcp

Errors of the model are messages that it can act on: the tool itself refuses an unknown verb, the validator a missing
argument. Only an unknown tool is a protocol error.
"""

from typing import Literal

import toolwire
from toolwire import ToolError

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
