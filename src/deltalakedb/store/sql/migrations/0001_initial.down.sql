-- Removes everything, also the history: what is only in SQL is lost. `_delta_log` folders are not touched.

-- engines: postgres
drop function deltalakedb.dl_append;
-- engines: postgres
drop function deltalakedb.dl_open;

drop view vw_mirror_lag;
drop view vw_table_history;
drop view vw_active_files;
drop view vw_latest_action_per_path;
drop view delta_log_action;
drop table dl_audit;
drop table dl_leases;
drop table dl_checkpoints;
drop table dl_mirror_status;
drop table dl_bounds_columns;
drop table dl_file_bounds;
drop table dl_other_actions;
drop table dl_domain_metadata;
drop table dl_txn_actions;
drop table dl_protocol_updates;
drop table dl_metadata_updates;
drop table dl_cdc_files;
drop table dl_remove_files;
drop table dl_add_files;
drop table dl_table_versions;
drop table dl_transactions;
drop table dl_table_heads;
drop table dl_locations;
drop table dl_tables;
drop table dl_namespaces;
drop table dl_catalog;
drop table dl_schema_migrations;
