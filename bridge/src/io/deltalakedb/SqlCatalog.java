package io.deltalakedb;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;

/**
 * Spark's session catalog ({@code spark.sql.catalog.spark_catalog}) with the tables of the catalog
 * in it, whoever made them. Names are looked up, created and dropped through the endpoint; what the
 * catalog does not know (temporary views, tables of other formats) is Spark's own, as ever.
 *
 * <p>Tables in nested namespaces, which Spark's own catalog cannot hold, are opened by their path.
 */
public class SqlCatalog extends DeltaCatalog {
  private SessionTables session;

  private Names names() throws IOException {
    return new Names(((SparkSession) spark()).sessionState().newHadoopConf());
  }

  private SessionTables session() {
    if (session == null) {
      session = new SessionTables(spark(), catalog());
    }
    return session;
  }

  // -- tables: looking up

  @Override
  public Table loadTable(Identifier ident) {
    Table table = super.loadTable(known(ident));
    return isManaged(table) ? new ManagedTable((DeltaTableV2) table) : table;
  }

  private static boolean isManaged(Table table) {
    return table instanceof DeltaTableV2
        && ((DeltaTableV2) table).catalogTable().exists(SessionTables::isManaged);
  }

  @Override
  public boolean tableExists(Identifier ident) {
    return super.tableExists(known(ident));
  }

  /** Asks the endpoint for a name, and sees to it that Spark's own catalog knows what it said. */
  private Identifier known(Identifier ident) {
    if (isPath(ident)) {
      return ident;
    }
    try {
      Names.Found found = names().look(ident);
      return found == null ? unknown(ident) : registered(ident, found);
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  private Identifier registered(Identifier ident, Names.Found found) {
    if (ident.namespace().length != 1) {
      return Identifier.of(new String[] {"delta"}, found.path);
    }
    session().register(ident.namespace()[0], ident.name(), found.path, found.external);
    return ident;
  }

  private Identifier unknown(Identifier ident) {
    forget(ident);
    if (ident.namespace().length > 1) {
      throw sneaky(new NoSuchTableException(ident));
    }
    return ident;
  }

  /** Spark's own catalog forgets a table that the catalog does not have (any more). */
  private void forget(Identifier ident) {
    if (ident.namespace().length == 1) {
      session().forget(ident.namespace()[0], ident.name());
    }
  }

  /** {@code delta.`/path`} and its like name a folder, not a table. */
  private static boolean isPath(Identifier ident) {
    return ident.namespace().length == 0
        || (ident.namespace().length == 1 && ident.name().indexOf('/') >= 0);
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    try {
      Map<String, Identifier> all = new LinkedHashMap<>();
      List<String> ours = names().tables(namespace);
      if (namespace.length == 1) {
        for (String stale : session().ours(namespace[0])) {
          if (ours.stream().noneMatch(stale::equalsIgnoreCase)) {
            session().forget(namespace[0], stale);
          }
        }
        if (session().hasDatabase(namespace[0]) || !names().hasNamespace(namespace)) {
          for (Identifier one : super.listTables(namespace)) {
            all.put(one.name().toLowerCase(Locale.ROOT), one);
          }
        }
      }
      for (String name : ours) {
        all.put(name.toLowerCase(Locale.ROOT), Identifier.of(namespace, name));
      }
      return all.values().toArray(new Identifier[0]);
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  // -- tables: creating

  @Override
  public Table createTable(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    Created there = attaching(ident, properties);
    if (there == null) {
      Created at = creating(ident, properties, false);
      return super.createTable(at.ident, columns, parts, at.properties);
    }
    try {
      return super.createTable(there.ident, columns, parts, there.properties);
    } catch (Throwable e) { // other columns than those of the table that is there, say
      giveBack(ident, e);
      throw e;
    }
  }

  @Override
  public StagedTable stageCreate(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    Created at = creating(ident, properties, false);
    return super.stageCreate(at.ident, columns, parts, at.properties);
  }

  @Override
  public StagedTable stageReplace(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    Created at = creating(ident, properties, true);
    return super.stageReplace(at.ident, columns, parts, at.properties);
  }

  @Override
  public StagedTable stageCreateOrReplace(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    Created at = creating(ident, properties, true);
    return super.stageCreateOrReplace(at.ident, columns, parts, at.properties);
  }

  /** How a table is created: by which name, with which properties. */
  private static final class Created {
    final Identifier ident;
    final Map<String, String> properties;

    Created(Identifier ident, Map<String, String> properties) {
      this.ident = ident;
      this.properties = properties;
    }
  }

  /** Gives the name to a Delta table that is at the location already; null if there is none. */
  private Created attaching(Identifier ident, Map<String, String> properties) {
    String location = properties.get(TableCatalog.PROP_LOCATION);
    boolean isPlain = !isPath(ident) && ident.namespace().length == 1;
    if (location == null || !isPlain || !isDelta(properties)) {
      return null;
    }
    try {
      String path = names().attach(ident, location);
      if (path == null) {
        return null;
      }
      forget(ident);
      session().ensureDatabase(ident.namespace()[0]);
      Map<String, String> ours = new HashMap<>(properties);
      ours.put(TableCatalog.PROP_LOCATION, path);
      return new Created(ident, ours);
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  private void giveBack(Identifier ident, Throwable cause) {
    try {
      names().giveBack(ident);
      forget(ident);
    } catch (IOException | RuntimeException e) {
      cause.addSuppressed(e);
    }
  }

  /** Reserves the name and puts the table where the catalog wants it, if it is to be Delta's. */
  private Created creating(Identifier ident, Map<String, String> properties, boolean replaces) {
    if (isPath(ident) || ident.namespace().length != 1 || !isDelta(properties)) {
      return new Created(ident, properties);
    }
    try {
      Map<String, String> ours = new HashMap<>(properties);
      String location = ours.remove(TableCatalog.PROP_LOCATION);
      Names.Found existing = names().look(ident);
      if (existing != null) {
        if (!replaces) {
          throw sneaky(new TableAlreadyExistsException(ident));
        }
        return new Created(registered(ident, existing), ours);
      }
      forget(ident);
      ours.put(TableCatalog.PROP_LOCATION, reserve(ident, location));
      return new Created(ident, ours);
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  /** A name as Spark writes it in a statement; null if it names a path or another catalog. */
  Identifier identifier(List<String> parts) {
    List<String> own = parts;
    if (parts.size() == 3 && parts.get(0).equalsIgnoreCase(name())) {
      own = parts.subList(1, 3);
    }
    if (own.size() > 2) {
      return null;
    }
    String namespace = own.size() == 2 ? own.get(0) : catalog().getCurrentDatabase();
    Identifier ident = Identifier.of(new String[] {namespace}, own.get(own.size() - 1));
    return isPath(ident) ? null : ident;
  }

  /** Where a new table of this name is to be; Delta creates it there. */
  String reserve(Identifier ident, String location) {
    try {
      String path = names().reserve(ident, location);
      if (path == null) {
        throw sneaky(new TableAlreadyExistsException(ident));
      }
      session().ensureDatabase(ident.namespace()[0]);
      return path;
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  /** Whether a name is that of a Delta table, of the catalog's or of Spark's own. */
  boolean isDelta(Identifier ident) {
    return tableExists(ident) && loadTable(ident) instanceof DeltaTableV2;
  }

  private boolean isDelta(Map<String, String> properties) {
    String provider = properties.get(TableCatalog.PROP_PROVIDER);
    if (provider == null) {
      provider = ((SparkSession) spark()).sessionState().conf().defaultDataSourceName();
    }
    return provider.equalsIgnoreCase("delta");
  }

  // -- tables: changing

  @Override
  public Table alterTable(Identifier ident, TableChange[] changes) {
    Identifier known = known(ident);
    for (TableChange change : changes) {
      if (change instanceof TableChange.SetProperty
          && ((TableChange.SetProperty) change).property().equals(TableCatalog.PROP_LOCATION)
          && isOurs(ident)) {
        throw new UnsupportedOperationException(
            "The location of " + Names.of(ident) + " is in the catalog and cannot be set by Spark:"
                + " create a table at the new place (CREATE TABLE ... LOCATION ... AS SELECT), then"
                + " drop this one.");
      }
    }
    return super.alterTable(known, changes);
  }

  private boolean isOurs(Identifier ident) {
    try {
      return !isPath(ident) && names().find(ident) != null;
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  @Override
  public boolean dropTable(Identifier ident) {
    return drop(ident, false);
  }

  @Override
  public boolean purgeTable(Identifier ident) {
    return drop(ident, true);
  }

  private boolean drop(Identifier ident, boolean purge) {
    if (!isOurs(ident)) {
      return purge ? super.purgeTable(ident) : super.dropTable(ident);
    }
    try {
      boolean dropped = names().drop(ident, purge);
      forget(ident);
      return dropped;
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  @Override
  public void renameTable(Identifier from, Identifier to)
      throws NoSuchTableException, TableAlreadyExistsException {
    if (!isOurs(from)) {
      super.renameTable(from, to);
      return;
    }
    try {
      Identifier target =
          to.namespace().length == 0 ? Identifier.of(from.namespace(), to.name()) : to;
      if (tableExists(target) || !names().rename(from, target)) {
        throw new TableAlreadyExistsException(target);
      }
      forget(from);
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  /** Brings a dropped table back under its old name or a new one. */
  void undrop(Identifier dropped, Identifier target) {
    try {
      if (tableExists(target) || !names().undrop(dropped, target)) {
        throw new TableAlreadyExistsException(target);
      }
    } catch (IOException | TableAlreadyExistsException e) {
      throw sneaky(e);
    }
  }

  // -- namespaces

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
    try {
      Map<String, String[]> all = new LinkedHashMap<>();
      boolean inSession = parent.length == 1 && session().hasDatabase(parent[0]);
      List<String[]> known = names().namespaces();
      for (String[] one : known) {
        if (one.length > parent.length && Names.isIn(one, parent)) {
          String[] child = Arrays.copyOf(one, parent.length + 1);
          all.put(Names.of(child).toLowerCase(Locale.ROOT), child);
        }
      }
      if (parent.length == 0 || inSession || !hasNamespace(known, parent)) {
        for (String[] one : super.listNamespaces(parent)) {
          all.putIfAbsent(Names.of(one).toLowerCase(Locale.ROOT), one);
        }
      }
      return all.values().toArray(new String[0][]);
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  /** Whether a namespace is one of these, or around one of them. */
  private static boolean hasNamespace(List<String[]> known, String[] namespace) {
    return known.stream().anyMatch(one -> Names.isIn(one, namespace));
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    try {
      if (!hasNamespace(names().namespaces(), namespace)) {
        return super.namespaceExists(namespace);
      }
      if (namespace.length == 1) {
        session().ensureDatabase(namespace[0]);
      }
      return true;
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    try {
      Map<String, String> ours = names().properties(namespace);
      boolean isHeld = !namespaceExists(namespace) || namespace.length == 1;
      Map<String, String> held = isHeld ? super.loadNamespaceMetadata(namespace) : Map.of();
      return ours == null ? held : NamespaceProperties.shown(ours, held);
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    try {
      names().createNamespace(namespace, NamespaceProperties.stored(metadata));
      if (namespace.length == 1 && !session().hasDatabase(namespace[0])) {
        super.createNamespace(namespace, metadata);
      }
    } catch (Exception e) { // IOException, and what Spark's own catalog throws
      throw sneaky(e);
    }
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes)
      throws NoSuchNamespaceException {
    try {
      if (names().hasNamespace(namespace)) {
        names().setProperties(namespace, NamespaceProperties.changed(namespace, changes));
      } else {
        super.alterNamespace(namespace, changes);
      }
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    try {
      if (!names().hasNamespace(namespace)) {
        return super.dropNamespace(namespace, cascade);
      }
      List<String> tables = names().tables(namespace);
      if (!tables.isEmpty() && !cascade) {
        throw new NonEmptyNamespaceException(namespace);
      }
      for (String table : tables) {
        drop(Identifier.of(namespace, table), false);
      }
      if (namespace.length == 1 && session().hasDatabase(namespace[0])) {
        for (String stale : session().ours(namespace[0])) {
          session().forget(namespace[0], stale);
        }
        super.dropNamespace(namespace, cascade);
      }
      names().dropNamespace(namespace);
      return true;
    } catch (IOException e) {
      throw sneaky(e);
    }
  }

  /** Spark's methods declare none of the exceptions that Scala throws through them; nor can we. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException sneaky(Throwable e) throws E {
    throw (E) e;
  }
}
