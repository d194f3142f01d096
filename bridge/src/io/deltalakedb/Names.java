package io.deltalakedb;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.deltalakedb.Endpoint.Answer;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.connector.catalog.Identifier;

/** Owns the questions about names that go to the endpoint: tables and namespaces of the catalog. */
final class Names {
  /** The formats whose name before a path reads or writes it. */
  private static final Set<String> FILE_FORMATS =
      Set.of(
          "delta", "parquet", "orc", "json", "csv", "text", "xml", "avro", "binaryfile", "iceberg");

  private static final Pattern PLAIN = Pattern.compile("[A-Za-z0-9_]+");
  private static final Pattern PART = Pattern.compile("(?:`((?:[^`]|``)*)`|([^.`]+))(?:\\.|$)");

  private final Endpoint endpoint;

  Names(Configuration conf) {
    endpoint = Endpoint.of(conf);
  }

  /** The id of the catalog, which it keeps wherever it is served. */
  String catalogId() {
    try {
      return ok("The catalog does not say its id", endpoint.get("/catalog")).get("id").asText();
    } catch (IOException e) {
      throw Refusal.because(e);
    }
  }

  /** A name as the catalog writes it: parts joined by dots, in backticks where they need them. */
  static String of(Identifier ident) {
    return of(ident.namespace()) + "." + quote(ident.name());
  }

  static String of(String[] namespace) {
    return Arrays.stream(namespace).map(Names::quote).collect(Collectors.joining("."));
  }

  /** {@code delta.`/path`} and its like name a folder, not a table. */
  static boolean isPath(Identifier ident) {
    return ident.namespace().length == 0
        || (ident.namespace().length == 1
            && ident.name().indexOf('/') >= 0
            && FILE_FORMATS.contains(key(ident.namespace()[0])));
  }

  private static String quote(String part) {
    return PLAIN.matcher(part).matches() ? part : "`" + part.replace("`", "``") + "`";
  }

  /** The parts of a name as the catalog writes it. */
  static List<String> parts(String name) {
    List<String> parts = new ArrayList<>();
    Matcher part = PART.matcher(name);
    while (part.lookingAt()) {
      parts.add(part.group(1) != null ? part.group(1).replace("``", "`") : part.group(2));
      part.region(part.end(), name.length());
    }
    return parts;
  }

  /** In which form names are compared. */
  static String key(String name) {
    return name.toLowerCase(Locale.ROOT);
  }

  /** Whether a namespace is another one, or inside it. */
  static boolean isIn(String[] one, String[] outer) {
    return one.length >= outer.length
        && key(of(Arrays.copyOf(one, outer.length))).equals(key(of(outer)));
  }

  /** Whether a namespace is one of these, or around one of them. */
  static boolean isAmong(List<String[]> known, String[] namespace) {
    return known.stream().anyMatch(one -> isIn(one, namespace));
  }

  /** Where a table is, and whose files it has. */
  static final class Found {
    final String path;
    final boolean external;

    /** The location as everybody writes it. */
    final String location;

    final boolean isThere;

    private Found(JsonNode told) {
      path = told.get("path").asText();
      external = told.path("external").asBoolean(true);
      location = told.path("location").asText(path);
      isThere = told.path("is_there").asBoolean(true);
    }
  }

  /** Where a table is, or null. A name that the catalog could not have is one it does not have. */
  String find(Identifier ident) throws IOException {
    Found found = look(ident);
    return found == null ? null : found.path;
  }

  /** A table, or null. */
  Found look(Identifier ident) throws IOException {
    return look(ident, null);
  }

  /** A table, or null; {@code isThere} of the answer says whether it is at this location. */
  Found look(Identifier ident, String location) throws IOException {
    List<String> query = new ArrayList<>(List.of("name", of(ident), "txn", ""));
    if (location != null) {
      query.addAll(List.of("location", bridged(location)));
    }
    Answer answer = endpoint.get("/name", query.toArray(new String[0]));
    if (answer.status == 404 || answer.status == 422) {
      return null;
    }
    return new Found(ok("The name " + of(ident) + " cannot be looked up", answer));
  }

  /** Where a table of a name is to be created; null if the name is taken. */
  String reserve(Identifier ident, String location) throws IOException {
    List<String> query = new ArrayList<>(List.of("name", of(ident), "txn", ""));
    if (location != null) {
      query.addAll(List.of("location", bridged(location)));
    }
    Answer answer = endpoint.post("/name", query.toArray(new String[0]));
    if (answer.error().equals("TableExistsError")) {
      if (look(ident) != null) {
        return null;
      }
      if (location == null) {
        throw Refusal.of("CREATE TABLE", answer);
      }
      throw Refusal.because(
          of(ident) + " cannot be created at " + location + ": a Delta table is there already."
              + " CREATE TABLE " + of(ident) + " USING delta LOCATION '" + location + "', without AS"
              + " SELECT, gives it this name: write to it then; or choose another location.");
    }
    return ok("CREATE TABLE", answer).get("path").asText();
  }

  /** Gives a name to the Delta table that is at a location; null if there is none, or either is taken. */
  String attach(Identifier ident, String location) throws IOException {
    String at = bridged(location);
    Answer answer =
        endpoint.post("/name", "name", of(ident), "txn", "", "location", at, "attach", "true");
    if (answer.status == 409) {
      Found found = answer.repeated ? look(ident) : null; // the first request may have been heard
      return found != null && found.path.equals(at) ? at : null; // reserving it says why
    }
    JsonNode told = ok("CREATE TABLE", answer);
    return told.path("attached").asBoolean() ? told.get("path").asText() : null;
  }

  /** Takes back what {@link #attach} did, unless the table was written through the catalog since. */
  void giveBack(Identifier ident) throws IOException {
    endpoint.delete("/name", "name", of(ident), "attached", "true");
  }

  /** A location as a path of the bridge, so that it has one spelling. */
  private static String bridged(String location) {
    URI uri = new Path(location).toUri();
    String scheme = uri.getScheme() == null ? "file" : uri.getScheme();
    if (scheme.equals(LogPath.SCHEME)) {
      return LogPath.SCHEME + "://" + uri.getPath();
    }
    String authority = uri.getAuthority() == null ? "" : "/" + uri.getAuthority();
    return LogPath.SCHEME + ":///" + scheme + authority + uri.getPath();
  }

  /** Drops a table; false if there is none. */
  boolean drop(Identifier ident, boolean purge) throws IOException {
    Answer answer = endpoint.delete("/name", "name", of(ident), "purge", Boolean.toString(purge));
    if (answer.status == 404) {
      return answer.repeated; // the first request may have been heard
    }
    ok("Table " + of(ident) + " cannot be dropped", answer);
    return true;
  }

  /** Brings a dropped table back under a name; false if that is taken. */
  boolean undrop(Identifier dropped, Identifier target) throws IOException {
    Answer answer = endpoint.post("/undrop", "name", of(dropped), "as", of(target));
    boolean isDone = answer.repeated && (answer.status == 404 || answer.status == 409);
    if (isDone && find(target) != null) {
      return true; // the first request was heard
    }
    if (answer.status == 409) {
      return false;
    }
    ok("UNDROP TABLE", answer);
    return true;
  }

  /** Renames a table; false if the new name is taken. */
  boolean rename(Identifier from, Identifier to) throws IOException {
    Answer answer = endpoint.post("/rename", "name", of(from), "to", of(to));
    if (answer.status == 409) {
      return false;
    }
    if (answer.status != 404 || !answer.repeated || find(to) == null) {
      ok("Table " + of(from) + " cannot be renamed to " + of(to), answer);
    }
    return true;
  }

  /** The names of the tables directly in a namespace, without the namespace. */
  List<String> tables(String[] namespace) throws IOException {
    Answer answer = endpoint.get("/names", "namespace", of(namespace));
    List<String> names = new ArrayList<>();
    if (answer.status != 404 && answer.status != 422) {
      for (JsonNode name : ok("The tables of " + of(namespace) + " cannot be listed", answer)) {
        List<String> parts = parts(name.asText());
        names.add(parts.get(parts.size() - 1));
      }
    }
    return names;
  }

  List<String[]> namespaces() throws IOException {
    Answer answer = endpoint.get("/namespaces");
    List<String[]> found = new ArrayList<>();
    for (JsonNode name : ok("The namespaces cannot be listed", answer)) {
      found.add(parts(name.asText()).toArray(new String[0]));
    }
    return found;
  }

  boolean hasNamespace(String[] namespace) throws IOException {
    for (String[] one : namespaces()) {
      if (key(of(one)).equals(key(of(namespace)))) {
        return true;
      }
    }
    return false;
  }

  /** Makes a namespace with properties; one that is there already keeps its own. */
  void createNamespace(String[] namespace, Map<String, String> properties) throws IOException {
    ok(
        "Namespace " + of(namespace) + " cannot be created",
        send("/namespace", namespace, properties));
  }

  /** The properties of a namespace; null if the catalog does not have it. */
  Map<String, String> properties(String[] namespace) throws IOException {
    Answer answer = endpoint.get("/namespace", "namespace", of(namespace));
    if (answer.status == 404 || answer.status == 422) {
      return null;
    }
    JsonNode told = ok("Namespace " + of(namespace) + " cannot be read", answer).get("properties");
    Map<String, String> found = new HashMap<>();
    told.fieldNames().forEachRemaining(key -> found.put(key, told.get(key).asText()));
    return found;
  }

  /** Sets properties of a namespace, others stay; null removes one. */
  void setProperties(String[] namespace, Map<String, String> properties) throws IOException {
    ok(
        "Namespace " + of(namespace) + " cannot be changed",
        send("/namespace/properties", namespace, properties));
  }

  private Answer send(String route, String[] namespace, Map<String, String> properties)
      throws IOException {
    String text = new ObjectMapper().writeValueAsString(Map.of("properties", properties));
    try (Spool body = Spool.of(List.of(text).iterator())) {
      return endpoint.post(route, body, "namespace", of(namespace));
    }
  }

  /**
   * Drops a namespace; with {@code cascade} all that is in it too, in one transaction. The answer
   * is where the tables were.
   */
  List<String> dropNamespace(String[] namespace, boolean cascade)
      throws IOException, NonEmptyNamespaceException {
    Answer answer =
        endpoint.delete(
            "/namespace", "namespace", of(namespace), "cascade", Boolean.toString(cascade));
    if (answer.error().equals("NamespaceNotEmptyError") && !cascade) {
      throw new NonEmptyNamespaceException(namespace);
    }
    List<String> paths = new ArrayList<>();
    if (answer.status != 404) {
      JsonNode told = ok("Namespace " + of(namespace) + " cannot be dropped", answer);
      told.path("paths").forEach(path -> paths.add(path.asText()));
    }
    return paths;
  }

  private JsonNode ok(String what, Answer answer) throws IOException {
    if (!answer.ok()) {
      throw Refusal.of(what, answer);
    }
    return answer.json();
  }
}
