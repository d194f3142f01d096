package io.deltalakedb;

import java.net.URI;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;

/**
 * Owns the spelling of {@code dldb:} paths: where a path is on the base file system, and which part
 * of a table's log it names.
 *
 * <p>{@code dldb:///file/abs/t} is {@code file:///abs/t}, {@code dldb:///s3a/bucket/t} is {@code
 * s3a://bucket/t}. The authority, if there is one, is a transaction.
 */
final class LogPath {
  static final String SCHEME = "dldb";
  static final String LOG = "_delta_log";

  /** Where Spark's own checkpoints and checksums live: beside the mirror, never in it. */
  static final String OVERLAY_FOLDER = "_dldb";

  static final String OVERLAY = "/" + OVERLAY_FOLDER + "/";

  private static final Pattern IN_LOG = Pattern.compile("(/.*?)/" + LOG + "(/.*)?");
  private static final Pattern COMMIT = Pattern.compile("/(\\d{20})\\.json");
  private static final Pattern CHECKSUM = Pattern.compile("/(\\d{20})\\.crc");
  private static final Pattern OF_VERSION = Pattern.compile("(\\d{20})\\..*");

  /** The transaction, or the empty string. */
  final String txn;

  /** The whole path, as {@code /file/abs/t/part-0.parquet}. */
  final String path;

  /** The table, as {@code /file/abs/t}; null for a path outside a log. */
  final String table;

  /** What follows {@code _delta_log}: empty for the folder itself. */
  private final String rest;

  LogPath(Path qualified) {
    URI uri = qualified.toUri();
    txn = uri.getAuthority() == null ? "" : uri.getAuthority();
    path = uri.getPath();
    Matcher inLog = IN_LOG.matcher(path);
    boolean found = inLog.matches();
    table = found ? inLog.group(1) : null;
    rest = found && inLog.group(2) != null ? inLog.group(2) : "";
  }

  boolean inLog() {
    return table != null;
  }

  /** The folder {@code _delta_log} itself. */
  boolean isLog() {
    return inLog() && rest.isEmpty();
  }

  boolean isCommit() {
    return inLog() && COMMIT.matcher(rest).matches();
  }

  boolean isChecksum() {
    return inLog() && CHECKSUM.matcher(rest).matches();
  }

  boolean isLastCheckpoint() {
    return inLog() && rest.equals("/_last_checkpoint");
  }

  /** The last part of the path. */
  String name() {
    return path.substring(path.lastIndexOf('/') + 1);
  }

  /** The version in the file's name, or -1. */
  long version() {
    return inLog() && !rest.isEmpty() ? version(rest.substring(1)) : -1;
  }

  static long version(String name) {
    Matcher versioned = OF_VERSION.matcher(name);
    return versioned.matches() ? Long.parseLong(versioned.group(1)) : -1;
  }

  static boolean isCommit(String name) {
    return COMMIT.matcher("/" + name).matches();
  }

  /** The same path on the base file system, mirror included; null above all base file systems. */
  Path base() {
    return base(path);
  }

  /** Where a file of the log lives when it is not the catalog's, as everybody sees it. */
  Path overlay() {
    return base(table + OVERLAY + "log" + rest);
  }

  /** Where a file of the log lives that this path's transaction wrote. */
  Path own() {
    return txn.isEmpty() ? overlay() : base(table + OVERLAY + "txn-" + txn + rest);
  }

  static Path base(String path) {
    String[] parts = path.split("/", 4); // "", scheme, authority or first folder, the rest
    if (parts.length < 2 || parts[1].isEmpty()) {
      return null;
    }
    if (parts[1].equals("file")) {
      String below = path.substring("/file".length());
      return new Path("file", null, below.isEmpty() ? "/" : below);
    }
    if (parts.length < 3 || parts[2].isEmpty()) {
      return null;
    }
    return new Path(parts[1], parts[2], parts.length == 4 ? "/" + parts[3] : "/");
  }

  /** A name below a folder; unlike Path's own constructor this takes any name, colons included. */
  static Path child(Path parent, String name) {
    URI uri = parent.toUri();
    String folder = uri.getPath();
    String slash = folder.endsWith("/") ? "" : "/";
    return new Path(uri.getScheme(), uri.getAuthority(), folder + slash + name);
  }

  @Override
  public String toString() {
    return SCHEME + "://" + txn + path;
  }
}
