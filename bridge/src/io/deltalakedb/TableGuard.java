package io.deltalakedb;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Sees to it that no folder with a table of the catalog in it goes behind the catalog's back. */
final class TableGuard {
  /** How deep a folder is searched for tables before it is deleted or renamed. */
  private static final int DEPTH = 3;

  private final Configuration conf;

  TableGuard(Configuration conf) {
    this.conf = conf;
  }

  void refuse(LogPath p, String what) throws IOException {
    Path base = p.base();
    if (p.inLog() || base == null) {
      return;
    }
    FileSystem fs = base.getFileSystem(conf);
    if (!fs.exists(base) || !fs.getFileStatus(base).isDirectory()) {
      return;
    }
    String table = tableIn(p.path, base, DEPTH);
    if (table != null) {
      throw Refusal.because(
          p + " cannot be " + what + ": table " + table + " of the catalog lives there."
              + " Drop or rename the table by its name (DROP TABLE ... PURGE).");
    }
  }

  private String tableIn(String path, Path base, int depth) throws IOException {
    // Outside of any transaction: to look whether a table is there is not to read it.
    LogPath log = new LogPath(new Path(LogPath.SCHEME, null, path + "/" + LogPath.LOG));
    if (new SqlLog(conf).hasCommits(log)) {
      return path;
    }
    if (depth > 0) {
      for (FileStatus one : base.getFileSystem(conf).listStatus(base)) {
        String name = one.getPath().getName();
        if (one.isDirectory() && !name.startsWith("_") && !name.contains("=")) {
          String found = tableIn(path + "/" + name, one.getPath(), depth - 1);
          if (found != null) {
            return found;
          }
        }
      }
    }
    return null;
  }
}
