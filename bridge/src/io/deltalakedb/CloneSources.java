package io.deltalakedb;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.delta.DeltaTimeTravelSpec;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.commands.CloneSource;
import org.apache.spark.sql.delta.commands.CloneTableCommand;
import org.apache.spark.sql.delta.commands.CreateDeltaTableCommand;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.Clock;
import scala.Option;

/**
 * Lets SHALLOW CLONE name the files of a table of the catalog by their own addresses, which every
 * reader can follow, and not by those that only a bridged session knows.
 */
final class CloneSources extends Rule<LogicalPlan> {
  CloneSources(SparkSession spark) {}

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof CreateDeltaTableCommand)) {
      return plan;
    }
    CreateDeltaTableCommand create = (CreateDeltaTableCommand) plan;
    boolean clones =
        create.query().isDefined() && create.query().get() instanceof CloneTableCommand;
    if (!clones) {
      return plan;
    }
    CloneTableCommand clone = (CloneTableCommand) create.query().get();
    Path path = clone.sourceTable().dataPath();
    if (!LogPath.SCHEME.equals(path.toUri().getScheme())) {
      return plan;
    }
    LogicalPlan placed =
        new CloneTableCommand(
            new WithOwnAddresses(clone.sourceTable(), new LogPath(path).base()),
            clone.targetIdent(),
            clone.tablePropertyOverrides(),
            clone.targetPath());
    return new CreateDeltaTableCommand(
        create.table(),
        create.existingTableOpt(),
        create.mode(),
        Option.apply(placed),
        create.operation(),
        create.tableByPath(),
        create.output(),
        create.protocol(),
        create.allowCatalogManaged(),
        create.createTableFunc());
  }

  /** The same source, at its place on the base file system. */
  private static final class WithOwnAddresses implements CloneSource {
    private final CloneSource source;
    private final Path path;

    WithOwnAddresses(CloneSource source, Path path) {
      this.source = source;
      this.path = path;
    }

    @Override
    public Path dataPath() {
      return path;
    }

    @Override
    public String format() {
      return source.format();
    }

    @Override
    public Protocol protocol() {
      return source.protocol();
    }

    @Override
    public Clock clock() {
      return source.clock();
    }

    @Override
    public String name() {
      String name = source.name();
      return name.contains(LogPath.SCHEME + ":") ? "delta.`" + path + "`" : name;
    }

    @Override
    public StructType schema() {
      return source.schema();
    }

    @Override
    public Option<CatalogTable> catalogTable() {
      return source.catalogTable();
    }

    @Override
    public Option<DeltaTimeTravelSpec> timeTravelOpt() {
      return source.timeTravelOpt();
    }

    @Override
    public Option<Snapshot> snapshot() {
      return source.snapshot();
    }

    @Override
    public Metadata metadata() {
      return source.metadata();
    }

    @Override
    public Dataset<AddFile> allFiles() {
      return source.allFiles();
    }

    @Override
    public long sizeInBytes() {
      return source.sizeInBytes();
    }

    @Override
    public long numOfFiles() {
      return source.numOfFiles();
    }

    @Override
    public String description() {
      return source.description();
    }

    @Override
    public void close() {
      try {
        source.close();
      } catch (java.io.IOException e) {
        throw Refusal.because(e);
      }
    }
  }
}
