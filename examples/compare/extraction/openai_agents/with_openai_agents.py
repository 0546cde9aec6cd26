# Source: https://github.com/openai/openai-agents-python/blob/v0.22.0/docs/agents.md (OpenAI Agents SDK 0.22.0, MIT licence, copyright OpenAI).
# The last two lines and the import of Runner complete the fragment.
from pydantic import BaseModel
from agents import Agent, Runner


class CalendarEvent(BaseModel):
    name: str
    date: str
    participants: list[str]

agent = Agent(
    name="Calendar extractor",
    instructions="Extract calendar events from text",
    output_type=CalendarEvent,
)

result = Runner.run_sync(agent, "Alice and Bob are going to a science fair on Friday.")
print(result.final_output)
