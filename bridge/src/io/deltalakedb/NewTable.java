package io.deltalakedb;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.delta.DeltaAnalysisException;
import scala.Option;

/**
 * A table that a statement is about to create or replace. The catalog says where it is, or is to
 * be; Delta is told that place, by the table's name or, where Spark's own catalog cannot hold the
 * name, by the path.
 */
final class NewTable {
  private final SqlCatalog catalog;
  private final Identifier name;
  private final boolean isOurs;
  private final String location;
  private Identifier ident;
  private Map<String, String> properties;
  private boolean isAttached;
  private boolean replacesPath;

  NewTable(
      SqlCatalog catalog, Identifier name, Map<String, String> properties, boolean isDelta) {
    this.catalog = catalog;
    this.name = name;
    this.ident = name;
    this.properties = new HashMap<>(properties);
    this.isOurs = isDelta && !Names.isPath(name);
    this.location = properties.get(TableCatalog.PROP_LOCATION);
    if (Names.isPath(name) && location != null && isSamePath(name.name(), location)) {
      this.properties.remove(TableCatalog.PROP_LOCATION); // Spark spells it otherwise
    }
  }

  private static boolean isSamePath(String path, String location) {
    return path.startsWith(LogPath.SCHEME + ":") && new Path(path).equals(new Path(location));
  }

  Identifier ident() {
    return ident;
  }

  Map<String, String> properties() {
    return properties;
  }

  /** Whether it is a table of the catalog's at a location that the statement names. */
  boolean isPlaced() {
    return isOurs && location != null;
  }

  /** Whether it replaces a table that Delta knows by its path only. */
  boolean replacesPath() {
    return replacesPath;
  }

  /** For CREATE TABLE: gives the name to a Delta table that is at the location, if there is one. */
  void attachOrReserve() {
    if (!attach()) {
      reserve();
    }
  }

  /** For CREATE TABLE AS SELECT, which wants a place without a table. */
  void reserve() {
    if (!isOurs) {
      return;
    }
    if (catalog.find(name) != null) {
      throw Refusal.sneaky(new TableAlreadyExistsException(name));
    }
    catalog.forget(name);
    place(catalog.reserve(name, location));
  }

  /** For REPLACE: the table of this name, if it is where the statement says. */
  void replaceOrReserve() {
    if (!isOurs) {
      return;
    }
    try {
      Names.Found existing = catalog.names().look(name, location);
      if (existing == null) {
        attachOrReserve();
        return;
      }
      if (!existing.isThere) {
        throw mismatch(existing);
      }
      ident = catalog.registered(name, existing);
      replacesPath = !SessionTables.canHold(name);
      properties.remove(TableCatalog.PROP_LOCATION);
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  private RuntimeException mismatch(Names.Found existing) {
    String[] words = {
      quoted(), "`" + new Path(existing.location) + "`", "`" + new Path(location) + "`"
    };
    throw Refusal.sneaky(
        new DeltaAnalysisException(
            "DELTA_TABLE_LOCATION_MISMATCH",
            words,
            Option.empty(),
            Option.empty(),
            Option.empty(),
            Option.empty()));
  }

  private String quoted() {
    return Stream.concat(Arrays.stream(name.namespace()), Stream.of(name.name()))
        .map(part -> "`" + part.replace("`", "``") + "`")
        .collect(Collectors.joining("."));
  }

  private boolean attach() {
    if (!isOurs || location == null) {
      return false;
    }
    try {
      String path = catalog.names().attach(name, location);
      if (path == null) {
        return false;
      }
      catalog.forget(name);
      catalog.session().ensureDatabase(name.namespace()[0]);
      place(path);
      isAttached = true;
      return true;
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  private void place(String path) {
    if (SessionTables.canHold(name)) {
      properties.put(TableCatalog.PROP_LOCATION, path);
    } else {
      properties.remove(TableCatalog.PROP_LOCATION);
      ident = SqlCatalog.byPath(path);
    }
  }

  /** The statement failed: a table that got its name from it loses the name again. */
  void giveBack(Throwable cause) {
    if (isAttached) {
      try {
        catalog.names().giveBack(name);
        catalog.forget(name);
      } catch (Exception e) { // a refusal too, which nothing here declares
        cause.addSuppressed(e);
      }
    }
  }
}
