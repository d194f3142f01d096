package io.deltalakedb;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import scala.Option;

/**
 * Owns what Spark's own catalog would say of a table that it cannot hold: such a table is opened by
 * its path, but a stream wants to know it by its name.
 */
final class PathTable {
  private PathTable() {}

  /** The table at a path, called by its name. */
  static DeltaTableV2 named(DeltaTableV2 table, Identifier ident) {
    Option<CatalogTable> entry =
        Option.apply(SessionTables.entry(id(ident), table.path().toUri()));
    return table.copy(
        table.spark(),
        table.path(),
        entry,
        Option.apply(ident.namespace().length == 1 ? Names.of(ident) : "delta.`" + table.path() + "`"),
        table.timeTravelOpt(),
        table.options());
  }

  /**
   * The name with the first of two namespaces in the place of a catalog's. More of them are one, as
   * {@link NestedCatalog} reads it.
   */
  private static TableIdentifier id(Identifier ident) {
    String[] namespace = ident.namespace();
    switch (namespace.length) {
      case 1:
        return SessionTables.id(namespace[0], ident.name());
      case 2:
        return new TableIdentifier(
            ident.name(), Option.apply(namespace[1]), Option.apply(namespace[0]));
      default:
        return new TableIdentifier(
            ident.name(), Option.apply(Names.of(namespace)), Option.apply(NestedCatalog.NAME));
    }
  }
}
