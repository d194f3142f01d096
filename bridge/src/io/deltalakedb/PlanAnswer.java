package io.deltalakedb;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.BackReference;
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor;
import org.apache.spark.sql.delta.amt.AMTPassthrough;
import org.apache.spark.sql.util.ArrowUtils$;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The files of a plan, as Delta's add actions, read from Arrow batches. A column that is null for
 * all files is not sent.
 */
final class PlanAnswer {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Option<BackReference> NO_REFERENCE = Option.empty();
  private static final Option<AMTPassthrough> NO_PASSTHROUGH = Option.empty();

  private final boolean withRecords;
  private final List<AddFile> files = new ArrayList<>();

  /** Files of one partition share their map of values. */
  private final Map<String, scala.collection.immutable.Map<String, String>> maps = new HashMap<>();

  private PlanAnswer(boolean withRecords) {
    this.withRecords = withRecords;
  }

  /** `withRecords`: the statistics of each file are its number of rows. */
  static List<AddFile> read(byte[] body, boolean withRecords) throws IOException {
    PlanAnswer answer = new PlanAnswer(withRecords);
    try (BufferAllocator memory =
            ArrowUtils$.MODULE$
                .rootAllocator()
                .newChildAllocator("deltalakedb plan", 0, Long.MAX_VALUE);
        ArrowStreamReader batches =
            new ArrowStreamReader(new ByteArrayInputStream(body), memory)) {
      VectorSchemaRoot batch = batches.getVectorSchemaRoot();
      while (batches.loadNextBatch()) {
        answer.add(batch);
      }
    }
    return answer.files;
  }

  private void add(VectorSchemaRoot batch) throws IOException {
    VarCharVector paths = (VarCharVector) batch.getVector("path");
    BigIntVector sizes = (BigIntVector) batch.getVector("size");
    BigIntVector times = (BigIntVector) batch.getVector("modification_time");
    VarCharVector values = (VarCharVector) batch.getVector("partition_values");
    VarCharVector tags = (VarCharVector) batch.getVector("tags");
    VarCharVector vectors = (VarCharVector) batch.getVector("deletion_vector");
    BigIntVector rowIds = (BigIntVector) batch.getVector("base_row_id");
    BigIntVector rowVersions = (BigIntVector) batch.getVector("default_row_commit_version");
    VarCharVector clusterings = (VarCharVector) batch.getVector("clustering_provider");
    BigIntVector records = (BigIntVector) batch.getVector("num_records");
    VarCharVector stats = (VarCharVector) batch.getVector("stats");
    for (int i = 0; i < batch.getRowCount(); i++) {
      DeletionVectorDescriptor vector = vector(text(vectors, i));
      Option<Object> rows = number(records, i);
      files.add(
          new AddFile(
              canonical(text(paths, i)),
              map(text(values, i)),
              sizes.get(i),
              times.get(i),
              false, // as in Delta's state
              withRecords ? recordsAsStats(rows, vector) : text(stats, i),
              tags == null || tags.isNull(i) ? null : map(text(tags, i)),
              vector,
              number(rowIds, i),
              number(rowVersions, i),
              Option.apply(text(clusterings, i)),
              NO_REFERENCE,
              NO_PASSTHROUGH));
    }
  }

  /** The catalog counts the rows that are left, Delta's statistics those that were written. */
  private static String recordsAsStats(Option<Object> rows, DeletionVectorDescriptor vector) {
    if (rows.isEmpty()) {
      return "{}";
    }
    long deleted = vector == null ? 0 : vector.cardinality();
    return "{\"numRecords\":" + ((Long) rows.get() + deleted) + "}";
  }

  /** A path as Delta's state spells it. */
  private static String canonical(String path) throws IOException {
    if (isPlain(path)) {
      return path;
    }
    Path parsed = new Path(URI.create(path));
    if (parsed.isAbsoluteAndSchemeAuthorityNull()) {
      throw new IOException("the path of a file names no file system: " + path);
    }
    return parsed.toUri().toString();
  }

  /** Whether it has plain characters and single slashes alone, as nearly all have: parsing is slow. */
  private static boolean isPlain(String path) {
    boolean isInside = false;
    for (int i = 0; i < path.length(); i++) {
      char c = path.charAt(i);
      boolean isWord = c < 128 && (Character.isLetterOrDigit(c) || "_.=-".indexOf(c) >= 0);
      if (!isWord && !(c == '/' && isInside)) {
        return false;
      }
      isInside = isWord;
    }
    return isInside;
  }

  private scala.collection.immutable.Map<String, String> map(String json) throws IOException {
    String key = json == null ? "{}" : json;
    var known = maps.get(key);
    if (known == null) {
      Map<String, String> entries = new HashMap<>();
      for (Map.Entry<String, JsonNode> entry : JSON.readTree(key).properties()) {
        JsonNode value = entry.getValue();
        entries.put(entry.getKey(), value.isNull() ? null : value.asText());
      }
      known = scala.collection.immutable.Map.from(CollectionConverters.asScala(entries));
      maps.put(key, known);
    }
    return known;
  }

  private static DeletionVectorDescriptor vector(String json) throws IOException {
    if (json == null) {
      return null;
    }
    JsonNode of = JSON.readTree(json);
    JsonNode offset = of.get("offset");
    JsonNode last = of.get("maxRowIndex");
    return new DeletionVectorDescriptor(
        of.get("storageType").asText(),
        of.get("pathOrInlineDv").asText(),
        offset == null || offset.isNull() ? Option.empty() : Option.apply(offset.asInt()),
        of.get("sizeInBytes").asInt(),
        of.get("cardinality").asLong(),
        last == null || last.isNull() ? Option.empty() : Option.apply(last.asLong()));
  }

  private static String text(VarCharVector column, int row) {
    return column == null || column.isNull(row)
        ? null
        : new String(column.get(row), StandardCharsets.UTF_8);
  }

  private static Option<Object> number(BigIntVector column, int row) {
    return column == null || column.isNull(row) ? Option.empty() : Option.apply(column.get(row));
  }
}
