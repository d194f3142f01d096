package io.deltalakedb;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.deltalakedb.Endpoint.Answer;
import java.io.IOException;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.delta.actions.AddFile;
import scala.Option;

/**
 * The plans of one version, from the endpoint. Delta chooses the files of a scan up to three times,
 * and a version never changes, so the last answers are remembered, as long as there is memory.
 */
final class TablePlans {
  private static final int REMEMBERED = 16;
  private static final String VECTOR_CHECK = "org.apache.spark.sql.delta.ScanWithDeletionVectors";

  private final SqlSnapshot of;
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
        && StackWalker.getInstance()
            .walk(frames -> frames.anyMatch(f -> f.getClassName().startsWith(VECTOR_CHECK)));
  }

  List<AddFile> withVectors() throws IOException {
    return ask(FilterTree.JSON.createObjectNode().put("vectors", true), System.currentTimeMillis());
  }

  List<AddFile> matching(ScanFilters filters, boolean withRecords, long since) throws IOException {
    ObjectNode body = FilterTree.JSON.createObjectNode().put("records", withRecords);
    body.set("filters", filters.sent());
    return filters.exactly(ask(body, since));
  }

  /** Enough files for so many rows: those whose rows are counted first, then the others. */
  List<AddFile> limited(ScanFilters filters, long limit, long since) throws IOException {
    List<AddFile> kept = new ArrayList<>();
    List<AddFile> uncounted = new ArrayList<>();
    long rows = 0;
    for (AddFile file : matching(filters, true, since)) {
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

  private synchronized List<AddFile> ask(ObjectNode body, long since) throws IOException {
    String text = body.toString();
    SoftReference<List<AddFile>> remembered = answers.get(text);
    List<AddFile> files = remembered == null ? null : remembered.get();
    boolean isKnown = files != null;
    if (!isKnown) {
      files = fetch(text, body.path("records").asBoolean());
      answers.put(text, new SoftReference<>(files));
    }
    Planning.planned(of, text, files.size(), isKnown, since);
    return files;
  }

  private List<AddFile> fetch(String text, boolean withRecords) throws IOException {
    LogPath log = new LogPath(of.path());
    Endpoint endpoint = Endpoint.of(of.deltaLog().newDeltaHadoopConf());
    String version = Long.toString(of.version());
    try (Spool body = Spool.of(List.of(text).iterator())) {
      Answer answer =
          endpoint.post("/plan", body, "path", log.table, "txn", log.txn, "version", version);
      if (!answer.ok()) {
        throw Refusal.of("The database has no plan of " + log.table, answer);
      }
      return PlanAnswer.read(answer.body, withRecords);
    }
  }
}
