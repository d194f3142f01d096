package io.deltalakedb;

import io.deltalakedb.Endpoint.Answer;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Owns what this JVM knows of the logs in the catalog: which tables are the catalog's, what their
 * logs hold (commits from the endpoint, everything else from the overlay), what a transaction read.
 */
final class SqlLog {
  private static final long BLOCK = 128L << 20;
  private static final long AFTER_ALL = 999_999_999_999_999_999L;
  private static final long KNOWN_FOR = TimeUnit.SECONDS.toNanos(60);

  /** Only tables of the catalog are remembered: one that is imported must be noticed at once. */
  private static final Map<String, Known> KNOWN = bounded(10_000);

  /** Per transaction the tables of which the endpoint knows that files were opened. */
  private static final Map<String, List<String>> READ = bounded(1_000);

  private final Configuration conf;
  private final Endpoint endpoint;

  SqlLog(Configuration conf) {
    this.conf = conf;
    this.endpoint = Endpoint.of(conf);
  }

  /** A table of the catalog, as last seen. */
  private static final class Known {
    final long since = System.nanoTime();
    final long pinned;
    final boolean hasCommits;

    Known(long pinned, boolean hasCommits) {
      this.pinned = pinned;
      this.hasCommits = hasCommits;
    }

    boolean fresh() {
      return System.nanoTime() - since < KNOWN_FOR;
    }
  }

  private static <V> Map<String, V> bounded(int most) {
    return Collections.synchronizedMap(
        new LinkedHashMap<>() {
          @Override
          protected boolean removeEldestEntry(Map.Entry<String, V> eldest) {
            return size() > most;
          }
        });
  }

  /** Forgets a table that was dropped. */
  static void forget(Path table) {
    String end = " " + table.toUri().getPath();
    KNOWN.keySet().removeIf(key -> key.endsWith(end));
  }

  /** Whether the catalog decides about this table; if not, its log is an ordinary folder. */
  boolean isManaged(LogPath p) throws IOException {
    return known(p) != null;
  }

  /** Whether the log of this table of the catalog holds anything yet. */
  boolean hasCommits(LogPath p) throws IOException {
    Known known = known(p);
    if (known != null && !known.hasCommits) {
      commits(p, AFTER_ALL); // it may have been created since
      known = known(p);
    }
    return known != null && known.hasCommits;
  }

  /** The newest version of everybody's log that this path's transaction may see. */
  long pinned(LogPath p) throws IOException {
    Known known = known(p);
    return known == null ? Long.MAX_VALUE : known.pinned;
  }

  private Known known(LogPath p) throws IOException {
    Known known = KNOWN.get(key(p));
    if (known == null || !known.fresh()) {
      commits(p, AFTER_ALL);
      known = KNOWN.get(key(p));
    }
    return known;
  }

  private String key(LogPath p) {
    return endpoint + " " + p.txn + " " + p.table;
  }

  /** The commits from a version on, by name; null if the table is not the catalog's. */
  private TreeMap<String, FileStatus> commits(LogPath p, long from) throws IOException {
    Answer answer =
        endpoint.get("/log", "path", p.table, "txn", p.txn, "from", Long.toString(from));
    if (answer.status == 404) {
      KNOWN.remove(key(p));
      return null;
    }
    if (!answer.ok()) {
      throw Refusal.of("The log of " + p.table + " cannot be listed", answer);
    }
    Path log = new Path(LogPath.SCHEME, p.txn, p.table + "/" + LogPath.LOG);
    TreeMap<String, FileStatus> commits = new TreeMap<>();
    for (String line : answer.text().split("\n")) {
      if (!line.isEmpty()) {
        String[] entry = line.split("\t");
        Path path = LogPath.child(log, entry[0]);
        commits.put(
            entry[0], file(Long.parseLong(entry[1]), Long.parseLong(entry[2]), path));
      }
    }
    long pinned = p.txn.isEmpty() ? Long.MAX_VALUE : answer.header("X-Pinned", -1);
    KNOWN.put(key(p), new Known(pinned, answer.header("X-Head", -1) >= 0));
    return commits;
  }

  static FileStatus file(long length, long modified, Path path) {
    return new FileStatus(length, false, 1, BLOCK, modified, path);
  }

  /**
   * What the folder {@code _delta_log} of a table holds from a name on, in order; null if the table
   * is not the catalog's. The endpoint is asked first: it may put a checkpoint into the overlay.
   */
  List<FileStatus> list(LogPath p, String from) throws IOException {
    long version = LogPath.version(from);
    boolean after = version < 0 && from.compareTo(":") > 0; // sorts after all that has a version
    TreeMap<String, FileStatus> all =
        commits(p, after ? AFTER_ALL : Math.max(version, 0));
    if (all == null) {
      return null;
    }
    long newest = all.isEmpty() ? Long.MAX_VALUE : LogPath.version(all.lastKey());
    Path log = new Path(LogPath.SCHEME, p.txn, p.table + "/" + LogPath.LOG);
    LogPath folder = new LogPath(log);
    boolean exists = addOverlay(folder.overlay(), log, Math.min(newest, pinned(p)), all);
    if (!p.txn.isEmpty()) {
      exists |= addOverlay(folder.own(), log, Long.MAX_VALUE, all);
    }
    if (all.isEmpty() && !exists && !hasCommits(p)) {
      throw new FileNotFoundException(log + " does not exist: no table is there yet");
    }
    return new ArrayList<>(all.tailMap(from, true).values());
  }

  /** Adds the files of one overlay folder, up to a version; false if the folder is not there. */
  private boolean addOverlay(Path overlay, Path log, long newest, Map<String, FileStatus> into)
      throws IOException {
    FileSystem base = overlayFs(overlay, conf);
    FileStatus[] found;
    try {
      found = base.listStatus(overlay);
    } catch (FileNotFoundException e) {
      return false;
    }
    for (FileStatus one : found) {
      String name = one.getPath().getName();
      if (!LogPath.isCommit(name) && LogPath.version(name) <= newest) {
        into.put(name, as(one, LogPath.child(log, name)));
      }
    }
    return true;
  }

  /** The same file by another name; owner and permission of local files would cost a fork each. */
  static FileStatus as(FileStatus one, Path path) {
    return new FileStatus(
        one.getLen(),
        one.isDirectory(),
        one.getReplication(),
        one.getBlockSize(),
        one.getModificationTime(),
        path);
  }

  /** A commit's length and time, or null if there is none; what it says is not asked for. */
  FileStatus status(LogPath p) throws IOException {
    TreeMap<String, FileStatus> commits = commits(p, p.version());
    return commits == null ? null : commits.get(p.name());
  }

  /** The file system of an overlay: a local one without Hadoop's own checksums of files. */
  static FileSystem overlayFs(Path path, Configuration conf) throws IOException {
    FileSystem base = path.getFileSystem(conf);
    // The endpoint writes there too, and knows nothing of ".name.crc" beside each file.
    return base instanceof LocalFileSystem ? ((LocalFileSystem) base).getRawFileSystem() : base;
  }

  /** A commit's text, or null. */
  Answer commit(LogPath p) throws IOException {
    Answer answer = endpoint.get("/commit", version(p));
    if (answer.status == 404) {
      return null;
    }
    if (!answer.ok()) {
      throw Refusal.of(p + " cannot be read", answer);
    }
    return answer;
  }

  /** The catalog's own checksum of a version, or null. */
  Answer checksum(LogPath p) throws IOException {
    Answer answer = endpoint.get("/crc", version(p));
    return answer.ok() ? answer : null;
  }

  /** Proposes a commit; only the endpoint decides. */
  Answer propose(LogPath p, Spool text, String id) throws IOException {
    String[] where = version(p);
    Answer answer =
        endpoint.post(
            "/commit", text, where[0], where[1], where[2], where[3], where[4], where[5], "id", id);
    if (answer.ok()) {
      KNOWN.put(key(p), new Known(knownPin(p), true));
    }
    return answer;
  }

  private long knownPin(LogPath p) throws IOException {
    return p.txn.isEmpty() ? Long.MAX_VALUE : pinned(p);
  }

  private static String[] version(LogPath p) {
    String version = Long.toString(p.version());
    return new String[] {"path", p.table, "txn", p.txn, "version", version};
  }

  /**
   * Tells the endpoint that a transaction opened a data file: once per table, or per file if the
   * file is one that a plan has chosen.
   */
  void touch(LogPath p) throws IOException {
    List<String> read =
        READ.computeIfAbsent(
            endpoint + " " + p.txn, k -> Collections.synchronizedList(new ArrayList<>()));
    synchronized (read) {
      for (String known : read) {
        if (p.path.equals(known) || p.path.startsWith(known + "/")) {
          return;
        }
      }
    }
    Answer answer = endpoint.post("/read", "path", p.path, "txn", p.txn);
    if (answer.ok()) {
      read.add(answer.text().strip());
    } else if (answer.status != 404) {
      throw Refusal.of(p + " cannot be read", answer);
    }
  }
}
