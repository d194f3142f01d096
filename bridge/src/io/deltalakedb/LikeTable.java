package io.deltalakedb;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.delta.commands.CreateDeltaTableCommand;
import org.apache.spark.sql.delta.commands.TableCreationModes;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * CREATE TABLE LIKE with a name that Spark's own catalog cannot hold, where Delta looks for the
 * source and puts the new table: here both are found through the catalog.
 */
final class LikeTable {
  /** Properties that Delta sets itself, for each table anew. */
  private static final Set<String> NOT_COPIED =
      Set.of(
          "delta.columnMapping.maxColumnId",
          "delta.rowTracking.materializedRowIdColumnName",
          "delta.rowTracking.materializedRowCommitVersionColumnName");

  private LikeTable() {}

  static LogicalPlan plan(
      SqlCatalog catalog, CreateTableLikeCommand plan, Identifier source, Identifier target) {
    Snapshot model = ((DeltaTableV2) catalog.loadTable(source)).initialSnapshot();
    Metadata metadata = model.metadata();
    Map<String, String> properties = new HashMap<>();
    properties.putAll(CollectionConverters.asJava(metadata.configuration()));
    properties.keySet().removeAll(NOT_COPIED);
    properties.putAll(CollectionConverters.asJava(plan.properties()));
    Option<java.net.URI> given = plan.fileFormat().locationUri();
    String path = catalog.reserve(target, given.isDefined() ? given.get().toString() : null);
    boolean isByPath = !SessionTables.canHold(target);
    TableIdentifier id =
        isByPath
            ? SessionTables.id("delta", path)
            : SessionTables.id(target.namespace()[0], target.name());
    CatalogTable table =
        SessionTables.entry(
            id,
            CatalogTableType.EXTERNAL(),
            new Path(path).toUri(),
            metadata.schema(),
            CollectionConverters.asJava(metadata.partitionColumns()),
            properties,
            metadata.description());
    return new CreateDeltaTableCommand(
        table,
        Option.empty(),
        plan.ifNotExists() ? SaveMode.Ignore : SaveMode.ErrorIfExists,
        Option.empty(),
        TableCreationModes.Create$.MODULE$,
        isByPath,
        CollectionConverters.asScala(List.<Attribute>of()).toSeq(),
        Option.apply(model.protocol()),
        false,
        Option.empty());
  }
}
