"""The images of templates/Dockerfile, built for real on a stand-in for their bases.

The bases are not fetched: Debian with its own Python 3.11 stands in for Beam's SDK image, and two
programs that only exit stand in for Beam's boot program and Google's launcher. So this shows that the
Dockerfile is well formed, that what it copies is there and nothing else is, that pip installs the
package with the pinned Beam, what user and entry point the images have, and that the program and the
worker pool run in them. It shows nothing about the true bases, nor about Dataflow.

Needs root, `apt-get install buildah debootstrap`, Debian's mirror and the package index.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from deploy import downloads
from deploy.downloads import once, require, versions
from deploy.processes import listens, until
from tests.conftest import ROOT
from tests.engines.conftest import PRIVACY, SAMPLE
from tests.engines.flink import free_ports

pytestmark = [pytest.mark.engines, pytest.mark.slow]
SUITE = "bookworm"
PACKAGES = "python3,python3-pip,python3-setuptools,ca-certificates"
BOOT = "opt/apache/beam/boot"
LAUNCHER = "opt/google/dataflow/python_template_launcher"


def run(*command):
    return downloads.run([str(part) for part in command])


def make_stand_in(folder):
    """Writes the files of the stand-in base."""
    debootstrap = require("debootstrap", "apt-get install debootstrap")
    run(debootstrap, "--variant=minbase", f"--include={PACKAGES}", SUITE, folder)
    (folder / "usr/bin/python").symlink_to("python3")
    # In an image pip may change Debian's own Python.
    for mark in folder.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()
    for program in (BOOT, LAUNCHER):
        path = folder / program
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho {path.name} of the stand-in; exit 3\n")
        path.chmod(0o755)


class Images:
    """A storage of buildah's own, with the images in it."""

    def __init__(self, folder):
        buildah = require("buildah", "apt-get install buildah")
        places = ("--root", folder / "storage", "--runroot", folder / "run")
        self.buildah = (buildah, *places, "--storage-driver", "overlay")
        # vfs works everywhere, but copies the whole image at every step.
        if subprocess.run([*self.buildah, "images"], capture_output=True, check=False).returncode:
            shutil.rmtree(folder / "storage")
            self.buildah = (buildah, *places, "--storage-driver", "vfs")

    def __call__(self, *arguments):
        return run(*self.buildah, *arguments)

    def build(self, target, *options):
        bases = [f"{name}=localhost/stand-in" for name in ("SDK_IMAGE", "LAUNCHER_IMAGE")]
        self(
            *("build", "--isolation", "chroot", "--pull-never", "--layers", "--target", target),
            *(f"--build-arg={base}" for base in bases),
            *options,
            *("--file", ROOT / "templates" / "Dockerfile", "--tag", target, ROOT),
        )

    def config(self, image):
        found = json.loads(self("inspect", "--type", "image", f"localhost/{image}"))
        return found["OCIv1"]["config"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.fail("buildah and debootstrap must run as root here, and this test does not.")
    files = once(f"stand-in-{SUITE}", make_stand_in)
    folder = tmp_path_factory.mktemp("images")
    made = Images(folder)
    base = made("from", "scratch").strip()
    made("add", "--quiet", base, files, "/")
    # pip in the build trusts whom this machine trusts.
    trusted = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
    made("add", "--quiet", base, trusted, trusted)
    made("commit", "--quiet", base, "stand-in")
    made("rm", base)
    made.build("workers")
    made.build("dataflow", "--build-arg=PIPELINE=msnbc")
    yield made
    made("rm", "--all")
    made("rmi", "--all", "--force")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def workers(images):
    """A container of the workers' image."""
    name = images("from", "localhost/workers").strip()
    yield lambda *command: images("run", "--isolation", "chroot", name, "--", *command)
    images("rm", name)


def test_the_images_hold_the_pinned_beam_and_this_package(workers):
    code = "import apache_beam, beam_dpne; print(apache_beam.__version__)"
    assert workers("python", "-c", code).strip() == versions()["BEAM_VERSION"]


def test_the_images_hold_no_file_that_nobody_asked_for(workers):
    """Only files of the repository, no experiments, and of the data those that may be shipped."""
    found = set(workers("find", "/template", "-type", "f", "-printf", "%P\\n").split())
    assert {"LICENSE", "pipelines/msnbc.py", "pipelines/ngrams.py", "pyproject.toml"} <= found
    assert found <= set(run("git", "-C", ROOT, "ls-files").split())
    data = {name for name in found if name.startswith(("pipelines/data", "pipelines/experiments"))}
    assert data == {"pipelines/data/msnbc990928.seq.gz"}


def test_the_template_image_starts_workers_and_names_the_program_for_the_launcher(images):
    config = images.config("dataflow")
    assert config["Entrypoint"] == [f"/{BOOT}"]
    assert "FLEX_TEMPLATE_PYTHON_PY_FILE=/template/pipelines/msnbc.py" in config["Env"]
    container = images("from", "localhost/dataflow").strip()
    listed = images("run", "--isolation", "chroot", container, "--", "ls", f"/{LAUNCHER}")
    images("rm", container)
    assert listed.strip() == f"/{LAUNCHER}"


def test_the_workers_image_is_not_root_and_starts_a_pool(images, workers):
    config = images.config("workers")
    assert config["User"] == "10001"
    assert workers("id", "--user").strip() == "10001"
    assert config["Entrypoint"][:2] == ["python", "/template/deploy/worker_pool.py"]
    (port,) = free_ports(1)
    pool = [*config["Entrypoint"][:2], f"--service_port={port}"]
    name = images("from", "localhost/workers").strip()
    command = [*images.buildah, "run", "--isolation", "chroot", name, "--", "timeout", "60", *pool]
    with subprocess.Popen([str(part) for part in command]) as process:
        until(listens(port), timeout=50, what="the pool")
        process.terminate()


def test_the_program_runs_in_the_workers_image(images):
    name = images("from", "--volume", f"{SAMPLE.parent}:/data:ro", "localhost/workers").strip()
    said = images(
        *("run", "--isolation", "chroot", name, "--"),
        *(
            "beam-dpne",
            "ngrams",
            "--input",
            f"/data/{SAMPLE.name}",
            "--output",
            "release",
            *PRIVACY,
        ),
    )
    images("rm", name)
    assert "Files: release" in said
