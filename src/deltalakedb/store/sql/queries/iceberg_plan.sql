-- The files of native Iceberg tables: indexed manifests, expired snapshots, scan plans.

-- name: select_iceberg_snapshot
-- How many data files and delete files a snapshot has, if its manifests are indexed.
select count(*) as num_manifests,
       sum(case when m.manifest_content = 'data' then m.num_files else 0 end) as num_data_files,
       sum(case when m.manifest_content = 'data' then 0 else m.num_files end) as num_delete_files
from dl_iceberg_snapshot_manifests s
join dl_iceberg_manifests m on m.table_id = s.table_id and m.manifest_id = s.manifest_id
where s.table_id = :table_id and s.list_key = :list_key;

-- name: select_iceberg_manifests
-- The indexed manifests of a table.
select manifest_id, manifest_path from dl_iceberg_manifests where table_id = :table_id;

-- name: select_next_iceberg_ids
-- The next manifest id and the next file id of a table.
select coalesce(max(manifest_id) + 1, 0) as manifest_id, coalesce(max(first_file_id + num_files), 0) as file_id
from dl_iceberg_manifests where table_id = :table_id;

-- name: delete_iceberg_snapshot
-- A snapshot's manifests: the snapshot has expired.
delete from dl_iceberg_snapshot_manifests where table_id = :table_id and list_key = :list_key;

-- name: select_iceberg_list_keys
-- The snapshots of a table whose manifests are indexed.
select distinct list_key from dl_iceberg_snapshot_manifests where table_id = :table_id;

-- name: delete_unused_iceberg_bounds
-- The bounds of files whose manifests no snapshot has any more.
delete from dl_file_bounds where table_id = :table_id and epoch = 0 and file_id {in list (}
    select f.file_id from dl_iceberg_files f where f.table_id = :table_id and f.manifest_id not in (
        select s.manifest_id from dl_iceberg_snapshot_manifests s where s.table_id = :table_id){)};

-- name: delete_unused_iceberg_files
-- The files of manifests that no snapshot has any more.
delete from dl_iceberg_files where table_id = :table_id and manifest_id not in (
    select s.manifest_id from dl_iceberg_snapshot_manifests s where s.table_id = :table_id);

-- name: delete_unused_iceberg_manifests
-- The newest manifest stays: new ids are counted from it.
delete from dl_iceberg_manifests where table_id = :table_id and manifest_id not in (
    select s.manifest_id from dl_iceberg_snapshot_manifests s where s.table_id = :table_id)
  and manifest_id < (select max(m.manifest_id) from dl_iceberg_manifests m where m.table_id = :table_id);

-- name: insert_scan_plan
-- Stores a scan plan.
insert into dl_scan_plans (plan_id, table_id, plan_status, request, tasks, statistics, created_at_ms, completed_at_ms, expires_ms)
values (:plan_id, :table_id, :plan_status, :request, :tasks, :statistics, :created_at_ms, :completed_at_ms, :expires_ms);

-- name: select_scan_plan
-- A scan plan that has not expired.
select plan_id, table_id, plan_status, request, tasks, statistics, expires_ms
from dl_scan_plans where plan_id = :plan_id and expires_ms > :now_ms;

-- name: cancel_scan_plan
-- Cancels a scan plan: its tasks are gone.
update dl_scan_plans set plan_status = 'cancelled', tasks = null where plan_id = :plan_id and expires_ms > :now_ms;

-- name: delete_expired_scan_plans
-- Removes what has expired.
delete from dl_scan_plans where expires_ms <= :now_ms;
