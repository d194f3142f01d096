package io.deltalakedb;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.deltalakedb.Endpoint.Answer;
import java.io.IOException;
import java.io.OutputStream;
import java.security.CodeSource;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkBuildInfo$;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.util.SerializableConfiguration;

/**
 * What {@code dl doctor --spark} asks a driver and its executors, each in its own process: versions,
 * where the jars are, whether the endpoint answers, and whether files can be written, read and
 * deleted in the warehouse. Answers are JSON; {@code "ok"}, or what went wrong.
 */
public final class ClusterProbe {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final byte[] CONTENT = {'d', 'l', 'd', 'b'};
  private static final int PATIENCE_SECONDS = 5;
  private static final long TASK_MS = 300;
  private static final String OK = "ok";

  private ClusterProbe() {}

  /** The driver's answer. Without a warehouse, its files are not looked at. */
  public static String driver(SparkSession spark, String warehouse) {
    return answer(conf(spark), warehouse, null).toString();
  }

  /** The answers of tasks; an executor may have run several. */
  public static List<String> executors(SparkSession spark, String warehouse, int tasks)
      throws IOException {
    Configuration conf = conf(spark);
    Path shared = shareFile(warehouse, conf);
    try {
      Task task = new Task(new SerializableConfiguration(conf), warehouse, shared);
      JavaSparkContext context = JavaSparkContext.fromSparkContext(spark.sparkContext());
      return context.parallelize(Collections.nCopies(tasks, 0), tasks).map(task).collect();
    } finally {
      if (shared != null) {
        shared.getFileSystem(conf).delete(shared, false);
      }
    }
  }

  /** A file of the driver's that executors should see; null if the driver cannot write. */
  private static Path shareFile(String warehouse, Configuration conf) {
    if (warehouse.isEmpty()) {
      return null;
    }
    Path file = newFile(warehouse);
    try {
      write(file, conf);
      return file;
    } catch (IOException | RuntimeException e) {
      return null; // which the driver's own answer tells
    }
  }

  private static Configuration conf(SparkSession spark) {
    Configuration conf = spark.sessionState().newHadoopConf();
    conf.setInt(Endpoint.RETRY_SECONDS, PATIENCE_SECONDS);
    return conf;
  }

  /** A class with a name: an executor that lacks the jar says which one it is. */
  private static final class Task implements Function<Integer, String> {
    private static final long serialVersionUID = 1L;

    private final SerializableConfiguration conf;
    private final String warehouse;
    private final String shared;

    Task(SerializableConfiguration conf, String warehouse, Path shared) {
      this.conf = conf;
      this.warehouse = warehouse;
      this.shared = shared == null ? null : shared.toString();
    }

    @Override
    public String call(Integer number) throws InterruptedException {
      Thread.sleep(TASK_MS); // so that the others get tasks as well
      Path file = shared == null ? null : new Path(shared);
      return answer(conf.value(), warehouse, file).toString();
    }
  }

  private static ObjectNode answer(Configuration conf, String warehouse, Path shared) {
    ObjectNode answer = JSON.createObjectNode();
    answer.put("executor", SparkEnv.get().executorId());
    answer.put("host", SparkEnv.get().blockManager().blockManagerId().host());
    answer.put("java", System.getProperty("java.version"));
    answer.put("scala", scala.util.Properties.versionNumberString());
    answer.put("spark", SparkBuildInfo$.MODULE$.spark_version());
    answer.put("bridge", place(SqlLogStore.class));
    try {
      answer.put("delta", Delta.version());
      answer.put("delta_jar", Delta.place());
    } catch (LinkageError e) {
      answer.put("delta", "");
    }
    answer.put("endpoint", endpoint(conf));
    if (!warehouse.isEmpty()) {
      answer.put("storage", storage(warehouse, conf));
    }
    if (shared != null) {
      answer.put("shared", shared(shared, conf));
    }
    return answer;
  }

  /** Loaded only when it is asked: where Delta is missing, the rest is told all the same. */
  private static final class Delta {
    static String version() {
      return io.delta.package$.MODULE$.VERSION();
    }

    static String place() {
      return ClusterProbe.place(io.delta.package$.class);
    }
  }

  private static String place(Class<?> type) {
    CodeSource source = type.getProtectionDomain().getCodeSource();
    return source == null ? "" : source.getLocation().getPath();
  }

  private static String endpoint(Configuration conf) {
    try {
      Answer health = Endpoint.of(conf).get("/health");
      return health.ok() ? OK : health.message();
    } catch (Exception e) { // a Refusal too, which nothing declares
      return e.getMessage();
    }
  }

  /** Writes a small file, reads it and deletes it. */
  private static String storage(String warehouse, Configuration conf) {
    Path file = newFile(warehouse);
    String step = "write";
    try {
      FileSystem fs = file.getFileSystem(conf);
      write(file, conf);
      step = "read";
      read(file, conf);
      step = "delete";
      fs.delete(file, false);
      return fs.exists(file) ? "cannot delete: the file is still there" : OK;
    } catch (IOException | RuntimeException e) {
      return "cannot " + step + ": " + e;
    }
  }

  private static String shared(Path file, Configuration conf) {
    try {
      read(file, conf);
      return OK;
    } catch (IOException | RuntimeException e) {
      return e.toString();
    }
  }

  private static Path newFile(String warehouse) {
    return new Path(warehouse, "_dldb-doctor-" + UUID.randomUUID());
  }

  private static void write(Path file, Configuration conf) throws IOException {
    try (OutputStream out = file.getFileSystem(conf).create(file, false)) {
      out.write(CONTENT);
    }
  }

  private static void read(Path file, Configuration conf) throws IOException {
    byte[] found = new byte[CONTENT.length];
    try (FSDataInputStream in = file.getFileSystem(conf).open(file)) {
      in.readFully(found);
    }
    if (!java.util.Arrays.equals(found, CONTENT)) {
      throw new IOException(file + " holds something else than was written");
    }
  }
}
