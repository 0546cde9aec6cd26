from toolwire import Agent, open_store, tool
from toolwire.net import approve_call, deny_call

PROTECTED_FILES = {".env"}


@tool(approve=lambda arguments: "protected" if arguments["path"] in PROTECTED_FILES else False)
def update_file(path: str, content: str) -> str:
    return f"File {path!r} updated: {content!r}"


@tool(approve=True)
def delete_file(path: str) -> str:
    return f"File {path!r} deleted"


store = open_store("memory:")
agent = Agent("openai/gpt-5.2", [update_file, delete_file], approve="suspend", store=store)

answer = agent.run_sync("Delete `__init__.py`, write `Hello, world!` to `README.md`, and clear `.env`")
print(answer.pending)

for call in answer.pending:
    if call.tool == "update_file":
        # Approve all updates
        approve_call(store, answer.run_id, call.call_id)
    else:
        # deny all deletes
        deny_call(store, answer.run_id, call.call_id, "Deleting files is not allowed")

answer = agent.resume_sync(answer.run_id, "Now create a backup of README.md")
print(answer.output)
print(answer.messages)
