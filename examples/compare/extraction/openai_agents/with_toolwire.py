from pydantic import BaseModel

from toolwire import Agent


class CalendarEvent(BaseModel):
    name: str
    date: str
    participants: list[str]


agent = Agent(
    "openai/gpt-5.6",
    name="Calendar extractor",
    system="Extract calendar events from text",
    output_type=CalendarEvent,
)
answer = agent.run_sync("Alice and Bob are going to a science fair on Friday.")
print(answer.output)
