package io.deltalakedb;

import org.apache.spark.sql.delta.catalog.DeltaCatalog;

/** Spark's session catalog with the names of the catalog in it. */
public class SqlCatalog extends DeltaCatalog {}
