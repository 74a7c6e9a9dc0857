# SPDX-License-Identifier: Apache-2.0
"""Kolla-Ansible with the files of ``etc/kolla``: its own roles and modules, without containers.

Replaced are only the modules that speak to a container engine, by ones with the same arguments that
record them, and the container engine's command.
"""

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

import trove_ceph
from trove_ceph.storage_service import message_keys

CHECKOUT = Path(trove_ceph.__file__).parent.parent
ETC = CHECKOUT / 'etc'
#: The directory of Kolla-Ansible's own playbooks.
PLAYBOOKS = Path(sys.prefix) / 'share/kolla-ansible/ansible'
NETWORK = '8d1f0c5e-2a4b-4c6d-8e9f-0a1b2c3d4e5f'
REGISTRY = 'registry.example.org/kolla/'
KEYRING = 'ceph.client.trove-ceph-storage.keyring'
#: storage01 has MySQL, and inspects backups; control01 has none.
_INVENTORY = """\
[control]
control01 {options}
[storage]
storage01 {options} mysqld_roots='{{"9.7.4": "{root}/srv/mysql-9.7.4"}}'
[network:children]
control
[compute]
[monitoring]
[deployment]
[trove-ceph-storage:children]
control
storage
"""
_OPTIONS = (
    'ansible_connection=local ansible_become=false '
    "ansible_python_interpreter='{{ ansible_playbook_python }}'"
)
_GLOBALS = {
    'kolla_base_distro': 'debian',
    'kolla_internal_vip_address': '127.0.0.1',
    # The filter that would compute it is in a collection.
    'kolla_same_external_internal_vip': True,
    'network_interface': 'lo',
    'openstack_service_workers': 2,
    'kolla_ansible_setup_gather_subset': ['!all', 'network'],
    'rabbitmq_enable_tls': True,
    'kolla_copy_ca_into_containers': True,
    'enable_cinder': True,
    'cinder_backend_ceph': True,
}
_RECORD = """

def main():
    import json
    module = {create}()
    with open({log!r}, 'a') as log:
        log.write(json.dumps({{'module': {name!r}, 'params': module.params}}) + '\\n')
    module.exit_json(changed=True)


if __name__ == '__main__':
    main()
"""
#: The functions of Kolla-Ansible's modules that define their arguments.
_MODULES = {'kolla_container': 'generate_module', 'kolla_toolbox': 'create_ansible_module'}
_ENGINE = """\
#!/bin/sh
echo "$@" >> {log}
case "$*" in
    *import_definitions) cat > {definitions} ;;
esac
if [ -n "$ENGINE_FAILS" ]; then
    echo "Login was refused" >&2
    exit 1
fi
"""


class Deployment:
    """A deployment host with Kolla-Ansible, and the directories of the hosts it configures.

    :param root: an empty directory for all files
    """

    def __init__(self, root: Path):
        self.root = root
        self.config = root / 'etc-kolla'
        self.playbooks = root / 'ansible'
        self._log = root / 'modules.jsonl'
        self._engine_log = root / 'engine.log'
        #: What RabbitMQ was told to import.
        self.definitions = root / 'definitions.json'
        self._link_playbooks()
        self._replace_modules()
        self._write_inventory()
        self._write_config()

    def _link_playbooks(self) -> None:
        """Link the playbook and the role as the page tells."""
        (self.playbooks / 'roles').mkdir(parents=True)
        for source in [*PLAYBOOKS.iterdir(), *(PLAYBOOKS / 'roles').iterdir()]:
            if source.name not in ('roles', 'library', 'module-load'):
                (self.playbooks / source.relative_to(PLAYBOOKS)).symlink_to(source)
        for name in ('trove-ceph.yml', 'roles/trove-ceph'):
            (self.playbooks / name).symlink_to(ETC / 'kolla/ansible' / name)

    def _replace_modules(self) -> None:
        library = self.playbooks / 'library'
        library.mkdir()
        for name, create in _MODULES.items():
            arguments, main, _ = (
                (PLAYBOOKS / 'library' / f'{name}.py').read_text().partition('\ndef main():')
            )
            assert main, name
            # What speaks to a container engine needs modules that are not installed here.
            arguments = re.sub('(?m)^from ansible.module_utils.kolla_.*$', '', arguments)
            text = _RECORD.format(create=create, log=str(self._log), name=name)
            (library / f'{name}.py').write_text(arguments + text)
        # This role would load modules into the kernel.
        tasks = self.playbooks / 'roles/module-load/tasks/main.yml'
        tasks.parent.mkdir(parents=True)
        content = "{{ modules | map(attribute='name') | join(' ') }}"
        dest = '{{ node_config_directory }}/modules'
        copy = {'ansible.builtin.copy': {'content': content, 'dest': dest, 'mode': '0644'}}
        tasks.write_text(yaml.safe_dump([copy]))
        engine = self.root / 'bin/docker'
        engine.parent.mkdir()
        engine.write_text(_ENGINE.format(log=self._engine_log, definitions=self.definitions))
        engine.chmod(0o755)

    def _write_inventory(self) -> None:
        groups = (PLAYBOOKS / 'inventory/multinode').read_text()
        head = _INVENTORY.format(options=_OPTIONS, root=self.root)
        self.inventory = self.root / 'inventory'
        self.inventory.write_text(head + groups[groups.index('[common:children]') :])

    def _write_config(self) -> None:
        shutil.copytree(ETC / 'kolla/config', self.config / 'config')
        shutil.copytree(ETC / 'kolla/globals.d', self.config / 'globals.d')
        nodes = self.root / 'nodes/{{ inventory_hostname }}'
        owner = {'config_owner_user': getpass.getuser(), 'config_owner_group': os.getgid()}
        paths = {'node_config_directory': str(nodes), 'trove_ceph_caller_uid': os.getuid()}
        (self.config / 'globals.yml').write_text(yaml.safe_dump(_GLOBALS | owner | paths))
        self.set('trove_ceph_image_url', REGISTRY)
        self.set('trove_ceph_management_networks', [NETWORK])
        self.set('trove_ceph_mysqld_roots', '{{ mysqld_roots | default({}) }}')
        # Without the keys of SSH, which take ten seconds.
        example = (PLAYBOOKS.parent / 'etc_examples/kolla/passwords.yml').read_text()
        lines = [line for line in example.splitlines() if re.match(r'\w+(?<!_ssh_key):$', line)]
        passwords = self.config / 'passwords.yml'
        ours = (ETC / 'kolla/passwords.yml').read_text()
        passwords.write_text('\n'.join([*lines, ours]))
        passwords.chmod(0o640)
        self.run('kolla-genpwd', '--passwords', str(passwords))
        self._write_files()
        for host in ('control01', 'storage01'):
            (self.root / 'nodes' / host).mkdir(parents=True)
        mysqld = self.root / 'srv/mysql-9.7.4/usr/sbin/mysqld'
        mysqld.parent.mkdir(parents=True)
        mysqld.touch()

    def _write_files(self) -> None:
        directory = self.config / 'config/trove-ceph'
        directory.mkdir()
        shutil.copy(ETC / 'trove-ceph/tiers.yaml', directory)
        message_keys.create(str(directory / 'storage-keys.json'))
        (directory / 'ceph.conf').write_text('[global]\nmon_host = 192.0.2.1\n')
        authority = self.config / 'certificates/ca/root.crt'
        authority.parent.mkdir(parents=True)
        authority.touch()
        (directory / KEYRING).write_text('[client.trove-ceph-storage]\nkey = none\n')

    def set(self, name: str, value: object) -> None:
        """Fill in a variable of ``globals.d/trove-ceph.yml``."""
        path = self.config / 'globals.d/trove-ceph.yml'
        text, count = re.subn(
            rf'(?m)^{name}: .*$', f'{name}: {json.dumps(value)}', path.read_text()
        )
        assert count == 1, name
        path.write_text(text)

    def run(self, *words: str, expected: int = 0, **environ: str) -> str:
        """Run a program of this environment; return what it said.

        :raises AssertionError: the exit status is not the expected one
        """
        path = f'{self.root}/bin:{sys.prefix}/bin:{os.environ["PATH"]}'
        done = subprocess.run(
            words,
            cwd=self.root,
            env={
                **os.environ,
                'PATH': path,
                'ANSIBLE_PIPELINING': '1',
                'ANSIBLE_NOCOLOR': '1',
                'ANSIBLE_HOME': f'{self.root}/ansible-home',
                'ANSIBLE_LOCALHOST_WARNING': '0',
                **environ,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == expected, done.stdout
        return done.stdout

    def add_playbook(self, name: str, plays: list) -> Path:
        """Put a playbook beside those of Kolla-Ansible."""
        path = self.playbooks / name
        path.write_text(yaml.safe_dump(plays))
        return path

    def add_merging_tasks(self, role: str) -> None:
        """Give a role of Kolla-Ansible the tasks ``merged``: those that merge configuration."""
        link = self.playbooks / 'roles' / role
        source = link.resolve()
        link.unlink()
        link.mkdir()
        for part in source.iterdir():
            if part.name != 'tasks':
                (link / part.name).symlink_to(part)
        tasks = yaml.safe_load((source / 'tasks/config.yml').read_text())
        merging = [task for task in tasks if 'merge_configs' in task]
        assert merging, role
        (link / 'tasks').mkdir()
        (link / 'tasks/merged.yml').write_text(yaml.safe_dump(merging))

    def calls(self, module: str) -> list[dict]:
        """Return the arguments with which a replaced module was called."""
        lines = map(json.loads, self._log.read_text().splitlines())
        return [line['params'] for line in lines if line['module'] == module]

    def engine_calls(self) -> list[str]:
        """Return the command lines of the container engine."""
        return self._engine_log.read_text().splitlines()

    def node(self, *parts: str) -> Path:
        """Return a path below ``/etc/kolla`` of a host."""
        return self.root.joinpath('nodes', *parts)
