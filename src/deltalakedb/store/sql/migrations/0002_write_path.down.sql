drop view vw_mirror_lag;
drop table dl_leases;
drop table dl_checkpoints;
create view vw_mirror_lag as
select t.namespace, t.name, t.table_id, t.mode, h.current_version, h.mirrored_version,
       case when t.mode = 'follower' then 0 else h.current_version - h.mirrored_version end as versions_behind,
       (select min(v.committed_at_ms) from dl_table_versions v
         where v.table_id = t.table_id and v.version > h.mirrored_version and t.mode <> 'follower') as oldest_unmirrored_ms,
       (select max(s.attempts) from dl_mirror_status s where s.table_id = t.table_id) as attempts,
       (select max(s.error) from dl_mirror_status s
         where s.table_id = t.table_id and s.version = (select min(m.version) from dl_mirror_status m where m.table_id = t.table_id))
         as error
from dl_tables t join dl_table_heads h on h.table_id = t.table_id
where t.until_ms = 9223372036854775807;
