-- engines: postgres
drop function deltalakedb.dl_append;
-- engines: postgres
drop function deltalakedb.dl_open;
