package io.deltalakedb;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * {@link SqlLogFileSystem} for Hadoop's newer interface ({@code
 * fs.AbstractFileSystem.dldb.impl}), through which Spark writes checksums.
 */
public class SqlLogFs extends DelegateToFileSystem {
  public SqlLogFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new SqlLogFileSystem(), conf, LogPath.SCHEME, false);
  }

  /** The authority is a transaction, and has no port. */
  @Override
  public int getUriDefaultPort() {
    return -1;
  }

  /** One step where the base file system has one: ours would delete first, and then rename. */
  @Override
  public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
    if (!overwrite && fsImpl.exists(to)) {
      throw new org.apache.hadoop.fs.FileAlreadyExistsException(to + " exists already");
    }
    boolean done = fsImpl.rename(from, to);
    if (!done && overwrite && fsImpl.delete(to, false)) {
      done = fsImpl.rename(from, to);
    }
    if (!done) {
      throw new IOException(from + " could not be renamed to " + to);
    }
  }
}
