-- Every fixed query of the store: a name, the reason, named parameters. 9223372036854775807 (2^63-1) means "while current" and "while live".
-- {for update} is a row lock on Postgres and nothing elsewhere: SQLite and DuckDB lock the whole database for a writer.

-- ---------------------------------------------------------------------------------------------------------------- schema, identity

-- name: select_migrations
-- Which migrations the database has seen.
select migration, name, checksum, applied_at_ms from dl_schema_migrations order by migration;

-- name: insert_migration
-- Remember an applied migration.
insert into dl_schema_migrations (migration, name, checksum, applied_at_ms) values (:migration, :name, :checksum, :applied_at_ms);

-- name: delete_migration
-- Forget a migration before it is taken back.
delete from dl_schema_migrations where migration = :migration;

-- name: insert_catalog
-- A new database gets its identity once.
insert into dl_catalog (catalog_id, created_at_ms, next_table_id)
select :catalog_id, :created_at_ms, 1 where not exists (select 1 from dl_catalog);

-- name: select_catalog
-- Who this database is.
select catalog_id, created_at_ms, next_table_id from dl_catalog;

-- name: select_next_table_id
-- The table id to hand out; the row stays locked until the new table is committed.
select next_table_id from dl_catalog {for update};

-- name: advance_next_table_id
-- Hand out a table id.
update dl_catalog set next_table_id = next_table_id + 1 where next_table_id = :expected;

-- ---------------------------------------------------------------------------------------------------------------- registry

-- name: select_namespaces
-- All namespaces.
select namespace, properties, created_at_ms from dl_namespaces order by namespace_key;

-- name: insert_namespace
-- A namespace comes into being on first use; whoever comes second finds it there.
insert into dl_namespaces (namespace_key, namespace, properties, created_at_ms)
values (:namespace_key, :namespace, :properties, :created_at_ms) on conflict (namespace_key) do nothing;

-- name: update_namespace
-- Change a namespace's properties.
update dl_namespaces set properties = :properties where namespace_key = :namespace_key;

-- name: delete_namespace
-- Only an empty namespace goes away.
delete from dl_namespaces where namespace_key = :namespace_key
and not exists (select 1 from dl_tables t where t.namespace_key = :namespace_key and t.until_ms = 9223372036854775807);

-- name: select_table
-- A table by its current name.
select table_id, table_uuid, namespace, name, location, mode, state, properties from dl_tables
where namespace_key = :namespace_key and name_key = :name_key and until_ms = 9223372036854775807;

-- name: select_table_by_id
-- A table by its id.
select table_id, table_uuid, namespace, name, location, mode, state, properties from dl_tables
where table_id = :table_id and until_ms = 9223372036854775807;

-- name: select_table_by_location
-- Who owns a location: it has one owner at most.
select table_id, table_uuid, namespace, name, location, mode, state, properties from dl_tables
where location = :location and until_ms = 9223372036854775807;

-- name: select_table_at
-- A table by the name it had at an instant.
select table_id, table_uuid, namespace, name, location, mode, state, properties from dl_tables
where namespace_key = :namespace_key and name_key = :name_key and from_ms <= :at_ms and until_ms > :at_ms;

-- name: select_tables
-- All tables as they are called now.
select table_id, table_uuid, namespace, name, location, mode, state, properties from dl_tables
where until_ms = 9223372036854775807 order by namespace_key, name_key;

-- name: select_tables_at
-- All tables as they were called at an instant.
select table_id, table_uuid, namespace, name, location, mode, state, properties from dl_tables
where from_ms <= :at_ms and until_ms > :at_ms order by namespace_key, name_key;

-- name: insert_table
-- A table, or a new name, mode, state or set of properties of it, from an instant on.
insert into dl_tables (table_id, table_uuid, namespace, namespace_key, name, name_key, location, mode, state, properties, from_ms, until_ms)
values (:table_id, :table_uuid, :namespace, :namespace_key, :name, :name_key, :location, :mode, :state, :properties, :from_ms,
        9223372036854775807);

-- name: lock_table_row
-- When the current registry row began; locked, so that two changes of one table follow each other.
select from_ms from dl_tables where table_id = :table_id and until_ms = 9223372036854775807 {for update};

-- name: end_table_row
-- The current registry row becomes history.
update dl_tables set until_ms = :until_ms where table_id = :table_id and until_ms = 9223372036854775807;

-- name: open_table
-- Everything an open needs in one row: registry, head, and the metadata and protocol in force. No file row is read.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties,
       h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
       h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch,
       m.metadata_id, m.name as metadata_name, m.description, m.format, m.schema_json, m.partition_columns, m.configuration,
       m.created_time, m.extra as metadata_extra,
       p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features, p.fenced, p.extra as protocol_extra
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
join dl_metadata_updates m on m.table_id = t.table_id and m.version = h.metadata_version
join dl_protocol_updates p on p.table_id = t.table_id and p.version = h.protocol_version
where t.namespace_key = :namespace_key and t.name_key = :name_key and t.until_ms = 9223372036854775807;

-- ---------------------------------------------------------------------------------------------------------------- heads

-- name: select_head
-- Query pattern 1, the latest version of a table: one row by its key, with everything else a head knows.
select table_id, current_version, metadata_version, protocol_version, mirrored_version, base_version, last_commit_ms, num_files,
       num_records, files_without_records, size_bytes, next_file_id, bounds_epoch
from dl_table_heads where table_id = :table_id;

-- name: select_heads
-- The heads of all registered tables, for a list of them: one row each, no file row.
select h.table_id, h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms,
       h.num_files, h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch
from dl_table_heads h join dl_tables t on t.table_id = h.table_id and t.until_ms = 9223372036854775807;

-- name: lock_head
-- The head, locked. It reads nothing else: on Postgres whatever else this statement read would be older than the lock.
select table_id, current_version, metadata_version, protocol_version, mirrored_version, base_version, last_commit_ms, num_files,
       num_records, files_without_records, size_bytes, next_file_id, bounds_epoch
from dl_table_heads where table_id = :table_id {for update};

-- name: insert_head
-- The head of a table's first load.
insert into dl_table_heads (table_id, current_version, metadata_version, protocol_version, mirrored_version, base_version,
       last_commit_ms, num_files, num_records, files_without_records, size_bytes, next_file_id, bounds_epoch)
values (:table_id, :current_version, :metadata_version, :protocol_version, :mirrored_version, :base_version, :last_commit_ms,
        :num_files, :num_records, :files_without_records, :size_bytes, :next_file_id, :bounds_epoch);

-- name: advance_head
-- Query pattern 7, compare and set: the head after one or more commits, if nobody moved it since it was locked; no row changed means
-- somebody did. How far the mirror has come is told by the mirror alone.
update dl_table_heads set current_version = :current_version, metadata_version = :metadata_version,
       protocol_version = :protocol_version, base_version = :base_version,
       mirrored_version = case when mirrored_version > :mirrored_version then mirrored_version else :mirrored_version end,
       last_commit_ms = :last_commit_ms, num_files = :num_files, num_records = :num_records,
       files_without_records = :files_without_records, size_bytes = :size_bytes, next_file_id = :next_file_id,
       bounds_epoch = :bounds_epoch
where table_id = :table_id and current_version = :expected;

-- ---------------------------------------------------------------------------------------------------------------- commits

-- name: take_token
-- The transaction's own row, with its time T = max(clock, newest + 1); no row comes back when its token was here before.
insert into dl_transactions (txn_id, client_token, committed_at_ms, actor, message)
select :txn_id, :client_token, case when c.now_ms > c.newest_ms then c.now_ms else c.newest_ms + 1 end, cast(:actor as text),
       cast(:message as text)
from (select {now ms} as now_ms, coalesce((select max(committed_at_ms) from dl_transactions), 0) as newest_ms) c
where true
on conflict (client_token) do nothing
returning committed_at_ms;

-- name: select_token
-- The transaction that used a token.
select txn_id, committed_at_ms from dl_transactions where client_token = :client_token;

-- name: select_transaction_versions
-- What a transaction committed, in order.
select v.table_id, v.version, v.committed_at_ms from dl_table_versions v where v.txn_id = :txn_id order by v.table_id, v.version;

-- name: select_commit_state
-- What a commit must know of a table beside its head, which it has locked: may it be written, who claims it, what was counted.
select h.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, p.fenced, v.total_added,
       v.total_closed, i.holder as intent_holder, i.until_ms as intent_until_ms
from dl_table_heads h
join dl_table_versions v on v.table_id = h.table_id and v.version = h.current_version
join dl_protocol_updates p on p.table_id = h.table_id and p.version = h.protocol_version
left join dl_tables t on t.table_id = h.table_id and t.until_ms = 9223372036854775807
left join dl_leases i on i.lease = :lease
where h.table_id = :table_id;

-- ---------------------------------------------------------------------------------------------------------------- versions

-- name: select_transaction
-- When a transaction was committed, for the catalog as it was then.
select committed_at_ms from dl_transactions where txn_id = :txn_id;

-- name: select_version
-- One commit.
select table_id, version, txn_id, committed_at_ms, operation, operation_params, operation_metrics, commit_info, commit_info_ordinal,
       is_base, num_actions, num_added_files, num_removed_files, total_added, total_closed, rendered_bytes
from dl_table_versions where table_id = :table_id and version = :version;

-- name: select_version_at
-- Query pattern 4, time travel by timestamp: the newest version committed at or before an instant. A table's times never step back.
select version, committed_at_ms from dl_table_versions
where table_id = :table_id and committed_at_ms <= :at_ms order by committed_at_ms desc limit 1;

-- name: select_earliest_version
-- The oldest version whose snapshot can be given: the first one kept.
select version, committed_at_ms from dl_table_versions where table_id = :table_id order by version limit 1;

-- name: select_history
-- Who did what, newest first; each bound may be null.
select v.table_id, v.version, v.txn_id, v.committed_at_ms, v.operation, v.operation_params, v.operation_metrics, v.commit_info,
       v.is_base, v.num_actions, v.num_added_files, v.num_removed_files, x.actor, x.message
from dl_table_versions v left join dl_transactions x on x.txn_id = v.txn_id
where v.table_id = :table_id
  and (cast(:since_ms as bigint) is null or v.committed_at_ms >= cast(:since_ms as bigint))
  and (cast(:until_ms as bigint) is null or v.committed_at_ms <= cast(:until_ms as bigint))
order by v.version desc limit :max_rows;

-- name: select_versions
-- The commits of a range, in order.
select table_id, version, txn_id, committed_at_ms, operation, operation_params, operation_metrics, commit_info, commit_info_ordinal,
       is_base, num_actions, num_added_files, num_removed_files, total_added, total_closed, rendered_bytes
from dl_table_versions where table_id = :table_id and version between :first_version and :last_version order by version;

-- name: select_log_entries
-- What a listing of the log shows: each commit's time and size. Only of our own commits the size is that of what we would render.
select version, committed_at_ms, is_base, case when txn_id is null then null else rendered_bytes end as rendered_bytes
from dl_table_versions where table_id = :table_id and version between :first_version and :last_version order by version;

-- name: select_version_numbers
-- The versions that are kept, in order.
select version, is_base from dl_table_versions where table_id = :table_id order by version;

-- name: select_neighbours
-- The kept versions around one that is not kept.
select (select max(b.version) from dl_table_versions b where b.table_id = :table_id and b.version <= :version) as before,
       (select min(a.version) from dl_table_versions a where a.table_id = :table_id and a.version >= :version) as after;

-- name: select_version_after
-- The kept version that follows a version, with its time.
select version, committed_at_ms, is_base from dl_table_versions
where table_id = :table_id and version > :version order by version limit 1;

-- ---------------------------------------------------------------------------------------------------------------- files

-- name: select_live_files
-- Query pattern 2, the active files: rows nobody closed. The head never walks over dead rows.
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807;

-- name: select_live_files_between
-- A page of the active files, for an engine that takes in many of them best in pages.
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807
  and file_id between :first_file_id and :last_file_id;

-- name: select_live_file_ids
-- From which to which id active files reach: two steps in an index.
select (select min(file_id) from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807) as first_file_id,
       (select max(file_id) from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807) as last_file_id;

-- name: select_files_added_up_to
-- Query pattern 3, time travel by version, from the side of the rows added up to it: the cheaper one early in a history.
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and version <= :version and removed_version + 0 > :version;

-- name: select_files_removed_after
-- Query pattern 3, time travel by version, from the side of the rows still live or removed later: the cheaper one late in a history.
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and version + 0 <= :version and removed_version > :version;

-- name: count_live_files
-- Counted, not remembered: what validation compares the head with.
select count(*) as num_files, sum(size) as size_bytes, sum(num_records) as num_records,
       sum(case when num_records is null then 1 else 0 end) as files_without_records
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807;

-- name: count_files_at
-- How many files and bytes a version had.
select count(*) as num_files, sum(size) as size_bytes, sum(num_records) as num_records,
       sum(case when num_records is null then 1 else 0 end) as files_without_records
from dl_add_files where table_id = :table_id and version <= :version and removed_version > :version;

-- name: select_live_files_by_stats
-- Query pattern 5, filtering by statistics: live files whose bounds of a number column meet a range. Files without a row are unknown and kept.
select f.path, f.stats from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807
  and not exists (
    select 1 from dl_file_bounds b join dl_table_heads h on h.table_id = b.table_id and h.bounds_epoch = b.epoch
    where b.table_id = f.table_id and b.file_id = f.file_id and b.column_id = :column_id
      and (b.lower is null or b.lower > :upper or b.upper < :lower))
order by f.path;

-- name: select_live_files_by_partition
-- Query pattern 6, filtering by partition: live files with exactly these partition values (JSON text as it is stored).
select path, size from dl_add_files
where table_id = :table_id and removed_version = 9223372036854775807 and partition_values = :partition_values
order by path;

-- name: select_page_end
-- The last id of the next page of a version's files: an index tells. Ids of later files may count, pages are no longer for it.
select max(p.file_id) as last_file_id from (
    select u.file_id from (
        select l.file_id from (
            select file_id from dl_add_files
            where table_id = :table_id and removed_version = 9223372036854775807 and file_id > :after_file_id
            order by file_id limit :max_files) l
        union all
        select r.file_id from dl_add_files r
        where r.table_id = :table_id and r.removed_version > :version and r.removed_version < 9223372036854775807
          and r.file_id > :after_file_id
    ) u order by u.file_id limit :max_files
) p;

-- name: select_files_between
-- A page of a version's files, whatever was committed since: those still live, and those removed later.
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807
  and file_id between :first_file_id and :last_file_id and version + 0 <= :version
union all
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807
  and file_id between :first_file_id and :last_file_id and version + 0 <= :version;

-- name: select_first_version_after
-- Where to begin when only what happened after an instant matters. None when the history starts later: of what was before it, the
-- removals that checkpoints list are still there.
select min(version) as version from dl_table_versions where table_id = :table_id and committed_at_ms > :at_ms
  and exists (select 1 from dl_table_versions o where o.table_id = :table_id and o.committed_at_ms <= :at_ms);

-- name: select_tombstone_places
-- Where the newest removals of files not live at a version stand. A file can be live again only by an add that came after.
-- Sorted together instead of joined: SQLite would compare every removal with every add.
with spoken as (
    select path, dv_id, version, ordinal, deletion_timestamp, 0 as is_live
    from dl_remove_files where table_id = :table_id and version >= :since_version and version <= :version
    union all
    select path, dv_id, version, ordinal, cast(null as bigint) as deletion_timestamp, 1 as is_live
    from dl_add_files
    where table_id = :table_id and version > :since_version and version <= :version and removed_version > :version
), newest as (
    select s.version, s.ordinal, s.deletion_timestamp, s.is_live,
           row_number() over (partition by s.path, s.dv_id order by s.version desc) as position
    from spoken s
)
select n.version, n.ordinal from newest n
where n.position = 1 and n.is_live = 0 and coalesce(n.deletion_timestamp, 0) > :deleted_after_ms
order by n.version, n.ordinal;

-- name: select_removes_from
-- A page of the removals up to a version, in order.
select version, ordinal, path, data_change, deletion_timestamp, extended_file_metadata, partition_values, size, stats, tags,
       deletion_vector, base_row_id, default_row_commit_version, extra
from dl_remove_files
where table_id = :table_id and version >= :first_version and version <= :version
  and (version, ordinal) >= (:first_version, :first_ordinal)
order by version, ordinal limit :max_rows;

-- name: close_all_files
-- A new base replaces the state: every live file ends at that version.
update dl_add_files set removed_version = :version where table_id = :table_id and removed_version = 9223372036854775807;

-- name: select_diff_added
-- The difference of two versions: files in the later one that are not in the earlier one.
select path, dv_id, size, version, num_records from dl_add_files
where table_id = :table_id and version > :earlier and version <= :later and removed_version > :later
  and not exists (
    select 1 from dl_add_files o where o.table_id = dl_add_files.table_id and o.key_hash = dl_add_files.key_hash
      and o.version <= :earlier and o.removed_version > :earlier)
order by path, dv_id;

-- name: select_diff_removed
-- The difference of two versions: files in the earlier one that are not in the later one.
select path, dv_id, size, removed_version, num_records from dl_add_files
where table_id = :table_id and removed_version > :earlier and removed_version <= :later and version <= :earlier
  and not exists (
    select 1 from dl_add_files o where o.table_id = dl_add_files.table_id and o.key_hash = dl_add_files.key_hash
      and o.version <= :later and o.removed_version > :later)
order by path, dv_id;

-- name: select_lineage
-- Which commits produced a version: those whose files are still in it, or that set its metadata or protocol, newest first. What is older
-- than the first kept version came with that one.
select v.version, v.committed_at_ms, v.operation, v.operation_params, v.commit_info, v.is_base, x.actor, x.message,
       coalesce(c.num_files, 0) as num_files, coalesce(c.size_bytes, 0) as size_bytes
from dl_table_versions v
cross join (select min(version) as version from dl_table_versions where table_id = :table_id) kept
left join (
    select case when f.version < s.version then s.version else f.version end as version, count(*) as num_files,
           sum(f.size) as size_bytes
    from dl_add_files f cross join (select min(version) as version from dl_table_versions where table_id = :table_id) s
    where f.table_id = :table_id and f.version <= :version and f.removed_version > :version
    group by case when f.version < s.version then s.version else f.version end
) c on c.version = v.version
left join dl_transactions x on x.txn_id = v.txn_id
where v.table_id = :table_id and v.version <= :version
  and (c.num_files is not null
    or v.version = (select max(case when m.version < kept.version then kept.version else m.version end)
                    from dl_metadata_updates m where m.table_id = :table_id and m.version <= :version)
    or v.version = (select max(case when p.version < kept.version then kept.version else p.version end)
                    from dl_protocol_updates p where p.table_id = :table_id and p.version <= :version))
order by v.version desc;

-- ---------------------------------------------------------------------------------------------------------------- state beside files

-- name: select_metadata
-- The metadata in force at a version.
select version, metadata_id, name, description, format, schema_json, partition_columns, configuration, created_time, extra
from dl_metadata_updates where table_id = :table_id and version <= :version order by version desc limit 1;

-- name: select_protocol
-- The protocol in force at a version.
select version, min_reader_version, min_writer_version, reader_features, writer_features, fenced, extra
from dl_protocol_updates where table_id = :table_id and version <= :version order by version desc limit 1;

-- name: select_app_transactions
-- The newest transaction of every application at a version.
select app_id, app_version, last_updated, extra from (
    select t.*, row_number() over (partition by app_id order by version desc, ordinal desc) as newest
    from dl_txn_actions t where t.table_id = :table_id and t.version <= :version
) ranked
where newest = 1 order by app_id;

-- name: select_app_transaction
-- How far one application has come: one step in an index. A version holds one txn action of an application at most.
select app_id, app_version, last_updated, extra from dl_txn_actions
where table_id = :table_id and app_id = :app_id and version <= :version order by version desc limit 1;

-- name: select_domain_metadata
-- The live domains at a version.
select domain, configuration, removed, extra from (
    select d.*, row_number() over (partition by domain order by version desc, ordinal desc) as newest
    from dl_domain_metadata d where d.table_id = :table_id and d.version <= :version
) ranked
where newest = 1 and not removed order by domain;

-- ---------------------------------------------------------------------------------------------------------------- actions of a range of commits

-- name: select_add_actions
-- The add actions of a range of commits, to render them again.
select version, ordinal, path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and version between :first_version and :last_version;

-- name: select_closed_adds
-- The adds that a range of commits ended: what the removed files held.
select removed_version, dv_id, path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and removed_version between :first_version and :last_version;

-- name: select_remove_actions
-- The remove actions of a range of commits.
select version, ordinal, path, deletion_timestamp, data_change, extended_file_metadata, partition_values, size, stats, tags,
       deletion_vector, base_row_id, default_row_commit_version, extra
from dl_remove_files where table_id = :table_id and version between :first_version and :last_version;

-- name: select_cdc_actions
-- The cdc actions of a range of commits.
select version, ordinal, path, partition_values, size, data_change, tags, extra
from dl_cdc_files where table_id = :table_id and version between :first_version and :last_version;

-- name: select_metadata_actions
-- The metaData actions of a range of commits.
select version, ordinal, metadata_id, name, description, format, schema_json, partition_columns, configuration, created_time, extra
from dl_metadata_updates where table_id = :table_id and version between :first_version and :last_version;

-- name: select_protocol_actions
-- The protocol actions of a range of commits.
select version, ordinal, min_reader_version, min_writer_version, reader_features, writer_features, fenced, extra
from dl_protocol_updates where table_id = :table_id and version between :first_version and :last_version;

-- name: select_txn_actions
-- The txn actions of a range of commits.
select version, ordinal, app_id, app_version, last_updated, extra
from dl_txn_actions where table_id = :table_id and version between :first_version and :last_version;

-- name: select_domain_actions
-- The domainMetadata actions of a range of commits.
select version, ordinal, domain, configuration, removed, extra
from dl_domain_metadata where table_id = :table_id and version between :first_version and :last_version;

-- name: select_other_actions
-- The actions we do not know, as they were written.
select version, ordinal, kind, action
from dl_other_actions where table_id = :table_id and version between :first_version and :last_version;

-- ---------------------------------------------------------------------------------------------------------------- planning index

-- name: select_bounds_columns
-- The columns that have bounds, with their width classes and from which file on every file has a row.
select column_id, column_path, kind, is_partition, width_classes, first_file_id
from dl_bounds_columns where table_id = :table_id order by column_id;

-- name: insert_bounds_column
-- A column gets bounds.
insert into dl_bounds_columns (table_id, column_id, column_path, kind, is_partition, width_classes, first_file_id)
values (:table_id, :column_id, :column_path, :kind, :is_partition, :width_classes, :first_file_id);

-- name: update_bounds_column
-- A width class appeared, or a column became complete from another file on.
update dl_bounds_columns set is_partition = :is_partition, width_classes = :width_classes, first_file_id = :first_file_id
where table_id = :table_id and column_id = :column_id;

-- name: delete_bounds_of_closed_files
-- The commit that makes a file dead deletes its bounds: without that, ten rewrites make a plan ten times slower.
delete from dl_file_bounds where table_id = :table_id and epoch = :epoch and file_id in (
    select file_id from dl_add_files where table_id = :table_id and removed_version between :first_version and :last_version);

-- name: copy_live_bounds
-- After a large removal the few files left move to a new epoch, away from the index entries of the dead.
insert into dl_file_bounds (table_id, epoch, file_id, column_id, width_class, lower, upper, lower_text, upper_text, null_count)
select b.table_id, :epoch, b.file_id, b.column_id, b.width_class, b.lower, b.upper, b.lower_text, b.upper_text, b.null_count
from dl_add_files f join dl_file_bounds b on b.table_id = f.table_id and b.epoch = :epoch - 1 and b.file_id = f.file_id
where f.table_id = :table_id and f.removed_version = 9223372036854775807;

-- name: delete_bounds_before_epoch
-- Bounds of older epochs are dead.
delete from dl_file_bounds where table_id = :table_id and epoch < :epoch;

-- ---------------------------------------------------------------------------------------------------------------- consistent cuts

-- name: select_pinned_tables
-- A cut through all tables, if they are few: one statement, so nobody commits in between.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties,
       h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
       h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch,
       m.metadata_id, m.name as metadata_name, m.description, m.format, m.schema_json, m.partition_columns, m.configuration,
       m.created_time, m.extra as metadata_extra,
       p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features, p.fenced, p.extra as protocol_extra
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
join dl_metadata_updates m on m.table_id = t.table_id and m.version = h.metadata_version
join dl_protocol_updates p on p.table_id = t.table_id and p.version = h.protocol_version
where t.until_ms = 9223372036854775807 limit :max_rows;

-- name: select_pinned_heads
-- A cut through a large catalog: metadata and protocol of a table are read when it is used.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties,
       h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
       h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
where t.until_ms = 9223372036854775807;

-- name: select_version_by_transaction
-- The newest version up to one that was committed at or before an instant, by its transaction's time T where it has one.
select v.version from dl_table_versions v left join dl_transactions x on x.txn_id = v.txn_id
where v.table_id = :table_id and v.version <= :version and coalesce(x.committed_at_ms, v.committed_at_ms) <= :at_ms
order by v.version desc limit 1;

-- name: select_transactions_of_versions
-- When the versions after one were committed, by their transactions' time T; in order, and T never steps back within a table.
select v.version, x.committed_at_ms from dl_table_versions v join dl_transactions x on x.txn_id = v.txn_id
where v.table_id = :table_id and v.version > :version order by v.version limit :max_rows;

-- ---------------------------------------------------------------------------------------------------------------- leases

-- name: take_lease
-- Claim something until an instant; no row changed means another holder has it. Holding it already makes it longer.
insert into dl_leases (lease, holder, until_ms) values (:lease, :holder, :until_ms)
on conflict (lease) do update set holder = excluded.holder, until_ms = excluded.until_ms
where dl_leases.holder = excluded.holder or dl_leases.until_ms < :now_ms;

-- name: select_lease
-- Who holds a claim, and until when.
select lease, holder, until_ms from dl_leases where lease = :lease;

-- name: renew_lease
-- Keep a claim for longer, if it is still ours.
update dl_leases set until_ms = :until_ms where lease = :lease and holder = :holder;

-- name: release_leases_of
-- Give back all that a holder who ends has claimed.
delete from dl_leases where holder = :holder;

-- name: release_lease
-- Give a claim back, if it is still ours.
delete from dl_leases where lease = :lease and holder = :holder;

-- ---------------------------------------------------------------------------------------------------------------- a table's life

-- name: count_registered
-- Whether anything was ever registered or committed here.
select (select count(*) from dl_tables) as num_tables, (select count(*) from dl_transactions) as num_transactions;

-- name: take_over_catalog
-- A rebuilt database is the catalog that the files tell of.
update dl_catalog set catalog_id = :catalog_id, next_table_id = :next_table_id;

-- name: record_table
-- A name that a table had, or has, as its log tells.
insert into dl_tables (table_id, table_uuid, namespace, namespace_key, name, name_key, location, mode, state, properties, from_ms, until_ms)
values (:table_id, :table_uuid, :namespace, :namespace_key, :name, :name_key, :location, :mode, :state, :properties, :from_ms, :until_ms);

-- name: select_newest_transaction
-- The newest T; null before the first transaction.
select max(committed_at_ms) as committed_at_ms from dl_transactions;

-- name: restore_transaction
-- A transaction of ours, found in the commits of `_delta_log`; the database lost it, or was rebuilt. One that is known stays as it is.
insert into dl_transactions (txn_id, client_token, committed_at_ms, actor, message)
values (:txn_id, :client_token, :committed_at_ms, :actor, :message) on conflict (txn_id) do nothing;

-- name: select_purges
-- Dropped tables whose files are still to be deleted.
select lease, holder from dl_leases where lease like 'purge:%' order by lease;

-- name: select_live_adds_since
-- The files at the head that came after a version: what a commit that goes back to it takes out.
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807 and version > :version
order by version, ordinal;

-- name: select_adds_closed_since
-- The files of a version that are gone since, or replaced: what a commit that goes back to it puts back.
select path, partition_values, size, modification_time, data_change, stats, tags, deletion_vector, base_row_id,
       default_row_commit_version, clustering_provider, extra
from dl_add_files where table_id = :table_id and version <= :version
  and removed_version > :version and removed_version < 9223372036854775807
order by version, ordinal;

-- name: rewind_bounds
-- Before commits are taken out: the bounds of the files they added, and of those they closed, which are computed again.
delete from dl_file_bounds where table_id = :table_id and epoch = :epoch and file_id in (
    select file_id from dl_add_files where table_id = :table_id
      and (version > :version or (removed_version > :version and removed_version < 9223372036854775807)));

-- name: rewind_add_files
-- The files that the commits after a version added.
delete from dl_add_files where table_id = :table_id and version > :version;

-- name: select_files_to_reopen
-- The files that the commits after a version closed, with what their bounds are computed from.
select file_id, stats, partition_values from dl_add_files
where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807;

-- name: reopen_files
-- They live again.
update dl_add_files set removed_version = 9223372036854775807
where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807;

-- name: rewind_remove_files
-- Every other row of the commits after a version.
delete from dl_remove_files where table_id = :table_id and version > :version;

-- name: rewind_cdc_files
-- See rewind_remove_files.
delete from dl_cdc_files where table_id = :table_id and version > :version;

-- name: rewind_metadata
-- See rewind_remove_files.
delete from dl_metadata_updates where table_id = :table_id and version > :version;

-- name: rewind_protocols
-- See rewind_remove_files.
delete from dl_protocol_updates where table_id = :table_id and version > :version;

-- name: rewind_txn_actions
-- See rewind_remove_files.
delete from dl_txn_actions where table_id = :table_id and version > :version;

-- name: rewind_domains
-- See rewind_remove_files.
delete from dl_domain_metadata where table_id = :table_id and version > :version;

-- name: rewind_other_actions
-- See rewind_remove_files.
delete from dl_other_actions where table_id = :table_id and version > :version;

-- name: rewind_versions
-- The commits themselves; their transactions stay, and get them back under other versions.
delete from dl_table_versions where table_id = :table_id and version > :version;

-- name: rewind_mirror_status
-- What failed is not to be tried again.
delete from dl_mirror_status where table_id = :table_id and version > :version;

-- name: rewind_head
-- The head at an older version. Ids that were handed out are not handed out again.
update dl_table_heads set current_version = :current_version, metadata_version = :metadata_version,
       protocol_version = :protocol_version, last_commit_ms = :last_commit_ms, num_files = :num_files, num_records = :num_records,
       files_without_records = :files_without_records, size_bytes = :size_bytes
where table_id = :table_id;

-- ---------------------------------------------------------------------------------------------------------------- mirror

-- name: mark_mirrored
-- The files have everything up to a version. Never backwards: whoever comes late knows less.
update dl_table_heads set mirrored_version = :version where table_id = :table_id and mirrored_version < :version;

-- name: clear_mirror_status
-- What is in the files has not failed any more.
delete from dl_mirror_status where table_id = :table_id and version <= :version;

-- name: select_mirror_status
-- How often a version has failed.
select attempts, error, next_try_ms from dl_mirror_status where table_id = :table_id and version = :version;

-- name: put_mirror_status
-- A version could not be mirrored; when to try again.
insert into dl_mirror_status (table_id, version, attempts, error, next_try_ms)
values (:table_id, :version, :attempts, :error, :next_try_ms)
on conflict (table_id, version) do update
set attempts = excluded.attempts, error = excluded.error, next_try_ms = excluded.next_try_ms;

-- name: select_unmirrored_tables
-- Tables whose files are behind, with the name they have or had last: a dropped table is mirrored to the end too. A frozen one waits
-- for somebody to decide; a follower's and a detached table's files belong to others.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, h.current_version,
       h.mirrored_version,
       (select min(v.committed_at_ms) from dl_table_versions v
         where v.table_id = h.table_id and v.version > h.mirrored_version) as oldest_unmirrored_ms,
       (select max(s.next_try_ms) from dl_mirror_status s where s.table_id = h.table_id) as next_try_ms,
       (select max(s.error) from dl_mirror_status s where s.table_id = h.table_id and s.version = h.mirrored_version + 1) as error
from dl_table_heads h
join dl_tables t on t.table_id = h.table_id
     and t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = h.table_id)
where h.mirrored_version < h.current_version and t.mode = 'managed' and t.state <> 'frozen'
order by h.table_id;

-- name: select_last_table_row
-- A table as it is registered, or was last: a dropped one still has a mirror to finish.
select table_id, table_uuid, namespace, name, location, mode, state, properties, until_ms from dl_tables
where table_id = :table_id order by from_ms desc limit 1;

-- name: select_checkpoint_states
-- How far each managed table's files and checkpoints have come, and what its properties say about them.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, h.current_version,
       h.mirrored_version, h.base_version, m.configuration, c.version as checkpoint_version, c.cleaned_before
from dl_table_heads h
join dl_tables t on t.table_id = h.table_id
     and t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = h.table_id)
join dl_metadata_updates m on m.table_id = h.table_id and m.version = h.metadata_version
left join dl_checkpoints c on c.table_id = h.table_id
where t.mode = 'managed' and t.state <> 'frozen' and h.mirrored_version > coalesce(c.version, 0)
order by h.table_id;

-- name: select_checkpoint_state
-- The same of one table, whatever it is now: asked in the transaction that takes or gives back the claim on its checkpoints.
select h.current_version, h.mirrored_version, h.base_version, m.configuration, c.version as checkpoint_version, c.cleaned_before
from dl_table_heads h
join dl_metadata_updates m on m.table_id = h.table_id and m.version = h.metadata_version
left join dl_checkpoints c on c.table_id = h.table_id
where h.table_id = :table_id;

-- name: put_checkpoint
-- The newest checkpoint of a table, and the first commit that is left in its files; neither ever steps back.
insert into dl_checkpoints (table_id, version, written_at_ms, cleaned_before)
values (:table_id, :version, :written_at_ms, :cleaned_before)
on conflict (table_id) do update set version = excluded.version, written_at_ms = excluded.written_at_ms,
       cleaned_before = case when excluded.cleaned_before > dl_checkpoints.cleaned_before then excluded.cleaned_before
                             else dl_checkpoints.cleaned_before end
where dl_checkpoints.version <= excluded.version;

-- name: count_adds_by_version
-- What each commit of a range put into the table: from the head backwards these give the counters of every version.
select version, count(*) as num_files, sum(size) as size_bytes from dl_add_files
where table_id = :table_id and version between :first_version and :last_version group by version;

-- name: count_closes_by_version
-- What each commit of a range took out of the table, or replaced.
select removed_version as version, count(*) as num_files, sum(size) as size_bytes from dl_add_files
where table_id = :table_id and removed_version between :first_version and :last_version group by removed_version;

-- name: select_mirror_lag
-- The lag of every table, for people.
select namespace, name, table_id, mode, state, current_version, mirrored_version, versions_behind, oldest_unmirrored_ms, attempts,
       error, next_try_ms, checkpoint_version
from vw_mirror_lag order by namespace, name;

-- ---------------------------------------------------------------------------------------------------------------- garbage collection

-- name: select_gc_tables
-- Every table that is registered, or was: where its history starts and ends, how far its files have come, how long it wants to keep.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.until_ms, h.current_version,
       h.mirrored_version, m.configuration, v.version as first_version, v.is_base
from dl_tables t
left join dl_table_heads h on h.table_id = t.table_id
left join dl_metadata_updates m on m.table_id = t.table_id and m.version = h.metadata_version
left join dl_table_versions v on v.table_id = t.table_id
     and v.version = (select min(f.version) from dl_table_versions f where f.table_id = t.table_id)
where t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = t.table_id)
  and (cast(:table_id as bigint) is null or t.table_id = cast(:table_id as bigint))
order by t.table_id;

-- name: count_garbage
-- What a new start of a table's history would remove, kind by kind.
select (select count(*) from dl_table_versions where table_id = :table_id and version < :base) as versions,
       (select count(*) from dl_add_files where table_id = :table_id and removed_version <= :base) as files,
       (select count(*) from dl_remove_files where table_id = :table_id and version <= :base
           and coalesce(deletion_timestamp, 0) < :tombstone_cutoff_ms) as tombstones,
       (select count(*) from dl_cdc_files where table_id = :table_id and version <= :base) as cdc_files,
       (select count(*) from dl_other_actions where table_id = :table_id and version <= :base) as other_actions,
       (select count(*) from dl_metadata_updates where table_id = :table_id and version < (
           select max(m.version) from dl_metadata_updates m where m.table_id = :table_id and m.version <= :base)) as metadata,
       (select count(*) from dl_protocol_updates where table_id = :table_id and version < (
           select max(p.version) from dl_protocol_updates p where p.table_id = :table_id and p.version <= :base)) as protocols,
       (select count(*) from dl_txn_actions t where t.table_id = :table_id and t.version <= :base and exists (
           select 1 from dl_txn_actions l where l.table_id = t.table_id and l.app_id = t.app_id and l.version > t.version
             and l.version <= :base)) as txn_actions,
       (select count(*) from dl_domain_metadata d where d.table_id = :table_id and d.version <= :base and exists (
           select 1 from dl_domain_metadata l where l.table_id = d.table_id and l.domain = d.domain and l.version > d.version
             and l.version <= :base)) as domains;

-- name: count_dropped
-- Everything there is of a table, kind by kind.
select (select count(*) from dl_table_versions where table_id = :table_id) as versions,
       (select count(*) from dl_add_files where table_id = :table_id) as files,
       (select count(*) from dl_remove_files where table_id = :table_id) as tombstones,
       (select count(*) from dl_cdc_files where table_id = :table_id) as cdc_files,
       (select count(*) from dl_other_actions where table_id = :table_id) as other_actions,
       (select count(*) from dl_metadata_updates where table_id = :table_id) as metadata,
       (select count(*) from dl_protocol_updates where table_id = :table_id) as protocols,
       (select count(*) from dl_txn_actions where table_id = :table_id) as txn_actions,
       (select count(*) from dl_domain_metadata where table_id = :table_id) as domains,
       (select count(*) from dl_file_bounds where table_id = :table_id) as bounds,
       (select count(*) from dl_bounds_columns where table_id = :table_id) as bounds_columns,
       (select count(*) from dl_mirror_status where table_id = :table_id) as failures,
       (select count(*) from dl_checkpoints where table_id = :table_id) as checkpoints,
       (select count(*) from dl_table_heads where table_id = :table_id) as heads,
       (select count(*) from dl_tables where table_id = :table_id) as names;

-- name: advance_base
-- The history starts at a later version from now on; under the head's lock, before anything is removed, so that a writer knows.
update dl_table_heads set base_version = :version where table_id = :table_id and base_version < :version;

-- name: mark_base
-- A version whose state is kept, and whose commit is not.
update dl_table_versions set is_base = true where table_id = :table_id and version = :version;

-- name: delete_versions_before
-- Versions before a base cannot be opened any more; their rows go first, so that nobody reads half a version.
delete from dl_table_versions where table_id = :table_id and version < :version;

-- name: delete_dead_files
-- Some of the files that no kept version has.
delete from dl_add_files where table_id = :table_id and (removed_version, file_id) in (
    select removed_version, file_id from dl_add_files where table_id = :table_id and removed_version <= :base
    order by removed_version, file_id limit :max_rows);

-- name: delete_old_tombstones
-- Some of the removals that are no commit of a kept version and that no checkpoint lists any more.
delete from dl_remove_files where table_id = :table_id and (version, ordinal) in (
    select version, ordinal from dl_remove_files where table_id = :table_id and version <= :base
      and coalesce(deletion_timestamp, 0) < :tombstone_cutoff_ms
    order by version, ordinal limit :max_rows);

-- name: delete_old_cdc_files
-- Some of the change files of commits that are not kept.
delete from dl_cdc_files where table_id = :table_id and (version, ordinal) in (
    select version, ordinal from dl_cdc_files where table_id = :table_id and version <= :base order by version, ordinal limit :max_rows);

-- name: delete_old_other_actions
-- Some of the unknown actions of commits that are not kept.
delete from dl_other_actions where table_id = :table_id and (version, ordinal) in (
    select version, ordinal from dl_other_actions where table_id = :table_id and version <= :base
    order by version, ordinal limit :max_rows);

-- name: delete_old_metadata
-- Metadata that no kept version has: what is in force at the base stays.
delete from dl_metadata_updates where table_id = :table_id and version < (
    select max(m.version) from dl_metadata_updates m where m.table_id = :table_id and m.version <= :base);

-- name: delete_old_protocols
-- Protocols that no kept version has: what is in force at the base stays.
delete from dl_protocol_updates where table_id = :table_id and version < (
    select max(p.version) from dl_protocol_updates p where p.table_id = :table_id and p.version <= :base);

-- name: delete_old_txn_actions
-- Some of the txn actions that a later one of the same application replaced, up to the base.
delete from dl_txn_actions where table_id = :table_id and (version, ordinal) in (
    select t.version, t.ordinal from dl_txn_actions t where t.table_id = :table_id and t.version <= :base and exists (
        select 1 from dl_txn_actions l where l.table_id = t.table_id and l.app_id = t.app_id and l.version > t.version
          and l.version <= :base)
    limit :max_rows);

-- name: delete_old_domains
-- Some of the domain actions that a later one of the same domain replaced, up to the base.
delete from dl_domain_metadata where table_id = :table_id and (version, ordinal) in (
    select d.version, d.ordinal from dl_domain_metadata d where d.table_id = :table_id and d.version <= :base and exists (
        select 1 from dl_domain_metadata l where l.table_id = d.table_id and l.domain = d.domain and l.version > d.version
          and l.version <= :base)
    limit :max_rows);

-- name: delete_dropped_bounds
-- Some of the bounds of a table that was dropped.
delete from dl_file_bounds where table_id = :table_id and (epoch, file_id, column_id) in (
    select epoch, file_id, column_id from dl_file_bounds where table_id = :table_id order by epoch, file_id, column_id limit :max_rows);

-- name: delete_head
-- A dropped table has no versions any more.
delete from dl_table_heads where table_id = :table_id;

-- name: delete_dropped_metadata
-- What is left of a dropped table, kind by kind: all small.
delete from dl_metadata_updates where table_id = :table_id;

-- name: delete_dropped_protocols
-- See delete_dropped_metadata.
delete from dl_protocol_updates where table_id = :table_id;

-- name: delete_dropped_txn_actions
-- See delete_dropped_metadata.
delete from dl_txn_actions where table_id = :table_id;

-- name: delete_dropped_domains
-- See delete_dropped_metadata.
delete from dl_domain_metadata where table_id = :table_id;

-- name: delete_dropped_bounds_columns
-- See delete_dropped_metadata.
delete from dl_bounds_columns where table_id = :table_id;

-- name: delete_dropped_mirror_status
-- See delete_dropped_metadata.
delete from dl_mirror_status where table_id = :table_id;

-- name: delete_dropped_checkpoint
-- See delete_dropped_metadata.
delete from dl_checkpoints where table_id = :table_id;

-- name: delete_dropped_names
-- The names a dropped table had: last of all, because they are how an interrupted clean-up finds it again.
delete from dl_tables where table_id = :table_id;

-- name: count_old_transactions
-- How many transactions have no version left; the newest one stays, because the next T is counted from it.
select count(*) as num_rows from dl_transactions x
where x.committed_at_ms < :before_ms and x.committed_at_ms < (select max(n.committed_at_ms) from dl_transactions n)
  and not exists (select 1 from dl_table_versions v where v.txn_id = x.txn_id);

-- name: delete_old_transactions
-- Some of them.
delete from dl_transactions where txn_id in (
    select x.txn_id from dl_transactions x
    where x.committed_at_ms < :before_ms and x.committed_at_ms < (select max(n.committed_at_ms) from dl_transactions n)
      and not exists (select 1 from dl_table_versions v where v.txn_id = x.txn_id)
    limit :max_rows);

-- name: count_expired_leases
-- Claims that ran out long ago: their holders died.
select count(*) as num_rows from dl_leases where until_ms < :before_ms;

-- name: delete_expired_leases
-- Forget them.
delete from dl_leases where until_ms < :before_ms;

-- name: count_old_audit
-- The audit rows older than somebody wants to keep them.
select count(*) as num_rows from dl_audit where at_ms < :before_ms;

-- name: delete_old_audit
-- Some of them.
delete from dl_audit where audit_id in (select audit_id from dl_audit where at_ms < :before_ms order by at_ms limit :max_rows);

-- name: select_last_gc
-- When a table's history was cut the last time.
select at_ms, details from dl_audit where table_id = :table_id and action = 'gc' order by at_ms desc limit 1;

-- ---------------------------------------------------------------------------------------------------------------- audit

-- name: insert_audit
-- Who did what, in the transaction that did it.
insert into dl_audit (audit_id, at_ms, actor, origin, action, table_id, table_name, details)
values (:audit_id, :at_ms, :actor, :origin, :action, :table_id, :table_name, :details);

-- name: select_audit
-- The audit trail, newest first; each filter may be null.
select audit_id, at_ms, actor, origin, action, table_id, table_name, details from dl_audit
where (cast(:since_ms as bigint) is null or at_ms >= cast(:since_ms as bigint))
  and (cast(:until_ms as bigint) is null or at_ms <= cast(:until_ms as bigint))
  and (cast(:actor as text) is null or actor = cast(:actor as text))
  and (cast(:table_id as bigint) is null or table_id = cast(:table_id as bigint))
order by at_ms desc, audit_id desc limit :max_rows;
