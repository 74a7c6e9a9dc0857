# SPDX-License-Identifier: Apache-2.0
"""The CA of the message bus and the time servers in an image."""

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trove_ceph.imagebuild import cloud_settings
from trove_ceph.imagebuild.cloud_settings import CloudSettings
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.tests.unit.imagebuild.case import ImagesTestCase

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def certificate(*, authority=True, expiry=NOW + DAY, with_key=False):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, 'bus')])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - 9 * DAY)
        .not_valid_after(expiry)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    if with_key:
        pem += key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    return pem.decode()


class AuthorityTest(ImagesTestCase):
    def refused(self, text):
        path = self.make_file('ca.pem', text)
        message = str(self.assertRaises(BuildError, cloud_settings.read_ca, path))
        self.assertIn(str(path), message)
        return message

    def test_is_written_where_the_configuration_names_it(self):
        text = certificate()
        settings = CloudSettings(bus_ca=cloud_settings.read_ca(self.make_file('ca.pem', text)))
        self.assertEqual({'etc/trove/message-bus-ca.pem': text}, settings.files())

    def test_private_key(self):
        self.assertIn('every guest', self.refused(certificate(with_key=True)))

    def test_certificate_of_a_server(self):
        self.assertIn('not of a CA', self.refused(certificate(authority=False)))

    def test_expired(self):
        self.assertIn('expired on', self.refused(certificate(expiry=NOW - DAY)))

    def test_no_certificate(self):
        self.assertIn('no certificate', self.refused('text'))

    def test_missing_file(self):
        missing = self.directory / 'missing'
        error = self.assertRaises(BuildError, cloud_settings.read_ca, missing)
        self.assertIn('cannot be read', str(error))


class TimeServersTest(ImagesTestCase):
    def test_files(self):
        settings = CloudSettings(time_servers=('ntp.example.org', '10.0.0.1'))
        [(name, text)] = settings.files().items()
        self.assertEqual('etc/systemd/timesyncd.conf.d/90-trove-guest.conf', name)
        self.assertEqual('[Time]\nNTP=ntp.example.org 10.0.0.1\n', text)
        self.assertEqual({}, CloudSettings().files())

    def test_names_and_addresses(self):
        for name in ('ntp', 'a-b.example.org.', '10.0.0.1', '2001:db8::1'):
            self.assertEqual(name, cloud_settings.time_server(name))

    def test_what_would_break_the_file(self):
        for name in ('', 'a b', 'a\nNTP=b', '-a', 'a..b', 'a/b', 'x' * 254):
            self.assertRaises(ValueError, cloud_settings.time_server, name)
