package io.deltalakedb;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The partition columns of a read: texts of the log as Spark's values, and conditions on them. */
final class PartitionValues {
  final StructType schema;
  private final Option<String> zone;

  PartitionValues(SparkSession spark, StructType schema) {
    this.schema = schema;
    this.zone = Option.apply(spark.conf().get("spark.sql.session.timeZone"));
  }

  /** As Spark's Delta reads them: a text that is no value of the type is null. */
  InternalRow row(List<String> texts) {
    Object[] values = new Object[schema.size()];
    for (int i = 0; i < values.length; i++) {
      Literal text = Literal.create(texts.get(i), DataTypes.StringType);
      DataType type = schema.apply(i).dataType();
      values[i] = new Cast(text, type, zone, EvalMode.TRY()).eval(InternalRow.empty());
    }
    return new GenericInternalRow(values);
  }

  /** The directories whose values no filter rules out. */
  List<PartitionDirectory> matching(List<PartitionDirectory> all, List<Expression> filters) {
    List<PartitionDirectory> kept = new ArrayList<>(all);
    for (BasePredicate holds : predicates(filters)) {
      kept.removeIf(one -> !holds.eval(one.values()));
    }
    return kept;
  }

  /** The conditions, ready to be applied to rows of partition values. */
  List<BasePredicate> predicates(List<Expression> filters) {
    List<BasePredicate> made = new ArrayList<>();
    for (Expression filter : filters) {
      BasePredicate holds = Predicate.create(filter, columnsOf(filter));
      holds.initialize(0);
      made.add(holds);
    }
    return made;
  }

  /** The partition columns in their order, under the names by which a filter means them. */
  private Seq<Attribute> columnsOf(Expression filter) {
    List<Attribute> columns = new ArrayList<>();
    for (int i = 0; i < schema.size(); i++) {
      columns.add(DataTypeUtils.toAttribute(schema.apply(i)));
    }
    for (Attribute used : CollectionConverters.asJava(filter.references().toSeq())) {
      columns.set(place(used.name()), used);
    }
    return CollectionConverters.asScala(columns).toSeq();
  }

  /** A filter spells a column as the statement does. */
  private int place(String name) {
    for (int i = 0; i < schema.size(); i++) {
      if (schema.apply(i).name().equalsIgnoreCase(name)) {
        return i;
      }
    }
    throw new IllegalArgumentException(name + " is no partition column");
  }
}
