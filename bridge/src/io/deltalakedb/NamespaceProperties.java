package io.deltalakedb;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;

/**
 * Which properties of a namespace are the catalog's: all but those that Spark fills in for a
 * database of its own, its folder and who made it.
 */
final class NamespaceProperties {
  private NamespaceProperties() {}

  private static boolean isSparks(String key) {
    return key.equals(SupportsNamespaces.PROP_LOCATION)
        || key.equals(SupportsNamespaces.PROP_OWNER);
  }

  /** What the catalog keeps of a new namespace. */
  static Map<String, String> stored(Map<String, String> metadata) {
    Map<String, String> kept = new HashMap<>(metadata);
    kept.keySet().removeIf(NamespaceProperties::isSparks);
    return kept;
  }

  /** What Spark shows: the catalog's properties, and its own database's folder and owner. */
  static Map<String, String> shown(Map<String, String> ours, Map<String, String> held) {
    Map<String, String> all = new HashMap<>(held);
    all.keySet().removeIf(key -> !isSparks(key));
    ours.forEach(all::putIfAbsent);
    return all;
  }

  /** What ALTER DATABASE changes; null is for a property that goes. */
  static Map<String, String> changed(String[] namespace, NamespaceChange[] changes) {
    Map<String, String> changed = new HashMap<>();
    for (NamespaceChange change : changes) {
      if (change instanceof NamespaceChange.SetProperty) {
        NamespaceChange.SetProperty set = (NamespaceChange.SetProperty) change;
        changed.put(set.property(), set.value());
      } else {
        changed.put(((NamespaceChange.RemoveProperty) change).property(), null);
      }
    }
    if (changed.keySet().stream().anyMatch(NamespaceProperties::isSparks)) {
      throw new UnsupportedOperationException(
          "Namespace " + Names.of(namespace) + " is one of the catalog, which keeps neither a"
              + " location nor an owner of it: set comments and properties only.");
    }
    return changed;
  }
}
