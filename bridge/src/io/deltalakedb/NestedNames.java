package io.deltalakedb;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.CurrentNamespace$;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.CommentOnNamespace;
import org.apache.spark.sql.catalyst.plans.logical.CreateNamespace;
import org.apache.spark.sql.catalyst.plans.logical.DescribeNamespace;
import org.apache.spark.sql.catalyst.plans.logical.DropNamespace;
import org.apache.spark.sql.catalyst.plans.logical.DropTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RenameTable;
import org.apache.spark.sql.catalyst.plans.logical.SetNamespaceLocation;
import org.apache.spark.sql.catalyst.plans.logical.SetNamespaceProperties;
import org.apache.spark.sql.catalyst.plans.logical.ShowTables;
import org.apache.spark.sql.catalyst.plans.logical.ShowTablesExtended;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTablePlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets the statements that make, list, rename and drop tables and namespaces name nested ones
 * ({@code a.b.t}). Spark refuses them for its session catalog before it asks that catalog: so these
 * names are resolved first, to the same catalog under another name.
 */
final class NestedNames extends Rule<LogicalPlan> {
  private final SparkSession spark;

  NestedNames(SparkSession spark) {
    this.spark = spark;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    SqlCatalog catalog = SqlExtension.catalogOf(spark);
    if (catalog == null) {
      return plan;
    }
    if (plan instanceof SaveAsV1TableCommand) {
      refuse(((SaveAsV1TableCommand) plan).tableDesc());
    }
    if (plan.children().isEmpty()) {
      return plan;
    }
    LogicalPlan name = plan.children().head();
    LogicalPlan resolved = null;
    if (plan instanceof V2CreateTablePlan || plan instanceof DropTable) {
      resolved = table(name, catalog);
    } else if (plan instanceof RenameTable) {
      resolved = existing(name, catalog);
    } else if (plan instanceof ShowTablesExtended) {
      String[] namespace = parts(name);
      boolean isOurs = namespace != null && catalog.namespaceExists(namespace);
      return isOurs ? new TableListing(spark, catalog).plan((ShowTablesExtended) plan, namespace) : plan;
    } else if (plan instanceof ShowTables
        || plan instanceof CreateNamespace
        || plan instanceof DropNamespace
        || plan instanceof DescribeNamespace
        || plan instanceof SetNamespaceProperties
        || plan instanceof SetNamespaceLocation
        || plan instanceof CommentOnNamespace) {
      resolved = namespace(name, catalog);
    }
    if (resolved == null) {
      return plan;
    }
    List<LogicalPlan> children = new ArrayList<>(CollectionConverters.asJava(plan.children()));
    children.set(0, resolved);
    return plan.withNewChildren(CollectionConverters.asScala(children).toSeq());
  }

  /** In a nested namespace Spark takes a name without one for that of a table of its own. */
  private void refuse(CatalogTable table) {
    TableIdentifier id = table.identifier();
    String[] current = SqlExtension.inCatalog(spark, List.of(SqlExtension.currentNamespace(spark)));
    if (id.database().isEmpty() && current != null && current.length > 1) {
      throw Refusal.because(
          "saveAsTable does not look into nested namespaces: give the whole name, "
              + Names.of(Identifier.of(current, id.table())) + ".");
    }
  }

  private LogicalPlan table(LogicalPlan name, SqlCatalog catalog) {
    if (!(name instanceof UnresolvedIdentifier)) {
      return null;
    }
    Identifier ident = nested(((UnresolvedIdentifier) name).nameParts());
    var noColumns = CollectionConverters.asScala(List.<Attribute>of()).toSeq();
    return ident == null
        ? null
        : new ResolvedIdentifier(new NestedCatalog(catalog), ident, noColumns);
  }

  private LogicalPlan existing(LogicalPlan name, SqlCatalog catalog) {
    if (!(name instanceof UnresolvedTableOrView)) {
      return null;
    }
    Identifier ident = nested(((UnresolvedTableOrView) name).multipartIdentifier());
    return ident == null || catalog.find(ident) == null
        ? null
        : ResolvedTable.create(new NestedCatalog(catalog), ident, catalog.loadTable(ident));
  }

  private Identifier nested(scala.collection.immutable.Seq<String> parts) {
    Identifier ident = SqlExtension.identifier(spark, CollectionConverters.asJava(parts));
    return ident == null || ident.namespace().length < 2 ? null : ident;
  }

  /** The parts of a namespace's name; null if it is another catalog's. */
  private String[] parts(LogicalPlan name) {
    if (name instanceof UnresolvedNamespace) {
      var given = ((UnresolvedNamespace) name).multipartIdentifier();
      return SqlExtension.inCatalog(spark, CollectionConverters.asJava(given));
    }
    return name instanceof CurrentNamespace$
        ? SqlExtension.inCatalog(spark, List.of(SqlExtension.currentNamespace(spark)))
        : null;
  }

  private LogicalPlan namespace(LogicalPlan name, SqlCatalog catalog) {
    String[] parts = parts(name);
    if (parts == null || parts.length < 2) {
      return null;
    }
    return new ResolvedNamespace(
        new NestedCatalog(catalog),
        CollectionConverters.asScala(List.of(parts)).toSeq(),
        Map$.MODULE$.<String, String>empty());
  }
}
