package io.deltalakedb;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;

/**
 * Owns the conversation with the catalog's endpoint: requests with the token, repeated while the
 * endpoint does not answer, for a bounded time. Every request may be repeated: what changes
 * something carries an id, or names a state that is the same after the second time.
 *
 * <p>Hadoop confs: {@code deltalakedb.endpoint}, {@code deltalakedb.token}, {@code
 * deltalakedb.retry.seconds}, {@code deltalakedb.tls.ca}.
 */
final class Endpoint {
  static final String URL = "deltalakedb.endpoint";
  static final String TOKEN = "deltalakedb.token";
  static final String RETRY_SECONDS = "deltalakedb.retry.seconds";
  static final String CA = "deltalakedb.tls.ca";

  private static final String PREFIX = "/bridge/v1";
  private static final ObjectMapper JSON = new ObjectMapper();

  /** One client, with its pool of connections, per certificate authority. */
  private static final Map<String, HttpClient> CLIENTS = new ConcurrentHashMap<>();

  /** When an endpoint was last found dead: Delta asks again and again, not each time as long. */
  private static final Map<String, Long> DEAD = new ConcurrentHashMap<>();

  private static final long DEAD_FOR = Duration.ofSeconds(60).toNanos();

  private final String url;
  private final String token;
  private final String ca;
  private final int retrySeconds;

  private Endpoint(String url, String token, String ca, int retrySeconds) {
    this.url = url;
    this.token = token;
    this.ca = ca;
    this.retrySeconds = retrySeconds;
  }

  static Endpoint of(Configuration conf) {
    String url = conf.getTrimmed(URL, "");
    if (url.isEmpty()) {
      throw Refusal.because(
          "This Spark session does not know the endpoint of the catalog: spark.hadoop." + URL
              + " is not set. Start the session with deltalakedb.spark.session() or configure().");
    }
    String bare = url.endsWith("/") ? url.substring(0, url.length() - 1) : url;
    return new Endpoint(
        bare,
        conf.getTrimmed(TOKEN, ""),
        conf.getTrimmed(CA, ""),
        conf.getInt(RETRY_SECONDS, 20));
  }

  /** What the endpoint said. */
  static final class Answer {
    final int status;
    final byte[] body;

    /** Whether the request was sent more than once, so that the first may have been heard. */
    final boolean repeated;

    private final HttpResponse<byte[]> response;

    private Answer(HttpResponse<byte[]> response, boolean repeated) {
      this.response = response;
      this.status = response.statusCode();
      this.body = response.body();
      this.repeated = repeated;
    }

    boolean ok() {
      return status == 200;
    }

    String text() {
      return new String(body, StandardCharsets.UTF_8);
    }

    JsonNode json() throws IOException {
      return JSON.readTree(body);
    }

    long header(String name, long missing) {
      return response.headers().firstValue(name).map(Long::parseLong).orElse(missing);
    }

    /** The endpoint's own words about what went wrong. */
    String message() {
      String message = told("message");
      if (!message.isEmpty()) {
        return message;
      }
      String text = text();
      return "HTTP " + status + " " + text.substring(0, Math.min(500, text.length()));
    }

    /** The name of the catalog's error; empty if the answer is none of the endpoint's. */
    String error() {
      return told("error");
    }

    private String told(String key) {
      try {
        JsonNode value = JSON.readTree(body).get(key);
        return value == null ? "" : value.asText();
      } catch (IOException e) { // not ours: a proxy's page, perhaps
        return "";
      }
    }
  }

  Answer get(String path, String... query) throws IOException {
    return send("GET", path, query, null);
  }

  Answer post(String path, String... query) throws IOException {
    return send("POST", path, query, null);
  }

  Answer post(String path, Spool body, String... query) throws IOException {
    return send("POST", path, query, body);
  }

  Answer delete(String path, String... query) throws IOException {
    return send("DELETE", path, query, null);
  }

  /** Says something that the endpoint need not hear: nobody waits for it, and nothing is repeated. */
  void tell(String path, String... query) {
    try {
      HttpRequest request =
          request(path, query)
              .timeout(Duration.ofSeconds(5))
              .method("POST", BodyPublishers.noBody())
              .build();
      client().sendAsync(request, HttpResponse.BodyHandlers.discarding());
    } catch (IOException unreadable) { // the certificate; the next question says so
      return;
    }
  }

  private HttpRequest.Builder request(String path, String[] query) {
    return HttpRequest.newBuilder(URI.create(url + PREFIX + path + encoded(query)))
        .header("Authorization", "Bearer " + token)
        .header("Content-Type", "text/plain; charset=utf-8");
  }

  private Answer send(String method, String path, String[] query, Spool body) throws IOException {
    long since = System.nanoTime();
    long patience = isDead() ? 0 : Duration.ofSeconds(retrySeconds).toNanos();
    IOException last = null;
    for (int attempt = 0; ; attempt++) {
      HttpResponse<byte[]> response = null;
      try {
        response = once(method, path, query, body);
      } catch (HttpTimeoutException e) {
        last = e;
      } catch (InterruptedIOException e) {
        throw e;
      } catch (IOException e) {
        last = e;
      }
      if (response != null && response.statusCode() != 503) {
        DEAD.remove(url);
        return checked(new Answer(response, attempt > 0)); // what it refuses, it refuses again
      }
      if (response != null) {
        last = new Unable(new Answer(response, false).message());
      }
      // The first repeat comes at once: a kept-alive connection may just have been closed.
      long wait = attempt == 0 ? 0 : Math.min(100L << Math.min(attempt, 5), 2000);
      if (attempt > 0 && System.nanoTime() - since + wait * 1_000_000 > patience) {
        DEAD.put(url, System.nanoTime());
        throw unreachable(last);
      }
      sleep(wait);
    }
  }

  private boolean isDead() {
    Long since = DEAD.get(url);
    return since != null && System.nanoTime() - since < DEAD_FOR;
  }

  private HttpResponse<byte[]> once(String method, String path, String[] query, Spool body)
      throws IOException {
    BodyPublisher content = body == null ? BodyPublishers.noBody() : body.publisher();
    HttpRequest request =
        request(path, query)
            .timeout(Duration.ofSeconds(body == null ? 60 : 60 + (body.size() >> 20)))
            .method(method, content)
            .build();
    try {
      return client().send(request, HttpResponse.BodyHandlers.ofByteArray());
    } catch (InterruptedException e) {
      throw interrupted();
    }
  }

  private Answer checked(Answer answer) {
    if (answer.status == 401) {
      throw Refusal.because(
          "The endpoint of the catalog at " + url + " refuses this session's token: give the token"
              + " that the endpoint was started with (" + EnvironmentToken.VARIABLE + " in the driver's"
              + " environment, or spark.hadoop." + TOKEN + ").");
    }
    if (answer.status == 410) {
      throw Refusal.of("The transaction is over", answer);
    }
    return answer;
  }

  /** The endpoint answers, and cannot do it now: its database is away, say. */
  private static final class Unable extends IOException {
    private static final long serialVersionUID = 1;

    Unable(String message) {
      super(message);
    }
  }

  private RuntimeException unreachable(IOException cause) {
    if (cause instanceof Unable) {
      throw Refusal.because(
          "The endpoint of the catalog at " + url + " could not do this for " + retrySeconds
              + " seconds: " + said(cause) + ". Repeat the statement once that is mended.",
          cause);
    }
    String why = cause instanceof ConnectException ? "nobody listens there" : said(cause);
    throw Refusal.because(
        "The endpoint of the catalog at " + url + " did not answer for " + retrySeconds
            + " seconds (" + why + "). Nothing bypasses it: start it again (`dl serve --bridge`, or"
            + " a new session if it lived in this driver), then repeat the statement.",
        cause);
  }

  private static String said(IOException e) {
    return Objects.requireNonNullElse(e.getMessage(), e.getClass().getSimpleName());
  }

  private HttpClient client() throws IOException {
    HttpClient known = CLIENTS.get(ca);
    if (known != null) {
      return known;
    }
    HttpClient.Builder builder =
        HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofSeconds(5));
    if (!ca.isEmpty()) {
      builder.sslContext(Certificates.trusting(ca));
    }
    HttpClient made = builder.build();
    HttpClient other = CLIENTS.putIfAbsent(ca, made);
    return other == null ? made : other;
  }

  private static String encoded(String[] query) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < query.length; i += 2) {
      text.append(i == 0 ? '?' : '&').append(query[i]).append('=');
      text.append(URLEncoder.encode(query[i + 1], StandardCharsets.UTF_8));
    }
    return text.toString();
  }

  private static void sleep(long ms) throws IOException {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      throw interrupted();
    }
  }

  private static IOException interrupted() {
    Thread.currentThread().interrupt();
    return new InterruptedIOException("interrupted while waiting for the endpoint of the catalog");
  }

  @Override
  public String toString() {
    return url; // never the token
  }
}
