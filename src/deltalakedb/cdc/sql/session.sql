-- Of every session of a capture: a value has one text, nothing is cut off by a time-out, and no policy hides rows.
set datestyle = 'ISO, YMD';
set intervalstyle = 'postgres';
set timezone = 'UTC';
set bytea_output = 'hex';
set extra_float_digits = 1;
set client_encoding = 'UTF8';
set xmlbinary = 'base64';
set search_path = pg_catalog;
set row_security = off;
set statement_timeout = 0;
set lock_timeout = 0;
set idle_in_transaction_session_timeout = 0;
set default_transaction_read_only = off;
-- The marks that a copy writes are on the server's disk when it goes on, and wait for no standby.
set synchronous_commit = local;
