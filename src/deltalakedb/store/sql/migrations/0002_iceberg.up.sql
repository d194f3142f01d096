-- Iceberg tables and views: versions and snapshots, the files of manifests, scan plans, idempotency keys.

-- One version of an Iceberg table or view. `metadata` is the metadata file without its snapshots, which are rows of their own.
create table dl_iceberg_versions (
    table_id bigint not null,
    version bigint not null,
    metadata_location text not null,
    metadata text not null,
    primary key (table_id, version)
);

-- The snapshots of an Iceberg table, as the client sent them; in the metadata of version V if
-- added_version <= V and removed_version > V, in the order of added_version and ordinal.
create table dl_iceberg_snapshots (
    table_id bigint not null,
    added_version bigint not null,
    ordinal bigint not null,
    removed_version bigint not null,
    snapshot_id bigint not null,
    snapshot text not null,
    primary key (table_id, added_version, ordinal)
);
create index dl_iceberg_snapshots_by_id on dl_iceberg_snapshots (table_id, snapshot_id);

-- The manifests of Iceberg tables whose files are in SQL. A manifest is immutable: its files are indexed once, when a plan first needs
-- them, with the file ids first_file_id, first_file_id + 1, ... The next manifest_id is also the table's lock: of two processes that
-- index at once, the second fails on the key and uses what the first one wrote. manifest_content: `data` or `deletes`.
create table dl_iceberg_manifests (
    table_id bigint not null,
    manifest_id bigint not null,
    manifest_path text not null,
    manifest_content text not null,
    spec_id int not null,
    first_file_id bigint not null,
    num_files bigint not null,
    primary key (table_id, manifest_id)
);
-- engines: sqlite, postgres
create unique index dl_iceberg_manifests_by_path on dl_iceberg_manifests (table_id, manifest_path);

-- The manifests of each snapshot, written together once all of them are indexed, with what files inherit from the manifest list.
-- list_key: a hash of the snapshot's id and its manifest list, because the id can come again with other manifests.
create table dl_iceberg_snapshot_manifests (
    table_id bigint not null,
    list_key bigint not null,
    manifest_id bigint not null,
    ordinal bigint not null,
    manifest_content text not null,
    sequence_number bigint not null,
    added_snapshot_id bigint not null,
    first_row_id bigint,
    primary key (table_id, list_key, manifest_id)
);

-- The live entries (added or existing) of indexed manifests. file_content: `data`, `position-deletes` (deletion vectors too) or
-- `equality-deletes`. `file` is the data file as JSON, as scan plans return it, `file_stats` its column statistics. sequence_number: -1 is
-- inherited from the manifest list. added_by: the snapshot that added the entry, -1 if it is the manifest's, null if the entry exists
-- from before the manifest. row_offset: rows before the file among those that inherit row ids. delete_key: which data files a delete
-- can apply to. Bounds of columns of data files are in dl_file_bounds, under the table's id, the file's id and epoch 0.
create table dl_iceberg_files (
    table_id bigint not null,
    file_id bigint not null,
    manifest_id bigint not null,
    file_content text not null,
    file_path text not null,
    spec_id int not null,
    file_partition text not null,
    num_records bigint,
    size bigint not null,
    sequence_number bigint not null,
    added_by bigint,
    row_offset bigint,
    delete_key text,
    file text not null,
    file_stats text
);
-- engines: sqlite, postgres
create unique index dl_iceberg_files_by_id on dl_iceberg_files (table_id, file_id);
-- engines: sqlite, postgres
create index dl_iceberg_files_by_manifest on dl_iceberg_files (table_id, manifest_id, file_id);
-- engines: sqlite, postgres
create index dl_iceberg_files_by_delete_key on dl_iceberg_files (table_id, delete_key, file_id) where delete_key is not null;

-- Scan plans of Iceberg clients, removed when they expire. request: as the client sent it. tasks: the ranges of file ids that plan tasks
-- refer to, with the schema and the partition specs that they are planned by. statistics: files kept and pruned.
create table dl_scan_plans (
    plan_id text not null primary key,
    table_id bigint not null,
    plan_status text not null,
    request text not null,
    tasks text,
    statistics text,
    created_at_ms bigint not null,
    completed_at_ms bigint,
    expires_ms bigint not null
);
create index dl_scan_plans_by_end on dl_scan_plans (expires_ms);

-- Answers to requests with an idempotency key, to be given again to a repeat of the request. request_hash: method, path and body.
create table dl_idempotency_keys (
    idempotency_key text not null primary key,
    request_hash text not null,
    answer_status int,
    answer text,
    created_at_ms bigint not null,
    expires_ms bigint not null
);
create index dl_idempotency_keys_by_end on dl_idempotency_keys (expires_ms);

-- Iceberg tables and views have no mirror.
drop view vw_mirror_lag;

-- How far `_delta_log` is behind SQL, for each table, including those dropped before their mirror was complete. Followers and detached
-- tables are never behind: their files are the authority.
create view vw_mirror_lag as
select t.namespace, t.name, t.table_id, t.mode, case when t.until_ms = 9223372036854775807 then t.state else 'dropped' end as state,
       h.current_version, h.mirrored_version,
       case when t.mode = 'managed' then h.current_version - h.mirrored_version else 0 end as versions_behind,
       (select min(v.committed_at_ms) from dl_table_versions v
         where v.table_id = t.table_id and v.version > h.mirrored_version and t.mode = 'managed') as oldest_unmirrored_ms,
       (select max(s.attempts) from dl_mirror_status s where s.table_id = t.table_id) as attempts,
       (select max(s.next_try_ms) from dl_mirror_status s where s.table_id = t.table_id) as next_try_ms,
       (select max(s.error) from dl_mirror_status s
         where s.table_id = t.table_id and s.version = (select min(m.version) from dl_mirror_status m where m.table_id = t.table_id))
         as error,
       (select max(c.version) from dl_checkpoints c where c.table_id = t.table_id) as checkpoint_version
from dl_table_heads h
join dl_tables t on t.table_id = h.table_id and t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = h.table_id)
where (t.until_ms = 9223372036854775807 and t.mode not in ('iceberg', 'view')) or (t.mode = 'managed' and h.mirrored_version < h.current_version);

-- The snapshots of every current Iceberg table at its newest version. `snapshot` is JSON, as the client sent it.
create view vw_iceberg_snapshots as
select t.namespace, t.name, s.table_id, s.snapshot_id, s.added_version, v.committed_at_ms, v.txn_id, s.snapshot
from dl_tables t join dl_iceberg_snapshots s on s.table_id = t.table_id
left join dl_table_versions v on v.table_id = s.table_id and v.version = s.added_version
where t.until_ms = 9223372036854775807 and s.removed_version = 9223372036854775807;
