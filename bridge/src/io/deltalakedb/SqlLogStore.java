package io.deltalakedb;

import io.delta.storage.HadoopFileSystemLogStore;
import io.delta.storage.LogStore;
import io.deltalakedb.Endpoint.Answer;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.spark.sql.delta.storage.DelegatingLogStore;
import org.apache.spark.sql.delta.storage.LogStoreInverseAdaptor;

/**
 * Delta's log store for {@code dldb:}: every commit is proposed to the endpoint, which alone
 * decides, and the list of commits comes from there. Tables that the catalog does not know are
 * left to the store that Delta itself would have chosen for their file system.
 */
public class SqlLogStore extends HadoopFileSystemLogStore {
  private volatile LogStore plain;

  public SqlLogStore(Configuration conf) {
    super(conf);
  }

  /** Delta's own choice of a store, by the scheme of a path. */
  private LogStore plain() {
    if (plain == null) {
      Configuration conf = initHadoopConf();
      plain = LogStoreInverseAdaptor.apply(new DelegatingLogStore(conf), conf);
    }
    return plain;
  }

  private static LogPath at(Path path, Configuration conf) throws IOException {
    return new LogPath(path.getFileSystem(conf).makeQualified(path));
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
      throws IOException {
    LogPath p = at(path, conf);
    SqlLog log = new SqlLog(conf);
    if (!p.isCommit()) {
      writeAside(p, log, actions, overwrite, conf);
      return;
    }
    try (Spool text = Spool.of(actions)) {
      Answer answer = log.propose(p, text, UUID.randomUUID().toString());
      if (answer.status == 409) {
        throw new FileAlreadyExistsException(path.toString());
      }
      if (answer.status == 404) {
        writeUnmanaged(p, text, overwrite, conf);
      } else if (!answer.ok()) {
        throw Refusal.of(
            "The catalog refused version " + p.version() + " of " + p.table, answer);
      }
    }
  }

  /** A commit of a table that is not the catalog's. */
  private void writeUnmanaged(LogPath p, Spool text, boolean overwrite, Configuration conf)
      throws IOException {
    if (!p.txn.isEmpty()) {
      throw Refusal.because(
          p.table + " is no table of the catalog, so it cannot be written inside a transaction:"
              + " create it by name, or import it (`dl import`), or write it by its own path.");
    }
    plain().write(p.base(), text.lines(), overwrite, conf);
  }

  /** A file of the log that is no commit: it goes where the file system has it. */
  private void writeAside(
      LogPath p, SqlLog log, Iterator<String> lines, boolean overwrite, Configuration conf)
      throws IOException {
    if (p.inLog() && log.isManaged(p)) {
      writeOverlay(p.own(), lines, overwrite, conf);
    } else {
      plain().write(p.base(), lines, overwrite, conf);
    }
  }

  /** Whole or not at all: on a local disk by a rename, on an object store by one put. */
  private void writeOverlay(Path own, Iterator<String> lines, boolean overwrite, Configuration conf)
      throws IOException {
    FileSystem fs = SqlLog.overlayFs(own, conf);
    fs.mkdirs(own.getParent());
    if (!(fs instanceof RawLocalFileSystem)) {
      plain().write(own, lines, overwrite, conf);
      return;
    }
    if (!overwrite && fs.exists(own)) {
      throw new FileAlreadyExistsException(own.toString());
    }
    Path beside = createTempPath(own);
    try (OutputStream out = fs.create(beside, true)) {
      while (lines.hasNext()) {
        out.write((lines.next() + "\n").getBytes(StandardCharsets.UTF_8));
      }
    }
    if (!fs.rename(beside, own)) {
      fs.delete(beside, false);
      throw new IOException(own + " could not be written");
    }
  }

  @Override
  public Iterator<FileStatus> listFrom(Path path, Configuration conf) throws IOException {
    LogPath p = at(path, conf);
    LogPath folder = at(path.getParent(), conf);
    if (!folder.isLog()) { // VACUUM and RESTORE list data folders through the log store
      return super.listFrom(path, conf);
    }
    List<FileStatus> all = new SqlLog(conf).list(p, path.getName());
    return all == null ? listUnmanaged(p, path.getParent(), conf) : all.iterator();
  }

  private Iterator<FileStatus> listUnmanaged(LogPath p, Path log, Configuration conf)
      throws IOException {
    List<FileStatus> all = new ArrayList<>();
    Iterator<FileStatus> found = plain().listFrom(p.base(), conf);
    while (found.hasNext()) {
      FileStatus one = found.next();
      all.add(SqlLog.as(one, LogPath.child(log, one.getPath().getName())));
    }
    return all.iterator();
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration conf) throws IOException {
    return plain().isPartialWriteVisible(at(path, conf).base(), conf);
  }
}
