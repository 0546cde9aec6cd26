from fake_database import DatabaseConn
from pydantic import BaseModel

from toolwire import Agent, ToolError, tool
from toolwire.run import CallContext


class ChatResult(BaseModel):
    user_id: int
    message: str


@tool(effect="read")
def get_user_by_name(context: CallContext[DatabaseConn], name: str) -> int:
    """Get a user's ID from their full name."""
    print(name)
    user_id = context.deps.users.get(name=name)
    if user_id is None:
        raise ToolError(f"No user found with name {name!r}, remember to provide their full name")
    return user_id


agent = Agent("openai/gpt-5.2", [get_user_by_name], deps_type=DatabaseConn, output_type=ChatResult)
answer = agent.run_sync("Send a message to John Doe asking for coffee next week", deps=DatabaseConn())
print(answer.output)
