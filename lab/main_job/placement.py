# SPDX-License-Identifier: Apache-2.0
"""Prove with Ceph on which devices a volume is stored."""

import json

import rados
import rbd

from main_job.errors import JobError


def prove(ceph_conf: str, pool: str, image: str, device_class: str) -> dict:
    """Return the number of an image's objects on each OSD.

    The monitors map every existing object, so this is the actual placement, not
    the placement that a rule prescribes.

    :raises JobError: an OSD of another device class stores an object, or Ceph
        cannot be reached.
    """
    try:
        return _prove(ceph_conf, pool, image, device_class)
    except (rados.Error, rbd.Error) as e:
        raise JobError(f'cannot get the placement of {pool}/{image} from Ceph: {e}') from e


def _prove(ceph_conf, pool, image, device_class):
    with rados.Rados(conffile=ceph_conf, name='client.admin') as cluster:
        classes = {
            osd['id']: osd.get('device_class')
            for osd in _mon(cluster, 'osd tree')['nodes']
            if osd['id'] >= 0
        }
        with cluster.open_ioctx(pool) as ioctx:
            with rbd.Image(ioctx, image, read_only=True) as opened:
                # With the dot: another image's id may begin with this one's.
                prefix = opened.block_name_prefix() + '.'
                size_gib = opened.size() / 1024**3
            names = [o.key for o in ioctx.list_objects() if o.key.startswith(prefix)]
        count = dict.fromkeys(classes, 0)
        for name in names:
            mapped = _mon(cluster, 'osd map', pool=pool, object=name)
            for osd in mapped['acting']:
                count[osd] += 1
    used = {osd: n for osd, n in count.items() if n}
    wrong = {osd: classes[osd] for osd in used if classes[osd] != device_class}
    if wrong or not used:
        raise JobError(
            f'image {pool}/{image} must be only on {device_class} '
            f'OSDs, but: {wrong or "it has no objects"}'
        )
    return {
        'pool': pool,
        'image': image,
        'size_gib': round(size_gib, 2),
        'objects': len(names),
        'device_class': device_class,
        'copies_by_osd': {str(osd): n for osd, n in sorted(used.items())},
        'osds_of_other_classes': sorted(
            set(classes) - set(used) - {osd for osd, c in classes.items() if c == device_class}
        ),
    }


def _mon(cluster, prefix, **arguments):
    command = json.dumps({'prefix': prefix, 'format': 'json', **arguments})
    code, out, error = cluster.mon_command(command, b'')
    if code:
        raise JobError(f'ceph {prefix} failed: {error}')
    return json.loads(out)
