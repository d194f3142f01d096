package io.deltalakedb;

import com.codahale.metrics.MetricRegistry;
import io.delta.package$;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.source.Source;
import org.apache.spark.sql.SparkSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whether scans are planned by the database, and how many were: counted in Spark's metrics under
 * {@code deltalakedb.planning}, and in the driver's log.
 */
public final class Planning {
  static final String ENABLED = "spark.deltalakedb.planning.enabled";

  /** The classes of Delta that are extended here are internal: other versions may differ. */
  static final String DELTA_VERSION = "4.4.";

  private static final Logger LOG = LoggerFactory.getLogger(Planning.class);
  private static final String PLANNED = "planned";
  private static final String REMEMBERED = "remembered";
  private static final String FALLBACK = "fallback.";

  private static final Map<String, Long> COUNTS = new ConcurrentHashMap<>();
  private static final MetricRegistry METRICS = new MetricRegistry();
  private static volatile SparkEnv registeredAt;
  private static volatile Boolean supported;

  private Planning() {}

  /** A scan that the database cannot plan; Delta plans it. */
  static final class NotPlannedException extends Exception {
    private static final long serialVersionUID = 1;

    NotPlannedException(String reason) {
      super(reason);
    }
  }

  static boolean isEnabled(SparkSession spark) {
    return Boolean.parseBoolean(spark.conf().get(ENABLED, "true")) && isSupported();
  }

  private static boolean isSupported() {
    if (supported == null) {
      String version;
      try {
        version = package$.MODULE$.VERSION();
      } catch (LinkageError e) {
        version = "of an unknown version";
      }
      if (!version.startsWith(DELTA_VERSION)) {
        LOG.warn(
            "Scans are not planned by the database: this works with delta-spark {}x, and this is"
                + " delta-spark {}. Delta plans them itself.",
            DELTA_VERSION,
            version);
      }
      supported = version.startsWith(DELTA_VERSION);
    }
    return supported;
  }

  static void planned(SqlSnapshot of, Object filters, int kept, boolean remembered, long since) {
    count(remembered ? REMEMBERED : PLANNED);
    if (LOG.isInfoEnabled()) {
      LOG.info(
          "The database planned a scan of {} version {}: {} of {} files in {} ms{}; filters {}",
          of.path().getParent(),
          of.version(),
          kept,
          of.numOfFiles(),
          System.currentTimeMillis() - since,
          remembered ? " (remembered)" : "",
          filters);
    }
  }

  static void fellBack(SqlSnapshot of, Throwable cause) {
    boolean expected = cause instanceof NotPlannedException;
    String reason = expected ? cause.getMessage() : cause.getClass().getSimpleName();
    count(FALLBACK + reason);
    Endpoint.of(of.deltaLog().newDeltaHadoopConf()).tell("/fallback", "reason", reason);
    LOG.warn(
        "Delta plans a scan of {} version {} itself, which is slower: {}",
        of.path().getParent(),
        of.version(),
        expected ? reason : cause.toString());
    LOG.debug("The database did not plan the scan", cause);
  }

  private static void count(String name) {
    COUNTS.merge(name, 1L, Long::sum);
    METRICS.counter(name).inc();
    SparkEnv env = SparkEnv.get();
    if (env != null && env != registeredAt) {
      registeredAt = env;
      env.metricsSystem().registerSource(new Metrics());
    }
  }

  /** How many scans were planned, answered from memory, and left to Delta, by the reason. */
  public static Map<String, Long> counts() {
    return Map.copyOf(COUNTS);
  }

  private static final class Metrics implements Source {
    @Override
    public String sourceName() {
      return "deltalakedb.planning";
    }

    @Override
    public MetricRegistry metricRegistry() {
      return METRICS;
    }
  }
}
