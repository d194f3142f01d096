package io.deltalakedb;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import scala.Option;

/**
 * Takes the endpoint's token from the driver's environment ({@code DL_TOKEN}) where no setting has
 * it, so that it is in no command line and no file of settings. Spark sends executors the Hadoop
 * configuration of the driver, and the token with it.
 */
final class EnvironmentToken {
  static final String VARIABLE = "DL_TOKEN";

  private EnvironmentToken() {}

  /** Gives the token to the Spark that runs in this JVM. */
  static void take() {
    String token = System.getenv(VARIABLE);
    Option<SparkContext> context = SparkContext$.MODULE$.getActive();
    if (token == null || token.isBlank() || context.isEmpty()) {
      return;
    }
    Configuration conf = context.get().hadoopConfiguration();
    if (conf.getTrimmed(Endpoint.TOKEN, "").isEmpty()) {
      conf.set(Endpoint.TOKEN, token.strip());
    }
  }
}
