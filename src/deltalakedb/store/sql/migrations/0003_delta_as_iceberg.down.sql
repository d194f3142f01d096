-- Takes the tables of 0003 back. Iceberg clients get other field ids when it is applied again.

drop table dl_iceberg_delta_manifests;
drop table dl_iceberg_delta_lists;
drop table dl_iceberg_vectors;
drop table dl_iceberg_formats;
drop table dl_iceberg_field_ids;
