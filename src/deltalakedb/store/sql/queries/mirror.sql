-- The mirror: how far the files are behind SQL, failures, and what maintenance needs.

-- name: mark_mirrored
-- Records that the files have everything up to a version. Never moves backwards: a late update has older information.
update dl_table_heads set mirrored_version = :version where table_id = :table_id and mirrored_version < :version;

-- name: clear_mirror_status
-- Removes the failures of versions that are now in the files.
delete from dl_mirror_status where table_id = :table_id and version <= :version;

-- name: select_mirror_status
-- How often mirroring a version has failed.
select attempts, error, next_try_ms from dl_mirror_status where table_id = :table_id and version = :version;

-- name: put_mirror_status
-- Records that a version could not be mirrored, and when to retry.
insert into dl_mirror_status (table_id, version, attempts, error, next_try_ms)
values (:table_id, :version, :attempts, :error, :next_try_ms)
on conflict (table_id, version) do update
set attempts = excluded.attempts, error = excluded.error, next_try_ms = excluded.next_try_ms;

-- name: select_unmirrored_tables
-- Tables whose files are behind, with their present or last name: a dropped table is also mirrored to the end. A frozen table waits for
-- a decision; the files of followers, detached tables and released locations belong to others.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner, h.current_version,
       h.mirrored_version,
       (select min(v.committed_at_ms) from dl_table_versions v
         where v.table_id = h.table_id and v.version > h.mirrored_version) as oldest_unmirrored_ms,
       (select max(s.next_try_ms) from dl_mirror_status s where s.table_id = h.table_id) as next_try_ms,
       (select max(s.error) from dl_mirror_status s where s.table_id = h.table_id and s.version = h.mirrored_version + 1) as error
from dl_table_heads h
join dl_tables t on t.table_id = h.table_id
     and t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = h.table_id)
where h.mirrored_version < h.current_version and t.mode = 'managed' and t.state <> 'frozen'
  and exists (select 1 from dl_locations l where l.table_id = h.table_id and l.location_state <> 'purging')
order by h.table_id;

-- name: select_last_table_row
-- The present or last registry row of a table: a dropped one may still have a mirror to finish.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner, until_ms from dl_tables
where table_id = :table_id order by from_ms desc limit 1;

-- name: select_checkpoint_states
-- How far the files and checkpoints of each managed table are, and its properties.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner, h.current_version,
       h.mirrored_version, h.base_version, m.configuration, c.version as checkpoint_version, c.cleaned_before
from dl_table_heads h
join dl_tables t on t.table_id = h.table_id
     and t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = h.table_id)
join dl_metadata_updates m on m.table_id = h.table_id and m.version = h.metadata_version
left join dl_checkpoints c on c.table_id = h.table_id
where t.mode = 'managed' and t.state <> 'frozen' and h.mirrored_version > coalesce(c.version, 0)
  and exists (select 1 from dl_locations l where l.table_id = h.table_id and l.location_state <> 'purging')
order by h.table_id;

-- name: select_checkpoint_state
-- The same for one table in any state, read in the transaction that takes or releases its checkpoint lease. A purged table has no files
-- and needs no checkpoint.
select h.current_version, h.mirrored_version, h.base_version, m.configuration, c.version as checkpoint_version, c.cleaned_before
from dl_table_heads h
join dl_metadata_updates m on m.table_id = h.table_id and m.version = h.metadata_version
left join dl_checkpoints c on c.table_id = h.table_id
where h.table_id = :table_id and h.vacuumed_version < 9223372036854775807;

-- name: put_checkpoint
-- The newest checkpoint of a table, and the first commit left in its files; neither goes backwards.
insert into dl_checkpoints (table_id, version, written_at_ms, cleaned_before)
values (:table_id, :version, :written_at_ms, :cleaned_before)
on conflict (table_id) do update set version = excluded.version, written_at_ms = excluded.written_at_ms,
       cleaned_before = case when excluded.cleaned_before > dl_checkpoints.cleaned_before then excluded.cleaned_before
                             else dl_checkpoints.cleaned_before end
where dl_checkpoints.version <= excluded.version;

-- name: count_adds_by_version
-- What each commit of a range added to the table: counting back from the head, these give the totals of every version.
select version, count(*) as num_files, sum(size) as size_bytes from dl_add_files
where table_id = :table_id and version between :first_version and :last_version group by version;

-- name: count_closes_by_version
-- What each commit of a range removed from the table, or replaced.
select removed_version as version, count(*) as num_files, sum(size) as size_bytes from dl_add_files
where table_id = :table_id and removed_version between :first_version and :last_version group by removed_version;

-- name: select_mirror_lag
-- The lag of every table, for display.
select namespace, name, table_id, mode, state, current_version, mirrored_version, versions_behind, oldest_unmirrored_ms, attempts,
       error, next_try_ms, checkpoint_version
from vw_mirror_lag order by namespace, name;
