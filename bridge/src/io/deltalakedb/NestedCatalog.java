package io.deltalakedb;

import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
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
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The catalog of {@link SqlCatalog} under another name than that of Spark's session catalog, of
 * which Spark supposes that it knows no nested namespaces. It owns nothing and passes all on.
 */
public final class NestedCatalog implements StagingTableCatalog, SupportsNamespaces {
  /** Under which name a session knows it; Spark puts it before names that it has resolved. */
  static final String NAME = "deltalakedb_nested";

  /** The setting that makes it known. */
  static final String SETTING = "spark.sql.catalog." + NAME;

  private final SqlCatalog sql;

  /** As Spark makes it, when a name begins with that of this catalog. */
  public NestedCatalog() {
    this(SqlExtension.catalogOf(SparkSession.active()));
  }

  NestedCatalog(SqlCatalog sql) {
    this.sql = sql;
  }

  @Override
  public String name() {
    return NAME;
  }

  /**
   * A name without that of this catalog, which Spark may have put before it twice, and with the
   * namespaces that {@link PathTable} has put into one.
   */
  private static Identifier own(Identifier ident) {
    return Identifier.of(own(ident.namespace()), ident.name());
  }

  private static String[] own(String[] namespace) {
    if (namespace.length == 1) {
      return Names.parts(namespace[0]).toArray(new String[0]);
    }
    boolean isTwice = namespace.length > 0 && namespace[0].equals(NAME);
    return isTwice ? Arrays.copyOfRange(namespace, 1, namespace.length) : namespace;
  }

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {}

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return sql.listTables(own(namespace));
  }

  @Override
  public Table loadTable(Identifier ident) {
    return sql.loadTable(own(ident));
  }

  @Override
  public Table loadTable(Identifier ident, String version) {
    return sql.loadTable(own(ident), version);
  }

  @Override
  public Table loadTable(Identifier ident, long timestamp) {
    return sql.loadTable(own(ident), timestamp);
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return sql.capabilities();
  }

  @Override
  public boolean tableExists(Identifier ident) {
    return sql.find(own(ident)) != null;
  }

  @Override
  public Table createTable(Identifier ident, TableInfo info) {
    return sql.createTable(own(ident), info.columns(), info.partitions(), info.properties());
  }

  @Override
  public StagedTable stageCreate(Identifier ident, TableInfo info) {
    return sql.stageCreate(own(ident), info.columns(), info.partitions(), info.properties());
  }

  @Override
  public StagedTable stageReplace(Identifier ident, TableInfo info) {
    return sql.stageReplace(own(ident), info.columns(), info.partitions(), info.properties());
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info) {
    return sql.stageCreateOrReplace(own(ident), info.columns(), info.partitions(), info.properties());
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) {
    return sql.alterTable(own(ident), changes);
  }

  @Override
  public boolean dropTable(Identifier ident) {
    return sql.dropTable(own(ident));
  }

  @Override
  public boolean purgeTable(Identifier ident) {
    return sql.purgeTable(own(ident));
  }

  @Override
  public void renameTable(Identifier from, Identifier to)
      throws NoSuchTableException, TableAlreadyExistsException {
    sql.renameTable(own(from), own(to));
  }

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return sql.listNamespaces();
  }

  @Override
  public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
    return sql.listNamespaces(own(parent));
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return sql.namespaceExists(own(namespace));
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    return sql.loadNamespaceMetadata(own(namespace));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    sql.createNamespace(own(namespace), metadata);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes)
      throws NoSuchNamespaceException {
    sql.alterNamespace(own(namespace), changes);
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    return sql.dropNamespace(own(namespace), cascade);
  }
}
