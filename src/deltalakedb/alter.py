"""TableAlterer: `DeltaTable.alter`, with the names of `deltalake`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from deltalakedb.runtime.arguments import (
    check_flag,
    check_sequence,
    check_settings,
    check_text,
    commit_arguments,
    wrong_type,
)

if TYPE_CHECKING:
    from deltalakedb.log.schema.types import StructField
    from deltalakedb.operations.target import Verb
    from deltalakedb.table import DeltaTable
    from deltalakedb.tables.answers import TableFeatures
    from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

# Features whose protocol name is not their name here with a lower-case first letter.
_SPELLED = {"TimestampWithoutTimezone": "timestampNtz", "VariantTypePreview": "variantType-preview"}
_REVERSED = ("post_commithook_properties", "commit_properties")


class TableAlterer:
    """Changes a table's definition; each method is one commit."""

    def __init__(self, table: DeltaTable) -> None:
        self.table = table

    def add_feature(
        self,
        feature: TableFeatures | list[TableFeatures],
        allow_protocol_versions_increase: bool = False,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add table features to the protocol, which may need higher reader and writer versions."""
        from deltalakedb.operations.alter import add_feature

        arguments = commit_arguments("add_feature", args, commit_properties, post_commithook_properties)
        check_flag(allow_protocol_versions_increase)
        names = [_feature_name(item) for item in _to_list(feature, "TableFeatures")]
        self._run(
            partial(add_feature, features=names, allow_protocol_versions_increase=allow_protocol_versions_increase),
            arguments,
        )

    def add_columns(
        self,
        fields: Any,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add columns at the end of the schema, or fields to an existing struct column."""
        from deltalakedb.operations.alter import add_columns

        arguments = commit_arguments("add_columns", args, commit_properties, post_commithook_properties)
        columns = [_to_field(item) for item in _to_list(fields, "Field")]
        self._run(partial(add_columns, fields=columns), arguments)

    def add_constraint(
        self,
        constraints: dict[str, str],
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add conditions by name that every row must satisfy; the existing rows are checked first."""
        from deltalakedb.operations.alter import add_constraint

        arguments = commit_arguments(
            "add_constraint", args, commit_properties, post_commithook_properties, order=_REVERSED
        )
        check_settings(constraints, required=True)
        self._run(partial(add_constraint, constraints=constraints), arguments)

    def drop_constraint(
        self,
        name: str,
        raise_if_not_exists: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Drop a constraint."""
        from deltalakedb.operations.alter import drop_constraint

        arguments = commit_arguments(
            "drop_constraint", args, commit_properties, post_commithook_properties, order=_REVERSED
        )
        check_text(name, required=True)
        check_flag(raise_if_not_exists)
        self._run(partial(drop_constraint, name=name, raise_if_not_exists=raise_if_not_exists), arguments)

    def drop_column_not_null(
        self,
        column_name: str,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Make a column nullable."""
        from deltalakedb.operations.alter import drop_column_not_null

        check_text(column_name, required=True)
        self._run(partial(drop_column_not_null, column=column_name), (commit_properties, post_commithook_properties))

    def set_table_properties(
        self,
        properties: dict[str, str],
        raise_if_not_exists: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set table properties; names that Delta does not know need `raise_if_not_exists=False`."""
        from deltalakedb.operations.alter import set_properties

        arguments = commit_arguments("set_table_properties", args, commit_properties, post_commithook_properties)
        check_settings(properties, required=True)
        check_flag(raise_if_not_exists)
        self._run(partial(set_properties, properties=properties, raise_if_not_exists=raise_if_not_exists), arguments)

    def set_table_name(
        self,
        name: str,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the name in the table's metadata; to rename a table in a catalog, use `rename_table`."""
        from deltalakedb.operations.alter import set_name

        arguments = commit_arguments("set_table_name", args, commit_properties, post_commithook_properties)
        check_text(name, required=True)
        self._run(partial(set_name, name=name), arguments)

    def set_table_description(
        self,
        description: str,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the table's description."""
        from deltalakedb.operations.alter import set_description

        arguments = commit_arguments("set_table_description", args, commit_properties, post_commithook_properties)
        check_text(description, required=True)
        self._run(partial(set_description, description=description), arguments)

    def set_column_metadata(
        self,
        column: str,
        metadata: dict[str, str],
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set entries of a column's metadata, such as its comment; other entries stay."""
        from deltalakedb.operations.alter import set_column_metadata

        arguments = commit_arguments("set_column_metadata", args, commit_properties, post_commithook_properties)
        check_text(column, required=True)
        check_settings(metadata, required=True)
        self._run(partial(set_column_metadata, column=column, metadata=dict(metadata)), arguments)

    def _run(self, verb: Verb, given: tuple[Any, Any]) -> None:
        self.table._run(verb, *given)


def _to_list(given: Any, kind: str) -> list[Any]:
    """Return one or several objects, ours or `deltalake`'s, as a list; TypeError for anything else."""
    if _is_of(given, kind):
        return [given]
    check_sequence(given)
    for item in given:
        if not _is_of(item, kind):
            raise wrong_type(item, kind)
    return list(given)


def _is_of(given: Any, kind: str) -> bool:
    return type(given).__name__ == kind and type(given).__module__.partition(".")[0] != "pyarrow"


def _feature_name(feature: Any) -> str:
    """Return the protocol's name of a feature of our enumeration, or of `deltalake`'s."""
    name = str(feature).rpartition(".")[2]
    return _SPELLED.get(name) or name[0].lower() + name[1:]


def _to_field(given: Any) -> StructField:
    from deltalakedb.schema import Field, to_struct_field

    if isinstance(given, Field):
        return to_struct_field(given)
    return to_struct_field(Field.from_json(given.to_json()))  # a Field of `deltalake`
