package io.deltalakedb;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
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
    extensions.injectResolutionRule(NewTableLocations::new);
    extensions.injectParser(NameParser::new);
    return BoxedUnit.UNIT;
  }

  /** The catalog of a session, if it is ours. */
  static SqlCatalog catalogOf(SparkSession spark) {
    CatalogPlugin found =
        ((org.apache.spark.sql.classic.SparkSession) spark)
            .sessionState()
            .catalogManager()
            .v2SessionCatalog();
    return found instanceof SqlCatalog ? (SqlCatalog) found : null;
  }
}
