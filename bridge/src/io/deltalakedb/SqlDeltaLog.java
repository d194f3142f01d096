package io.deltalakedb;

import java.io.IOException;
import java.lang.ref.WeakReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaLog$;
import org.apache.spark.sql.delta.LogSegment;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.VersionChecksum;
import org.apache.spark.sql.delta.coordinatedcommits.TableCommitCoordinatorClient;
import org.apache.spark.util.SystemClock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/**
 * Delta's log of a table of the catalog, whose snapshots are planned by the database. It is put
 * into Delta's own cache of logs just before Delta looks there.
 *
 * <p>Delta's constructor calls methods of this class, so it has no fields that they need.
 */
final class SqlDeltaLog extends DeltaLog {
  private static final Logger LOG = LoggerFactory.getLogger(SqlDeltaLog.class);
  private static final String DELTA_LOG = "org.apache.spark.sql.delta.DeltaLog$";
  private static final int FRAMES = 6;
  private static final ThreadLocal<Boolean> BUSY = new ThreadLocal<>();

  /** A log is useless once its SparkContext was stopped; Delta replaces such a one, too. */
  private final WeakReference<SparkContext> context;

  private SqlDeltaLog(Path log, Map<String, String> options, SparkContext context) {
    super(log, log.getParent(), options, options, new SystemClock(), Option.empty());
    this.context = new WeakReference<>(context);
  }

  private boolean isUsable() {
    SparkContext started = context.get();
    return started != null && !started.isStopped();
  }

  /**
   * Puts the log of a table into Delta's cache, if Delta is about to look for it there: {@code
   * DeltaLog.apply} first qualifies the path. Readers with file-system options of their own have
   * entries of their own, which stay Delta's.
   */
  static void offer(Path log, Configuration conf) {
    if (BUSY.get() != null || TaskContext.get() != null || !isAskedByDelta()) {
      return;
    }
    BUSY.set(true);
    try {
      SparkSession spark = SparkSession.active();
      if (Planning.isEnabled(spark)) {
        put(log, new SqlLog(conf), spark);
      }
    } catch (Exception | LinkageError e) { // Delta makes its own log, and says what is wrong
      LOG.warn("Scans of {} are planned by Delta: {}", log.getParent(), e.toString());
    } finally {
      BUSY.remove();
    }
  }

  private static boolean isAskedByDelta() {
    return StackWalker.getInstance()
        .walk(
            frames ->
                frames
                    .limit(FRAMES)
                    .anyMatch(
                        frame ->
                            frame.getClassName().equals(DELTA_LOG)
                                && frame.getMethodName().equals("apply")));
  }

  private static void put(Path log, SqlLog known, SparkSession spark) throws IOException {
    Map<String, String> none = Map$.MODULE$.empty();
    var cache = DeltaLog$.MODULE$.getOrCreateCache(spark.sessionState().conf());
    var key = new DeltaLog.DeltaLogCacheKey(log, none);
    DeltaLog cached = cache.getIfPresent(key);
    boolean isOurs = cached instanceof SqlDeltaLog && ((SqlDeltaLog) cached).isUsable();
    if (!isOurs && known.isManaged(new LogPath(log))) {
      DeltaLog made =
          AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(
              () -> new SqlDeltaLog(log, none, spark.sparkContext()));
      cache.put(key, made);
    }
  }

  /** Every snapshot is made here: at the start, by update(), after a commit, of older versions. */
  @Override
  public Snapshot createSnapshot(
      LogSegment first,
      Option<TableCommitCoordinatorClient> coordinator,
      Option<CatalogTable> table,
      Option<VersionChecksum> checksum) {
    return createSnapshotFromGivenOrEquivalentLogSegment(
        first,
        coordinator,
        table,
        segment ->
            new SqlSnapshot(
                logPath(),
                segment,
                this,
                checksum.isDefined()
                    ? checksum
                    : readChecksum(segment.version(), lastSeenChecksumFileStatusOpt())));
  }
}
