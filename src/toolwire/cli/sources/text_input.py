"""Read texts and chat templates for the commands about text formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.errors import ConfigError

if TYPE_CHECKING:
    from ...text.engine.format import Format


TEMPLATE_HELP = "the model's chat template (Jinja) or tokenizer_config.json; selects the text format"


def read_text(file: str) -> str:
    """Read a file, or standard input for `-`; replace invalid UTF-8."""
    from .documents import read_bytes

    return read_bytes(file).decode("utf-8", "replace")


def format_of_template(file: str) -> Format:
    """Return the format of a chat template; raise ConfigError if it is unknown."""
    from ...text import detect_template, get

    name = detect_template(_template_source(read_text(file)))
    if name is None:
        raise ConfigError(f"no known text format in the template {file!r}", hint="choose one of `toolwire formats`")
    return get(name)


def _template_source(text: str) -> str:
    """Return the templates of a tokenizer_config.json, or the text itself if it is a template."""
    import msgspec

    try:
        config = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    templates = config.get("chat_template") if isinstance(config, dict) else None
    if isinstance(templates, list):  # several templates with names; one of them writes calls
        return "\n".join(str(row.get("template")) for row in templates if isinstance(row, dict))
    return templates if isinstance(templates, str) else text
