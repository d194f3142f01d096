"""What is said when Spark fails: one line, with what to do."""

from deltalakedb.cdc.run.sessions import describe_error, how_start_ended

JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.2 executor 1): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 3386, in main
    process()
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 3386, in main
{}

\t... 1 more
"""


def test_executors_without_the_package_are_named_with_what_to_install() -> None:
    line = "ModuleNotFoundError: No module named 'deltalakedb'"
    told = describe_error(JAVA.format(line, line))
    assert told.startswith(f"{line}. To mend it, install deltalakedb[cdc] in the Python of the executors")
    assert "PythonRDD" not in told


def test_the_last_error_of_a_task_is_what_is_told() -> None:
    line = "ValueError: a task that failed"
    assert describe_error(JAVA.format(line, line)) == line
    assert describe_error("Job 3 cancelled\n\tat somewhere") == "Job 3 cancelled"
    assert describe_error("") == "no reason was given"


def test_a_worker_that_crashed_is_told_by_the_text_of_java() -> None:
    crashed = "org.apache.spark.SparkException: Job aborted due to stage failure: Python worker exited unexpectedly"
    assert describe_error(f"An error occurred while calling z:collect.\n: {crashed}\n\tat a.b.C(C.scala:1)") == crashed


def test_a_java_that_dies_before_its_first_answer_is_no_refused_connection() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    assert how_start_ended(refused) == "the Java process of Spark ended before it had started"
    assert how_start_ended(ValueError("not of Java")) is None
