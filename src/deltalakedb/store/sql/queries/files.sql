-- The state of a table at a version: its files, its other actions, the planning index.

-- ---------------------------------------------------------------------------------------------------------------- files

-- name: select_live_files
-- Query pattern 2, the active files: rows that were not closed. At the head no dead rows are read.
select {add columns}, version, ordinal
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807;

-- name: select_live_files_between
-- A page of the active files, for an engine that reads many of them fastest in pages.
select {add columns}, version, ordinal
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807
  and file_id between :first_file_id and :last_file_id;

-- name: select_live_file_ids
-- The smallest and largest id of the active files: two index lookups.
select (select min(file_id) from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807) as first_file_id,
       (select max(file_id) from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807) as last_file_id;

-- name: select_files_added_up_to
-- Query pattern 3, time travel by version, over the rows added up to it: cheaper early in a history.
select {add columns}, version, ordinal
from dl_add_files where table_id = :table_id and version <= :version and removed_version + 0 > :version;

-- name: select_files_removed_after
-- Query pattern 3, time travel by version, over the rows still live or removed later: cheaper late in a history.
select {add columns}, version, ordinal
from dl_add_files where table_id = :table_id and version + 0 <= :version and removed_version > :version;

-- name: count_live_files
-- The totals of the live files, computed; validation compares the head with them.
select count(*) as num_files, sum(size) as size_bytes, sum(num_records) as num_records,
       sum(case when num_records is null then 1 else 0 end) as files_without_records
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807;

-- name: count_files_at
-- The totals of the files of a version.
select count(*) as num_files, sum(size) as size_bytes, sum(num_records) as num_records,
       sum(case when num_records is null then 1 else 0 end) as files_without_records
from dl_add_files where table_id = :table_id and version <= :version and removed_version > :version;

-- name: select_live_files_by_stats
-- Query pattern 5, filtering by statistics: live files whose bounds of a number column overlap a range. Files without a row are kept.
select f.path, f.stats from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807
  and not exists (
    select 1 from dl_file_bounds b join dl_table_heads h on h.table_id = b.table_id and h.bounds_epoch = b.epoch
    where b.table_id = f.table_id and b.file_id = f.file_id and b.column_id = :column_id
      and (b.lower is null or b.lower > :upper or b.upper < :lower))
order by f.path;

-- name: select_live_files_by_partition
-- Query pattern 6, filtering by partition: live files with exactly these partition values (JSON text as stored).
select path, size from dl_add_files
where table_id = :table_id and removed_version = 9223372036854775807 and partition_values = :partition_values
order by path;

-- name: select_page_end
-- The last id of the next page of a version's files, from an index. Later files may be counted; this never makes a page longer.
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
-- A page of a version's files, at any time: those still live, and those removed later.
select {add columns}
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807
  and file_id between :first_file_id and :last_file_id and version + 0 <= :version
union all
select {add columns}
from dl_add_files where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807
  and file_id between :first_file_id and :last_file_id and version + 0 <= :version;

-- name: select_first_version_after
-- The first version after an instant. Null if the history starts later: removals from before it, as listed in a checkpoint, are then
-- still relevant.
select min(version) as version from dl_table_versions where table_id = :table_id and committed_at_ms > :at_ms
  and exists (select 1 from dl_table_versions o where o.table_id = :table_id and o.committed_at_ms <= :at_ms);

-- name: select_tombstone_places
-- The positions of the newest removals of files that are not live at a version. Only a later add makes a file live again.
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
select version, ordinal, {remove columns}
from dl_remove_files
where table_id = :table_id and version >= :first_version and version <= :version
  and (version, ordinal) >= (:first_version, :first_ordinal)
order by version, ordinal limit :max_rows;

-- name: close_all_files
-- Closes every live file at the version of a new base, which replaces the state.
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
-- The commits that contribute to a version: those with files in it, or that set its metadata or protocol, newest first. Anything older
-- than the first kept version is attributed to that one.
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

-- name: select_metadata_history
-- The metadata of all versions up to a version: needed to list features when a protocol moves to table features.
select version, metadata_id, name, description, format, schema_json, partition_columns, configuration, created_time, extra
from dl_metadata_updates where table_id = :table_id and version <= :version order by version;

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
-- The newest transaction of one application: one index lookup. A version holds at most one txn action of an application.
select app_id, app_version, last_updated, extra from dl_txn_actions
where table_id = :table_id and app_id = :app_id and version <= :version order by version desc limit 1;

-- name: select_domain_metadata
-- The live domains at a version.
select domain, configuration, removed, extra from (
    select d.*, row_number() over (partition by domain order by version desc, ordinal desc) as newest
    from dl_domain_metadata d where d.table_id = :table_id and d.version <= :version
) ranked
where newest = 1 and not removed order by domain;

-- ---------------------------------------------------------------------------------------------------------------- planning index

-- name: select_bounds_columns
-- The columns with bounds, with their width classes and the first file id from which every file has a row.
select column_id, column_path, kind, is_partition, width_classes, first_file_id
from dl_bounds_columns where table_id = :table_id order by column_id;

-- name: insert_bounds_column
-- Adds a column with bounds.
insert into dl_bounds_columns (table_id, column_id, column_path, kind, is_partition, width_classes, first_file_id)
values (:table_id, :column_id, :column_path, :kind, :is_partition, :width_classes, :first_file_id);

-- name: update_bounds_column
-- Updates a column after a new width class, or a new first file with complete bounds.
update dl_bounds_columns set is_partition = :is_partition, width_classes = :width_classes, first_file_id = :first_file_id
where table_id = :table_id and column_id = :column_id;

-- name: delete_bounds_of_closed_files
-- The commit that closes a file deletes its bounds: otherwise ten rewrites would make a plan ten times slower.
delete from dl_file_bounds where table_id = :table_id and epoch = :epoch and file_id {in list (}
    select file_id from dl_add_files where table_id = :table_id and removed_version between :first_version and :last_version{)};

-- name: copy_live_bounds
-- After a large removal the few remaining files move to a new epoch, away from the index entries of dead files.
insert into dl_file_bounds (table_id, epoch, file_id, column_id, width_class, lower, upper, lower_text, upper_text, null_count)
select b.table_id, :epoch, b.file_id, b.column_id, b.width_class, b.lower, b.upper, b.lower_text, b.upper_text, b.null_count
from dl_add_files f join dl_file_bounds b on b.table_id = f.table_id and b.epoch = :epoch - 1 and b.file_id = f.file_id
where f.table_id = :table_id and f.removed_version = 9223372036854775807;

-- name: delete_bounds_before_epoch
-- Deletes the bounds of older epochs.
delete from dl_file_bounds where table_id = :table_id and epoch < :epoch;
