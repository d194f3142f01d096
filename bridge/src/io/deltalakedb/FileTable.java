package io.deltalakedb;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.from_json;
import static org.apache.spark.sql.functions.lit;

import java.io.ByteArrayInputStream;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.implicits.package$;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.Iterator$;

/** Files from the database as a table of Delta's add actions, made of Arrow batches by Spark. */
final class FileTable {
  /** The columns of an answer with statistics, in their order. */
  private static final String SCHEMA =
      "path string, partition_values string, size long, modification_time long, tags string,"
          + " deletion_vector string, base_row_id long, default_row_commit_version long,"
          + " clustering_provider string, stats string";

  private static final Map<String, String> PLAIN =
      Map.of(
          "size", "size",
          "modificationTime", "modification_time",
          "stats", "stats",
          "baseRowId", "base_row_id",
          "defaultRowCommitVersion", "default_row_commit_version",
          "clusteringProvider", "clustering_provider");
  private static final Map<String, String> JSON =
      Map.of(
          "partitionValues", "partition_values",
          "tags", "tags",
          "deletionVector", "deletion_vector");

  private FileTable() {}

  static Dataset<AddFile> of(SqlSnapshot snapshot, List<byte[]> answers) {
    SparkSession spark = SparkSession.active();
    Iterator<byte[]> batches = Iterator$.MODULE$.<byte[]>empty();
    for (byte[] answer : answers) {
      var stream = Channels.newChannel(new ByteArrayInputStream(answer));
      Iterator<byte[]> more = ArrowConverters$.MODULE$.getBatchesFromStream(stream);
      batches = batches.concat(() -> more);
    }
    StructType schema = StructType.fromDDL(SCHEMA);
    Dataset<Row> rows = ArrowConverters$.MODULE$.toDataFrame(batches, schema.json(), spark);
    Encoder<AddFile> add = package$.MODULE$.addFileEncoder();
    List<Column> columns = new ArrayList<>();
    for (StructField field : add.schema().fields()) {
      columns.add(column(snapshot, field).as(field.name()));
    }
    return rows.select(columns.toArray(new Column[0])).as(add);
  }

  private static Column column(SqlSnapshot snapshot, StructField field) {
    String name = field.name();
    DataType type = field.dataType();
    if (name.equals("path")) {
      return snapshot.deltaLog().getCanonicalPathUdf(true).apply(col("path"));
    }
    if (name.equals("dataChange")) {
      return lit(false); // as in Delta's state
    }
    if (JSON.containsKey(name)) {
      return from_json(col(JSON.get(name)), type, Map.of());
    }
    return PLAIN.containsKey(name) ? col(PLAIN.get(name)) : lit(null).cast(type);
  }
}
