package io.deltalakedb;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionSet;
import org.apache.spark.sql.catalyst.expressions.ExpressionSet$;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.delta.LogSegment;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.VersionChecksum;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.DomainMetadata;
import org.apache.spark.sql.delta.actions.SetTransaction;
import org.apache.spark.sql.delta.stats.DataSize;
import org.apache.spark.sql.delta.stats.DeltaDataSkippingType$;
import org.apache.spark.sql.delta.stats.DeltaScan;
import scala.Enumeration;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A version of a table of the catalog. What a scan reads is chosen by the database; whatever it
 * does not choose, Delta does, as without this class.
 *
 * <p>Delta's constructor calls methods of this class, so its fields are set when they are needed.
 */
final class SqlSnapshot extends Snapshot {
  private static final String ALWAYS_COUNT = "spark.databricks.delta.alwaysCollectStats.enabled";
  private static final String SKIPPING = "spark.databricks.delta.stats.skipping";
  private static final Option<Object> UNKNOWN = Option.empty();
  private static final Enumeration.Value NO_SKIPPING =
      DeltaDataSkippingType$.MODULE$.noSkippingV1();

  private volatile TablePlans plans;

  SqlSnapshot(
      Path log, LogSegment segment, SqlDeltaLog owner, Option<VersionChecksum> checksum) {
    super(log, segment.version(), segment, owner, checksum);
  }

  // -- what the checksum says, without the state

  @Override
  public long numOfFiles() {
    return checksumOpt().isDefined() ? checksumOpt().get().numFiles() : super.numOfFiles();
  }

  @Override
  public long sizeInBytes() {
    return checksumOpt().isDefined() ? checksumOpt().get().tableSizeBytes() : super.sizeInBytes();
  }

  /** The number of rows and the extremes of columns, as far as the database proves them. */
  JsonNode aggregates(Set<String> minimumOf, Set<String> maximumOf) {
    return planned(() -> plans().aggregates(minimumOf, maximumOf));
  }

  // -- actions that are no files

  @Override
  public Seq<SetTransaction> setTransactions() {
    Seq<SetTransaction> found = planned(this::readTransactions);
    return found != null ? found : super.setTransactions();
  }

  private Seq<SetTransaction> readTransactions() throws Exception {
    Option<Object> oldest = minSetTransactionRetentionTimestamp();
    List<SetTransaction> kept = new ArrayList<>();
    for (JsonNode txn : plans().state().get("txns")) {
      JsonNode time = txn.get("lastUpdated");
      Option<Object> updated = time.isNull() ? Option.empty() : Option.apply(time.asLong());
      if (oldest.isEmpty() || (!time.isNull() && time.asLong() > (Long) oldest.get())) {
        long version = txn.get("version").asLong();
        kept.add(new SetTransaction(txn.get("appId").asText(), version, updated));
      }
    }
    return CollectionConverters.asScala(kept).toSeq();
  }

  @Override
  public Seq<DomainMetadata> domainMetadata() {
    Seq<DomainMetadata> found = planned(this::readDomains);
    return found != null ? found : super.domainMetadata();
  }

  private Seq<DomainMetadata> readDomains() throws Exception {
    List<DomainMetadata> all = new ArrayList<>();
    for (JsonNode one : plans().state().get("domains")) {
      String text = one.get("configuration").asText();
      all.add(new DomainMetadata(one.get("domain").asText(), text, false));
    }
    return CollectionConverters.asScala(all).toSeq();
  }

  // -- all files, for what does not go through a scan

  /** Delta's tables of files: sources of streams, overwrites of dynamic partitions, RESTORE. */
  @Override
  public Dataset<AddFile> allFiles() {
    Dataset<AddFile> files = planned(() -> plans().allFiles());
    return files != null ? files : super.allFiles();
  }

  /** Statements that write deletion vectors ask for the statistics of the files they searched. */
  @Override
  public Dataset<Row> withStatsInternal() {
    Dataset<Row> files = planned(() -> plans().searchedWithStats());
    return files != null ? files : super.withStatsInternal();
  }

  // -- scans

  @Override
  public DeltaScan filesForScan(Seq<Expression> filters, boolean keepNumRecords) {
    DeltaScan scan = planned(() -> scan(CollectionConverters.asJava(filters), keepNumRecords));
    return scan != null ? scan : super.filesForScan(filters, keepNumRecords);
  }

  @Override
  public DeltaScan filesForScan(long limit, Seq<Expression> partitionFilters) {
    DeltaScan scan = planned(() -> limited(limit, CollectionConverters.asJava(partitionFilters)));
    return scan != null ? scan : super.filesForScan(limit, partitionFilters);
  }

  /** Null if Delta has to do it; whatever goes wrong here is no reason for a query to fail. */
  private <T> T planned(Callable<T> work) {
    if (!Planning.isEnabled(spark())) {
      noteWholeTable();
      return null;
    }
    try {
      return work.call();
    } catch (Exception | LinkageError e) {
      Planning.fellBack(this, e);
      TablePlans known = plans;
      if (known != null) {
        known.searchedByDelta();
      }
      noteWholeTable();
      return null;
    }
  }

  /** What Delta chooses itself inside a transaction of the catalog may be any row of the table. */
  private void noteWholeTable() {
    LogPath table = new LogPath(path().getParent());
    if (!table.txn.isEmpty()) {
      try {
        new SqlLog(deltaLog().newDeltaHadoopConf()).touch(table);
      } catch (IOException e) {
        throw Refusal.because(e);
      }
    }
  }

  private TablePlans plans() throws Planning.NotPlannedException {
    if (checksumOpt().isEmpty()) {
      throw new Planning.NotPlannedException("the version has no checksum");
    }
    if (Boolean.parseBoolean(spark().conf().get(ALWAYS_COUNT, "false"))) {
      throw new Planning.NotPlannedException(ALWAYS_COUNT + " is set");
    }
    if (!Boolean.parseBoolean(spark().conf().get(SKIPPING, "true"))) {
      throw new Planning.NotPlannedException(SKIPPING + " is not set");
    }
    synchronized (this) {
      if (plans == null) {
        plans = new TablePlans(this);
      }
      return plans;
    }
  }

  private DeltaScan scan(List<Expression> given, boolean keepNumRecords) throws Exception {
    long since = System.currentTimeMillis();
    TablePlans plans = plans();
    if (TablePlans.isVectorCheck(given)) {
      List<AddFile> files = plans.withVectors(since);
      return scanOf(files, new ScanFilters(this), NO_SKIPPING, since);
    }
    boolean isWhole = given.isEmpty() || (given.size() == 1 && isTrue(given.get(0)));
    ScanFilters filters = new ScanFilters(this);
    if (!isWhole) {
      filters.sort(given);
    }
    List<AddFile> files = plans.matching(filters, keepNumRecords, since);
    return scanOf(files, filters, isWhole ? NO_SKIPPING : filters.skipping(), since);
  }

  private DeltaScan limited(long limit, List<Expression> given) throws Exception {
    long since = System.currentTimeMillis();
    ScanFilters filters = new ScanFilters(this);
    filters.sort(given);
    if (!filters.areOfPartitions()) {
      throw new Planning.NotPlannedException("a limit with other filters than those of partitions");
    }
    List<AddFile> files = plans().limited(filters, limit, since);
    return scanOf(files, filters, DeltaDataSkippingType$.MODULE$.filteredLimit(), since);
  }

  /** Whether the database made this plan. */
  static boolean isPlanned(DeltaScan scan) {
    return scan instanceof SqlScan;
  }

  /** A scan that the database planned; otherwise like any other. */
  private static final class SqlScan extends DeltaScan {
    private static final long serialVersionUID = 1;

    SqlScan(
        SqlSnapshot of,
        List<AddFile> files,
        DataSize scanned,
        ScanFilters filters,
        Enumeration.Value skipping,
        long since) {
      super(
          of.version(),
          CollectionConverters.asScala(files).toSeq(),
          size(of.sizeInBytes(), of.numOfFiles()),
          scanned,
          scanned,
          of,
          set(filters.partition),
          set(filters.data),
          set(List.of()),
          Set$.MODULE$.<Expression>empty(),
          set(filters.unused),
          System.currentTimeMillis() - since,
          skipping);
    }
  }

  static boolean isTrue(Expression filter) {
    return Literal.TrueLiteral().equals(filter);
  }

  private DeltaScan scanOf(
      List<AddFile> files, ScanFilters filters, Enumeration.Value skipping, long since) {
    long bytes = 0;
    for (AddFile file : files) {
      bytes += file.size();
    }
    return new SqlScan(this, files, size(bytes, files.size()), filters, skipping, since);
  }

  private static DataSize size(long bytes, long files) {
    return new DataSize(Option.apply(bytes), UNKNOWN, Option.apply(files), UNKNOWN);
  }

  private static ExpressionSet set(List<Expression> of) {
    return ExpressionSet$.MODULE$.apply(CollectionConverters.asScala(of).toSeq());
  }
}
