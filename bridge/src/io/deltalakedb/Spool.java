package io.deltalakedb;

import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;

/**
 * Owns the text of a commit until the endpoint has it: Delta hands out the actions once, a request
 * may have to be repeated. Small texts stay in memory, large ones wait in a temporary file.
 */
final class Spool implements Closeable {
  private static final int IN_MEMORY = 8 << 20;

  private ByteArrayOutputStream memory = new ByteArrayOutputStream();
  private Path file;
  private long size;

  /** Takes all lines. */
  static Spool of(Iterator<String> lines) throws IOException {
    Spool spool = new Spool();
    try {
      spool.take(lines);
    } catch (Throwable e) { // a Refusal too, which nothing declares
      spool.close();
      throw e;
    }
    return spool;
  }

  private void take(Iterator<String> lines) throws IOException {
    OutputStream out = memory;
    try {
      while (lines.hasNext()) {
        byte[] line = lines.next().getBytes(StandardCharsets.UTF_8);
        size += line.length + 1;
        if (file == null && size > IN_MEMORY) {
          out = toFile();
        }
        out.write(line);
        out.write('\n');
      }
    } finally {
      out.close();
    }
  }

  private OutputStream toFile() throws IOException {
    file = Files.createTempFile("deltalakedb-commit-", ".json");
    OutputStream out = new BufferedOutputStream(Files.newOutputStream(file), 1 << 16);
    memory.writeTo(out);
    memory = null;
    return out;
  }

  long size() {
    return size;
  }

  BodyPublisher publisher() throws IOException {
    return file == null
        ? BodyPublishers.ofByteArray(memory.toByteArray())
        : BodyPublishers.ofFile(file);
  }

  /** The lines again, for a store that is not ours. */
  Iterator<String> lines() throws IOException {
    if (file != null) {
      return Files.readAllLines(file).iterator();
    }
    return memory.toString(StandardCharsets.UTF_8).lines().iterator();
  }

  @Override
  public void close() throws IOException {
    if (file != null) {
      Files.deleteIfExists(file);
    }
  }
}
