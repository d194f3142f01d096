-- Takes the tables of 0002 back. Iceberg tables and views stay in their files; `dl iceberg register` brings them back.

drop view vw_iceberg_snapshots;
drop view vw_mirror_lag;

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
where t.until_ms = 9223372036854775807 or (t.mode = 'managed' and h.mirrored_version < h.current_version);

drop table dl_idempotency_keys;
drop table dl_scan_plans;
drop table dl_iceberg_files;
drop table dl_iceberg_snapshot_manifests;
drop table dl_iceberg_manifests;
drop table dl_iceberg_snapshots;
drop table dl_iceberg_versions;
delete from dl_table_versions where table_id in (select table_id from dl_tables where mode in ('iceberg', 'view'));
delete from dl_table_heads where table_id in (select table_id from dl_tables where mode in ('iceberg', 'view'));
delete from dl_locations where table_id in (select table_id from dl_tables where mode in ('iceberg', 'view'));
delete from dl_tables where mode in ('iceberg', 'view');
