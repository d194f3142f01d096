-- The name of a segment begins with the timeline that is written now.
select (select system_identifier from pg_control_system()),
       left(pg_walfile_name(pg_current_wal_lsn()), 8),
       current_database()
