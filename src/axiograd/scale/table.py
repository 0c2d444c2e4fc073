"""The table's schema: the columns that every engine writes, and what is said about them in the file itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from axiograd.errors import MissingExtraError, StorageError

if TYPE_CHECKING:
    from axiograd.scale.summaries import Summary

#: The key of the provenance in the schema's metadata.
KEY = b"axiograd"
FORMAT = 1
#: The columns of every attribution, beside those of the summaries.
COLUMNS: Mapping[str, str] = {
    "label": "int64",
    "target": "int64",
    "prediction": "int64",
    "score": "float64",
    "difference": "float64",
    "total": "float64",
    "gini": "float64",
    "shape": "list<int32>",
    "error": "string",
}


def pyarrow() -> Any:
    """The library, or what to install."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "scale", "Parquet") from error
    return pa


def schema_of(summaries: Sequence[Summary], provenance: Mapping[str, Any]) -> Any:
    """The columns and their types, with the provenance as JSON in the metadata."""
    kinds = dict(COLUMNS)
    for summary in summaries:
        kinds |= summary.columns
    pa = pyarrow()
    metadata = {KEY: json.dumps({"format": FORMAT, **provenance}, ensure_ascii=False, sort_keys=True)}
    return pa.schema([pa.field(name, _type(kind)) for name, kind in kinds.items()], metadata=metadata)


def _type(kind: str) -> Any:
    pa = pyarrow()
    types = {
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "string": pa.string(),
        "list<float32>": pa.list_(pa.float32()),
        "list<float16>": pa.list_(pa.float16()),
        "list<int32>": pa.list_(pa.int32()),
    }
    return types[kind]


def as_table(columns: Mapping[str, Sequence[Any]], schema: Any) -> Any:
    """A pyarrow table of columns; those that the schema does not know come first, with the types that pyarrow finds."""
    pa = pyarrow()
    fields, arrays = [], []
    for name, values in columns.items():
        if name not in schema.names:
            arrays.append(pa.array(values))
            fields.append(pa.field(name, arrays[-1].type))
    for field in schema:
        arrays.append(pa.array(columns[field.name], field.type))
        fields.append(field)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))


def provenance_of(schema: Any, source: object) -> dict[str, Any]:
    """What a file says about itself."""
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        raise StorageError(
            f"{source} was not written by `axiograd attribute`: it does not say where its rows are from."
        )
    try:
        content: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise StorageError(f"{source}: what the file says about itself cannot be read: {error}.") from error
    if content.get("format") != FORMAT:
        raise StorageError(f"{source} has format {content.get('format')}; this version of axiograd reads {FORMAT}.")
    return content
