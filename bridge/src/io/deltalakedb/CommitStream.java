package io.deltalakedb;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;

/** A text that the endpoint sent, as Hadoop wants its streams: with a position. */
final class CommitStream extends ByteArrayInputStream implements Seekable, PositionedReadable {
  CommitStream(byte[] bytes) {
    super(bytes);
  }

  @Override
  public synchronized void seek(long to) throws EOFException {
    if (to < 0 || to > count) {
      throw new EOFException("seek to " + to + " of " + count + " bytes");
    }
    pos = (int) to;
  }

  @Override
  public synchronized long getPos() {
    return pos;
  }

  @Override
  public boolean seekToNewSource(long to) {
    return false;
  }

  @Override
  public int read(long at, byte[] into, int offset, int length) {
    if (at < 0 || at >= count) {
      return -1;
    }
    int some = (int) Math.min(length, count - at);
    System.arraycopy(buf, (int) at, into, offset, some);
    return some;
  }

  @Override
  public void readFully(long at, byte[] into, int offset, int length) throws EOFException {
    if (at < 0 || at + length > count) {
      throw new EOFException("read of " + length + " bytes at " + at + " of " + count);
    }
    System.arraycopy(buf, (int) at, into, offset, length);
  }

  @Override
  public void readFully(long at, byte[] into) throws EOFException {
    readFully(at, into, 0, into.length);
  }
}
