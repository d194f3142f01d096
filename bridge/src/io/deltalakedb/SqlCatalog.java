package io.deltalakedb;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's session catalog ({@code spark.sql.catalog.spark_catalog}) with the tables of the catalog
 * in it, whoever made them. Names are looked up, created and dropped through the endpoint; what the
 * catalog does not know (temporary views, tables of other formats) is Spark's own, as ever.
 *
 * <p>Tables that Spark's own catalog cannot hold, in nested namespaces or with anything but ASCII
 * letters, digits and {@code _} in their names, are created and opened by their path.
 */
public class SqlCatalog extends SqlNamespaces {
  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    super.initialize(name, options);
    spark().conf().set(NestedCatalog.SETTING, NestedCatalog.class.getName());
  }

  // -- tables: looking up

  @Override
  public Table loadTable(Identifier ident) {
    Names.Found found = look(ident);
    Identifier known = known(ident, found);
    Table table = super.loadTable(known);
    if (found == null || !(table instanceof DeltaTableV2)) {
      return table;
    }
    DeltaTableV2 shown = (DeltaTableV2) table;
    if (known != ident) {
      shown = PathTable.named(shown, ident);
    }
    return found.external ? shown : new ManagedTable(shown);
  }

  @Override
  public boolean tableExists(Identifier ident) {
    boolean isNested = ident.namespace().length > 1;
    return isNested ? find(ident) != null : super.tableExists(known(ident));
  }

  /** Asks the endpoint for a name, and sees to it that Spark's own catalog knows what it said. */
  private Identifier known(Identifier ident) {
    return known(ident, look(ident));
  }

  private Identifier known(Identifier ident, Names.Found found) {
    if (found == null) {
      return Names.isPath(ident) ? ident : unknown(ident);
    }
    return registered(ident, found);
  }

  /** By which name Delta finds a table of the catalog. */
  Identifier registered(Identifier ident, Names.Found found) {
    if (!SessionTables.canHold(ident)) {
      return byPath(found.path);
    }
    session().register(ident.namespace()[0], ident.name(), found.path);
    return ident;
  }

  static Identifier byPath(String path) {
    return Identifier.of(new String[] {"delta"}, path);
  }

  private Identifier unknown(Identifier ident) {
    forget(ident);
    if (ident.namespace().length > 1) {
      throw Refusal.sneaky(new NoSuchTableException(ident));
    }
    return ident;
  }

  /** Spark's own catalog forgets a table that the catalog does not have (any more). */
  void forget(Identifier ident) {
    if (ident.namespace().length == 1) {
      session().forget(ident.namespace()[0], ident.name());
    }
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
        boolean isOurs = Names.isAmong(names().namespaces(), namespace);
        if (!isOurs) {
          refuseStandIn(namespace);
        }
        if (session().hasDatabase(namespace[0]) || !isOurs) {
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
      throw Refusal.because(e);
    }
  }

  // -- tables: creating

  @Override
  public Table createTable(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    NewTable table = newTable(ident, properties);
    table.attachOrReserve();
    try {
      return super.createTable(table.ident(), columns, parts, table.properties());
    } catch (Throwable e) { // other columns than those of the table that is there, say
      table.giveBack(e);
      throw Refusal.withAdvice(e);
    }
  }

  @Override
  public StagedTable stageCreate(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    NewTable table = newTable(ident, properties);
    table.reserve();
    return placed(super.stageCreate(table.ident(), columns, parts, table.properties()), table);
  }

  @Override
  public StagedTable stageReplace(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    NewTable table = newTable(ident, properties);
    table.replaceOrReserve();
    return placed(super.stageReplace(table.ident(), columns, parts, table.properties()), table);
  }

  @Override
  public StagedTable stageCreateOrReplace(
      Identifier ident, Column[] columns, Transform[] parts, Map<String, String> properties) {
    NewTable table = newTable(ident, properties);
    table.replaceOrReserve();
    // At a path that has a table Delta takes CREATE OR REPLACE for a mere CREATE.
    StagedTable staged =
        table.replacesPath()
            ? super.stageReplace(table.ident(), columns, parts, table.properties())
            : super.stageCreateOrReplace(table.ident(), columns, parts, table.properties());
    return placed(staged, table);
  }

  private static StagedTable placed(StagedTable staged, NewTable table) {
    return table.isPlaced() ? new PlacedStage(staged, table) : staged;
  }

  private NewTable newTable(Identifier ident, Map<String, String> properties) {
    return new NewTable(this, ident, properties, isDelta(properties));
  }

  /** Where a new table of this name is to be; Delta creates it there. */
  String reserve(Identifier ident, String location) {
    try {
      String path = names().reserve(ident, location);
      if (path == null) {
        throw Refusal.sneaky(new TableAlreadyExistsException(ident));
      }
      session().ensureDatabase(ident.namespace()[0]);
      return path;
    } catch (IOException e) {
      throw Refusal.because(e);
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
          && find(ident) != null) {
        throw Refusal.because(
            "The location of " + Names.of(ident) + " cannot be set: a table of the catalog keeps the"
                + " place that it was created at. To give its name to the Delta table at another"
                + " place, DROP TABLE, then CREATE TABLE ... USING delta LOCATION.");
      }
    }
    return super.alterTable(known, changes);
  }

  /** Where a table of the catalog is; null if it has none of this name. */
  String find(Identifier ident) {
    Names.Found found = look(ident);
    return found == null ? null : found.path;
  }

  Names.Found look(Identifier ident) {
    try {
      return Names.isPath(ident) ? null : names().look(ident);
    } catch (IOException e) {
      throw Refusal.because(e);
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
    String path = find(ident);
    if (path == null) {
      forget(ident);
      return purge ? super.purgeTable(ident) : super.dropTable(ident);
    }
    try {
      boolean dropped = names().drop(ident, purge);
      forget(ident);
      session().forget(new Path(path));
      return dropped;
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  @Override
  public void renameTable(Identifier from, Identifier to)
      throws NoSuchTableException, TableAlreadyExistsException {
    if (find(from) == null) {
      super.renameTable(from, to);
      return;
    }
    try {
      Identifier target =
          to.namespace().length == 0 ? Identifier.of(from.namespace(), to.name()) : to;
      boolean isOtherCase =
          Names.key(Names.of(from)).equals(Names.key(Names.of(target)))
              && !from.name().equals(target.name());
      if ((!isOtherCase && tableExists(target)) || !names().rename(from, target)) {
        throw new TableAlreadyExistsException(target);
      }
      forget(from);
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  /** Brings a dropped table back under its old name or a new one. */
  void undrop(Identifier dropped, Identifier target) {
    try {
      if (tableExists(target) || !names().undrop(dropped, target)) {
        throw new TableAlreadyExistsException(target);
      }
    } catch (IOException | TableAlreadyExistsException e) {
      throw Refusal.because(e);
    }
  }
}
