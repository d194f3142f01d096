drop table dl_staged_calls;
drop table dl_open_transactions;
