package io.deltalakedb;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Names that programs give as text. A table becomes known to the session's own catalog when its
 * name is parsed alone, as {@code DeltaTable.forName} does before it looks there, and nowhere else;
 * a table that the session's own catalog cannot hold is named by its path. All else is the parser
 * below.
 */
final class NameParser implements ParserInterface {
  private final SparkSession spark;
  private final ParserInterface parser;

  NameParser(SparkSession spark, ParserInterface parser) {
    this.spark = spark;
    this.parser = parser;
  }

  @Override
  public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    SqlCatalog catalog = SqlExtension.catalogOf(spark);
    if (catalog == null) {
      return parser.parseTableIdentifier(text);
    }
    List<String> parts = CollectionConverters.asJava(parser.parseMultipartIdentifier(text));
    Identifier ident = SqlExtension.identifier(spark, parts);
    if (ident != null && (parts.size() > 1 || !SqlExtension.isTempView(spark, parts))) {
      String path = catalog.tableExists(ident) ? catalog.find(ident) : null;
      if (path != null && !SessionTables.canHold(ident)) {
        return SessionTables.id("delta", path);
      }
    }
    return parser.parseTableIdentifier(text);
  }

  @Override
  public LogicalPlan parsePlan(String text) throws ParseException {
    LogicalPlan undrop = Undrop.parse(spark, parser, text);
    return undrop == null ? parser.parsePlan(text) : undrop;
  }

  @Override
  public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters)
      throws ParseException {
    LogicalPlan undrop = Undrop.parse(spark, parser, text);
    return undrop == null ? parser.parsePlanWithParameters(text, parameters) : undrop;
  }

  @Override
  public LogicalPlan parseQuery(String text) throws ParseException {
    return parser.parseQuery(text);
  }

  @Override
  public Expression parseExpression(String text) throws ParseException {
    return parser.parseExpression(text);
  }

  @Override
  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return parser.parseFunctionIdentifier(text);
  }

  /**
   * The parts of a name that is given as text, to {@code saveAsTable}, say. In a nested namespace
   * they begin with a catalog that may have such ones: Spark's session catalog may not.
   */
  @Override
  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    Seq<String> given = parser.parseMultipartIdentifier(text);
    List<String> parts = CollectionConverters.asJava(given);
    if (parts.size() < 3 || SqlExtension.catalogOf(spark) == null) {
      return given; // one without a namespace may be that of a temporary view
    }
    Identifier ident = SqlExtension.identifier(spark, parts);
    if (ident == null || ident.namespace().length < 2) {
      return given;
    }
    List<String> whole = new ArrayList<>(List.of(NestedCatalog.NAME));
    whole.addAll(List.of(ident.namespace()));
    whole.add(ident.name());
    return CollectionConverters.asScala(whole).toSeq();
  }

  @Override
  public StructType parseRoutineParam(String text) throws ParseException {
    return parser.parseRoutineParam(text);
  }

  @Override
  public StructType parseTableSchema(String text) throws ParseException {
    return parser.parseTableSchema(text);
  }

  @Override
  public DataType parseDataType(String text) throws ParseException {
    return parser.parseDataType(text);
  }
}
