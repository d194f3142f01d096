package io.deltalakedb;

import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The catalog of {@link SqlCatalog} under another name than that of Spark's session catalog, of
 * which Spark supposes that it knows no nested namespaces. It owns nothing and passes all on.
 */
final class NestedCatalog implements StagingTableCatalog, SupportsNamespaces {
  private final SqlCatalog sql;

  NestedCatalog(SqlCatalog sql) {
    this.sql = sql;
  }

  @Override
  public String name() {
    return "deltalakedb";
  }

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {}

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return sql.listTables(namespace);
  }

  @Override
  public Table loadTable(Identifier ident) {
    return sql.loadTable(ident);
  }

  @Override
  public boolean tableExists(Identifier ident) {
    return sql.find(ident) != null;
  }

  @Override
  public Table createTable(Identifier ident, TableInfo info) {
    return sql.createTable(ident, info.columns(), info.partitions(), info.properties());
  }

  @Override
  public StagedTable stageCreate(Identifier ident, TableInfo info) {
    return sql.stageCreate(ident, info.columns(), info.partitions(), info.properties());
  }

  @Override
  public StagedTable stageReplace(Identifier ident, TableInfo info) {
    return sql.stageReplace(ident, info.columns(), info.partitions(), info.properties());
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info) {
    return sql.stageCreateOrReplace(ident, info.columns(), info.partitions(), info.properties());
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) {
    return sql.alterTable(ident, changes);
  }

  @Override
  public boolean dropTable(Identifier ident) {
    return sql.dropTable(ident);
  }

  @Override
  public boolean purgeTable(Identifier ident) {
    return sql.purgeTable(ident);
  }

  @Override
  public void renameTable(Identifier from, Identifier to)
      throws NoSuchTableException, TableAlreadyExistsException {
    sql.renameTable(from, to);
  }

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return sql.listNamespaces();
  }

  @Override
  public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
    return sql.listNamespaces(parent);
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return sql.namespaceExists(namespace);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    return sql.loadNamespaceMetadata(namespace);
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    sql.createNamespace(namespace, metadata);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes)
      throws NoSuchNamespaceException {
    sql.alterNamespace(namespace, changes);
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    return sql.dropNamespace(namespace, cascade);
  }
}
