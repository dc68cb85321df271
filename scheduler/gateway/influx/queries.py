"""A query with several statements to its results."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.gateway.influx import select, showing
from scheduler.gateway.influx.go_json import StatementResult
from scheduler.gateway.influx.patterns import PatternError
from scheduler.gateway.influx.syntax import QueryError, Select, Statement, StatementError
from scheduler.gateway.influx.tagged_series import SeriesView


def answer(
    statements: Sequence[Statement], measurements: SeriesView, database: str, now: int
) -> list[StatementResult]:
    """`now` in nanoseconds since 1970. What follows a statement that failed is not executed."""
    results: list[StatementResult] = []
    for number, statement in enumerate(statements):
        if results and results[-1].error:
            results.append(StatementResult(number, error="not executed"))
            continue
        try:
            if isinstance(statement, Select):
                if not database:
                    raise StatementError("database name required")
                series = select.run(statement, measurements, now)
            else:
                series = showing.run(statement, measurements, database, now)
        except StatementError as error:
            results.append(StatementResult(number, error=str(error)))
        except PatternError as error:
            raise QueryError(str(error)) from None
        else:
            results.append(StatementResult(number, series))
    return results
