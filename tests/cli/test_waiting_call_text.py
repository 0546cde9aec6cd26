"""The text that a person reads before approving a call."""

from toolwire.cli.agent.output import describe_waiting
from toolwire.run import WaitingCall


def test_invisible_characters_of_a_waiting_call_are_shown():
    inner = WaitingCall("i", "in\u200bner", {"to": "\u2060"})
    call = WaitingCall("c\u200b", "pay", {"to": "ann\U000e0041"}, "be\u200dcause", state="\u3164", calls=(inner,))
    text = describe_waiting(call)
    assert all(
        part in text for part in (r"c\u200b", r"ann\U000e0041", r"be\u200dcause", r"\u3164", r"in\u200bner", r"\u2060")
    )
    assert text.replace("\n", "").isascii()
