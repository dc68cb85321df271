"""What all benchmarks share: their flags, and how they print. Each prints one JSON object."""

from __future__ import annotations

import argparse
import json
import sys


def options(description: str | None, **defaults: float | str) -> argparse.Namespace:
    """`--json`, and a flag for each default, of its type."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json", action="store_true", help="print one line (the default prints more)"
    )
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def show(**figures: float | str | None) -> None:
    indent = None if "--json" in sys.argv else 2
    sys.stdout.write(json.dumps(figures, indent=indent) + "\n")
