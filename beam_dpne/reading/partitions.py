"""Fields that the path of a file has, as Hive and Spark write them: `country=dk/day=2026-01-05`."""

import contextlib
import urllib.parse

import pyarrow as pa


def fields_of_path(path: str) -> tuple[tuple[str, str | None], ...]:
    """Returns the fields that the folders of a path name, with their values, sorted by name.

    They are those that `pyarrow.dataset` finds. A value is text as it stands there, decoded from
    percent signs, and None for `__HIVE_DEFAULT_PARTITION__`.

    >>> fields_of_path("/events/country=dk/day=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
    (('country', 'dk'), ('day', None))
    """
    folders = path.rpartition("/")[0].split("/")
    names = {urllib.parse.unquote(each.partition("=")[0]) for each in folders if "=" in each}
    if not names:
        return ()
    import pyarrow.dataset as ds

    rule = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in sorted(names)]))
    # What is not text after decoding is the name of a folder and no field.
    with contextlib.suppress(pa.ArrowInvalid):
        return tuple(sorted(ds.get_partition_keys(rule.parse(path)).items()))
    return ()
