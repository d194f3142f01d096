package io.deltalakedb;

import io.delta.exceptions.ConcurrentTransactionException;
import io.delta.exceptions.ConcurrentWriteException;
import io.delta.exceptions.MetadataChangedException;
import io.delta.exceptions.ProtocolChangedException;
import io.deltalakedb.Endpoint.Answer;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * A statement that the catalog or the bridge refuses, in one line that says what to do. PySpark
 * raises it as an {@code AnalysisException}; an {@code IOException} would arrive as a Java trace.
 *
 * <p>The methods throw what they return. Neither Spark nor Delta declares this exception where it
 * passes through their code, so the compiler cannot know it there.
 */
public final class Refusal extends AnalysisException {
  private static final long serialVersionUID = 1;

  /** Delta's condition for a new table in a folder that has other files in it. */
  private static final String NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION";

  private Refusal(String line, Throwable cause) {
    this(line, cause, null);
  }

  private Refusal(String line, Throwable cause, String condition) {
    super(
        line,
        Option.empty(),
        Option.empty(),
        Option.apply(cause),
        Option.apply(condition),
        Map$.MODULE$.<String, String>empty(),
        new QueryContext[0]);
  }

  /** Refuses a statement for a reason of the bridge's own. */
  static RuntimeException because(String line) {
    throw sneaky(new Refusal(oneLine(line), null));
  }

  /** Refuses a statement because of an error on the way to the endpoint or to files. */
  static RuntimeException because(Throwable e) {
    boolean hasMeaning = e instanceof InterruptedIOException || e instanceof FileNotFoundException;
    if (!(e instanceof IOException) || hasMeaning) {
      throw sneaky(e);
    }
    String line = e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
    throw sneaky(new Refusal(oneLine(line), e));
  }

  static RuntimeException because(String line, Throwable cause) {
    throw sneaky(new Refusal(oneLine(line), cause));
  }

  /** Throws an error of Delta's, with what to do where Delta does not say. */
  static RuntimeException withAdvice(Throwable e) {
    if (e instanceof SparkThrowable && NOT_EMPTY.equals(((SparkThrowable) e).getCondition())) {
      String line =
          e.getMessage() + " The files in it are of no table, such as those that a failed write left"
              + " or a purged table never committed: delete them if nobody needs them, or choose"
              + " another location.";
      throw sneaky(new Refusal(oneLine(line), e, NOT_EMPTY));
    }
    throw sneaky(e);
  }

  /** Refuses a statement with the endpoint's words; a conflict is one of Delta's own exceptions. */
  static RuntimeException of(String what, Answer answer) {
    String line = oneLine(what + ": " + answer.message());
    switch (answer.error()) {
      case "MetadataChangedError":
        throw sneaky(new MetadataChangedException(line));
      case "ProtocolChangedError":
        throw sneaky(new ProtocolChangedException(line));
      case "ConcurrentTransactionError":
        throw sneaky(new ConcurrentTransactionException(line));
      case "ConcurrentAppendError":
      case "ConcurrentDeleteReadError":
      case "ConcurrentDeleteDeleteError":
      case "FilesVacuumedError":
      case "NameChangedError":
      case "TableLockedError":
      case "VersionTakenError":
        throw sneaky(new ConcurrentWriteException(line));
      default:
        throw sneaky(new Refusal(line, null));
    }
  }

  private static String oneLine(String text) {
    return text.strip().replaceAll("\\s*[\\r\\n]+\\s*", " ");
  }

  /** Throws an exception of any class from a method that does not declare it. */
  @SuppressWarnings("unchecked")
  static <E extends Throwable> RuntimeException sneaky(Throwable e) throws E {
    throw (E) e;
  }
}
