package io.deltalakedb;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;

/**
 * A table whose files are the catalog's: Spark shows it as MANAGED. Only shows: the entry in
 * Spark's own catalog stays EXTERNAL, so that dropping the entry never deletes a file.
 */
final class ManagedTable extends DeltaTableV2 {
  ManagedTable(DeltaTableV2 table) {
    super(
        table.spark(),
        table.path(),
        table.catalogTable(),
        table.tableIdentifier(),
        table.timeTravelOpt(),
        table.options());
  }

  @Override
  public Map<String, String> properties() {
    Map<String, String> shown = new HashMap<>(super.properties());
    shown.remove(TableCatalog.PROP_EXTERNAL);
    shown.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
    return shown;
  }
}
