-- The write path: how far the checkpoints of the mirror have come, and short claims on work or on a table.

create table dl_checkpoints (
    table_id bigint not null primary key,
    version bigint not null,
    written_at_ms bigint not null,
    cleaned_before bigint not null
);

create table dl_leases (
    lease text not null primary key,
    holder text not null,
    until_ms bigint not null
);

-- The lag of the mirror: managed tables only, with their state, the next try and the newest checkpoint.
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
