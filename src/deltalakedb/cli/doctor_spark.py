"""`dl doctor --spark`: starts a session as a job would, and checks it on the driver and on the executors."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.spark.checks import SparkCheck


def check_spark(catalog: str | None, master: str | None, endpoint: str | None, conf: Sequence[str]) -> list[SparkCheck]:
    """The checks of a new session, or why none can be started."""
    import deltalakedb.spark as dls

    settings = dict(_parse_setting(text) for text in conf)
    settings |= {"spark.master": master} if master else {}
    settings = {"spark.app.name": "dl doctor", "spark.ui.showConsoleProgress": "false"} | settings
    try:
        spark = dls.session(None if endpoint else catalog, endpoint=endpoint, **settings)
    except DeltaError as error:
        return [SparkCheck("session", "failed", redact(" ".join(str(error).split())), "do what the message says")]
    except Exception as error:  # Spark's own: any failure is a finding
        message = next(iter(str(error).splitlines()), type(error).__name__)
        advice = "see that the master is reached, and the driver from the workers (spark.driver.host)"
        return [SparkCheck("session", "failed", redact(message), advice)]
    try:
        return dls.doctor(spark)
    finally:
        spark.stop()


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise typer.BadParameter(f"{text!r} is no setting of Spark: it is spark.KEY=VALUE", param_hint="--conf")
    return key, value
