-- Iceberg tables and views: their versions and snapshots.

-- name: select_iceberg_version
-- One version of an Iceberg table or view, without its snapshots.
select metadata_location, metadata from dl_iceberg_versions where table_id = :table_id and version = :version;

-- name: select_iceberg_snapshots
-- The snapshots in the metadata of a version, in their order there.
select snapshot_id, snapshot from dl_iceberg_snapshots
where table_id = :table_id and added_version <= :version and removed_version > :version order by added_version, ordinal;

-- name: select_all_iceberg_snapshots
-- The snapshots of all kept versions of a table.
select snapshot from dl_iceberg_snapshots where table_id = :table_id;

-- name: end_iceberg_snapshot
-- Removes a snapshot from the metadata of a version and of those after it.
update dl_iceberg_snapshots set removed_version = :version
where table_id = :table_id and snapshot_id = :snapshot_id and removed_version = 9223372036854775807;

-- name: select_iceberg_files
-- The metadata files of all kept versions of an Iceberg table or view, oldest first.
select metadata_location from dl_iceberg_versions where table_id = :table_id order by version;

-- name: select_tables_in
-- The tables and views directly in a namespace.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner from dl_tables
where namespace_key = :namespace_key and until_ms = 9223372036854775807 order by name_key;
