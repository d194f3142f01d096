-- Commits: heads, what a commit writes and checks, versions, the actions of a range of versions, consistent cuts.

-- ---------------------------------------------------------------------------------------------------------------- heads

-- name: select_head
-- Query pattern 1, the latest version of a table: one row by its key, with all columns of the head.
select table_id, current_version, metadata_version, protocol_version, mirrored_version, base_version, last_commit_ms, num_files,
       num_records, files_without_records, size_bytes, next_file_id, bounds_epoch, vacuumed_version, vacuum_count
from dl_table_heads where table_id = :table_id;

-- name: select_heads
-- The heads of all registered tables, for listing them: one row each, no file rows.
select h.table_id, h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms,
       h.num_files, h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch,
       h.vacuumed_version, h.vacuum_count
from dl_table_heads h join dl_tables t on t.table_id = h.table_id and t.until_ms = 9223372036854775807;

-- name: lock_head
-- Locks the head. Reads nothing else: on Postgres anything else that this statement read would be older than the lock.
select table_id, current_version, metadata_version, protocol_version, mirrored_version, base_version, last_commit_ms, num_files,
       num_records, files_without_records, size_bytes, next_file_id, bounds_epoch, vacuumed_version, vacuum_count
from dl_table_heads where table_id = :table_id {for update};

-- name: insert_head
-- Inserts the head of a table's first load.
insert into dl_table_heads (table_id, current_version, metadata_version, protocol_version, mirrored_version, base_version,
       last_commit_ms, num_files, num_records, files_without_records, size_bytes, next_file_id, bounds_epoch, vacuumed_version,
       vacuum_count)
values (:table_id, :current_version, :metadata_version, :protocol_version, :mirrored_version, :base_version, :last_commit_ms,
        :num_files, :num_records, :files_without_records, :size_bytes, :next_file_id, :bounds_epoch, :vacuumed_version, :vacuum_count);

-- name: advance_head
-- Query pattern 7, compare and set: moves the head after one or more commits, if it has not moved since it was locked; no row is updated
-- if it has. mirrored_version never goes backwards: only the mirror advances it.
update dl_table_heads set current_version = :current_version, metadata_version = :metadata_version,
       protocol_version = :protocol_version, base_version = :base_version,
       mirrored_version = case when mirrored_version > :mirrored_version then mirrored_version else :mirrored_version end,
       last_commit_ms = :last_commit_ms, num_files = :num_files, num_records = :num_records,
       files_without_records = :files_without_records, size_bytes = :size_bytes, next_file_id = :next_file_id,
       bounds_epoch = :bounds_epoch, vacuumed_version = :vacuumed_version, vacuum_count = :vacuum_count
where table_id = :table_id and current_version = :expected;

-- ---------------------------------------------------------------------------------------------------------------- commits

-- name: take_token
-- Inserts the transaction's row, with its time T = max(clock, newest + 1); returns no row if the token was used before.
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
-- The versions that a transaction committed, in order.
select v.table_id, v.version, v.committed_at_ms from dl_table_versions v where v.txn_id = :txn_id order by v.table_id, v.version;

-- name: select_commit_state
-- What a commit reads of a table beside its locked head: whether it can be written, the intent lock, the totals.
select h.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner, p.fenced, v.total_added,
       v.total_closed, i.holder as intent_holder, i.until_ms as intent_until_ms
from dl_table_heads h
join dl_table_versions v on v.table_id = h.table_id and v.version = h.current_version
left join dl_protocol_updates p on p.table_id = h.table_id and p.version = h.protocol_version
left join dl_tables t on t.table_id = h.table_id and t.until_ms = 9223372036854775807
left join dl_leases i on i.lease = :lease
where h.table_id = :table_id;

-- name: select_live_keys
-- Which of a few files are live. The caller replaces :key_hash with :key_0, :key_1, ..., one for each file.
select key_hash from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807 and key_hash in (:key_hash);

-- ---------------------------------------------------------------------------------------------------------------- versions

-- name: select_transaction
-- When a transaction was committed, to open the catalog as it was then.
select committed_at_ms from dl_transactions where txn_id = :txn_id;

-- name: select_version
-- One commit.
select table_id, version, txn_id, committed_at_ms, operation, operation_params, operation_metrics, commit_info, commit_info_ordinal,
       is_base, num_actions, num_added_files, num_removed_files, total_added, total_closed, rendered_bytes
from dl_table_versions where table_id = :table_id and version = :version;

-- name: select_version_at
-- Query pattern 4, time travel by timestamp: the newest version committed at or before an instant. A table's times never go backwards.
select version, committed_at_ms from dl_table_versions
where table_id = :table_id and committed_at_ms <= :at_ms order by committed_at_ms desc limit 1;

-- name: select_earliest_version
-- The oldest version that has a snapshot: the first one kept.
select version, committed_at_ms from dl_table_versions where table_id = :table_id order by version limit 1;

-- name: select_history
-- The history, newest first; each bound may be null.
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
-- A listing of the log: each commit's time and size. The size is known only for our own commits, which are rendered the same way again.
select version, committed_at_ms, is_base, case when txn_id is null then null else rendered_bytes end as rendered_bytes
from dl_table_versions where table_id = :table_id and version between :first_version and :last_version order by version;

-- name: select_version_numbers
-- The kept versions, in order.
select version, is_base from dl_table_versions where table_id = :table_id order by version;

-- name: select_neighbours
-- The kept versions around a version.
select (select max(b.version) from dl_table_versions b where b.table_id = :table_id and b.version <= :version) as before,
       (select min(a.version) from dl_table_versions a where a.table_id = :table_id and a.version >= :version) as after;

-- name: select_version_after
-- The first kept version after a version, with its time.
select version, committed_at_ms, is_base from dl_table_versions
where table_id = :table_id and version > :version order by version limit 1;

-- ---------------------------------------------------------------------------------------------------------------- actions of a range of commits

-- name: select_add_actions
-- The add actions of a range of commits, to render them again.
select version, ordinal, {add columns}
from dl_add_files where table_id = :table_id and version between :first_version and :last_version;

-- name: select_closed_adds
-- The adds that a range of commits closed: describes the removed files.
select removed_version, dv_id, {add columns}
from dl_add_files where table_id = :table_id and removed_version between :first_version and :last_version;

-- name: select_remove_actions
-- The remove actions of a range of commits.
select version, ordinal, {remove columns}
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
-- The actions of unknown kinds, as they were written.
select version, ordinal, kind, action
from dl_other_actions where table_id = :table_id and version between :first_version and :last_version;

-- ---------------------------------------------------------------------------------------------------------------- consistent cuts

-- name: select_pinned_tables
-- A cut through all tables, if they are few: one statement, so no commit can come in between.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner,
       h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
       h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch, h.vacuumed_version,
       h.vacuum_count,
       m.metadata_id, m.name as metadata_name, m.description, m.format, m.schema_json, m.partition_columns, m.configuration,
       m.created_time, m.extra as metadata_extra,
       p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features, p.fenced, p.extra as protocol_extra
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
left join dl_metadata_updates m on m.table_id = t.table_id and m.version = h.metadata_version
left join dl_protocol_updates p on p.table_id = t.table_id and p.version = h.protocol_version
where t.until_ms = 9223372036854775807 limit :max_rows;

-- name: select_pinned_heads
-- A cut through a large catalog: metadata and protocol of a table are read when it is used.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner,
       h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
       h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch,
       h.vacuumed_version, h.vacuum_count
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
where t.until_ms = 9223372036854775807;

-- name: select_last_head
-- The same of one table, also if it was dropped: then with its last name.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner,
       h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
       h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch,
       h.vacuumed_version, h.vacuum_count
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
where t.table_id = :table_id and t.from_ms = (select max(n.from_ms) from dl_tables n where n.table_id = :table_id);

-- name: select_version_by_transaction
-- The newest version, up to a given one, that was committed at or before an instant, by its transaction's time T if it has one.
select v.version from dl_table_versions v left join dl_transactions x on x.txn_id = v.txn_id
where v.table_id = :table_id and v.version <= :version and coalesce(x.committed_at_ms, v.committed_at_ms) <= :at_ms
order by v.version desc limit 1;

-- name: select_transactions_of_versions
-- When the versions after a given one were committed, by their transactions' time T; in order, and T never goes backwards in a table.
select v.version, x.committed_at_ms from dl_table_versions v join dl_transactions x on x.txn_id = v.txn_id
where v.table_id = :table_id and v.version > :version order by v.version limit :max_rows;
