package io.deltalakedb;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.delta.stats.DataSize;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The files of a scan that the database planned: EXPLAIN and Spark's UI show this class as the
 * scan's location, and how many files were kept.
 */
final class PlannedByDatabase extends PreparedDeltaFileIndex {
  private static final long serialVersionUID = 1;

  private PlannedByDatabase(PreparedDeltaFileIndex of) {
    super(
        of.spark(),
        of.deltaLog(),
        of.path(),
        of.catalogTableOpt(),
        of.preparedScan(),
        of.versionScanned());
  }

  @Override
  public Seq<Path> rootPaths() {
    DataSize kept = preparedScan().scanned();
    DataSize total = preparedScan().total();
    String shown =
        super.rootPaths().head()
            + " (version " + version() + ", " + kept.files().get() + " of " + total.files().get()
            + " files)";
    Path path = new ShownPath(super.rootPaths().head(), shown);
    return CollectionConverters.asScala(java.util.List.of(path)).toSeq();
  }

  /** A path that is shown with a remark. */
  private static final class ShownPath extends Path {
    private static final long serialVersionUID = 1;

    private final String shown;

    ShownPath(Path path, String shown) {
      super(path.toUri());
      this.shown = shown;
    }

    @Override
    public String toString() {
      return shown;
    }
  }

  /** Marks the scans of a physical plan that the database planned. */
  static final class Mark extends Rule<SparkPlan> {
    @Override
    public SparkPlan apply(SparkPlan plan) {
      return plan.transformUp(new Marked());
    }
  }

  private static final class Marked extends AbstractPartialFunction<SparkPlan, SparkPlan> {
    private static final long serialVersionUID = 1;

    @Override
    public boolean isDefinedAt(SparkPlan plan) {
      return plan instanceof FileSourceScanExec scan
          && scan.relation().location() instanceof PreparedDeltaFileIndex index
          && !(index instanceof PlannedByDatabase)
          && SqlSnapshot.isPlanned(index.preparedScan());
    }

    @Override
    @SuppressWarnings("unchecked") // a plan may become any other plan
    public <P extends SparkPlan, Q> Q applyOrElse(P plan, Function1<P, Q> otherwise) {
      return isDefinedAt(plan) ? (Q) marked((FileSourceScanExec) plan) : otherwise.apply(plan);
    }

    private static SparkPlan marked(FileSourceScanExec scan) {
      HadoopFsRelation of = scan.relation();
      HadoopFsRelation relation =
          new HadoopFsRelation(
              new PlannedByDatabase((PreparedDeltaFileIndex) of.location()),
              of.partitionSchema(),
              of.dataSchema(),
              of.bucketSpec(),
              of.fileFormat(),
              of.options(),
              of.sparkSession());
      FileSourceScanExec marked =
          new FileSourceScanExec(
              relation,
              scan.stream(),
              scan.output(),
              scan.requiredSchema(),
              scan.partitionFilters(),
              scan.optionalBucketSet(),
              scan.optionalNumCoalescedBuckets(),
              scan.dataFilters(),
              scan.tableIdentifier(),
              scan.disableBucketedScan());
      marked.copyTagsFrom(scan);
      return marked;
    }
  }
}
