-- Planning of Iceberg tables: `f` is a data file, `s` the snapshot's row of its manifest, `c` a candidate. See plan_common.sql.

-- name: plan_iceberg_files
-- Every data file of a snapshot is a candidate; added_in: only files that this snapshot added, -1 for all.
select f.file_id from dl_iceberg_snapshot_manifests s cross join dl_iceberg_files f
where s.table_id = :table_id and s.list_key = :list_key and s.manifest_content = 'data'
  and f.table_id = s.table_id and f.manifest_id = s.manifest_id and f.file_content = 'data'
  and f.file_id between :first_id and :last_id
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_files_without_bounds
-- Files from before the column had bounds: these are unknown, so the files are kept.
select f.file_id from dl_iceberg_files f where f.table_id = :table_id and f.file_id < :@first_file_id

-- name: plan_iceberg_sqlite_fetch
-- The snapshot's files among the candidates.
select {columns} from ({candidates}) c cross join dl_iceberg_files f cross join dl_iceberg_snapshot_manifests s
where f.table_id = :table_id and f.file_id = c.file_id and f.file_content = 'data' and f.file_id between :first_id and :last_id
  and s.table_id = f.table_id and s.list_key = :list_key and s.manifest_id = f.manifest_id
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_postgres_fetch
select {columns} from ({candidates} offset 0) c
cross join lateral (
    select f.* from dl_iceberg_files f where f.table_id = :table_id and f.file_id = c.file_id offset 0) f
cross join lateral (
    select s.* from dl_iceberg_snapshot_manifests s
    where s.table_id = :table_id and s.list_key = :list_key and s.manifest_id = f.manifest_id offset 0) s
where f.file_content = 'data' and f.file_id between :first_id and :last_id
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_duckdb_fetch
select {columns} from dl_iceberg_files f
join dl_iceberg_snapshot_manifests s on s.table_id = f.table_id and s.manifest_id = f.manifest_id
where f.table_id = :table_id and f.file_content = 'data' and f.file_id between :first_id and :last_id
  and s.list_key = :list_key and f.file_id in ({candidates})
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_all
-- All data files of a snapshot.
select {columns} from dl_iceberg_snapshot_manifests s cross join dl_iceberg_files f
where s.table_id = :table_id and s.list_key = :list_key and s.manifest_content = 'data'
  and f.table_id = s.table_id and f.manifest_id = s.manifest_id and f.file_content = 'data'
  and f.file_id between :first_id and :last_id
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_deletes
-- The delete files of a snapshot with one of some delete keys.
select f.file_id, f.file_content, f.delete_key, f.sequence_number, s.sequence_number as manifest_sequence_number,
       f.file, f.file_stats, f.num_records
from dl_iceberg_files f cross join dl_iceberg_snapshot_manifests s
where f.table_id = :table_id and f.delete_key in ({keys}) and f.delete_key is not null
  and s.table_id = f.table_id and s.list_key = :list_key and s.manifest_id = f.manifest_id
