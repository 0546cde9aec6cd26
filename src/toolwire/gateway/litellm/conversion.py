"""Convert the document of a LiteLLM file to settings and a report. Nothing is read from disk here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...ir.terminal import count_of
from ..config.parsing import MAX_OFFERED, find_rule_problems
from ..config.settings import KeyRow, LimitsRow, ModelRow, RetrieveRow, Settings, TargetRow, UpstreamRow
from .equivalents import MASTER_KEY, SILENT_SETTINGS, ImportNote, ImportReport, find_note
from .models import ENVIRONMENT, ConvertedEntry, EntryConverter, UnusableEntry, UpstreamDefaults, read_number

_SECTIONS = ("litellm_settings", "router_settings", "general_settings")
_READ = {
    "router_settings": {"num_retries", "timeout", "stream_timeout", "fallbacks", "default_fallbacks", "cooldown_time"}
    | {"model_group_alias"},
    "litellm_settings": {"num_retries", "request_timeout", "fallbacks", "default_fallbacks", "cooldown_time"}
    | {"mcp_semantic_tool_filter"},
    "general_settings": {"master_key"},
}
_WEIGHTED = "simple-shuffle"  # LiteLLM's default strategy, which is ours
_MAX_ENTRIES = 10_000  # models of a file; each becomes a table of the settings


class LitellmImport(Struct, frozen=True):
    """The settings of a file, notes about all other settings, and variables for the environment.

    `variables` are from the section `environment_variables`; `secrets` are keys that the file contains. `missing_key` is the
    variable of `master_key` if it is not set: then the settings have no keys, and must not be served.
    """

    settings: Settings
    notes: tuple[ImportNote, ...] = ()
    variables: dict[str, str] = {}
    secrets: dict[str, str] = {}
    missing_key: str = ""

    def __repr__(self) -> str:
        models, notes = count_of(len(self.settings.models), "model"), count_of(len(self.notes), "note")
        return f"<LiteLLM import with {models} and {notes}>"


def convert_litellm(document: JSON, environment: Mapping[str, str]) -> LitellmImport:
    """Convert a document. Settings without a meaning here and unusable models are in the notes.

    Raise ConfigError if the document is not a table.
    """
    if not isinstance(document, dict):
        raise ConfigError("the file is not a table", hint="a LiteLLM file has model_list and other sections")
    report = ImportReport()
    variables = _read_variables(document, report)
    known = {**environment, **variables}
    sections = {name: _read_section(document, name, report) for name in _SECTIONS}
    _report_rest(document, sections, report)
    converter = EntryConverter(known, report, _read_upstream_defaults(sections, report))
    upstreams, models = _convert_models(document.get("model_list"), converter, report)
    models = _skip_invalid(upstreams, _add_aliases(models, sections, report), report)
    models = _add_fallbacks(models, sections, report)
    models = _add_retrieval(models, sections["litellm_settings"], report)
    keys, missing_key = _read_master_key(sections["general_settings"], known, report)
    limits = _read_limits(sections, report)
    settings = Settings(upstreams=upstreams, models=models, keys=keys, limits=limits)
    return LitellmImport(settings, tuple(report.notes), variables, converter.secrets, missing_key)


def _read_section(document: Object, name: str, report: ImportReport) -> Object:
    section = document.get(name)
    if section is not None and not isinstance(section, dict):
        report.ignore(name, "the section is not a table")
    return section if isinstance(section, dict) else {}


def _read_variables(document: Object, report: ImportReport) -> dict[str, str]:
    section = _read_section(document, "environment_variables", report)
    return {str(name): str(value) for name, value in section.items() if isinstance(value, (str, int, float)) and value}


def _report_rest(document: Object, sections: Mapping[str, Object], report: ImportReport) -> None:
    """Report sections and settings that are not read."""
    for name in document:
        if name not in (*_SECTIONS, "model_list", "environment_variables", "include"):
            report.ignore(str(name), *find_note(str(name)))
    for section, settings in sections.items():
        for name, value in settings.items():
            location = f"{section}.{name}"
            if name == "routing_strategy" and value == _WEIGHTED:
                continue
            if name == "drop_params" and value is False:
                meaning = "refuses parameters that a provider does not have"
                report.change(location, meaning, "they are dropped and counted; `x-toolwire-strict: 1` refuses them")
            elif name not in _READ[section] and name not in SILENT_SETTINGS:
                report.ignore(location, *find_note(str(name)))


def _read_upstream_defaults(sections: Mapping[str, Object], report: ImportReport) -> UpstreamDefaults:
    """Return time limits and retries of the router, or else of `litellm_settings`. Report invalid ones as ignored."""
    router, general = sections["router_settings"], sections["litellm_settings"]
    usual = UpstreamDefaults()
    try:
        return UpstreamDefaults(
            read_number({**general, **router}, ("timeout", "request_timeout"), usual.timeout),
            read_number(router, ("stream_timeout",), usual.idle),
            int(read_number({**general, **router}, ("num_retries",), usual.retries, may_be_zero=True)),
        )
    except UnusableEntry as error:
        report.ignore("router_settings", error.reason)
        return usual


def _read_limits(sections: Mapping[str, Object], report: ImportReport) -> LimitsRow:
    settings = {**sections["litellm_settings"], **sections["router_settings"]}
    try:
        return LimitsRow(cooldown=read_number(settings, ("cooldown_time",), LimitsRow().cooldown, may_be_zero=True))
    except UnusableEntry as error:
        report.ignore("router_settings.cooldown_time", error.reason)
        return LimitsRow()


def _convert_models(
    entries: JSON, converter: EntryConverter, report: ImportReport
) -> tuple[dict[str, UpstreamRow], dict[str, ModelRow]]:
    """Convert `model_list` to upstreams and models, and report entries that are skipped.

    Entries with the same name are targets of one model.
    """
    if not isinstance(entries, list):
        report.ignore("model_list", "the section is missing or not a list", "add models")
        entries = []
    upstreams: dict[str, UpstreamRow] = {}
    groups: dict[str, list[tuple[ConvertedEntry, str]]] = {}
    for number, entry in enumerate(entries[:_MAX_ENTRIES]):
        location = f"model_list[{number}]"
        try:
            converted = converter.convert(entry, location)
        except UnusableEntry as error:
            name = entry.get("model_name") if isinstance(entry, dict) else None
            report.skip(location, error.reason, error.instead, model=name if isinstance(name, str) else "")
            continue
        label = _add_upstream(upstreams, converted.prefix, converted.upstream)
        groups.setdefault(converted.name, []).append((converted, label))
    if len(entries) > _MAX_ENTRIES:
        report.skip(f"model_list[{_MAX_ENTRIES}]", f"more than {_MAX_ENTRIES} entries")
    return upstreams, {name: _make_model(group) for name, group in groups.items()}


def _add_upstream(upstreams: dict[str, UpstreamRow], prefix: str, row: UpstreamRow) -> str:
    """Add an upstream unless there is an equal one, and return its name: `openai`, `openai-2`, …"""
    known = next((name for name, other in upstreams.items() if other == row), None)
    if known is not None:
        return known
    count = sum(name == prefix or name.startswith(f"{prefix}-") for name in upstreams)
    label = prefix if count == 0 else f"{prefix}-{count + 1}"
    upstreams[label] = row
    return label


def _make_model(group: list[tuple[ConvertedEntry, str]]) -> ModelRow:
    """Make a model of its entries. Without weights, LiteLLM chooses all of them equally often."""
    has_shares = len(group) > 1 and all(entry.share is not None for entry, _ in group)
    targets = tuple(
        TargetRow(label, entry.model, (entry.share or 1.0) if has_shares else 1.0) for entry, label in group
    )
    return ModelRow(targets=targets, tools=any(entry.has_tools for entry, _ in group))


def _add_aliases(
    models: dict[str, ModelRow], sections: Mapping[str, Object], report: ImportReport
) -> dict[str, ModelRow]:
    """Add a model for each alias of `model_group_alias`. Report aliases of unknown models."""
    aliases = sections["router_settings"].get("model_group_alias")
    added: dict[str, ModelRow] = {}
    for alias, value in aliases.items() if isinstance(aliases, dict) else ():
        name = value.get("model") if isinstance(value, dict) else value
        location = f"router_settings.model_group_alias.{alias}"
        if isinstance(name, str) and name in models:
            added[str(alias)] = models[name]
        else:
            report.skip(location, f"the alias names an unknown model {str(name)[:200]!r}", model=str(alias))
    return {**added, **models}


def _skip_invalid(
    upstreams: dict[str, UpstreamRow], models: dict[str, ModelRow], report: ImportReport
) -> dict[str, ModelRow]:
    """Return the models that keep the rules of our settings, and report the others.

    An alias may break one: it lacks the wildcard of its model.
    """
    invalid: set[str] = set()
    for problem in find_rule_problems(Settings(upstreams=upstreams, models=models)):
        if problem.path[0] == "models":
            name = str(problem.path[1])
            invalid.add(name)
            report.skip("model_list", problem.message, problem.hint, model=name)
    return {name: row for name, row in models.items() if name not in invalid}


def _add_fallbacks(
    models: dict[str, ModelRow], sections: Mapping[str, Object], report: ImportReport
) -> dict[str, ModelRow]:
    """Return the models with their own and the default fallbacks. Report fallbacks that name an unknown model."""
    fallbacks: dict[str, list[str]] = {name: [] for name in models}
    for section in ("router_settings", "litellm_settings"):
        for name, others, location in _iterate_fallbacks(sections[section].get("fallbacks"), f"{section}.fallbacks"):
            for other in (name, *others):
                if other not in models:
                    report.ignore(location, f"names a model that is not loaded: {other!r}", "correct the name")
            if name in models:
                fallbacks[name] += [other for other in others if other in models]
        default = sections[section].get("default_fallbacks")
        names = [name for name in default if isinstance(name, str)] if isinstance(default, list) else []
        for name in models:
            fallbacks[name] += [other for other in names if other in models and other != name]
    return {
        name: replace(row, fallbacks=tuple(dict.fromkeys(fallbacks[name]))) if fallbacks[name] else row
        for name, row in models.items()
    }


def _add_retrieval(models: dict[str, ModelRow], settings: Object, report: ImportReport) -> dict[str, ModelRow]:
    """Convert `mcp_semantic_tool_filter` to `retrieve` of every model that accepts tools, and report the difference."""
    location = "litellm_settings.mcp_semantic_tool_filter"
    row = settings.get("mcp_semantic_tool_filter")
    if row is not None and not isinstance(row, dict):
        report.ignore(location, "the setting is not a table", "set retrieve = true in [models.NAME]")
    if not isinstance(row, dict) or row.get("enabled") is False:
        return models
    count = RetrieveRow().k
    try:
        count = max(1, min(int(read_number(row, ("top_k",), count)), MAX_OFFERED))
    except UnusableEntry as error:
        report.ignore(f"{location}.top_k", error.reason, f"{count} tools are offered")
    meaning = "chooses among the tools of MCP servers with an embedding model"
    report.change(location, meaning, f"retrieve = {{k = {count}}}: among all tools, by keyword and a local encoder")
    if "similarity_threshold" in row:
        report.ignore(f"{location}.similarity_threshold", "a minimum score", "the best tools are offered")
    retrieve = RetrieveRow(count)
    return {name: replace(model, retrieve=retrieve) if model.tools else model for name, model in models.items()}


def _iterate_fallbacks(value: JSON, location: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield (model, other models, location) of a list such as [{"a": ["b"]}]."""
    for number, entry in enumerate(value if isinstance(value, list) else ()):
        for name, others in entry.items() if isinstance(entry, dict) else ():
            listed = others if isinstance(others, list) else [others]
            names = [other for other in listed if isinstance(other, str)]
            yield str(name), names, f"{location}[{number}]"


def _read_master_key(
    general: Object, environment: Mapping[str, str], report: ImportReport
) -> tuple[dict[str, KeyRow], str]:
    """Convert `master_key` to a key for all models, stored as its hash. Also return its variable if that is not set.

    A variable that is not set, and a key in the file, are reported.
    """
    value: Any = general.get("master_key")
    if value is None or value == "":
        return {}, ""
    location, key = MASTER_KEY, str(value)
    if key.startswith(ENVIRONMENT):
        variable = key.removeprefix(ENVIRONMENT)
        key = environment.get(variable, "").strip()
        if not key:
            report.ignore(location, f"environment variable {variable} is not set", f"set {variable}")
            return {}, variable
    else:
        report.change(location, "a key in the file", f"write {ENVIRONMENT}NAME")
    return {"master": KeyRow(sha256(key.encode()).hexdigest())}, ""
