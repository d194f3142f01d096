package io.deltalakedb;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The data files of a read that SQL has planned. The log knows how long they are and what their
 * partition values are, so Spark's own Parquet scan needs no look at the storage before it reads.
 */
public final class PlannedFiles implements FileIndex {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String ENABLED = "spark.deltalakedb.plannedFiles";
  private static final String BY_FIELD_ID = "spark.sql.parquet.fieldId.read.enabled";

  private final FileStatus[] files;
  private final PartitionValues partitions;
  private final List<PartitionDirectory> directories;

  private PlannedFiles(
      FileStatus[] files, PartitionValues partitions, List<PartitionDirectory> directories) {
    this.files = files;
    this.partitions = partitions;
    this.directories = directories;
  }

  /**
   * Rows of Parquet files, as they are stored, and their partition values behind; all is said in
   * one call, since each call from Python takes its time. Schemas are Spark's JSON, files are a
   * JSON list of [path, length, modified, value of each partition column as the log spells it].
   * Null in a session that wants Spark to look at the files itself.
   */
  public static Dataset<Row> scan(
      SparkSession spark, String schema, String partitionSchema, String files, boolean byFieldId)
      throws IOException {
    if (!Boolean.parseBoolean(spark.conf().get(ENABLED, "true"))) {
      return null;
    }
    PlannedFiles known =
        of(JSON.readTree(files), new PartitionValues(spark, struct(partitionSchema)));
    Map<String, String> options = byFieldId ? Map.of(BY_FIELD_ID, "true") : Map.of();
    return spark.baseRelationToDataFrame(
        new HadoopFsRelation(
            known,
            known.partitionSchema(),
            struct(schema),
            Option.empty(),
            new ParquetFileFormat(),
            scala.collection.immutable.Map.from(CollectionConverters.asScala(options)),
            spark));
  }

  private static PlannedFiles of(JsonNode known, PartitionValues partitions) {
    FileStatus[] files = new FileStatus[known.size()];
    Map<List<String>, List<FileStatus>> byValues = new LinkedHashMap<>();
    for (int i = 0; i < files.length; i++) {
      JsonNode file = known.get(i);
      Path path = new Path(file.get(0).asText());
      files[i] = new FileStatus(file.get(1).asLong(), false, 0, 1, file.get(2).asLong(), path);
      List<String> values = new ArrayList<>();
      for (int at = 3; at < file.size(); at++) {
        values.add(file.get(at).isNull() ? null : file.get(at).asText());
      }
      byValues.computeIfAbsent(values, none -> new ArrayList<>()).add(files[i]);
    }
    List<PartitionDirectory> directories = new ArrayList<>();
    byValues.forEach(
        (values, group) ->
            directories.add(
                PartitionDirectory.apply(
                    partitions.row(values), group.toArray(new FileStatus[0]))));
    return new PlannedFiles(files, partitions, directories);
  }

  /** Any column may be null in a file, as for every reader of files. */
  private static StructType struct(String json) {
    return ((StructType) DataType.fromJson(json)).asNullable();
  }

  @Override
  public Seq<Path> rootPaths() {
    return seq(Arrays.stream(files).map(FileStatus::getPath).toList());
  }

  /** Spark does not look at a condition on partition columns again: what it rules out, goes here. */
  @Override
  public Seq<PartitionDirectory> listFiles(
      Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    return seq(partitions.matching(directories, CollectionConverters.asJava(partitionFilters)));
  }

  @Override
  public String[] inputFiles() {
    return Arrays.stream(files)
        .map(file -> SparkPath.fromFileStatus(file).urlEncoded())
        .toArray(String[]::new);
  }

  /** Data files never change, and the read is of one version. */
  @Override
  public void refresh() {}

  @Override
  public long sizeInBytes() {
    return Arrays.stream(files).mapToLong(FileStatus::getLen).sum();
  }

  @Override
  public StructType partitionSchema() {
    return partitions.schema;
  }

  /** Two reads of the same files are the same to Spark: what one has cached serves the other. */
  @Override
  public boolean equals(Object other) {
    return other instanceof PlannedFiles && Arrays.equals(files, ((PlannedFiles) other).files);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(files);
  }

  private static <T> Seq<T> seq(List<T> items) {
    return CollectionConverters.asScala(items).toSeq();
  }
}
