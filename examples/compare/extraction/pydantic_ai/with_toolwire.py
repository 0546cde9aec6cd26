from typing import Literal

from pydantic import BaseModel, Field

from toolwire import Agent, tool


class Sentiment(BaseModel):
    label: Literal["positive", "negative", "neutral"]
    score: float = Field(ge=-1, le=1)


@tool(effect="read")
def recent_reviews(product: str) -> list[str]:
    """Fetch recent review snippets for a product."""
    return ["The new release fixed everything I complained about!"]


agent = Agent("openai/gpt-5.6-sol", [recent_reviews], output_type=Sentiment)
answer = agent.run_sync("How are people feeling about the Extract app?")
print(answer.output)
