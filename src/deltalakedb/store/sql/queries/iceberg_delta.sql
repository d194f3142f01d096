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
-- and those whose path may be absolute.
select path, deletion_vector, removed_version from dl_add_files
where table_id = :table_id and version > :after_version and removed_version > :first_version
  and (deletion_vector is not null or path like '/%' or path like '%:/%')
limit :max_rows;

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
-- Where the deletion vectors of files were copied to.
select vector_key, puffin_path, puffin_size, content_offset, content_size from dl_iceberg_vectors
where table_id = :table_id and vector_key in ({keys});

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
