"""The specification of a job in a file, as `scheduler-state --output json` (or yaml) prints it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cli.command import UsageError
from scheduler.presentation.job_document import DocumentError, spec_from
from scheduler.v1 import scheduler_pb2 as pb

BYTES_MAX = 4 * 2**20


def read(file: str) -> pb.JobSpec:
    """Raises UsageError, which names the file and what is wrong in it."""
    try:
        text = sys.stdin.read(BYTES_MAX) if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--spec {file}: {why}") from None
    try:
        return spec_from(_parsed(text))
    except (UsageError, DocumentError) as error:
        raise UsageError(f"--spec {file}: {error}") from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            import yaml  # type: ignore[import-untyped]  # comes with the daemon, without types
        except ImportError:
            raise UsageError(f"is not JSON ({error}), and YAML needs PyYAML") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"is neither JSON nor YAML: {' '.join(str(error).split())}") from None
