"""The contract of a frame: transforms check it where a frame comes in and where one goes out."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType


class SchemaMismatch(ValueError):
    """A frame is not what a transform was written for."""


def conform(frame: DataFrame, schema: StructType, what: str) -> DataFrame:
    """The columns of `schema`, in its order. Raises SchemaMismatch for a column that is missing or of another type;
    columns beyond the schema are left out."""
    present = {field.name: field.dataType for field in frame.schema.fields}
    wrong = [
        f"{field.name}: {present[field.name].simpleString() if field.name in present else 'missing'} "
        f"and not {field.dataType.simpleString()}"
        for field in schema.fields
        if present.get(field.name) != field.dataType
    ]
    if wrong:
        raise SchemaMismatch(f"{what}: {'; '.join(wrong)}")
    return frame.select(*schema.fieldNames())
