package io.deltalakedb;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowTablesExtended;
import org.apache.spark.sql.catalyst.util.StringUtils;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.hadoop.fs.Path;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rows of SHOW TABLE EXTENDED. Spark takes them from its own catalog alone, which does not know
 * all names, nor whose files a table of the catalog has.
 */
final class TableListing {
  private final SessionCatalog session;
  private final SqlCatalog catalog;

  TableListing(SparkSession spark, SqlCatalog catalog) {
    this.session = ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().catalog();
    this.catalog = catalog;
  }

  LogicalPlan plan(ShowTablesExtended statement, String[] namespace) {
    List<InternalRow> rows = new ArrayList<>();
    try {
      for (Identifier ident : catalog.listTables(namespace)) {
        if (matches(ident.name(), statement.pattern())) {
          rows.add(row(Names.of(namespace), ident.name(), false, describe(ident)));
        }
      }
    } catch (Exception e) { // Scala does not declare that a name may be gone in between
      throw Refusal.because(e);
    }
    String database = namespace.length == 1 ? namespace[0] : "";
    var views = CollectionConverters.asJava(session.listTempViews(database, statement.pattern()));
    for (CatalogTable view : views) {
      Option<String> outer = view.identifier().database();
      String where = outer.isDefined() ? outer.get() : "";
      rows.add(row(where, view.identifier().table(), true, view.simpleString()));
    }
    return new LocalRelation(
        statement.output(), CollectionConverters.asScala(rows).toSeq(), false, Option.empty());
  }

  private static boolean matches(String name, String pattern) {
    var names = CollectionConverters.asScala(List.of(name)).toSeq();
    return StringUtils.filterPattern(names, pattern).nonEmpty();
  }

  private String describe(Identifier ident) {
    Names.Found found = catalog.look(ident);
    if (found == null) {
      return session
          .getTempViewOrPermanentTableMetadata(
              SessionTables.id(ident.namespace()[0], ident.name()))
          .simpleString();
    }
    String namespace = String.join(".", Arrays.asList(ident.namespace()));
    TableIdentifier id =
        new TableIdentifier(
            ident.name(), Option.apply(namespace), Option.apply(catalog.name()));
    CatalogTableType type =
        found.external ? CatalogTableType.EXTERNAL() : CatalogTableType.MANAGED();
    return SessionTables.entry(
            id, type, new Path(found.path).toUri(), new StructType(), List.of(), Map.of(), null)
        .simpleString();
  }

  private static InternalRow row(String namespace, String table, boolean isTemporary, String text) {
    return new GenericInternalRow(
        new Object[] {
          UTF8String.fromString(namespace),
          UTF8String.fromString(table),
          isTemporary,
          UTF8String.fromString(text + "\n")
        });
  }
}
