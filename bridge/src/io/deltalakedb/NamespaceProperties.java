package io.deltalakedb;

import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;

/**
 * Which properties of a namespace are the catalog's: all but who made a database of Spark's own.
 * The property {@code location} is where the catalog puts new tables of the namespace.
 */
final class NamespaceProperties {
  private NamespaceProperties() {}

  private static boolean isSparks(String key) {
    return key.equals(SupportsNamespaces.PROP_OWNER);
  }

  /** What the catalog keeps of a new namespace. */
  static Map<String, String> stored(Map<String, String> metadata) {
    Map<String, String> kept = new HashMap<>(metadata);
    kept.keySet().removeIf(NamespaceProperties::isSparks);
    return kept;
  }

  /** What Spark shows: the catalog's properties, and its own database's owner and folder. */
  static Map<String, String> shown(Map<String, String> ours, Map<String, String> held) {
    Map<String, String> all = new HashMap<>(held);
    all.keySet().removeIf(key -> !isSparks(key) && !key.equals(SupportsNamespaces.PROP_LOCATION));
    all.putIfAbsent(SupportsNamespaces.PROP_COMMENT, "");
    all.putAll(ours);
    String own = ours.get(SupportsNamespaces.PROP_LOCATION);
    if (own != null) {
      all.put(SupportsNamespaces.PROP_LOCATION, spelled(own));
    }
    return all;
  }

  /** A location as Hadoop writes it. */
  private static String spelled(String uri) {
    return uri.startsWith("file:") ? new Path(URI.create(uri)).toString() : uri;
  }

  /** What ALTER DATABASE changes; null is for a property that goes. */
  static Map<String, String> changed(NamespaceChange[] changes) {
    Map<String, String> changed = new HashMap<>();
    for (NamespaceChange change : changes) {
      if (change instanceof NamespaceChange.SetProperty) {
        NamespaceChange.SetProperty set = (NamespaceChange.SetProperty) change;
        changed.put(set.property(), set.value());
      } else {
        changed.put(((NamespaceChange.RemoveProperty) change).property(), null);
      }
    }
    return changed;
  }
}
