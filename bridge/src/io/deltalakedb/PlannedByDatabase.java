package io.deltalakedb;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.delta.stats.DataSize;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import scala.Function1;
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
        new ShownPath(of),
        of.catalogTableOpt(),
        of.preparedScan(),
        of.versionScanned());
  }

  /** Spark keeps a node whose replacement equals it, whichever of the two it asks. */
  @Override
  public boolean equals(Object other) {
    return other instanceof PlannedByDatabase && super.equals(other);
  }

  @Override
  public int hashCode() {
    return super.hashCode();
  }

  /** The table's path, shown with a remark; it equals no plain path. */
  private static final class ShownPath extends Path {
    private static final long serialVersionUID = 1;

    private final String shown;

    ShownPath(PreparedDeltaFileIndex of) {
      super(of.path().toUri());
      DataSize kept = of.preparedScan().scanned();
      DataSize total = of.preparedScan().total();
      shown = // Spark cuts it to 100 characters
          kept.files().get() + " of " + total.files().get() + " files, version " + of.version()
              + ": " + of.path();
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof ShownPath && super.equals(other);
    }

    @Override
    public int hashCode() {
      return super.hashCode();
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

  /** Marks them in plans that Spark does not adapt while they run. */
  static final class MarkAtEnd extends ColumnarRule {
    @Override
    public Rule<SparkPlan> preColumnarTransitions() {
      return new Mark();
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
