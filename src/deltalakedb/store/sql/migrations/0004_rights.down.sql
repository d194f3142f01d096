-- Takes the tables of 0004 back, and all grants with them.

drop table dl_grant_changes;
drop table dl_grants;
