package io.deltalakedb;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable$;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Owns the entries of Spark's own session catalog that stand for tables and namespaces of the
 * catalog: commands of Spark and Delta that know only that catalog find them there. The entry of a
 * table is a name, the provider and the location; it is made when a name is first asked for, and
 * goes with the table. All sessions of a JVM share Spark's own catalog, whatever catalog they have.
 */
final class SessionTables {
  /** Marks the entry of a table that is read where it lies, so that its location does not tell. */
  private static final String MARK = "deltalakedb.registered";

  /** Marks a database that stands for a namespace; its value is the id of the catalog. */
  private static final String STANDS_FOR = "deltalakedb.catalog";

  /** What Spark's own catalog takes for a name; all else it refuses to create. */
  private static final Pattern VALID = Pattern.compile("\\w+");

  private final SparkSession spark;
  private final SessionCatalog catalog;
  private final Supplier<String> askCatalogId;
  private String catalogId;

  SessionTables(SparkSession spark, SessionCatalog catalog, Supplier<String> askCatalogId) {
    this.spark = spark;
    this.catalog = catalog;
    this.askCatalogId = askCatalogId;
  }

  private String catalogId() {
    if (catalogId == null) {
      catalogId = askCatalogId.get();
    }
    return catalogId;
  }

  private static scala.collection.immutable.Map<String, String> noProperties() {
    return Map$.MODULE$.<String, String>empty();
  }

  static TableIdentifier id(String namespace, String table) {
    return new TableIdentifier(table, Option.apply(namespace));
  }

  /** Whether Spark's own catalog can have a namespace or a table of this name. */
  static boolean canHold(String name) {
    return VALID.matcher(name).matches();
  }

  static boolean canHold(Identifier ident) {
    return ident.namespace().length == 1 && canHold(ident.namespace()[0]) && canHold(ident.name());
  }

  boolean hasDatabase(String namespace) {
    return catalog.databaseExists(namespace);
  }

  /**
   * Makes a database for a namespace of the catalog. Its folder is the one that Spark chooses, and
   * never the location of the namespace: Spark deletes a database's folder with the database.
   */
  void ensureDatabase(String namespace) {
    if (canHold(namespace) && !catalog.databaseExists(namespace)) {
      URI folder = catalog.getDefaultDBPath(namespace);
      catalog.createDatabase(
          standIn(new CatalogDatabase(namespace, "", folder, noProperties())), true);
    }
  }

  private CatalogDatabase standIn(CatalogDatabase database) {
    Map<String, String> properties =
        new HashMap<>(CollectionConverters.asJava(database.properties()));
    properties.put(STANDS_FOR, catalogId());
    return new CatalogDatabase(
        database.name(),
        "namespace of the catalog",
        database.locationUri(),
        Map$.MODULE$.from(CollectionConverters.asScala(properties)));
  }

  /** Whether a database is only there because some catalog has, or had, a namespace of this name. */
  boolean isStandIn(String namespace) {
    CatalogDatabase database = findDatabase(namespace);
    return database != null && database.properties().contains(STANDS_FOR);
  }

  /** Whether there is a database for a namespace that is not another catalog's. */
  boolean holds(String namespace) {
    CatalogDatabase database = findDatabase(namespace);
    if (database == null) {
      return false;
    }
    Option<String> id = database.properties().get(STANDS_FOR);
    return id.isEmpty() || id.get().equals(catalogId());
  }

  private CatalogDatabase findDatabase(String namespace) {
    try {
      return hasDatabase(namespace) ? catalog.getDatabaseMetadata(namespace) : null;
    } catch (Exception e) { // gone in between; Scala does not declare what it throws
      return null;
    }
  }

  /**
   * Drops a database with the tables in it that are Spark's own. Other files in its folder stay,
   * and the database with them, which from then on nobody is shown: Spark would delete all of it.
   */
  void dropDatabase(String namespace, boolean cascade) throws IOException {
    for (String table : others(namespace)) {
      catalog.dropTable(id(namespace, table), true, false);
    }
    CatalogDatabase database = catalog.getDatabaseMetadata(namespace);
    if (removeEmptyFolder(new Path(database.locationUri()))) {
      catalog.dropDatabase(namespace, true, cascade);
    } else if (!isStandIn(namespace)) {
      catalog.alterDatabase(standIn(database));
    }
  }

  private Configuration conf() {
    return ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().newHadoopConf();
  }

  /** Removes a folder that is empty; whether it is gone. */
  private boolean removeEmptyFolder(Path folder) throws IOException {
    FileSystem fs = folder.getFileSystem(conf());
    if (fs.exists(folder) && fs.listStatus(folder).length == 0) {
      fs.delete(folder, false);
    }
    return !fs.exists(folder);
  }

  /** Makes a table known under its name, in place of an entry that stood for another one. */
  void register(String namespace, String table, String path) {
    ensureDatabase(namespace);
    TableIdentifier id = id(namespace, table);
    URI location = new Path(path).toUri();
    CatalogTable known = find(id);
    if (known != null) {
      if (sameAs(known, location)) {
        return;
      }
      if (!isOurs(known)) {
        throw Refusal.because(
            namespace + "." + table + " is a table of the catalog (" + path + "), and also one that"
                + " was created in this Spark session alone: drop or rename that one first.");
      }
      remove(namespace, table);
    }
    catalog.createTable(entry(id, location), true, false);
  }

  private static boolean sameAs(CatalogTable known, URI location) {
    return known.storage().locationUri().isDefined()
        && new Path(known.storage().locationUri().get()).equals(new Path(location));
  }

  /** Forgets a name if it stood for a table of the catalog. */
  void forget(String namespace, String table) {
    CatalogTable known = hasDatabase(namespace) ? find(id(namespace, table)) : null;
    if (known != null && isOurs(known)) {
      remove(namespace, table);
    }
  }

  private void remove(String namespace, String table) {
    TableIdentifier id = id(namespace, table);
    CatalogTable known = find(id);
    if (known != null) {
      catalog.dropTable(id, true, false); // external: only the entry goes
      forget(new Path(known.location()));
    }
  }

  /** Forgets what was read of the table at a path. */
  void forget(Path path) {
    SqlLog.forget(path);
    DeltaLog.invalidateCache(spark, path);
  }

  /** The names in a database that stand for tables of the catalog. */
  List<String> ours(String namespace) {
    return list(namespace, true);
  }

  /** The names in a database that are Spark's own: views, and tables of other formats. */
  List<String> others(String namespace) {
    return list(namespace, false);
  }

  private List<String> list(String namespace, boolean ours) {
    List<String> found = new ArrayList<>();
    if (hasDatabase(namespace)) {
      var listed = CollectionConverters.asJava(catalog.listTables(namespace, "*", false));
      for (TableIdentifier id : listed) {
        CatalogTable known = find(id);
        if (known != null && isOurs(known) == ours) {
          found.add(id.table());
        }
      }
    }
    return found;
  }

  private CatalogTable find(TableIdentifier id) {
    try {
      return catalog.tableExists(id) ? catalog.getTableMetadata(id) : null;
    } catch (Exception e) { // gone in between; Scala does not declare what it throws
      return null;
    }
  }

  private static boolean isOurs(CatalogTable known) {
    Option<URI> location = known.storage().locationUri();
    return known.properties().contains(MARK)
        || (location.isDefined() && LogPath.SCHEME.equals(location.get().getScheme()));
  }

  /** What Delta itself writes for an external table; all but the location is in the log. */
  static CatalogTable entry(TableIdentifier id, URI location) {
    Map<String, String> mark = Map.of(MARK, "true");
    return entry(id, CatalogTableType.EXTERNAL(), location, new StructType(), List.of(), mark, null);
  }

  /** What Spark's own catalog would say of a Delta table. */
  static CatalogTable entry(
      TableIdentifier id,
      CatalogTableType type,
      URI location,
      StructType schema,
      List<String> partitionColumns,
      Map<String, String> properties,
      String comment) {
    CatalogTable$ defaults = CatalogTable$.MODULE$;
    CatalogStorageFormat storage =
        new CatalogStorageFormat(
            Option.apply(location),
            Option.empty(),
            Option.empty(),
            Option.empty(),
            false,
            noProperties());
    return new CatalogTable(
        id,
        type,
        storage,
        schema,
        Option.apply("delta"),
        CollectionConverters.asScala(partitionColumns).toSeq(),
        defaults.apply$default$7(),
        defaults.apply$default$8(),
        System.currentTimeMillis(),
        defaults.apply$default$10(),
        org.apache.spark.package$.MODULE$.SPARK_VERSION(),
        Map$.MODULE$.from(CollectionConverters.asScala(properties)),
        defaults.apply$default$13(),
        defaults.apply$default$14(),
        Option.apply(comment),
        defaults.apply$default$16(),
        defaults.apply$default$17(),
        true,
        defaults.apply$default$19(),
        defaults.apply$default$20(),
        defaults.apply$default$21());
  }
}
