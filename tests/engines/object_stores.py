"""Servers that stand for S3 and Azure Blob Storage: moto, and Azurite from npm."""

import contextlib
import os
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from beam_dpne.storage.objects import ObjectStore, store_of
from deploy.downloads import once, require, versions
from deploy.processes import Daemons, listens
from tests.engines.flink import free_ports

# The account of Azurite, whose key is public.
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Bucket(NamedTuple):
    """A new bucket of S3, or a new container of Azure.

    Attributes:
      root: The path of the bucket.
      missing: The path of a bucket that does not exist.
      store: What the package asks of it.
    """

    root: str
    missing: str
    store: ObjectStore

    def put(self, name: str, data: bytes) -> str:
        self.store.upload(f"{self.root}/{name}", data)
        return f"{self.root}/{name}"

    def files(self, folder: str) -> dict[str, bytes | None]:
        path = f"{self.root}/{folder}"
        return {
            name: self.store.download(f"{path}/{name}")[0] for name in self.store.versions(path)
        }


@contextlib.contextmanager
def moto(folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Runs a server that speaks S3's protocol; yields the variables with which clients find it."""
    (port,) = free_ports(1)
    daemons = Daemons(folder)
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    daemons.start("moto", command, ready=listens(port))
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        daemons.stop_all()


@contextlib.contextmanager
def azurite(folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Runs a server that speaks the protocol of Azure's blobs; yields the variables for clients."""
    npm = require("npm", "install Node.js")
    version = versions()["AZURITE_VERSION"]

    def install(whole: pathlib.Path) -> None:
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", f"azurite@{version}"]
        subprocess.run(command, cwd=whole, check=True)

    program = once(f"azurite-{version}", install) / "node_modules" / ".bin" / "azurite-blob"
    (port,) = free_ports(1)
    daemons = Daemons(folder)
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port)]
    daemons.start("azurite", [str(program), *options], ready=listens(port))
    parts = {
        "DefaultEndpointsProtocol": "http",
        "AccountName": ACCOUNT,
        "AccountKey": _KEY,
        "BlobEndpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
    }
    connection = ";".join(f"{name}={value}" for name, value in parts.items())
    try:
        yield {"AZURE_STORAGE_CONNECTION_STRING": connection}
    finally:
        daemons.stop_all()


def _bucket_of_s3() -> Bucket:
    import boto3

    name = f"lab-{uuid.uuid4().hex}"
    client: Any = boto3.client("s3")
    client.create_bucket(Bucket=name)
    return _bucket(f"s3://{name}", "s3://no-such-lab")


def _bucket_of_azure() -> Bucket:
    from azure.storage.blob import BlobServiceClient

    name = f"lab-{uuid.uuid4().hex}"
    connection = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    BlobServiceClient.from_connection_string(connection).create_container(name)
    return _bucket(f"azfs://{ACCOUNT}/{name}", f"azfs://{ACCOUNT}/no-such-lab")


def _bucket(root: str, missing: str) -> Bucket:
    store = store_of(root)
    assert store is not None
    return Bucket(root, missing, store)


SERVERS = {"s3": (moto, _bucket_of_s3), "azfs": (azurite, _bucket_of_azure)}


@pytest.fixture(scope="module", params=SERVERS)
def store_scheme(request, tmp_path_factory) -> Iterator[str]:
    """The scheme of a store whose server runs; this process and those it starts find it."""
    run, _ = SERVERS[request.param]
    with (
        run(tmp_path_factory.mktemp("server")) as variables,
        pytest.MonkeyPatch.context() as patched,
    ):
        for name, value in variables.items():
            patched.setenv(name, value)
        yield request.param


@pytest.fixture
def stored(store_scheme) -> Bucket:
    """A new bucket."""
    return SERVERS[store_scheme][1]()
