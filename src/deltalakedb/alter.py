"""TableAlterer: `DeltaTable.alter`, under the names of `deltalake`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ._positional import commit_arguments
from .arguments import check_settings, check_text

if TYPE_CHECKING:
    from .answers import TableFeatures
    from .log.types import StructField
    from .operations.target import Verb
    from .tables.upkeep import UpkeepOfTable
    from .transaction import CommitProperties, PostCommitHookProperties

# Features whose name in the protocol is not their name here, begun with a small letter.
_SPELLED = {"TimestampWithoutTimezone": "timestampNtz", "VariantTypePreview": "variantType-preview"}
_REVERSED = ("post_commithook_properties", "commit_properties")


class TableAlterer:
    """Changes a table's definition; each method is one commit."""

    def __init__(self, table: UpkeepOfTable) -> None:
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
        from .operations.alter import add_feature

        given = commit_arguments("add_feature", args, commit_properties, post_commithook_properties)
        names = [_feature_name(one) for one in (feature if isinstance(feature, list | tuple) else [feature])]
        self._run(
            partial(add_feature, features=names, allow_protocol_versions_increase=allow_protocol_versions_increase),
            given,
        )

    def add_columns(
        self,
        fields: Any,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add columns at the end of the schema, or fields to a struct column that is there."""
        from .operations.alter import add_columns

        given = commit_arguments("add_columns", args, commit_properties, post_commithook_properties)
        columns = [_to_field(one) for one in (fields if isinstance(fields, list | tuple) else [fields])]
        self._run(partial(add_columns, fields=columns), given)

    def add_constraint(
        self,
        constraints: dict[str, str],
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Add conditions that every row must keep, by their names; the rows that are there are checked first."""
        from .operations.alter import add_constraint

        given = commit_arguments("add_constraint", args, commit_properties, post_commithook_properties, order=_REVERSED)
        check_settings(constraints, required=True)
        self._run(partial(add_constraint, constraints=constraints), given)

    def drop_constraint(
        self,
        name: str,
        raise_if_not_exists: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Take a constraint away."""
        from .operations.alter import drop_constraint

        given = commit_arguments(
            "drop_constraint", args, commit_properties, post_commithook_properties, order=_REVERSED
        )
        check_text(name, required=True)
        self._run(partial(drop_constraint, name=name, raise_if_not_exists=raise_if_not_exists), given)

    def drop_column_not_null(
        self,
        column_name: str,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Let a column be null from now on."""
        from .operations.alter import drop_column_not_null

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
        """Set table properties; a name that Delta does not know only with `raise_if_not_exists=False`."""
        from .operations.alter import set_properties

        given = commit_arguments("set_table_properties", args, commit_properties, post_commithook_properties)
        check_settings(properties, required=True)
        self._run(partial(set_properties, properties=properties, raise_if_not_exists=raise_if_not_exists), given)

    def set_table_name(
        self,
        name: str,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set the name in the table's metadata; a catalog's name is changed by `rename_table`."""
        from .operations.alter import set_name

        given = commit_arguments("set_table_name", args, commit_properties, post_commithook_properties)
        check_text(name, required=True)
        self._run(partial(set_name, name=name), given)

    def set_table_description(
        self,
        description: str,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Say what the table is for."""
        from .operations.alter import set_description

        given = commit_arguments("set_table_description", args, commit_properties, post_commithook_properties)
        check_text(description, required=True)
        self._run(partial(set_description, description=description), given)

    def set_column_metadata(
        self,
        column: str,
        metadata: dict[str, str],
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Set entries of a column's metadata, such as its comment; others stay."""
        from .operations.alter import set_column_metadata

        given = commit_arguments("set_column_metadata", args, commit_properties, post_commithook_properties)
        check_text(column, required=True)
        check_settings(metadata, required=True)
        self._run(partial(set_column_metadata, column=column, metadata=dict(metadata)), given)

    def _run(self, verb: Verb, given: tuple[Any, Any]) -> None:
        self.table._run(verb, *given)


def _feature_name(feature: Any) -> str:
    """The protocol's name of a feature of ours, or of `deltalake`'s enumeration."""
    if type(feature).__name__ != "TableFeatures":
        raise TypeError(f"a table feature is a member of TableFeatures, not {feature!r}")
    name = str(feature).rpartition(".")[2]
    return _SPELLED.get(name) or name[0].lower() + name[1:]


def _to_field(given: Any) -> StructField:
    from .schema import Field, to_struct_field

    if isinstance(given, Field):
        return to_struct_field(given)
    if type(given).__name__ == "Field" and hasattr(given, "to_json"):  # of `deltalake`
        return to_struct_field(Field.from_json(given.to_json()))
    raise TypeError(f"a new column is a Field, not {type(given).__name__}")
