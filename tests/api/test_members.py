"""The members that no other test of this folder calls, on both libraries; and that every member is called in one."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

from tests.api.both import Both, Library
from tests.api.signatures import members


def test_every_member_is_called_in_a_test_of_this_folder() -> None:
    here = Path(__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in here.glob("*.py") if path.name != "differences.py")
    called = set(re.findall(r"\w+", text))
    never = [member.full_name for member in members() if member.name.split(".")[-1] not in called]
    assert not never


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("table", "FilterLiteralType FilterConjunctionType FilterDNFType FilterType PartitionFilterType"),
        ("table", "FilePruningPredicateType SUPPORTED_READER_FEATURES SUPPORTED_WRITER_FEATURES"),
        ("table", "MAX_SUPPORTED_READER_VERSION NOT_SUPPORTED_READER_VERSION"),
        ("table", "MAX_SUPPORTED_PYARROW_WRITER_VERSION NOT_SUPPORTED_PYARROW_WRITER_VERSIONS"),
        ("fs.fs_handler", "DeltaStorageHandler"),
        ("_internal", "RawDeltaTable Schema Field PrimitiveType StructType ArrayType MapType VariantType"),
        ("_internal", "Transaction RemoveAction TableFeatures rust_core_version create_table_with_add_actions"),
        ("_internal", "DeltaError TableNotFoundError CommitFailedError DeltaProtocolError SchemaMismatchError"),
    ],
)
def test_names_that_other_libraries_import_are_where_they_look_for_them(module: str, names: str) -> None:
    for library in ("deltalake", "deltalakedb"):
        found = import_module(f"{library}.{module}")
        assert [name for name in names.split() if not hasattr(found, name)] == [], library


FEATURES = (
    "AppendOnly", "ChangeDataFeed", "CheckConstraints", "ColumnMapping", "DeletionVectors", "DomainMetadata",
    "GeneratedColumns", "IcebergCompatV1", "IdentityColumns", "Invariants", "RowTracking", "TimestampNanos",
    "TimestampWithoutTimezone", "V2Checkpoint", "VariantType", "VariantTypePreview",
)  # fmt: skip


def test_the_features_have_the_same_names(both: Both) -> None:
    for library in both.libraries:
        there = [name for name in dir(library.module.TableFeatures) if not name.startswith("_")]
        assert set(there) - {"name", "value"} == set(FEATURES), library.name


def test_metadata_and_protocol_have_the_same_shape(both: Both) -> None:
    both.seed({"id": [1]}, configuration={"delta.enableChangeDataFeed": "true"})

    def metadata(lib: Library) -> dict[str, Any]:
        found = lib.table().metadata()
        assert type(found).__name__ == lib.module.Metadata.__name__ == "Metadata"
        return {
            "named": isinstance(found.name, str | None),
            "description": found.description,
            "partition_columns": found.partition_columns,
            "created_time": found.created_time,
            "configuration": found.configuration,
            "id_length": len(found.id),
        }

    def protocol(lib: Library) -> dict[str, Any]:
        found = lib.table().protocol()
        assert isinstance(found, lib.find("table.ProtocolVersions"))
        features = (found.writer_features, found.reader_features)
        return {"min_reader_version": found.min_reader_version, "features": [type(one).__name__ for one in features]}

    both.same(metadata, exactly=True)
    both.same(protocol)
    assert both.ours.table().protocol().min_writer_version >= 4


def test_the_configuration_of_a_table_is_the_same(both: Both) -> None:
    both.seed({"id": [1]})

    def config(lib: Library) -> Any:
        found = lib.table().table_config
        assert isinstance(found, lib.find("table.DeltaTableConfig"))
        return [found.without_files, found.log_buffer_size, found.skip_stats]

    both.same(config)


def test_a_transaction_says_what_it_was_given(both: Both) -> None:
    def shown(lib: Library) -> Any:
        one = lib.module.Transaction("app", 3, last_updated=17)
        return [one.app_id, one.version, one.last_updated, lib.module.Transaction("app", 3).last_updated]

    assert both.same(shown, exactly=True).value == ["app", 3, 17, None]


def test_what_a_table_hands_out_has_the_names_of_deltalake(both: Both) -> None:
    both.seed({"id": [1]})
    both.same(lambda lib: isinstance(lib.table().alter, lib.find("table.TableAlterer")), exactly=True)
    both.same(lambda lib: isinstance(lib.table().optimize, lib.find("table.TableOptimizer")), exactly=True)


def test_an_action_says_what_it_was_given(both: Both) -> None:
    def shown(lib: Library) -> Any:
        one = lib.find("transaction.RemoveAction")("a.parquet", True, 17, size=3, partition_values={"p": "x"})
        return [one.path, one.data_change, one.deletion_timestamp, one.size, one.partition_values]

    both.same(shown, exactly=True)


@pytest.mark.parametrize("name", ["Schema", "Field", "VariantType"])
def test_schemas_are_handed_to_arrow_by_its_interface(both: Both, name: str) -> None:
    def exported(lib: Library) -> str:
        kind = lib.find("schema.PrimitiveType")("long")
        field = lib.module.Field("a", kind)
        made = {"Schema": lib.module.Schema([field]), "Field": field, "VariantType": lib.module.VariantType()}[name]
        assert type(made.__arrow_c_schema__()).__name__ == "PyCapsule"
        return str(pa.schema(made) if name == "Schema" else pa.field(made).type)

    both.same(exported, exactly=True)


def test_types_are_handed_to_arrow_by_its_interface(both: Both) -> None:
    def exported(lib: Library) -> list[str]:
        schema = lib.find("schema.PrimitiveType")
        long, text = schema("long"), schema("string")
        a_map = lib.find("schema.MapType")(text, long)
        assert (a_map.key_type, a_map.value_type) == (text, long)
        kinds = [long, lib.find("schema.ArrayType")(long), a_map, lib.find("schema.StructType")([])]
        return [str(pa.field(kind).type) for kind in kinds]

    both.same(exported, exactly=True)


# ---- properties of writers


def test_properties_of_writers_are_made_and_checked_alike(both: Both) -> None:
    def made(lib: Library) -> str:
        column = lib.module.ColumnProperties(
            dictionary_enabled=False,
            bloom_filter_properties=lib.module.BloomFilterProperties(True, fpp=0.1, ndv=30),
        )
        found = lib.module.WriterProperties(compression="ZSTD", compression_level=3, column_properties={"a": column})
        return str(found).replace(" ", "")

    both.same(made, exactly=True)
    for wrong in ({"compression": "ZIP"}, {"compression_level": 3}, {"compression": "GZIP", "compression_level": 99}):
        both.same(lambda lib, wrong=wrong: str(lib.module.WriterProperties(**wrong)))  # type: ignore[misc]  # a default binds the loop


# ---- the file system


def handler(lib: Library) -> Any:
    return lib.find("fs.DeltaStorageHandler")(str(lib.folder))


def test_a_tables_folder_is_a_file_system(both: Both) -> None:
    both.seed({"id": [1]})

    def used(lib: Library) -> Any:
        own = handler(lib)
        own.create_dir("notes/sub")  # an object store needs none
        (lib.folder / "notes" / "sub").mkdir(parents=True, exist_ok=True)
        for name in ("sub/a.txt", "c.txt"):
            (lib.folder / "notes" / name).write_bytes(b"hello")
        with own.open_input_stream("notes/c.txt") as stream:
            said = stream.read()
        listed = own.get_file_info_selector(pa_fs.FileSelector("notes", recursive=True))
        infos = own.get_file_info(["notes/c.txt", "notes/none.txt", "_delta_log"])
        own.delete_file("notes/c.txt")
        own.delete_dir("notes")
        files = sorted(one.path for one in listed if one.type == pa_fs.FileType.File)
        return [said.decode(), files, [str(info.type) for info in infos], infos[0].size]

    assert both.same(used, exactly=True).value[0] == "hello"
    both.same(lambda lib: [handler(lib).get_type_name(), handler(lib).normalize_path("a/b")], exactly=True)
    both.same_rows()


REFUSED: dict[str, Callable[[Library], Any]] = {
    "a file that is not there": lambda lib: handler(lib).open_input_file("none"),
    "appending": lambda lib: handler(lib).open_append_stream("a.txt", {}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_system_refuses_the_same(both: Both, what: str) -> None:
    both.seed({"id": [1]})
    both.fails(REFUSED[what])
    both.same_rows()


def test_what_is_broken_in_theirs_works_in_ours(both: Both) -> None:
    """Writing bytes, copying, and emptying folders."""
    both.seed({"id": [1]})
    own = handler(both.ours)
    with own.open_output_stream("notes/a.txt") as stream:
        stream.write(b"hello")
    assert (both.ours.folder / "notes" / "a.txt").read_bytes() == b"hello"
    own.copy_file("notes/a.txt", "notes/b.txt")
    own.move("notes/b.txt", "notes/c.txt")
    assert sorted(path.name for path in (both.ours.folder / "notes").iterdir()) == ["a.txt", "c.txt"]
    own.delete_dir_contents("notes")
    assert not list((both.ours.folder / "notes").iterdir())
    with pytest.raises(both.ours.module.DeltaError, match="accept_root_dir"):
        own.delete_dir_contents("")
    own.delete_root_dir_contents()
    assert not [path for path in both.ours.folder.rglob("*") if path.is_file()]


def test_a_log_that_is_no_log_is_refused_with_the_same_error(on_paths: Both) -> None:
    on_paths.seed({"id": [1]})
    for library in on_paths.libraries:
        (library.folder / "_delta_log" / f"{1:020}.json").write_text('{"add": 5}')
    error = on_paths.same(lambda lib: lib.table()).error
    assert isinstance(error, on_paths.ours.find("exceptions.DeltaProtocolError"))
