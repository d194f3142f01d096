package io.deltalakedb;

import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The statement {@code UNDROP TABLE ns.name [AS ns.other]}, which Spark does not know: brings back
 * a table that was dropped. Its result is the name that the table has then.
 */
final class Undrop implements ExternalCommandRunner {
  private static final String PART = "(?:`(?:[^`]|``)+`|[^\\s.`;]+)";
  private static final String NAME = "(" + PART + "(?:\\s*\\.\\s*" + PART + ")*)";
  private static final Pattern STATEMENT =
      Pattern.compile(
          "\\s*UNDROP\\s+TABLE\\s+" + NAME + "(?:\\s+(?:AS|TO)\\s+" + NAME + ")?\\s*;?\\s*",
          Pattern.CASE_INSENSITIVE);

  private final SqlCatalog catalog;
  private final Identifier dropped;
  private final Identifier target;

  private Undrop(SqlCatalog catalog, Identifier dropped, Identifier target) {
    this.catalog = catalog;
    this.dropped = dropped;
    this.target = target;
  }

  /** The plan of a statement of this kind; null if it is another one. */
  static LogicalPlan parse(SparkSession spark, ParserInterface parser, String text)
      throws ParseException {
    Matcher statement = STATEMENT.matcher(text);
    SqlCatalog catalog = statement.matches() ? SqlExtension.catalogOf(spark) : null;
    if (catalog == null) {
      return null;
    }
    Identifier dropped = identifier(spark, parser, statement.group(1));
    Identifier target = dropped;
    if (statement.group(2) != null) {
      List<String> parts =
          CollectionConverters.asJava(parser.parseMultipartIdentifier(statement.group(2)));
      target =
          parts.size() == 1 && dropped != null // as RENAME does: in the same namespace
              ? Identifier.of(dropped.namespace(), parts.get(0))
              : identifier(spark, parser, statement.group(2));
    }
    return new ExternalCommandExecutor(
        new Undrop(catalog, dropped, target),
        text,
        Map$.MODULE$.<String, String>from(CollectionConverters.asScala(Map.of())));
  }

  /** A name; null for a path or a name of another catalog, which running the statement refuses. */
  private static Identifier identifier(SparkSession spark, ParserInterface parser, String name)
      throws ParseException {
    List<String> parts = CollectionConverters.asJava(parser.parseMultipartIdentifier(name));
    return SqlExtension.identifier(spark, parts);
  }

  @Override
  public String[] executeCommand(String command, CaseInsensitiveStringMap options) {
    if (dropped == null || target == null) { // not while it is parsed: Delta has errors of its own then
      throw Refusal.because(
          "UNDROP TABLE brings back tables of the catalog, by their names: one of those in "
              + command.strip() + " is a path, or a name of another catalog.");
    }
    catalog.undrop(dropped, target);
    return new String[] {Names.of(target)};
  }

  @Override
  public String toString() {
    return "Undrop(" + target + ")";
  }
}
