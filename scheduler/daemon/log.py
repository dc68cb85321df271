"""Log lines: their format and where they go. core/facts.py decides what is logged."""

from __future__ import annotations

import logging
import sys

import structlog

from scheduler.core.model import View
from scheduler.core.ports import Step, Store
from scheduler.daemon.config import LogSettings

Logger = structlog.typing.FilteringBoundLogger


def configure(settings: LogSettings) -> Logger:
    """Logs key-value pairs to stderr, or JSON if stderr is not a terminal; libraries' lines too."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    terminal = sys.stderr.isatty()
    as_json = settings.format == "json" or (settings.format == "auto" and not terminal)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=terminal, exception_formatter=structlog.dev.plain_traceback
        )
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *([structlog.processors.format_exc_info] if as_json else []),
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("scheduler").setLevel(settings.level.upper())
    # A caller's header that is not UTF-8 is not an error of ours.
    logging.getLogger("grpc._cython").setLevel(logging.CRITICAL)
    # More streams that we follow may end at the same time than the pool keeps connections.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logger: Logger = structlog.get_logger("scheduler")
    return logger


class LoggingStore:
    """A store that also logs each fact once it is on disk; the fact's kind is the event."""

    def __init__(self, store: Store, logger: Logger) -> None:
        self._store, self._logger = store, logger

    def load(self) -> View:
        return self._store.load()

    def commit(self, step: Step) -> None:
        self._store.commit(step)
        for fact in step.facts:
            about = {"job_id": fact.job_id, "attempt": fact.attempt, "at": fact.at}
            self._logger.info(fact.kind, **{**fact.data, **about})
