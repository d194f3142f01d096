-- Who holds the advisory lock of a capture. The runner's own pid and host are in the last statement of its connection,
-- which only the same role, or a member of pg_read_all_stats, may read.
select activity.pid,
       host(activity.client_addr) as address,
       activity.backend_start,
       activity.query
  from pg_catalog.pg_locks lock
  join pg_catalog.pg_stat_activity activity on activity.pid = lock.pid
 where lock.locktype = 'advisory'
   and lock.granted
   and lock.objsubid = 1
   and lock.database = (select oid from pg_catalog.pg_database where datname = current_database())
   and (lock.classid::bigint << 32) | lock.objid::bigint = %(key)s
