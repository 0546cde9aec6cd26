"""LLaMA-Factory `formatting: openai`: messages of Chat Completions with arguments as objects.

Read from llamafactory 0.9.5, `data/converter.py`: the arguments are written as JSON again, so text would be quoted
twice; the content of a message with calls is ignored; roles that do not alternate skip the row.
"""

from __future__ import annotations

from ..examples import EncodedRow, Example, TrainingFormat
from .chat_rows import Carried, alternate, decode_chat, encode_chat, plain_example, require_learnable

_CARRIED = Carried(text_with_calls=False, reasoning=False, late_system=False, nulls=False)


def _encode(example: Example) -> EncodedRow:
    require_learnable(example)
    plain, losses = plain_example(example, _CARRIED, "LLaMA-Factory")
    row, more = encode_chat(alternate(plain, losses), object_arguments=True, plain=True)
    losses.extend(more)
    row.setdefault("tools", [])
    return EncodedRow(row, losses)


FORMAT = TrainingFormat(
    name="llamafactory_openai",
    title="LLaMA-Factory, formatting openai",
    decode=decode_chat,
    encode=_encode,
    matches=lambda _: 0,  # these rows match TRL, whose decoder reads them
    settings=(
        'dataset_info.json: "formatting": "openai", "columns": {"messages": "messages", "tools": "tools"}, "tags": '
        '{"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", '
        '"observation_tag": "tool", "function_tag": "function_call", "system_tag": "system"}'
    ),
)
