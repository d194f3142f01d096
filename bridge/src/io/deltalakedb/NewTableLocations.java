package io.deltalakedb;

import java.net.URI;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.CloneTableStatement;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Owns the places of tables that Delta creates without asking a catalog: CLONE and CREATE TABLE
 * LIKE by name put a table below Spark's own warehouse, so they are told where the catalog wants
 * it.
 */
final class NewTableLocations extends Rule<LogicalPlan> {
  private final SparkSession spark;

  NewTableLocations(SparkSession spark) {
    this.spark = spark;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof CloneTableStatement) {
      return clone((CloneTableStatement) plan);
    }
    if (plan instanceof CreateTableLikeCommand) {
      return like((CreateTableLikeCommand) plan);
    }
    return plan;
  }

  private LogicalPlan clone(CloneTableStatement plan) {
    SqlCatalog catalog = SqlExtension.catalogOf(spark);
    if (catalog == null
        || !plan.isCreateCommand()
        || !(plan.target() instanceof UnresolvedRelation)
        || isBridged(plan.targetLocation().map(Path::new).map(Path::toUri))) {
      return plan;
    }
    List<String> parts =
        CollectionConverters.asJava(((UnresolvedRelation) plan.target()).multipartIdentifier());
    Identifier ident = SqlExtension.identifier(spark, parts);
    if (ident == null) {
      return plan;
    }
    String given = plan.targetLocation().isDefined() ? plan.targetLocation().get() : null;
    String path = catalog.reserve(ident, given);
    boolean isHeld = SessionTables.canHold(ident);
    return new CloneTableStatement(
        plan.source(),
        isHeld ? plan.target() : byPath(catalog, path),
        plan.ifNotExists(),
        plan.isReplaceCommand(),
        plan.isCreateCommand(),
        plan.tablePropertyOverrides(),
        isHeld ? Option.apply(path) : Option.empty());
  }

  private static LogicalPlan byPath(SqlCatalog catalog, String path) {
    Identifier ident = SqlCatalog.byPath(path);
    return DataSourceV2Relation.create(
        catalog.loadTable(ident), Option.apply(catalog), Option.apply(ident));
  }

  private LogicalPlan like(CreateTableLikeCommand plan) {
    SqlCatalog catalog = SqlExtension.catalogOf(spark);
    CatalogStorageFormat format = plan.fileFormat();
    if (catalog == null || isBridged(format.locationUri())) {
      return plan;
    }
    Identifier source = SqlExtension.identifier(spark, parts(plan.sourceTable()));
    Identifier target = SqlExtension.identifier(spark, parts(plan.targetTable()));
    boolean sourceIsDelta = source != null && catalog.isDelta(source);
    String provider = plan.provider().isDefined() ? plan.provider().get() : null;
    boolean isDelta = provider == null ? sourceIsDelta : provider.equalsIgnoreCase("delta");
    if (target == null || !isDelta) {
      return plan;
    }
    boolean isHeld = SessionTables.canHold(target);
    if (catalog.tableExists(target)) {
      if (isHeld) {
        return plan; // Delta knows what to say
      }
      if (plan.ifNotExists()) {
        return empty();
      }
      throw Refusal.sneaky(new TableAlreadyExistsException(target));
    }
    if (!isHeld || (source != null && !SessionTables.canHold(source))) {
      if (!sourceIsDelta) {
        throw Refusal.because(
            "CREATE TABLE LIKE takes a table of another format as its model only for names of"
                + " letters, digits and _ in one namespace. Create " + Names.of(target)
                + " by CREATE TABLE ... USING delta AS SELECT ... LIMIT 0.");
      }
      return LikeTable.plan(catalog, plan, source, target);
    }
    String given = format.locationUri().isDefined() ? format.locationUri().get().toString() : null;
    CatalogStorageFormat placed =
        new CatalogStorageFormat(
            Option.apply(new Path(catalog.reserve(target, given)).toUri()),
            format.inputFormat(),
            format.outputFormat(),
            format.serde(),
            format.compressed(),
            format.properties());
    return new CreateTableLikeCommand(
        plan.targetTable(),
        plan.sourceTable(),
        placed,
        plan.provider(),
        plan.properties(),
        plan.ifNotExists());
  }

  /** A statement that has nothing to do. */
  private static LogicalPlan empty() {
    return new LocalRelation(
        CollectionConverters.asScala(List.<Attribute>of()).toSeq(),
        CollectionConverters.asScala(List.<InternalRow>of()).toSeq(),
        false,
        Option.empty());
  }

  private static List<String> parts(TableIdentifier id) {
    Option<String> database = id.database();
    return database.isDefined() ? List.of(database.get(), id.table()) : List.of(id.table());
  }

  private static boolean isBridged(Option<URI> location) {
    return location.isDefined() && LogPath.SCHEME.equals(location.get().getScheme());
  }
}
