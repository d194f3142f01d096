-- Delta tables as Iceberg clients see them.

-- name: select_iceberg_field_ids
-- The ids of all fields that Iceberg clients were told of.
select field_path, field_id from dl_iceberg_field_ids where table_id = :table_id;

-- name: delete_iceberg_field_ids
-- Makes room for other ids.
delete from dl_iceberg_field_ids where table_id = :table_id;

-- name: select_iceberg_format
-- The format version of a Delta table; no row means 2.
select format_version from dl_iceberg_formats where table_id = :table_id;

-- name: insert_iceberg_format
-- Fixes the format version of a Delta table.
insert into dl_iceberg_formats (table_id, format_version) values (:table_id, :format_version);

-- name: select_unusual_files
-- Files added after a version and kept in a later one that decide how Iceberg clients can read the table: those with deletion vectors,
-- and those whose path may be absolute. The plus keeps SQLite from walking all live files instead of those added since.
select path, deletion_vector, removed_version from dl_add_files
where table_id = :table_id and version > :after_version and +removed_version > :first_version
  and (deletion_vector is not null or path like '/%' or path like '%:/%')
limit :max_rows;

-- name: select_oldest_added_files
-- The first files that were added after a version and kept in a later one, in whose footers field ids are looked for. With only_given,
-- those that no verb of ours wrote: of commits that were made elsewhere, or whose files the user had written (they have no metrics).
-- For the plus see select_unusual_files.
select f.path, f.size from dl_add_files f
left join dl_table_versions v on v.table_id = f.table_id and v.version = f.version
where f.table_id = :table_id and f.version > :after_version and +f.removed_version > :first_version
  and (cast(:only_given as int) = 0 or v.txn_id is null or v.operation_metrics is null)
order by f.version, f.ordinal limit :max_rows;

-- name: select_newest_added_files
-- The last ones; see select_oldest_added_files.
select f.path, f.size from dl_add_files f
left join dl_table_versions v on v.table_id = f.table_id and v.version = f.version
where f.table_id = :table_id and f.version > :after_version and +f.removed_version > :first_version
  and (cast(:only_given as int) = 0 or v.txn_id is null or v.operation_metrics is null)
order by f.version desc, f.ordinal desc limit :max_rows;

-- name: select_versions_as_snapshots
-- What snapshots are made of. commit_info only where an Iceberg client made the commit.
select version, committed_at_ms, operation, num_added_files, num_removed_files, total_added, total_closed,
       case when commit_info like '%icebergSnapshotId%' then commit_info end as commit_info
from dl_table_versions where table_id = :table_id and version between :first_version and :last_version order by version;

-- name: select_row_id_marks
-- The highest row id of each version that assigned some.
select version, configuration from dl_domain_metadata
where table_id = :table_id and domain = 'delta.rowTracking' and version <= :version order by version;

-- name: select_iceberg_vectors
-- Where deletion vectors were copied to: all, or with a list of keys.
select vector_key, puffin_path, puffin_size, content_offset, content_size from dl_iceberg_vectors
where table_id = :table_id;

-- name: select_live_paths_with_vectors
-- Which of some paths are live files with deletion vectors. The caller replaces :path with :path_0, :path_1, ..., one for each.
select path from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807
  and deletion_vector is not null and path in (:path);

-- name: select_files_of_version_between
-- The files of a version with ids in a range, for the tasks of a plan.
select file_id, version, ordinal, num_records, {add columns}
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807
  and file_id between :first_file_id and :last_file_id and version + 0 <= :version
union all
select file_id, version, ordinal, num_records, {add columns}
from dl_add_files where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807
  and file_id between :first_file_id and :last_file_id and version + 0 <= :version;

-- name: select_files_added_in
-- The files that a version added, live or not.
select file_id, num_records, version, ordinal, {add columns}
from dl_add_files where table_id = :table_id and version = :version;

-- name: select_delta_lists
-- The manifest lists of a Delta table that were written, by version.
select version, list_path from dl_iceberg_delta_lists where table_id = :table_id order by version;

-- name: select_newest_delta_list
-- The newest version of a Delta table with a manifest list, and the last manifest id that was given.
select (select max(version) from dl_iceberg_delta_lists where table_id = :table_id and list_path is not null) as version,
       coalesce((select max(manifest_id) from dl_iceberg_delta_manifests where table_id = :table_id), 0) as manifest_id;

-- name: select_delta_manifests
-- The manifests of the newest list of a Delta table, in the order of their files.
select manifest_id, version, removed_version, manifest_path, manifest_content, manifest_length, spec_id, snapshot_id, first_file_id,
       last_file_id, num_added, rows_added, num_existing, rows_existing, min_sequence_number, first_row_id, partitions
from dl_iceberg_delta_manifests where table_id = :table_id and removed_version = 9223372036854775807 order by first_file_id;

-- name: close_delta_manifest
-- A version's list is the first without this manifest.
update dl_iceberg_delta_manifests set removed_version = :version where table_id = :table_id and manifest_id = :manifest_id;

-- name: select_files_added_between
-- The files that some versions added, live or not.
select file_id, num_records, version, ordinal, {add columns}
from dl_add_files where table_id = :table_id and version > :after_version and version <= :version;

-- name: select_removals_between
-- The ids of the files that some versions removed.
select file_id, removed_version from dl_add_files
where table_id = :table_id and removed_version > :after_version and removed_version <= :version;

-- name: rewind_delta_lists
-- See rewind_remove_files. Clients are told of other lists; the files are removed by `dl gc`.
delete from dl_iceberg_delta_lists where table_id = :table_id and version > :version;

-- name: rewind_delta_manifests
-- See rewind_delta_lists.
delete from dl_iceberg_delta_manifests where table_id = :table_id and version > :version;

-- name: reopen_delta_manifests
-- See rewind_delta_lists.
update dl_iceberg_delta_manifests set removed_version = 9223372036854775807
where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807;

-- name: delete_old_delta_lists
-- Deletes the lists of versions that clients are not told of any more.
delete from dl_iceberg_delta_lists where table_id = :table_id and version < :version
  and version < (select max(l.version) from dl_iceberg_delta_lists l where l.table_id = :table_id and l.list_path is not null);

-- name: delete_old_delta_manifests
-- Deletes the manifests that are in no kept list.
delete from dl_iceberg_delta_manifests where table_id = :table_id and removed_version <= (
    select min(version) from dl_iceberg_delta_lists where table_id = :table_id);

-- name: select_kept_delta_files
-- The files that are there for Iceberg clients of a Delta table: lists, manifests, copies of vectors.
select list_path as file_path from dl_iceberg_delta_lists where table_id = :table_id and list_path is not null
union all
select manifest_path from dl_iceberg_delta_manifests where table_id = :table_id
union all
select distinct puffin_path from dl_iceberg_vectors where table_id = :table_id;

-- name: select_files_with_vectors
-- The data files of kept versions that have deletion vectors.
select path, deletion_vector from dl_add_files
where table_id = :table_id and removed_version > :version and deletion_vector is not null;

-- name: delete_copied_vector
-- Deletes the copy of a vector that no kept version has.
delete from dl_iceberg_vectors where table_id = :table_id and vector_key = :vector_key;

-- name: delete_dropped_field_ids
-- See delete_dropped_metadata.
delete from dl_iceberg_field_ids where table_id = :table_id;

-- name: delete_dropped_formats
-- See delete_dropped_metadata.
delete from dl_iceberg_formats where table_id = :table_id;

-- name: delete_dropped_vectors
-- See delete_dropped_metadata.
delete from dl_iceberg_vectors where table_id = :table_id;

-- name: delete_dropped_delta_lists
-- See delete_dropped_metadata. Also when files were lost that lists and manifests name.
delete from dl_iceberg_delta_lists where table_id = :table_id;

-- name: delete_dropped_delta_manifests
-- See delete_dropped_delta_lists.
delete from dl_iceberg_delta_manifests where table_id = :table_id;

-- name: select_file_ids_at
-- The ids of the files of a version.
select file_id from dl_add_files where table_id = :table_id and version + 0 <= :version and removed_version > :version;

-- name: select_any_delta_list
-- Whether anything was written for Iceberg clients of a Delta table.
select version from dl_iceberg_delta_lists where table_id = :table_id limit 1;
