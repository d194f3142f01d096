-- Views for users, and for readers that expect the log as one append-only table. Part of the present schema, after schema.sql.

-- Every action of every commit as one row; commitInfo is the action `commit`.
create view delta_log_action as
select v.table_id, v.version, cast(v.commit_info_ordinal as bigint) as ordinal, 'commit' as action_type,
       v.committed_at_ms as commit_ts, t.actor as commit_user, v.operation, v.operation_params,
       cast(null as int) as min_reader_version, cast(null as int) as min_writer_version,
       cast(null as text) as reader_features, cast(null as text) as writer_features,
       cast(null as text) as table_name, cast(null as text) as description, cast(null as text) as schema_json,
       cast(null as text) as partition_columns, cast(null as text) as configuration,
       cast(null as text) as path, cast(null as text) as partition_values, cast(null as bigint) as size_bytes,
       cast(null as bigint) as modification_time, cast(null as boolean) as data_change, cast(null as bigint) as num_records,
       cast(null as text) as stats_json, cast(null as bigint) as deletion_time,
       cast(null as text) as app_id, cast(null as bigint) as app_version
from dl_table_versions v left join dl_transactions t on t.txn_id = v.txn_id
where v.commit_info is not null
union all
select table_id, version, ordinal, 'protocol', null, null, null, null, min_reader_version, min_writer_version, reader_features,
       writer_features, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from dl_protocol_updates
union all
select table_id, version, ordinal, 'metadata', null, null, null, null, null, null, null, null, name, description, schema_json,
       partition_columns, configuration, null, null, null, null, null, null, null, null, null, null
from dl_metadata_updates
union all
select table_id, version, ordinal, 'add', null, null, null, null, null, null, null, null, null, null, null, null, null,
       path, partition_values, size, modification_time, data_change, num_records, stats, null, null, null
from dl_add_files
union all
select table_id, version, ordinal, 'remove', null, null, null, null, null, null, null, null, null, null, null, null, null,
       path, partition_values, size, null, data_change, null, stats, deletion_timestamp, null, null
from dl_remove_files
union all
select table_id, version, ordinal, 'cdc', null, null, null, null, null, null, null, null, null, null, null, null, null,
       path, partition_values, size, null, data_change, null, null, null, null, null
from dl_cdc_files
union all
select table_id, version, ordinal, 'txn', null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, app_id, app_version
from dl_txn_actions
union all
select table_id, version, ordinal, 'domainMetadata', null, null, null, null, null, null, null, null, null, null, null, null,
       configuration, null, null, null, null, null, null, null, null, null, null
from dl_domain_metadata
union all
select table_id, version, ordinal, kind, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, null, null
from dl_other_actions;

-- The newest add or remove of each path. A new deletion vector removes and adds the same path in one version: the add comes later.
create view vw_latest_action_per_path as
select table_id, path, dv_id, version, ordinal, is_add, size, data_change
from (
    select a.*, row_number() over (partition by table_id, path order by version desc, is_add desc, ordinal desc) as newest
    from (
        select table_id, path, dv_id, version, ordinal, 1 as is_add, size, data_change from dl_add_files
        union all
        select table_id, path, dv_id, version, ordinal, 0 as is_add, size, data_change from dl_remove_files
    ) a
) ranked
where newest = 1;

-- The files of every current table at its head.
create view vw_active_files as
select t.namespace, t.name, f.table_id, f.version, f.file_id, f.path, f.dv_id, f.size, f.modification_time, f.data_change,
       f.num_records, f.partition_values, f.stats, f.tags, f.deletion_vector, f.base_row_id, f.default_row_commit_version,
       f.clustering_provider
from dl_tables t join dl_add_files f on f.table_id = t.table_id
where t.until_ms = 9223372036854775807 and f.removed_version = 9223372036854775807;

-- Who did what to which table, and when.
create view vw_table_history as
select t.namespace, t.name, v.table_id, v.version, v.committed_at_ms, v.txn_id, x.actor, x.message, v.operation, v.operation_params,
       v.operation_metrics, v.is_base, v.num_actions, v.num_added_files, v.num_removed_files
from dl_tables t join dl_table_versions v on v.table_id = t.table_id left join dl_transactions x on x.txn_id = v.txn_id
where t.until_ms = 9223372036854775807;

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
