"""The parts of JSON schemas of which endpoints say what they answer."""

from __future__ import annotations

from typing import Any


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: dict[str, Any]) -> dict[str, Any]:
    """Of any names to such values."""
    return {"type": "object", "additionalProperties": values}


ANY: dict[str, Any] = {}  # any JSON
BOOLEAN: dict[str, Any] = {"type": "boolean"}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
STRING: dict[str, Any] = {"type": "string"}
NUMBER_OR_NULL: dict[str, Any] = {"type": ["number", "null"]}
STEP: dict[str, Any] = {"type": ["integer", "null"]}  # null: what was logged has none
