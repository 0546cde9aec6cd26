"""Plan a trip: flights and hotels concurrently, then attractions, then the itinerary.

    python examples/trip_planner.py

The tools are slow on purpose; the model is scripted, so that the example runs offline. Sequential calls take the sum of their
times; concurrent calls take the time of the slowest. Saving the itinerary is a write, so it runs in order.
"""

import asyncio
import time

import toolwire
from toolwire import Agent, ToolCall, ToolResult
from toolwire.net import Answer
from toolwire.testing import ScriptedModel, says


@toolwire.tool(effect="read")
async def search_flights(origin: str, destination: str) -> list[dict[str, str | int]]:
    """Search flights between two cities."""
    await asyncio.sleep(0.4)
    return [{"flight": "TW 12", "from": origin, "to": destination, "price": 120}]


@toolwire.tool(effect="read")
def search_hotels(city: str, nights: int = 1) -> list[dict[str, str | int]]:
    """Search hotels in a city. The function blocks, so it runs in a thread."""
    time.sleep(0.4)
    return [{"hotel": "Grand", "city": city, "nights": nights, "price": 80 * nights}]


@toolwire.tool(effect="read")
async def find_attractions(city: str) -> list[str]:
    """Find the attractions of a city."""
    await asyncio.sleep(0.2)
    return [f"the old town of {city}", f"the museum of {city}"]


@toolwire.tool
async def save_itinerary(flight: str, hotel: str, sights: list[str]) -> str:
    """Save the itinerary."""
    await asyncio.sleep(0.1)
    return f"{flight}, {hotel}, {len(sights)} sights"


TOOLS = (search_flights, search_hotels, find_attractions, save_itinerary)


def script() -> ScriptedModel:
    return ScriptedModel(
        [
            says(
                "Let me look for flights and hotels.",
                ToolCall("a", "search_flights", {"origin": "Berlin", "destination": "Lisbon"}),
                ToolCall("b", "search_hotels", {"city": "Lisbon", "nights": 3}),
            ),
            says(ToolCall("c", "find_attractions", {"city": "Lisbon"})),
            says(
                ToolCall(
                    "d",
                    "save_itinerary",
                    {"flight": "TW 12", "hotel": "Grand", "sights": ["the old town", "the museum"]},
                )
            ),
            says("Three nights in Lisbon, all set."),
        ]
    )


def plan(*, max_parallel: int) -> tuple[Answer[str], float]:
    agent = Agent(script(), TOOLS, max_parallel=max_parallel)
    began = time.perf_counter()
    answer = agent.run_sync("Plan three nights in Lisbon, from Berlin.")
    return answer, time.perf_counter() - began


def main() -> None:
    for title, most in (("sequential", 1), ("concurrent", 8)):
        answer, seconds = plan(max_parallel=most)
        print(f"{title:20} {seconds:.2f} s   {answer.text}")
    for message in answer.messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                print(f"  {part.name:17} {part.text}")


if __name__ == "__main__":
    main()
