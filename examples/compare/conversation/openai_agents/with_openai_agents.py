# Source: https://github.com/openai/openai-agents-python/blob/v0.22.0/docs/running_agents.md (OpenAI Agents SDK 0.22.0, MIT licence, copyright OpenAI).
# The import of asyncio and the last line complete the fragment.
import asyncio

from agents import Agent, Runner, SQLiteSession, trace

async def main():
    agent = Agent(name="Assistant", instructions="Reply very concisely.")

    # Create session instance
    session = SQLiteSession("conversation_123")

    thread_id = "thread_123"  # Example thread ID
    with trace(workflow_name="Conversation", group_id=thread_id):
        # First turn
        result = await Runner.run(agent, "What city is the Golden Gate Bridge in?", session=session)
        print(result.final_output)
        # San Francisco

        # Second turn - agent automatically remembers previous context
        result = await Runner.run(agent, "What state is it in?", session=session)
        print(result.final_output)
        # California


asyncio.run(main())
