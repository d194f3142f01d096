package io.deltalakedb;

import io.deltalakedb.Endpoint.Answer;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The file system {@code dldb:}, over any other one. Data files pass straight through. Of a table
 * of the catalog, commits come from SQL, and whatever else Spark keeps in {@code _delta_log}
 * (checkpoints, checksums) lives in {@code TABLE/_dldb/log}; inside a transaction (the authority of
 * the URI) {@code TABLE/_dldb/txn-ID} is laid over it. The mirror in {@code TABLE/_delta_log} is
 * never touched. Tables that the catalog does not know pass through wholly.
 */
public class SqlLogFileSystem extends FileSystem {
  private static final Pattern VERSION = Pattern.compile("\"version\"\\s*:\\s*(\\d+)");

  private URI uri;
  private Path cwd;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    String txn = name.getAuthority() == null ? "" : name.getAuthority();
    uri = URI.create(LogPath.SCHEME + "://" + txn + "/");
    cwd = new Path(uri);
  }

  @Override
  public String getScheme() {
    return LogPath.SCHEME;
  }

  @Override
  public URI getUri() {
    return uri;
  }

  /** The authority is a transaction, no host: there is nothing to look up, and no token for it. */
  @Override
  public String getCanonicalServiceName() {
    return null;
  }

  @Override
  public Path getWorkingDirectory() {
    return cwd;
  }

  @Override
  public void setWorkingDirectory(Path path) {
    cwd = makeQualified(path);
  }

  /** Delta qualifies the path of a log just before it looks for the log in its cache. */
  @Override
  public Path makeQualified(Path path) {
    Path qualified = super.makeQualified(path);
    if (LogPath.LOG.equals(qualified.getName())) {
      SqlDeltaLog.offer(qualified, getConf());
    }
    return qualified;
  }

  private LogPath at(Path path) {
    return new LogPath(bridged(super.makeQualified(path)));
  }

  /** A file of another table, of which this one is a clone, is named by its own address. */
  private static Path bridged(Path path) {
    URI uri = path.toUri();
    if (LogPath.SCHEME.equals(uri.getScheme())) {
      return path;
    }
    String authority = uri.getAuthority() == null ? "" : "/" + uri.getAuthority();
    return new Path(LogPath.SCHEME, null, "/" + uri.getScheme() + authority + uri.getPath());
  }

  @Override
  protected void checkPath(Path path) {
    String scheme = path.toUri().getScheme();
    if (scheme == null || scheme.equals(LogPath.SCHEME)) {
      super.checkPath(path);
    }
  }

  private SqlLog log() throws IOException {
    return new SqlLog(getConf());
  }

  private FileSystem fs(Path base) throws IOException {
    boolean inOverlay = base.toUri().getPath().contains(LogPath.OVERLAY);
    return inOverlay ? SqlLog.overlayFs(base, getConf()) : base.getFileSystem(getConf());
  }

  private boolean isManaged(LogPath p) throws IOException {
    return p.inLog() && log().isManaged(p);
  }

  /** Where a path is written to. */
  private Path target(LogPath p) throws IOException {
    Path base = isManaged(p) ? p.own() : p.base();
    if (base == null) {
      throw Refusal.because(
          p + " names no file system: it is dldb:///file/... or dldb:///s3a/bucket/...");
    }
    return base;
  }

  /** Where a path is read from: first what the transaction wrote, later versions not at all. */
  private Path source(LogPath p) throws IOException {
    if (!isManaged(p)) {
      return target(p);
    }
    if (!p.txn.isEmpty()) {
      Path own = p.own();
      if (fs(own).exists(own)) {
        return own;
      }
      if (p.version() > log().pinned(p)) {
        throw new FileNotFoundException(p + " is younger than the transaction");
      }
    }
    return p.overlay();
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    LogPath p = at(path);
    Path named = makeQualified(path);
    if (p.base() == null) {
      return folder(named);
    }
    if (p.isCommit()) {
      FileStatus commit = log().status(p);
      if (commit != null) {
        return SqlLog.as(commit, named);
      }
      if (isManaged(p)) {
        throw new FileNotFoundException(p + " does not exist");
      }
    }
    if (p.isLog() && isManaged(p) && log().hasCommits(p)) {
      return folder(named);
    }
    // A checksum of the catalog's can be opened, but does not "exist": else Spark writes none.
    Path source = source(p);
    return SqlLog.as(fs(source).getFileStatus(source), named);
  }

  private static FileStatus folder(Path path) {
    return new FileStatus(0, true, 1, 0, 0, path);
  }

  /** The checksum that the catalog has of a version, where Spark wrote none. */
  private byte[] checksum(LogPath p) throws IOException {
    if (!p.isChecksum() || !isManaged(p)) {
      return null;
    }
    Answer answer = log().checksum(p);
    return answer == null ? null : answer.body;
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    LogPath p = at(path);
    if (p.isCommit()) {
      Answer commit = log().commit(p);
      if (commit != null) {
        return stream(commit.body);
      }
      if (isManaged(p)) {
        throw new FileNotFoundException(p + " does not exist");
      }
    }
    if (!p.inLog() && !p.txn.isEmpty()) {
      log().touch(p);
    }
    try {
      Path source = source(p);
      FSDataInputStream in = fs(source).open(source, bufferSize);
      return p.isLastCheckpoint() && source.equals(p.overlay()) ? notYounger(p, in) : in;
    } catch (FileNotFoundException e) {
      byte[] checksum = checksum(p);
      if (checksum == null) {
        throw e;
      }
      return stream(checksum);
    }
  }

  private static FSDataInputStream stream(byte[] bytes) {
    return new FSDataInputStream(new CommitStream(bytes));
  }

  /** Everybody's last checkpoint, unless this path's transaction must not see it. */
  private FSDataInputStream notYounger(LogPath p, FSDataInputStream in) throws IOException {
    byte[] text;
    try (in) {
      text = in.readAllBytes();
    }
    Matcher version = VERSION.matcher(new String(text, StandardCharsets.UTF_8));
    if (version.find() && Long.parseLong(version.group(1)) > log().pinned(p)) {
      throw new FileNotFoundException(p + " is younger than the transaction");
    }
    return stream(text);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    LogPath p = at(path);
    Path named = makeQualified(path);
    if (p.base() == null) {
      return new FileStatus[0];
    }
    if (p.isLog()) {
      List<FileStatus> all = log().list(p, "");
      if (all != null) {
        return all.toArray(new FileStatus[0]);
      }
    } else if (p.isCommit()) {
      return new FileStatus[] {getFileStatus(path)};
    }
    Map<String, FileStatus> all = new TreeMap<>();
    boolean layered = isManaged(p) && !p.txn.isEmpty();
    boolean found = layered && add(p.overlay(), named, all);
    found |= add(target(p), named, all);
    if (!found) {
      throw new FileNotFoundException(p + " does not exist");
    }
    if (!p.inLog()) {
      all.remove(LogPath.OVERLAY_FOLDER);
      if (!p.txn.isEmpty() && !all.containsKey(LogPath.LOG) && isUnborn(p)) {
        all.clear();
      }
    }
    return all.values().toArray(new FileStatus[0]);
  }

  /**
   * A place for a table that this transaction has not created: files there are of transactions that
   * failed or still run. Spark creates tables in empty folders only: to it they are not there.
   */
  private boolean isUnborn(LogPath p) throws IOException {
    LogPath log = new LogPath(new Path(LogPath.SCHEME, p.txn, p.path + "/" + LogPath.LOG));
    return log().isManaged(log) && !log().hasCommits(log);
  }

  private boolean add(Path base, Path named, Map<String, FileStatus> into) throws IOException {
    try {
      for (FileStatus one : fs(base).listStatus(base)) {
        String found = one.getPath().toUri().getPath();
        boolean itself = one.isFile() && found.equals(base.toUri().getPath());
        String name = one.getPath().getName();
        into.put(name, SqlLog.as(one, itself ? named : LogPath.child(named, name)));
      }
      return true;
    } catch (FileNotFoundException e) {
      return false;
    }
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    Path target = writable(path);
    FileSystem fs = fs(target);
    if (fs instanceof RawLocalFileSystem) { // the overlay: setting permissions forks a process
      return fs.create(target, overwrite, bufferSize, replication, blockSize, progress);
    }
    return fs.create(target, permission, overwrite, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    Path target = writable(path);
    return fs(target)
        .createNonRecursive(
            target, permission, flags, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress)
      throws IOException {
    Path target = writable(path);
    return fs(target).append(target, bufferSize, progress);
  }

  private Path writable(Path path) throws IOException {
    LogPath p = at(path);
    if (p.isCommit() && isManaged(p)) {
      throw Refusal.because(
          p + " is a commit of a table of the catalog: only Delta's log store may write it"
              + " (spark.delta.logStore.dldb.impl=" + SqlLogStore.class.getName() + ")");
    }
    return target(p);
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    Path target = writable(to);
    Path source = writable(from);
    new TableGuard(getConf()).refuse(at(from), "renamed");
    return fs(target).rename(source, target);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    LogPath p = at(path);
    if (p.isCommit() && isManaged(p)) {
      return false; // what the log keeps, and for how long, is the catalog's to decide
    }
    if (recursive) {
      new TableGuard(getConf()).refuse(p, "deleted");
    }
    Path target = target(p);
    return fs(target).delete(target, recursive);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    Path target = target(at(path));
    FileSystem fs = fs(target);
    return fs instanceof RawLocalFileSystem ? fs.mkdirs(target) : fs.mkdirs(target, permission);
  }

  @Override
  public ContentSummary getContentSummary(Path path) throws IOException {
    LogPath p = at(path);
    if (p.inLog() || p.base() == null) {
      return super.getContentSummary(path);
    }
    return fs(p.base()).getContentSummary(p.base());
  }

  @Override
  public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length)
      throws IOException {
    LogPath p = at(file.getPath());
    if (p.inLog() || p.base() == null) {
      return super.getFileBlockLocations(file, start, length);
    }
    return fs(p.base()).getFileBlockLocations(SqlLog.as(file, p.base()), start, length);
  }

  @Override
  public void setTimes(Path path, long modified, long accessed) throws IOException {
    Path target = writable(path);
    fs(target).setTimes(target, modified, accessed);
  }

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    Path target = writable(path);
    fs(target).setPermission(target, permission);
  }

  @Override
  public long getDefaultBlockSize(Path path) {
    return getConf().getLongBytes("fs.local.block.size", 32L << 20);
  }
}
