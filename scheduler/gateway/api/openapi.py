"""The OpenAPI document, made of the endpoints; and the schemas of docs/schema in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from scheduler.gateway.api.endpoint import Endpoint, Parameter, Schema

_SCHEMAS = Path(__file__).parents[2] / "presentation" / "schema"
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "a word for programs"},
                "message": {"type": "string", "description": "what the commands print"},
                "field": {"type": ["string", "null"], "description": "of what was asked"},
            },
            "required": ["code", "message", "field"],
        }
    },
    "required": ["error"],
}


def document(endpoints: Iterable[Endpoint], prefix: str, version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(prefix + _shown(each.path), {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "epoch-scheduler", "version": version},
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": {**_state_schemas(), "error": _ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "scheduler_session"},
            },
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {endpoint.type: {"schema": endpoint.reply}}
    if endpoint.or_json:
        content["application/json"] = {"schema": endpoint.or_json}
    operation: dict[str, Any] = {
        "operationId": endpoint.answer.__name__,
        "summary": endpoint.about,
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in _in_path(endpoint.path)
            ),
            *map(_parameter, endpoint.parameters),
        ],
        "responses": {
            str(endpoint.status): {
                "description": "done",
                "content": content,
            },
            "default": {
                "description": "refused, or not possible now",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/error"}}},
            },
        },
    }
    if endpoint.body:
        operation["requestBody"] = {
            "content": {"application/json": {"schema": _body_schema(endpoint.body)}}
        }
    elif endpoint.content:
        binary = {"type": "string", "format": "binary"}
        operation["requestBody"] = {"content": {endpoint.content: {"schema": binary}}}
    return operation


def _shown(path: str) -> str:
    return path.replace(":path}", "}")


def _in_path(path: str) -> list[str]:
    return [part.strip("{}").partition(":")[0] for part in path.split("/") if part.startswith("{")]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if parameter.type == "integer":
        schema |= {"minimum": parameter.least, "maximum": parameter.most}
    if parameter.several:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "schema": schema,
    }


def _body_schema(body: type[msgspec.Struct]) -> Schema:
    _, parts = msgspec.json.schema_components([body])
    schema: Schema = parts[body.__name__]
    return schema


def _state_schemas() -> dict[str, Any]:
    """The parts of `scheduler-state --output json`, under their own names."""
    schema = json.loads((_SCHEMAS / "state.json").read_text())
    parts: Mapping[str, Any] = _moved(schema["$defs"])
    return dict(parts)


def _moved(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/")
            if key == "$ref"
            else _moved(value)
            for key, value in part.items()
        }
    return [_moved(each) for each in part] if isinstance(part, list) else part
