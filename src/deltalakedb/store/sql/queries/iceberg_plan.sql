-- The files of native Iceberg tables: indexing manifests, finding the files of a plan, the deletes that apply to them, scan plans.

-- name: select_iceberg_snapshot
-- How many data files and delete files a snapshot has, if its manifests are indexed.
select count(*) as num_manifests,
       sum(case when m.manifest_content = 'data' then m.num_files else 0 end) as num_data_files,
       sum(case when m.manifest_content = 'data' then 0 else m.num_files end) as num_delete_files
from dl_iceberg_snapshot_manifests s
join dl_iceberg_manifests m on m.table_id = s.table_id and m.manifest_id = s.manifest_id
where s.table_id = :table_id and s.snapshot_id = :snapshot_id;

-- name: select_iceberg_manifests
-- The indexed manifests of a table.
select manifest_id, manifest_path from dl_iceberg_manifests where table_id = :table_id;

-- name: select_next_iceberg_ids
-- The next manifest id and the next file id of a table.
select coalesce(max(manifest_id) + 1, 0) as manifest_id, coalesce(max(first_file_id + num_files), 0) as file_id
from dl_iceberg_manifests where table_id = :table_id;

-- name: delete_iceberg_snapshot
-- A snapshot's manifests: the snapshot has expired.
delete from dl_iceberg_snapshot_manifests where table_id = :table_id and snapshot_id = :snapshot_id;

-- name: select_iceberg_snapshot_ids
-- The snapshots of a table whose manifests are indexed.
select distinct snapshot_id from dl_iceberg_snapshot_manifests where table_id = :table_id;

-- name: delete_unused_iceberg_bounds
-- The bounds of files whose manifests no snapshot has any more.
delete from dl_file_bounds where table_id = :table_id and epoch = 0 and file_id {in list (}
    select f.file_id from dl_iceberg_files f where f.table_id = :table_id and f.manifest_id not in (
        select s.manifest_id from dl_iceberg_snapshot_manifests s where s.table_id = :table_id){)};

-- name: delete_unused_iceberg_files
delete from dl_iceberg_files where table_id = :table_id and manifest_id not in (
    select s.manifest_id from dl_iceberg_snapshot_manifests s where s.table_id = :table_id);

-- name: delete_unused_iceberg_manifests
-- The newest manifest stays: new ids are counted from it.
delete from dl_iceberg_manifests where table_id = :table_id and manifest_id not in (
    select s.manifest_id from dl_iceberg_snapshot_manifests s where s.table_id = :table_id)
  and manifest_id < (select max(m.manifest_id) from dl_iceberg_manifests m where m.table_id = :table_id);

-- name: plan_iceberg_files
-- Every data file of a snapshot is a candidate; added_in: only files that this snapshot added, -1 for all.
select f.file_id from dl_iceberg_snapshot_manifests s cross join dl_iceberg_files f
where s.table_id = :table_id and s.snapshot_id = :snapshot_id and s.manifest_content = 'data'
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
  and s.table_id = f.table_id and s.snapshot_id = :snapshot_id and s.manifest_id = f.manifest_id
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_postgres_fetch
select {columns} from ({candidates} offset 0) c
cross join lateral (
    select f.* from dl_iceberg_files f where f.table_id = :table_id and f.file_id = c.file_id offset 0) f
cross join lateral (
    select s.* from dl_iceberg_snapshot_manifests s
    where s.table_id = :table_id and s.snapshot_id = :snapshot_id and s.manifest_id = f.manifest_id offset 0) s
where f.file_content = 'data' and f.file_id between :first_id and :last_id
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_duckdb_fetch
select {columns} from dl_iceberg_files f
join dl_iceberg_snapshot_manifests s on s.table_id = f.table_id and s.manifest_id = f.manifest_id
where f.table_id = :table_id and f.file_content = 'data' and f.file_id between :first_id and :last_id
  and s.snapshot_id = :snapshot_id and f.file_id in ({candidates})
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_all
-- All data files of a snapshot.
select {columns} from dl_iceberg_snapshot_manifests s cross join dl_iceberg_files f
where s.table_id = :table_id and s.snapshot_id = :snapshot_id and s.manifest_content = 'data'
  and f.table_id = s.table_id and f.manifest_id = s.manifest_id and f.file_content = 'data'
  and f.file_id between :first_id and :last_id
  and (:added_in = -1 or (s.added_snapshot_id = :added_in and f.added_by in (-1, :added_in)))

-- name: plan_iceberg_deletes
-- The delete files of a snapshot with one of some delete keys.
select f.file_id, f.file_content, f.delete_key, f.sequence_number, s.sequence_number as manifest_sequence_number,
       f.file, f.file_stats, f.num_records
from dl_iceberg_files f cross join dl_iceberg_snapshot_manifests s
where f.table_id = :table_id and f.delete_key in ({keys}) and f.delete_key is not null
  and s.table_id = f.table_id and s.snapshot_id = :snapshot_id and s.manifest_id = f.manifest_id

-- name: insert_scan_plan
insert into dl_scan_plans (plan_id, table_id, plan_status, request, tasks, statistics, created_at_ms, completed_at_ms, expires_ms)
values (:plan_id, :table_id, :plan_status, :request, :tasks, :statistics, :created_at_ms, :completed_at_ms, :expires_ms);

-- name: select_scan_plan
select plan_id, table_id, plan_status, request, tasks, statistics, expires_ms
from dl_scan_plans where plan_id = :plan_id and expires_ms > :now_ms;

-- name: cancel_scan_plan
update dl_scan_plans set plan_status = 'cancelled', tasks = null where plan_id = :plan_id and expires_ms > :now_ms;

-- name: delete_expired_scan_plans
delete from dl_scan_plans where expires_ms <= :now_ms;
