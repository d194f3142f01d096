package io.deltalakedb;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Spark's extension ({@code spark.sql.extensions}, before Delta's own): names of the catalog in the
 * few places where Spark and Delta look into the session's own catalog without asking {@link
 * SqlCatalog}.
 */
public class SqlExtension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    EnvironmentToken.take();
    extensions.injectHintResolutionRule(NestedNames::new);
    extensions.injectResolutionRule(NewTableLocations::new);
    extensions.injectPostHocResolutionRule(CloneSources::new);
    extensions.injectParser(NameParser::new);
    extensions.injectPreCBORule(MetadataAnswers::new);
    extensions.injectQueryPostPlannerStrategyRule(spark -> new PlannedByDatabase.Mark());
    extensions.injectColumnar(spark -> new PlannedByDatabase.MarkAtEnd());
    return BoxedUnit.UNIT;
  }

  private static CatalogManager catalogs(SparkSession spark) {
    return ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().catalogManager();
  }

  /** The catalog of a session, if it is ours. */
  static SqlCatalog catalogOf(SparkSession spark) {
    CatalogPlugin found = catalogs(spark).v2SessionCatalog();
    return found instanceof SqlCatalog ? (SqlCatalog) found : null;
  }

  /** Whether a name without a namespace is that of a temporary view. */
  static boolean isTempView(SparkSession spark, List<String> parts) {
    return ((org.apache.spark.sql.classic.SparkSession) spark)
        .sessionState()
        .catalog()
        .isTempView(CollectionConverters.asScala(parts).toSeq());
  }

  /** A table's name as it is written in a statement; null if it is a path or another catalog's. */
  static Identifier identifier(SparkSession spark, List<String> parts) {
    String[] own = inCatalog(spark, parts);
    if (own == null || own.length == 0) {
      return null;
    }
    int last = own.length - 1;
    String[] namespace = last == 0 ? currentNamespace(spark) : Arrays.copyOf(own, last);
    Identifier ident = Identifier.of(namespace, own[last]);
    return Names.isPath(ident) ? null : ident;
  }

  /** A name as it is written in a statement, without the catalog's; null if it is another one's. */
  static String[] inCatalog(SparkSession spark, List<String> parts) {
    CatalogPlugin catalog = catalogOf(spark);
    if (catalog == null) {
      return null;
    }
    boolean isNamed =
        parts.size() > 1
            && (parts.get(0).equalsIgnoreCase(catalog.name())
                || parts.get(0).equals(NestedCatalog.NAME));
    if (isNamed) {
      return parts.subList(1, parts.size()).toArray(new String[0]);
    }
    boolean isOther = parts.size() > 1 && catalogs(spark).isCatalogRegistered(parts.get(0));
    return isOther || catalogs(spark).currentCatalog() != catalog
        ? null
        : parts.toArray(new String[0]);
  }

  static String[] currentNamespace(SparkSession spark) {
    return catalogs(spark).currentNamespace();
  }
}
