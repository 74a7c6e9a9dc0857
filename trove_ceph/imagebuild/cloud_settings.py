# SPDX-License-Identifier: Apache-2.0
"""Settings of one cloud that an image may carry: the message bus's CA, and time servers."""

import ipaddress
import re
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild.errors import BuildError

#: Where the CA is in the guest; the guest's configuration names it as ``ssl_ca_file``.
BUS_CA = "etc/trove/message-bus-ca.pem"
TIME_SERVERS = "etc/systemd/timesyncd.conf.d/90-trove-guest.conf"

_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?"
)


@dataclass(frozen=True)
class CloudSettings:
    """What an image has for one cloud.

    :param bus_ca: PEM text of the CA that signed the certificates of RabbitMQ; empty: none.
    :param time_servers: names or addresses of NTP servers; empty: those that DHCP offers, then
        Debian's.
    """

    bus_ca: str = ""
    time_servers: tuple[str, ...] = ()

    def files(self) -> dict[str, str]:
        """Return the files to write into the guest, by their names below its root."""
        found = {}
        if self.bus_ca:
            found[BUS_CA] = self.bus_ca
        if self.time_servers:
            found[TIME_SERVERS] = f"[Time]\nNTP={' '.join(self.time_servers)}\n"
        return found


def read_ca(path: Path) -> str:
    """Return the text of a file with certificates of a CA.

    :raises BuildError: it cannot be read, has no CA's certificate, has one that expired, or has a
        private key, which every guest would have
    """
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise BuildError(f"--message-bus-ca {path} cannot be read: {error}") from error
    if "PRIVATE KEY-----" in text:
        raise BuildError(
            f"--message-bus-ca {path} has a private key, which every guest would get; name a file "
            "with the CA's certificate only"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise BuildError(f"--message-bus-ca {path} has no certificate: {error}") from error
    authorities = context.get_ca_certs()
    if not authorities:
        raise BuildError(
            f"--message-bus-ca {path}: its certificates are not of a CA; name that of the CA which "
            "signed RabbitMQ's certificate"
        )
    for one in authorities:
        expiry = str(one["notAfter"])
        if ssl.cert_time_to_seconds(expiry) <= time.time():
            raise BuildError(f"--message-bus-ca {path}: a certificate expired on {expiry}")
    return text


def time_server(name: str) -> str:
    """Return the name or address of a time server.

    :raises ValueError: it is neither
    """
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is neither a host name nor an address") from None
        return name
