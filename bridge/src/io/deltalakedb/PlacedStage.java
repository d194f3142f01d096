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
 * A table that a statement is about to create or replace at a location that it names. If the
 * statement fails, the error says what to do, and a table that was there and has just got its name
 * loses it again; all else is Delta's.
 */
final class PlacedStage implements StagedTable, SupportsWrite {
  private final StagedTable staged;
  private final NewTable table;

  PlacedStage(StagedTable staged, NewTable table) {
    this.staged = staged;
    this.table = table;
  }

  @Override
  public void commitStagedChanges() {
    try {
      staged.commitStagedChanges();
    } catch (Throwable e) {
      throw Refusal.withAdvice(e);
    }
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
