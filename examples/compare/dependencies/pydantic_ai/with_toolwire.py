import random

from toolwire import Agent, tool
from toolwire.run import CallContext


@tool(effect="read")
def roll_dice() -> str:
    """Roll a six-sided die and return the result."""
    return str(random.randint(1, 6))


@tool(effect="read")
def get_player_name(context: CallContext[str]) -> str:
    """Get the player's name."""
    return context.deps


agent = Agent(
    "gemini/gemini-3-flash-preview",
    [roll_dice, get_player_name],
    deps_type=str,
    system=(
        "You're a dice game, you should roll the die and see if the number "
        "you get back matches the user's guess. If so, tell them they're a winner. "
        "Use the player's name in the response."
    ),
)
answer = agent.run_sync("My guess is 4", deps="Anne")
print(answer.output)
