package io.deltalakedb;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MetadataAttribute$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaColumnMapping$;
import org.apache.spark.sql.delta.DeltaTableUtils$;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.stats.DeltaDataSkippingType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Enumeration;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The conditions of a scan, sorted as Delta sorts them: those of partition columns alone, which
 * nobody applies again, those the database prunes by, and those that choose no files.
 */
final class ScanFilters {
  final List<Expression> partition = new ArrayList<>();
  final List<Expression> data = new ArrayList<>();
  final List<Expression> unused = new ArrayList<>();

  /** The conditions that decide about partitions, resolved. */
  private final List<Expression> exact = new ArrayList<>();

  private final ArrayNode sent = FilterTree.JSON.createArrayNode();
  private final SqlSnapshot of;
  private final Set<String> columns = new HashSet<>();

  ScanFilters(SqlSnapshot of) {
    this.of = of;
  }

  ArrayNode sent() {
    return sent;
  }

  boolean areOfPartitions() {
    return data.isEmpty() && unused.isEmpty();
  }

  /** Whether the database applies all conditions exactly: there are none. */
  boolean areNone() {
    return exact.isEmpty() && areOfPartitions();
  }

  Enumeration.Value skipping() {
    if (data.isEmpty()) {
      return DeltaDataSkippingType$.MODULE$.partitionFilteringOnlyV1();
    }
    return exact.isEmpty()
        ? DeltaDataSkippingType$.MODULE$.dataSkippingOnlyV1()
        : DeltaDataSkippingType$.MODULE$.dataSkippingAndPartitionFilteringV1();
  }

  void sort(List<Expression> filters) {
    for (String name : of.schema().fieldNames()) {
      columns.add(name.toLowerCase(Locale.ROOT));
    }
    for (Expression given : filters) {
      if (SqlSnapshot.isTrue(given)) {
        partition.add(given);
        continue;
      }
      Expression filter = given.resolved() ? given : resolved(given);
      if (!isEligible(filter)) {
        unused.add(given);
        continue;
      }
      ObjectNode tree = isOfTable(filter) ? FilterTree.of(filter) : null;
      if (tree != null) {
        sent.add(tree);
      }
      if (isOfPartitions(filter)) {
        partition.add(given);
        exact.add(filter);
      } else {
        (tree == null ? unused : data).add(given);
      }
    }
  }

  /** OPTIMIZE hands over its condition as it was written. */
  private Expression resolved(Expression filter) {
    SparkSession spark = SparkSession.active();
    Dataset<Row> none = spark.createDataFrame(List.of(), of.schema());
    Dataset<Row> filtered = none.where(ExpressionUtils$.MODULE$.column(filter));
    var plan = ((org.apache.spark.sql.classic.Dataset<Row>) filtered).queryExecution().analyzed();
    return ((Filter) plan).condition();
  }

  private static boolean isEligible(Expression filter) {
    return filter.deterministic()
        && !DeltaTableUtils$.MODULE$.containsSubquery(filter)
        && !filter.exists(
            e -> e instanceof Attribute a && MetadataAttribute$.MODULE$.isValid(a.metadata()));
  }

  /** Delta's own columns (is_row_deleted) come along when it chooses the files of a scan again. */
  private boolean isOfTable(Expression filter) {
    for (Attribute used : CollectionConverters.asJava(filter.references().toSeq())) {
      if (!columns.contains(used.name().toLowerCase(Locale.ROOT))) {
        return false;
      }
    }
    return true;
  }

  private boolean isOfPartitions(Expression filter) {
    return DeltaTableUtils$.MODULE$.isPredicatePartitionColumnsOnly(
        filter, of.metadata().partitionColumns(), SparkSession.active());
  }

  /** The files of the partitions for which the conditions hold; each partition is decided once. */
  List<AddFile> exactly(List<AddFile> files) {
    if (exact.isEmpty()) {
      return files;
    }
    StructType schema = of.metadata().partitionSchema();
    PartitionValues values = new PartitionValues(SparkSession.active(), schema);
    List<BasePredicate> conditions = values.predicates(exact);
    List<String> names = new ArrayList<>();
    for (StructField field : schema.fields()) {
      names.add(DeltaColumnMapping$.MODULE$.getPhysicalName(field));
    }
    Map<Object, Boolean> decided = new IdentityHashMap<>();
    List<AddFile> kept = new ArrayList<>();
    for (AddFile file : files) {
      var texts = file.partitionValues();
      if (decided.computeIfAbsent(
          texts,
          none -> {
            List<String> row = new ArrayList<>();
            names.forEach(name -> row.add(texts.getOrElse(name, () -> null)));
            InternalRow partition = values.row(row);
            return conditions.stream().allMatch(holds -> holds.eval(partition));
          })) {
        kept.add(file);
      }
    }
    return kept;
  }
}
