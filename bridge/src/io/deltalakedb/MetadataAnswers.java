package io.deltalakedb;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.ToPrettyString;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Complete$;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.files.TahoeLogFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Answers {@code count(*)}, {@code min} and {@code max} of a whole table from the database, where
 * it can prove the answer. This rule runs before Delta's own, which does the same from the state.
 *
 * <p>A statement reads one version of a table, so a table that it names twice is left to Delta.
 */
final class MetadataAnswers extends Rule<LogicalPlan> {
  private static final String ENABLED = "spark.databricks.delta.optimizeMetadataQuery.enabled";

  private final SparkSession spark;

  MetadataAnswers(SparkSession spark) {
    this.spark = spark;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    boolean isLeft =
        plan instanceof Subquery
            || !Planning.isEnabled(spark)
            || OptimisticTransaction.getActive().isDefined()
            || !Boolean.parseBoolean(spark.conf().get(ENABLED, "true"));
    return isLeft ? plan : plan.transformDownWithSubqueries(new Answers(plan));
  }

  private static final class Answers extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    private static final long serialVersionUID = 1;

    private final transient LogicalPlan whole;

    Answers(LogicalPlan whole) {
      this.whole = whole;
    }

    @Override
    public boolean isDefinedAt(LogicalPlan plan) {
      return plan instanceof Aggregate;
    }

    @Override
    @SuppressWarnings("unchecked") // a plan may become any other plan
    public <P extends LogicalPlan, Q> Q applyOrElse(P plan, Function1<P, Q> otherwise) {
      LogicalPlan answer = plan instanceof Aggregate ? answer((Aggregate) plan) : null;
      return answer == null ? otherwise.apply(plan) : (Q) answer;
    }

    private LogicalPlan answer(Aggregate plan) {
      List<Question> questions = questions(plan);
      TahoeLogFileIndex index = questions == null ? null : table(plan);
      if (index == null || uses(index) != 1 || !(index.getSnapshot() instanceof SqlSnapshot of)) {
        return null;
      }
      JsonNode answer = of.aggregates(columns(questions, Min.class), columns(questions, Max.class));
      Object[] values = new Object[questions.size()];
      for (int i = 0; answer != null && i < values.length; i++) {
        JsonNode value = questions.get(i).in(answer);
        if (value == null) {
          return null;
        }
        values[i] = questions.get(i).value(value);
      }
      InternalRow row = new GenericInternalRow(values);
      return answer == null
          ? null
          : new LocalRelation(
              plan.output(),
              CollectionConverters.asScala(List.of(row)).toSeq(),
              false,
              Option.empty());
    }

    private int uses(TahoeLogFileIndex index) {
      int[] uses = {0};
      whole.foreachWithSubqueries(
          node -> {
            TahoeLogFileIndex other = index(node);
            uses[0] += other != null && other.deltaLog() == index.deltaLog() ? 1 : 0;
            return null;
          });
      return uses[0];
    }
  }

  private static TahoeLogFileIndex index(LogicalPlan node) {
    return node instanceof LogicalRelation relation
            && relation.relation() instanceof HadoopFsRelation files
            && files.location() instanceof TahoeLogFileIndex index
        ? index
        : null;
  }

  /** The table below the aggregate, if nothing but a choice of its columns is between. */
  private static TahoeLogFileIndex table(Aggregate plan) {
    var found = PhysicalOperation$.MODULE$.unapply(plan.child());
    if (found.isEmpty() || !found.get()._2().isEmpty()) {
      return null;
    }
    boolean renames = found.get()._1().exists(field -> !(field instanceof AttributeReference));
    TahoeLogFileIndex index = index(found.get()._3());
    return renames || index == null || !index.partitionFilters().isEmpty() ? null : index;
  }

  private static Set<String> columns(List<Question> questions, Class<?> function) {
    Set<String> columns = new LinkedHashSet<>();
    for (Question one : questions) {
      if (function.isInstance(one.aggregate.aggregateFunction())) {
        columns.add(one.column());
      }
    }
    return columns;
  }

  /** What the statement asks; null if the database cannot answer all of it. */
  private static List<Question> questions(Aggregate plan) {
    if (!plan.groupingExpressions().isEmpty() || plan.aggregateExpressions().isEmpty()) {
      return null;
    }
    List<Question> questions = new ArrayList<>();
    for (NamedExpression item : CollectionConverters.asJava(plan.aggregateExpressions())) {
      Expression child = item instanceof Alias alias ? alias.child() : null;
      ToPrettyString shown = child instanceof ToPrettyString text ? text : null;
      Expression asked = shown == null ? child : shown.child();
      if (!(asked instanceof AggregateExpression aggregate) || !isAnswerable(aggregate)) {
        return null;
      }
      questions.add(new Question(aggregate, shown));
    }
    return questions;
  }

  private static boolean isAnswerable(AggregateExpression of) {
    boolean isWhole = of.mode() == Complete$.MODULE$ && !of.isDistinct() && of.filter().isEmpty();
    if (isWhole && of.aggregateFunction() instanceof Count count) {
      var counted = count.children();
      return counted.size() == 1
          && counted.head() instanceof Literal literal
          && Integer.valueOf(1).equals(literal.value());
    }
    boolean isExtreme =
        of.aggregateFunction() instanceof Min || of.aggregateFunction() instanceof Max;
    return isWhole
        && isExtreme
        && of.aggregateFunction().children().head() instanceof AttributeReference
        && isExact(of.dataType());
  }

  /** The types that statistics hold without loss, as in Delta's own rule. */
  private static boolean isExact(DataType type) {
    return type instanceof ByteType
        || type instanceof ShortType
        || type instanceof IntegerType
        || type instanceof LongType
        || type instanceof FloatType
        || type instanceof DoubleType
        || type instanceof DateType;
  }

  /** One aggregate of a statement. */
  private static final class Question {
    final AggregateExpression aggregate;

    /** How `show` wraps it; null otherwise. */
    final ToPrettyString shown;

    Question(AggregateExpression aggregate, ToPrettyString shown) {
      this.aggregate = aggregate;
      this.shown = shown;
    }

    String column() {
      return ((AttributeReference) aggregate.aggregateFunction().children().head()).name();
    }

    /** The value in an answer, which may be null in SQL's sense; null if it is not known. */
    JsonNode in(JsonNode answer) {
      if (aggregate.aggregateFunction() instanceof Count) {
        JsonNode records = answer.get("records");
        return records.isNull() ? null : records;
      }
      String end = aggregate.aggregateFunction() instanceof Min ? "min" : "max";
      JsonNode found = answer.get(end).get(column());
      return found == null ? null : found.get("value");
    }

    Object value(JsonNode value) {
      Object plain = value.isNull() ? null : plain(value, aggregate.dataType());
      if (shown == null) {
        return plain;
      }
      Expression literal = new Literal(plain, aggregate.dataType());
      return shown
          .withNewChildren(CollectionConverters.asScala(List.of(literal)).toSeq())
          .eval(InternalRow.empty());
    }

    private static Object plain(JsonNode value, DataType type) {
      if (type instanceof LongType) {
        return value.asLong();
      }
      if (type instanceof DoubleType) {
        return value.asDouble();
      }
      if (type instanceof FloatType) {
        return (float) value.asDouble();
      }
      if (type instanceof ShortType) {
        return (short) value.asInt();
      }
      return type instanceof ByteType ? (Object) (byte) value.asInt() : (Object) value.asInt();
    }
  }
}
