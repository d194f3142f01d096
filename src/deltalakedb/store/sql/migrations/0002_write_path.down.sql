drop table dl_leases;
drop table dl_checkpoints;
