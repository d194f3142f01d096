package io.deltalakedb;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;

/**
 * A table that a statement has just given its name to and is about to replace. If the statement
 * fails, the table loses the name again; all else is Delta's.
 */
final class AttachedStage implements StagedTable, SupportsWrite {
  private final StagedTable staged;
  private final NewTable table;

  AttachedStage(StagedTable staged, NewTable table) {
    this.staged = staged;
    this.table = table;
  }

  @Override
  public void commitStagedChanges() {
    staged.commitStagedChanges();
  }

  @Override
  public void abortStagedChanges() {
    staged.abortStagedChanges();
    table.giveBack(new IllegalStateException("the statement failed"));
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return ((SupportsWrite) staged).newWriteBuilder(info);
  }

  @Override
  public String name() {
    return staged.name();
  }

  @Override
  public Column[] columns() {
    return staged.columns();
  }

  @Override
  public Transform[] partitioning() {
    return staged.partitioning();
  }

  @Override
  public Map<String, String> properties() {
    return staged.properties();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return staged.capabilities();
  }
}
