"""Native tool calls for models without tool-calling support: calls as text in the prompt and in the answer."""
