package io.deltalakedb;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.from_json;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.deltalakedb.Endpoint.Answer;
import java.io.IOException;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.schema.SchemaUtils$;
import scala.Option;

/**
 * The plans of one version, from the endpoint. Delta chooses the files of a scan up to three times,
 * and a version never changes, so the last answers are remembered, as long as there is memory.
 */
final class TablePlans {
  private static final int REMEMBERED = 16;
  private static final String BY_DELTA = "";
  private static final String VECTOR_CHECK = "org.apache.spark.sql.delta.ScanWithDeletionVectors$";
  private static final String DELETION_VECTORS =
      "org.apache.spark.sql.delta.commands.DeletionVectorUtils$";
  private static final String CHECKSUM = "org.apache.spark.sql.delta.";
  private static final String WRITES_VECTORS =
      "org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper$";

  private final SqlSnapshot of;
  private JsonNode state;

  /** What each running statement has asked, to ask for the statistics of the same files. */
  private final Map<OptimisticTransaction, Set<String>> searches = new WeakHashMap<>();

  private final Map<String, SoftReference<List<AddFile>>> answers =
      new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, SoftReference<List<AddFile>>> one) {
          return size() > REMEMBERED;
        }
      };

  TablePlans(SqlSnapshot of) {
    this.of = of;
  }

  /** Whether Delta asks for all files only to see whether one has a deletion vector. */
  static boolean isVectorCheck(List<Expression> filters) {
    return filters.size() == 2
        && filters.stream().allMatch(SqlSnapshot::isTrue)
        && isCalledBy(VECTOR_CHECK, "dvEnabledScanFor");
  }

  /** Whether one of the calling methods is this one, of a class of Delta's or one made of it. */
  private static boolean isCalledBy(String className, String method) {
    return StackWalker.getInstance()
        .walk(
            frames ->
                frames.anyMatch(
                    frame ->
                        frame.getClassName().startsWith(className)
                            && frame.getMethodName().startsWith(method)));
  }

  /** One file with a deletion vector, if any file has one. */
  List<AddFile> withVectors(long since) throws IOException {
    return ask(FilterTree.JSON.createObjectNode().put("vectors", true), since);
  }

  List<AddFile> matching(ScanFilters filters, boolean withRecords, long since) throws IOException {
    ObjectNode body = FilterTree.JSON.createObjectNode().put("records", withRecords);
    body.set("filters", filters.sent());
    return filters.exactly(ask(body, since));
  }

  /** Enough files for so many rows: those whose rows are counted first, then the others. */
  List<AddFile> limited(ScanFilters filters, long limit, long since) throws IOException {
    if (filters.areNone()) {
      ObjectNode body = FilterTree.JSON.createObjectNode().put("records", true);
      return firstRows(ask(body.put("limit", limit), since), limit);
    }
    return firstRows(matching(filters, true, since), limit);
  }

  private static List<AddFile> firstRows(List<AddFile> files, long limit) {
    List<AddFile> kept = new ArrayList<>();
    List<AddFile> uncounted = new ArrayList<>();
    long rows = 0;
    for (AddFile file : files) {
      if (rows >= limit) {
        break;
      }
      Option<Object> counted = file.numLogicalRecords();
      if (counted.isDefined()) {
        rows += (Long) counted.get();
      }
      (counted.isDefined() ? kept : uncounted).add(file);
    }
    if (rows < limit) {
      kept.addAll(uncounted);
    }
    return kept;
  }

  /** Every file with its statistics; the batches stay in memory while Spark's plan has them. */
  Dataset<AddFile> allFiles() throws IOException {
    ObjectNode body = FilterTree.JSON.createObjectNode().put("stats", true);
    if (isCalledBy(DELETION_VECTORS, "isTableDVFree")) {
      body.put("vectors", true);
    }
    // A commit's checksum names the files of small tables: no row of the statement depends on it.
    body.put("unread", isCalledBy(CHECKSUM, "incrementallyDeriveChecksum"));
    return FileTable.of(of, List.of(post(body.toString())));
  }

  /**
   * The files that the running statement has searched, with statistics, for the method that joins
   * them with the files it changes, which are some of these. Null for any other caller.
   */
  Dataset<Row> searchedWithStats() throws IOException {
    Option<OptimisticTransaction> statement = OptimisticTransaction.getActive();
    if (statement.isEmpty() || !isCalledBy(WRITES_VECTORS, "getActionsWithStats")) {
      return null;
    }
    Set<String> searched = searchedBy(statement.get());
    boolean hasVariants =
        SchemaUtils$.MODULE$.checkForVariantTypeColumnsRecursively(of.statsSchema());
    if (searched == null || searched.contains(BY_DELTA) || hasVariants) {
      return null;
    }
    List<byte[]> answers = new ArrayList<>();
    for (String text : searched) {
      ObjectNode body = (ObjectNode) FilterTree.JSON.readTree(text);
      body.remove("records");
      answers.add(post(body.put("stats", true).toString()));
    }
    Dataset<Row> files = FileTable.of(of, answers).toDF();
    if (answers.size() > 1) {
      files = files.dropDuplicates("path", "deletionVector");
    }
    return files.withColumn("stats", from_json(col("stats"), of.statsSchema(), Map.of()));
  }

  /** Delta has chosen files for the running statement that are unknown here. */
  void searchedByDelta() {
    noteSearch(BY_DELTA);
  }

  private List<AddFile> ask(ObjectNode body, long since) throws IOException {
    String text = body.toString();
    List<AddFile> files = remembered(text);
    boolean isKnown = files != null;
    if (!isKnown) { // without a lock: other scans of the version do not wait for this answer
      files = PlanAnswer.read(post(text), body.path("records").asBoolean());
      remember(text, files);
    }
    if (body.has("filters")) {
      noteSearch(text);
    }
    Planning.planned(of, text, files.size(), isKnown, since);
    return files;
  }

  private synchronized List<AddFile> remembered(String text) {
    SoftReference<List<AddFile>> known = answers.get(text);
    return known == null ? null : known.get();
  }

  private synchronized void remember(String text, List<AddFile> files) {
    answers.put(text, new SoftReference<>(files));
  }

  private synchronized void noteSearch(String text) {
    Option<OptimisticTransaction> statement = OptimisticTransaction.getActive();
    if (statement.isDefined()) {
      searches.computeIfAbsent(statement.get(), none -> new LinkedHashSet<>()).add(text);
    }
  }

  private synchronized Set<String> searchedBy(OptimisticTransaction statement) {
    Set<String> searched = searches.get(statement);
    return searched == null ? null : new LinkedHashSet<>(searched);
  }

  /** The answer to a question, as a stream of Arrow batches. */
  byte[] post(String text) throws IOException {
    try (Spool body = Spool.of(List.of(text).iterator())) {
      Answer answer = endpoint().post("/plan", body, version());
      if (!answer.ok()) {
        throw Refusal.of("The database has no plan of " + of.path(), answer);
      }
      return answer.body;
    }
  }

  /** The transactions of applications and the metadata domains of the version. */
  synchronized JsonNode state() throws IOException {
    if (state == null) {
      Answer answer = endpoint().get("/state", version());
      if (!answer.ok()) {
        throw Refusal.of("The state of " + of.path() + " cannot be read", answer);
      }
      state = answer.json();
    }
    return state;
  }

  /** The number of rows, and the extremes of columns where they are proved. */
  JsonNode aggregates(Set<String> minimumOf, Set<String> maximumOf) throws IOException {
    long since = System.currentTimeMillis();
    ObjectNode asked = FilterTree.JSON.createObjectNode();
    minimumOf.forEach(asked.putArray("min")::add);
    maximumOf.forEach(asked.putArray("max")::add);
    try (Spool body = Spool.of(List.of(asked.toString()).iterator())) {
      Answer answer = endpoint().post("/aggregates", body, version());
      if (!answer.ok()) {
        throw Refusal.of("The database cannot aggregate " + of.path(), answer);
      }
      Planning.planned(of, asked, 0, false, since);
      return answer.json();
    }
  }

  private Endpoint endpoint() {
    return Endpoint.of(of.deltaLog().newDeltaHadoopConf());
  }

  /** The id tells a table from one that was dropped at the same place. */
  private String[] version() {
    LogPath log = new LogPath(of.path());
    String version = Long.toString(of.version());
    String id = of.metadata().id();
    return new String[] {
      "path", log.table, "txn", log.txn, "version", version, "metadata_id", id
    };
  }
}
