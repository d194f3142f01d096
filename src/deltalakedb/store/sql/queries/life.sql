-- A table's life beside its commits: rebuilt from its files, purged, rewound to an older version.

-- name: count_registered
-- Whether anything was ever registered or committed here.
select (select count(*) from dl_tables) as num_tables, (select count(*) from dl_transactions) as num_transactions;

-- name: take_over_catalog
-- A rebuilt database is the catalog that the files tell of.
update dl_catalog set catalog_id = :catalog_id, next_table_id = :next_table_id;

-- name: record_table
-- A name that a table had, or has, as its log tells.
insert into dl_tables (table_id, table_uuid, namespace, namespace_key, name, name_key, location, mode, state, properties, from_ms, until_ms,
       files_owner)
values (:table_id, :table_uuid, :namespace, :namespace_key, :name, :name_key, :location, :mode, :state, :properties, :from_ms, :until_ms,
        :files_owner);

-- name: select_newest_transaction
-- The newest T; null before the first transaction.
select max(committed_at_ms) as committed_at_ms from dl_transactions;

-- name: restore_transaction
-- A transaction of ours, found in the commits of `_delta_log`; the database lost it, or was rebuilt. One that is known stays as it is.
insert into dl_transactions (txn_id, client_token, committed_at_ms, actor, message)
values (:txn_id, :client_token, :committed_at_ms, :actor, :message) on conflict (txn_id) do nothing;

-- name: select_named_files
-- Every file that the kept log of a table names: what a purge may delete in a folder that is its user's.
select path, deletion_vector from dl_add_files where table_id = :table_id
union select path, deletion_vector from dl_remove_files where table_id = :table_id
union select path, null from dl_cdc_files where table_id = :table_id;

-- name: select_live_file
-- One data file that the newest version of a table has, whichever: whether it is there tells whether the table's files are.
select path from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807 limit 1;

-- name: mark_vacuumed
-- Versions below this one may have lost files; of a purged table all have.
update dl_table_heads set vacuumed_version = :version where table_id = :table_id and vacuumed_version < :version;

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
delete from dl_file_bounds where table_id = :table_id and epoch = :epoch and file_id {in list (}
    select file_id from dl_add_files where table_id = :table_id
      and (version > :version or (removed_version > :version and removed_version < 9223372036854775807)){)};

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
