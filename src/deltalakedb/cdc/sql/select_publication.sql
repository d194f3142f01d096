-- What a publication publishes.
select pubname, pubinsert, pubupdate, pubdelete, pubtruncate
  from pg_publication
 where pubname = %s
