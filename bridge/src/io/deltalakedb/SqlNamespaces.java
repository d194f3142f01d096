package io.deltalakedb;

import java.io.IOException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;

/**
 * The half of {@link SqlCatalog} that deals with namespaces: listed, made, described, changed and
 * dropped through the endpoint; databases that the catalog does not know are Spark's own.
 */
abstract class SqlNamespaces extends DeltaCatalog {
  private SessionTables session;

  Names names() {
    return new Names(((SparkSession) spark()).sessionState().newHadoopConf());
  }

  SessionTables session() {
    if (session == null) {
      session = new SessionTables(spark(), catalog(), () -> names().catalogId());
    }
    return session;
  }

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
    try {
      List<String[]> known = names().namespaces();
      if (parent.length > 0 && !Names.isAmong(known, parent)) {
        refuseStandIn(parent);
        return super.listNamespaces(parent);
      }
      Map<String, String[]> all = new LinkedHashMap<>();
      for (String[] one : known) {
        if (one.length > parent.length && Names.isIn(one, parent)) {
          String[] child = Arrays.copyOf(one, parent.length + 1);
          all.put(Names.key(Names.of(child)), child);
        }
      }
      if (parent.length == 0) {
        for (String[] one : super.listNamespaces()) {
          if (!all.containsKey(Names.key(Names.of(one))) && !session().isStandIn(one[0])) {
            all.put(Names.key(Names.of(one)), one);
          }
        }
      }
      return all.values().toArray(new String[0][]);
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  /**
   * Refuses a database of Spark's own catalog that stands for a namespace which this catalog does
   * not have: it was dropped, or is another catalog's.
   */
  void refuseStandIn(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 1 && session().isStandIn(namespace[0])) {
      throw new NoSuchNamespaceException(new String[] {name(), namespace[0]});
    }
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    try {
      if (!Names.isAmong(names().namespaces(), namespace)) {
        return super.namespaceExists(namespace) && !session().isStandIn(namespace[0]);
      }
      if (namespace.length == 1) {
        session().ensureDatabase(namespace[0]);
      }
      return true;
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    try {
      Map<String, String> ours = names().properties(namespace);
      boolean isKnown = namespaceExists(namespace);
      if (!isKnown) {
        refuseStandIn(namespace);
      }
      boolean canHold = namespace.length == 1 && SessionTables.canHold(namespace[0]);
      boolean isHeld = !isKnown || canHold;
      Map<String, String> held = isHeld ? super.loadNamespaceMetadata(namespace) : Map.of();
      return ours == null ? held : NamespaceProperties.shown(ours, held);
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    try {
      names().createNamespace(namespace, NamespaceProperties.stored(metadata));
      if (namespace.length == 1) {
        session().ensureDatabase(namespace[0]);
      }
    } catch (Exception e) { // IOException, and what Spark's own catalog throws
      throw Refusal.because(e);
    }
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes)
      throws NoSuchNamespaceException {
    try {
      if (names().hasNamespace(namespace)) {
        names().setProperties(namespace, NamespaceProperties.changed(changes));
      } else {
        super.alterNamespace(namespace, changes);
      }
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    try {
      if (!Names.isAmong(names().namespaces(), namespace)) {
        return super.dropNamespace(namespace, cascade);
      }
      if (!names().hasNamespace(namespace)) {
        if (cascade) {
          throw Refusal.because(
              "There is no namespace " + Names.of(namespace) + ", but others are inside it: drop"
                  + " those (SHOW NAMESPACES IN " + Names.of(namespace) + ").");
        }
        throw new NonEmptyNamespaceException(namespace);
      }
      boolean isHeld = namespace.length == 1 && session().holds(namespace[0]);
      boolean isEmpty = names().tables(namespace).isEmpty();
      if (!cascade && !(isEmpty && (!isHeld || session().others(namespace[0]).isEmpty()))) {
        throw new NonEmptyNamespaceException(namespace);
      }
      for (String path : names().dropNamespace(namespace, cascade)) { // all of it, or nothing
        session().forget(new Path(path));
      }
      if (namespace.length == 1) {
        for (String stale : session().ours(namespace[0])) {
          session().forget(namespace[0], stale);
        }
      }
      if (isHeld) {
        session().dropDatabase(namespace[0], cascade);
      }
      return true;
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }
}
