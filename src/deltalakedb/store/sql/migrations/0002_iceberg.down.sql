-- Takes the tables of 0002 back. Iceberg tables and views stay in their files; `dl iceberg register` brings them back.

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
