package io.deltalakedb;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
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
 * Owns the entries of Spark's own session catalog that stand for tables of the catalog: commands of
 * Spark and Delta that know only that catalog find the tables there. An entry is a name, the
 * provider and the location; it is made when a name is first asked for, and goes with the table.
 */
final class SessionTables {
  /** Marks the entry of a table that is read where it lies, so that its location does not tell. */
  private static final String MARK = "deltalakedb.registered";

  /** What Spark's own catalog takes for a name; all else it refuses to create. */
  private static final Pattern VALID = Pattern.compile("\\w+");

  private final SparkSession spark;
  private final SessionCatalog catalog;

  SessionTables(SparkSession spark, SessionCatalog catalog) {
    this.spark = spark;
    this.catalog = catalog;
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

  void ensureDatabase(String namespace) {
    if (canHold(namespace) && !catalog.databaseExists(namespace)) {
      CatalogDatabase database =
          new CatalogDatabase(
              namespace,
              "namespace of the catalog",
              catalog.getDefaultDBPath(namespace),
              Map$.MODULE$.<String, String>empty());
      catalog.createDatabase(database, true);
    }
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
            Map$.MODULE$.<String, String>empty());
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
