"""A Spark in another process whose tables lie in the tests' S3, reached through Hadoop's s3a."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.s3 import ACCESS_KEY_ID, REGION, S3, SECRET_ACCESS_KEY
from tests.spark.peer import Peer

SDK = "2.29.52"
MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client")
PACKAGES = ["org.apache.hadoop:hadoop-aws:3.4.2", *(f"software.amazon.awssdk:{name}:{SDK}" for name in MODULES)]
"""18 MB instead of the 600 MB of the SDK's bundle, which hadoop-aws asks for."""


def s3a_conf(endpoint_url: str) -> dict[str, str]:
    """Settings of a Spark that has Hadoop's S3 client, and reaches the tests' S3 with it."""
    client = {
        "endpoint": endpoint_url,
        "endpoint.region": REGION,
        "access.key": ACCESS_KEY_ID,
        "secret.key": SECRET_ACCESS_KEY,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    return {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        **{f"spark.hadoop.fs.s3a.{key}": value for key, value in client.items()},
    }


@contextmanager
def peer_over_s3(endpoint_url: str, scratch: Path) -> Iterator[Peer]:
    peer = Peer(scratch, **s3a_conf(endpoint_url))
    try:
        peer.ask(f"import os; os.environ.update({S3(endpoint_url, '', None).storage_options!r})")
        yield peer
    finally:
        peer.close()
