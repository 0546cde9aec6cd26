"""A typical agent loop: it works with one provider, as long as nothing goes wrong.

`toolwire audit examples/openai_only.py` finds its problems; portable.py is the same loop without them.
"""

import json

from openai import OpenAI
from tenacity import retry

client = OpenAI()
messages = [{"role": "user", "content": "Refund order 7"}]


@retry
def refund(order: int) -> str:
    return client.post("/refunds", body={"order": order})


TOOLS = {"refund": refund}

while True:
    response = client.chat.completions.create(
        model="gpt-5.6", messages=messages, seed=7, parallel_tool_calls=False, functions=[]
    )
    choice = response.choices[0]
    if choice.finish_reason == "tool_calls":
        messages.append(choice.message)
        call = choice.message.tool_calls[0]
        arguments = json.loads(call.function.arguments)
        result = globals()[call.function.name](**arguments)
        messages.append({"role": "function", "name": call.function.name, "content": str(result)})
    else:
        print(choice.message.content)
        break


def stream(chunks):
    for chunk in chunks:
        yield chunk.choices[0].delta.tool_calls[0].function.arguments


def first_words(answer):
    return answer.content[0].text
