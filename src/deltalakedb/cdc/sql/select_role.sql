-- Hosted servers have a role instead of the attribute.
select rolname,
       rolsuper or rolreplication
       or exists (select from pg_roles hosted
                   where hosted.rolname in ('rds_replication', 'azure_pg_admin', 'cloudsqlsuperuser')
                     and pg_has_role(current_user, hosted.oid, 'member'))
  from pg_roles
 where rolname = current_user
