"""The log, metrics, traces and recordings of a gateway, as configured.

telemetry = open_telemetry(settings, os.environ)
gateway = Gateway(settings, sinks=telemetry.sinks, metrics=telemetry.metrics, transports=telemetry.transports())
app = telemetry.wrap(gateway)
…
await telemetry.aclose()
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from logging import INFO, NOTSET, Handler, getLogger
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from ..._extras import install_command
from ...asgi.request import AsgiApp
from ...ir.errors import ConfigError, MissingExtra
from ...net.http.transport import Transport
from ...net.trace.file import TraceRetention
from ...run.calls.observe import Observer
from ...run.traces.recordings import ExchangeTrace
from ...run.traces.redact import Redactor
from ...run.traces.sanitise import Sanitiser
from ...wire.models.vendor_codecs import vendor_codec
from ..config.settings import Settings, UpstreamRow
from ..routing.upstreams import UpstreamTransports, find_vendor, known_keys, upstreams_from_environment
from .log import AccessLog, JsonLogHandler, LogFile, LossReport, RepeatFilter, Write, guard_writes, to_logger, to_stream
from .metrics import Metrics
from .record import Recorder, trace_writer
from .request_log import Sink

if TYPE_CHECKING:
    from .workers import LineLock

_log = getLogger("toolwire.gateway")
_OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Telemetry:
    """The telemetry of a gateway. From its creation on, no secret gets into our logs.

    It opens everything that is configured. Raise ConfigError or MissingExtra if that is impossible. `lines`: without a
    setting, write each request as a line to standard error. `log_handler` gets all other records, which are otherwise written as
    lines, too. `line_lock` is held for each line, if other processes write lines, too. `record` gets every exchange,
    without secrets, beside the configured recordings. `report_loss` replaces the report of lost lines and recordings on
    standard error.

    `sinks` and `metrics` are for a Gateway, `observers` for the runners of its tools.
    """

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        *,
        lines: bool = True,
        log_handler: Handler | None = None,
        line_lock: LineLock | None = None,
        record: Callable[[ExchangeTrace], None] | None = None,
        report_loss: Callable[[str, OSError], None] | None = None,
    ) -> None:
        self._settings = settings
        self._record = record
        self._line_lock = line_lock
        self._log_handler = log_handler
        self._lines = lines
        self._environment = environment
        self._exit_stack = ExitStack()
        self._http: UpstreamTransports | None = None  # of the recording transports
        self._given_transports: Mapping[str, Transport] = {}
        self._transports: dict[str, Transport] = {}
        self._recorder: Recorder | None = None
        self._file: LogFile | None = None
        row = settings.log
        self.redactor = Redactor(patterns=row.remove)
        self.add_secrets(settings)
        self._exit_stack.enter_context(self.redactor.install())
        self.request_metrics = Metrics(clean=self.redactor)
        self.metrics = self.request_metrics.page
        self.report_loss = report_loss or LossReport(self.request_metrics.count_lost)
        self.sinks: list[Sink] = [self.request_metrics]
        self.observers: list[Observer] = []
        try:
            self._add_sinks()
        except BaseException:
            self._exit_stack.close()
            raise

    def _add_sinks(self) -> None:
        """Open the configured sinks, and add them: the log, the recorder, and OpenTelemetry with its observer."""
        write = self._open_writer()
        if write is not None:
            self.sinks.append(AccessLog(write, self.redactor))
        if self._settings.log.to != "logger":
            self._add_log_handlers(write)
        self._recorder = self._make_recorder(write)
        if self._recorder is not None:
            self.sinks.append(self._recorder)
        if self._wants_otel():
            from ..observe import otel

            sink, observer, close = otel.from_environment(self.redactor)
            self._exit_stack.callback(close)
            self.sinks.append(sink)
            self.observers.append(observer)

    def add_secrets(self, settings: Settings) -> None:
        """Add the keys and passwords of new settings to the redactor, and record the new upstreams."""
        rows = _upstream_rows(settings, self._environment)
        self.redactor.add_secrets(known_keys(rows, self._environment))
        row = settings.state
        environment_urls = [
            self._environment.get(name, "") for name in (row.url_env, row.usage_env) if name is not None
        ]
        urls = [url for url in (row.url, row.usage, *environment_urls) if url and "://" in url]
        self.redactor.add_secrets(urlsplit(url.strip()).password or "" for url in urls)
        self.redactor.add_secrets(_api_secrets(settings, self._environment))
        server = settings.server
        variables = [name for name in (server.secret_env, server.previous_secret_env, server.metrics_key_env) if name]
        signing = [server.secret, server.previous_secret, server.metrics_key, *map(self._environment.get, variables)]
        self.redactor.add_secrets(filter(None, signing))
        self._record_upstreams(rows)

    def reopen(self) -> None:
        """Reopen the log file after it was moved away. On failure, log that; lines still go to the old file."""
        if self._file is not None:
            try:
                self._file.reopen()
            except ConfigError as error:
                _log.error("cannot reopen the log file; still writing to the old one: %s", error)

    def transports(self, given: Mapping[str, Transport] | None = None) -> Mapping[str, Transport]:
        """Return `given`, with recording transports for all upstreams if recording is on; later changes are visible."""
        self._given_transports = given or {}
        self._transports = dict(self._given_transports)
        self._record_upstreams(_upstream_rows(self._settings, self._environment))
        return self._transports

    def _record_upstreams(self, rows: Mapping[str, UpstreamRow]) -> None:
        """Add a recording transport for each upstream to the transports, if recording is on."""
        if self._recorder is None:
            return
        if self._http is None:
            self._http = UpstreamTransports(self._environment, self._settings)
        self._http.reload(rows)
        for name, row in rows.items():
            inner = self._given_transports.get(name) or self._http.of(name, row)
            self._transports[name] = self._recorder.transport(inner, name, _wire_name(name, row))

    def wrap(self, app: AsgiApp) -> AsgiApp:
        return app if self._recorder is None else self._recorder.wrap(app)

    async def aclose(self) -> None:
        """Send pending data and close."""
        if self._http is not None:
            await self._http.aclose()
        await asyncio.to_thread(self._exit_stack.close)

    def _open_writer(self) -> Write | None:
        """Open the destination of log lines and return its writer, or None if no lines are wanted."""
        row = self._settings.log
        if row.file is not None:
            self._file = LogFile(Path(row.file))
            self._exit_stack.callback(self._file.close)
            return guard_writes(self._file.write, self.report_loss)
        if row.to == "logger":
            return to_logger()
        return self._stderr_writer() if row.to == "stderr" or (row.to is None and self._lines) else None

    def _stderr_writer(self) -> Write:
        return guard_writes(to_stream("stderr", self._line_lock), self.report_loss)

    def _add_log_handlers(self, write: Write | None) -> None:
        """Write other records as JSON lines, to the given handler, or both, until this is closed.

        Records of the gateway are written from level INFO, unless its logger has a level.
        """
        handlers = [] if self._log_handler is None else [self._log_handler]
        if write is not None or not handlers:
            handlers.append(JsonLogHandler(write or self._stderr_writer()))
        logger, repeat_filter = getLogger("toolwire"), RepeatFilter()
        for handler in handlers:
            handler.addFilter(repeat_filter)
            logger.addHandler(handler)
            self._exit_stack.callback(logger.removeHandler, handler)
        if _log.level == NOTSET:
            _log.setLevel(INFO)
            self._exit_stack.callback(_log.setLevel, NOTSET)

    def _make_recorder(self, write: Write | None) -> Recorder | None:
        """Return a recorder for trace files and for bodies in the log, or None if neither is configured.

        Media are shortened unless full files are wanted.
        """
        writers: list[Callable[[ExchangeTrace], None]] = [] if self._record is None else [self._record]
        row = self._settings.trace
        if row.record is not None:
            keep = TraceRetention(row.keep_files, row.keep_days, row.keep_bytes)
            writers.append(trace_writer(Path(row.record), keep))
        if self._settings.log.bodies and write is not None:
            writers.append(lambda trace: write(_format_line(trace)))
        if not writers:
            return None

        def write_all(trace: ExchangeTrace) -> None:
            for writer in writers:
                writer(trace)

        is_bodies_only = self._record is None and row.record is None
        sanitiser = Sanitiser(self.redactor, shorten_media=row.shorten_media or is_bodies_only)
        return Recorder(write_all, sanitiser, self.report_loss)

    def _wants_otel(self) -> bool:
        """Return the setting, or else whether the OTEL_* variables ask for spans and the package is installed.

        If only the package is missing, log a warning.
        """
        wanted = self._settings.trace.otel
        if wanted is not None:
            return wanted
        if self._environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return False
        if not any(self._environment.get(name) for name in _OTLP):
            return False
        try:
            import opentelemetry.sdk  # noqa: F401
        except ImportError:  # a variable that was set for another program must not prevent the start
            _log.warning(
                "tracing is off: %s",
                MissingExtra("OpenTelemetry is not installed", hint=install_command("otel")),
            )
            return False
        return True


open_telemetry = Telemetry
"""Open everything that is configured."""


def _upstream_rows(settings: Settings, environment: Mapping[str, str]) -> Mapping[str, UpstreamRow]:
    return settings.upstreams or upstreams_from_environment(environment)


def _api_secrets(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """Collect the credentials for the APIs of `[tools]`, for redaction."""
    apis = [api for row in settings.tools.values() for api in row.openapi]
    templates = [value for api in apis for value in api.headers.values()]
    names = [name for api in apis for name in api.variables.values()]
    names += [name for template in templates for name in re.findall(r"\$\{(\w+)\}", template)]
    return [environment.get(name, "").strip() for name in names]


def _wire_name(name: str, row: UpstreamRow) -> str:
    return row.wire or vendor_codec(find_vendor(name, row)).name


def _format_line(trace: ExchangeTrace) -> str:
    document = {"ts": trace.recorded, "level": "info", "event": "exchange", "request_id": trace.id}
    return msgspec.json.encode({**document, "events": trace.events}).decode()
