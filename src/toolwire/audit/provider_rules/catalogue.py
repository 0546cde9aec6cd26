"""The rules about request bodies: TW051 to TW065 and TW100 to TW135, and the tool rules that a body can violate too."""

from __future__ import annotations

from typing import NamedTuple

from ..findings import declare

__all__ = ["BODY_RULES", "TOOL_RULES", "RuleText"]


class RuleText(NamedTuple):
    """The title of a rule, and how to fix a body that violates it."""

    title: str
    fix: str


_CHAT_AND_RESPONSES = "openai_chat openai_responses"
_ROWS = (
    ("TW051", "anthropic", "forced call with thinking", "use tool choice auto, or leave out the thinking budget"),
    ("TW053", "all", "tool choice names an undeclared tool", "declare the tool"),
    ("TW061", "all", "unpaired calls and results", "put the result of every call right after it"),
    ("TW062", "anthropic openai_chat openai_responses", "call id used more than once", "give each call its own id"),
    ("TW063", "anthropic", "reasoning without its signature", "send it back unchanged, or remove it"),
    ("TW065", "anthropic gemini", "empty message or text", "remove it"),
    ("TW100", "all", "field not known to the provider", "remove it"),
    ("TW101", "all", "required field missing", "add it"),
    ("TW102", "all", "value of the wrong type", "use a value of the documented type"),
    ("TW103", "all", "kind of part not known to the provider", "use a documented kind"),
    ("TW104", "all", "empty list", "add an element, or leave the field out"),
    ("TW105", "all", "number or text outside of its limits", "use a value within the limits"),
    ("TW106", "all", "tool choice without tools", "declare tools, or leave the tool choice out"),
    ("TW107", _CHAT_AND_RESPONSES, "field without the field that it depends on", "set both, or neither"),
    ("TW108", "all", "too many stop sequences, or a blank one", "remove the surplus stop sequences"),
    ("TW109", "anthropic openai_chat openai_responses", "schema outside of the strict subset", "lower the schema, or set strict to false"),
    ("TW110", "all", "schema of the answer rejected", "lower the schema to the provider's subset"),
    ("TW111", "gemini openai_responses", "two exclusive fields", "keep one of them"),
    ("TW112", _CHAT_AND_RESPONSES, "JSON mode without a message that mentions JSON", "mention JSON in a message"),
    ("TW113", "all", "sampling parameter rejected by the model", "leave it out"),
    ("TW114", "all", "reasoning setting rejected by the model", "use a setting that the model supports"),
    ("TW115", "anthropic", "thinking budget outside of its limits", "use at least 1024, and less than max_tokens"),
    ("TW116", "anthropic", "forced call rejected by the model", "use tool choice auto"),
    ("TW117", "anthropic openai_chat", "parameter rejected by the model", "use the parameter that replaces it, or leave it out"),
    ("TW118", "openai_chat anthropic", "role rejected by the model", "use a role that the model supports"),
    ("TW119", "anthropic", "system message at the wrong position", "move it after a user turn and before an assistant turn"),
    ("TW120", "anthropic gemini mistral", "final assistant message rejected", "end the messages with a user turn"),
    ("TW121", "anthropic", "trailing whitespace in the final assistant message", "remove the whitespace"),
    ("TW122", "gemini", "conversation begins with an answer", "begin it with a user turn"),
    ("TW123", "anthropic", "result after other content", "put the results first in the user turn"),
    ("TW124", "anthropic", "turn with calls does not begin with its thinking", "send the thinking back first, or turn thinking off"),
    ("TW125", "anthropic", "too many cache breakpoints", "keep at most four"),
    ("TW126", _CHAT_AND_RESPONSES, "media rejected by the model", "send it in a form that the model accepts"),
    ("TW127", "gemini", "call without its thought signature", "send the signature back in the same part"),
    ("TW128", "gemini", "calls at the wrong position", "put calls after a user turn or after results"),
    ("TW129", "openai_responses", "reasoning item without the item that follows it", "send both items back unchanged, or neither"),
    ("TW130", "all", "call id rejected", "give the call an id that the provider accepts, and use it for the result"),
    ("TW131", "openai_responses", "item id rejected", "send the id that the provider gave, or none"),
    ("TW132", "gemini", "combination of tools rejected by the model", "use them in separate requests, or a newer model"),
    ("TW133", "bedrock", "tool not available at this vendor", "remove the tool"),
    ("TW134", "anthropic openai_chat", "more output tokens than the model can write", "lower the limit, or leave it out"),
    ("TW135", "mistral", "role at the wrong position", "put an assistant message between results and a user message"),
)  # fmt: skip
BODY_RULES: dict[str, RuleText] = {}
"""The rules of this package by id."""
for _id, _providers, _title, _fix in _ROWS:
    declare(_id, "error", _providers, _title, _fix)
    BODY_RULES[_id] = RuleText(_title, _fix)

TOOL_RULES = {
    "TW001": RuleText("duplicate tool name", "rename one of the tools"),
    "TW002": RuleText("tool name rejected", "use letters, digits, _ and -, at most 64 characters"),
    "TW003": RuleText("tool name rejected", "use letters, digits, _ and -, at most 128 characters"),
    "TW004": RuleText("tool name rejected", "begin with a letter or _; use letters, digits and _ . : -, at most 128"),
    "TW010": RuleText("too many tools for one request", "send fewer tools"),
    "TW012": RuleText("too many strict tools or options for one request", "make some of the tools non-strict"),
    "TW020": RuleText("root type is not object", 'set "type": "object"'),
    "TW021": RuleText("combinator at the root", "move the union into a property"),
    "TW022": RuleText("property name rejected", "use letters, digits and _ . -, at most 64 characters"),
    "TW023": RuleText("schema rejected by Gemini's `parameters`", "lower the schema, or use `parametersJsonSchema`"),
    "TW029": RuleText("keyword beside $ref", "move the keyword into the definition"),
}
"""Rules about tools that a body can violate too. `toolwire audit` reports them for the tools themselves."""
