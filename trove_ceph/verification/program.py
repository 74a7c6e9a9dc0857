# SPDX-License-Identifier: Apache-2.0
"""Pack the confined program, which reads a tenant's data, with the Python that it needs.

The root file system of a MySQL server usually has no Python, and its C library may be older or
newer than this host's. So the interpreter, its shared libraries and the modules that
:mod:`.confined` imports are copied into one directory. It can be mounted at :data:`DIRECTORY` in
any root file system, or put into an initramfs.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.host import commands

#: Where the directory must be mounted inside the sandbox.
DIRECTORY = '/inspector'
#: The module of the program that runs in namespaces of this host.
CONFINED = 'trove_ceph.verification.confined'
# Modules that are imported late, by name: codecs, and error reporting.
_LATE = ('encodings.latin_1', 'encodings.ascii', 'encodings.utf_8', 'encodings.idna', 'traceback')
# Not needed, and each depends on large libraries. Modules that import them work without them.
_UNNEEDED = ('ssl', '_ssl', '_hashlib', 'cryptography')
_LEAVE_OUT = f'import sys; sys.modules.update(dict.fromkeys({_UNNEEDED!r}))'
_LIST = f"""{_LEAVE_OUT}
import importlib, json
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps({{
    name: [module.__file__, hasattr(module, '__path__')]
    for name, module in list(sys.modules.items())
    if getattr(module, '__file__', None) and getattr(module.__spec__, 'name', None) == name
}}))
"""


def command(module: str = CONFINED) -> list[str]:
    """Return the command that runs the program inside the sandbox.

    :param module: the module whose ``main`` is called
    """
    return [
        *(f'{DIRECTORY}/loader', '--library-path', f'{DIRECTORY}/libraries', f'{DIRECTORY}/python'),
        *('-B', '-s', '-S', '-c', f'{_LEAVE_OUT}; from {module} import main; main()'),
    ]


def environment() -> dict[str, str]:
    """Return the environment that the program needs."""
    return {
        'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        'LANG': 'C.UTF-8',
        'TMPDIR': '/tmp',
        'PYTHONHOME': DIRECTORY,
        'PYTHONPATH': f'{DIRECTORY}/modules',
        # The C library reserves 64 MiB for each further arena.
        'MALLOC_ARENA_MAX': '2',
    }


def pack(directory: Path, module: str = CONFINED) -> None:
    """Fill a new directory with the program.

    :param module: as in :func:`command`
    :raises NotInspectableError: the interpreter is not dynamically linked
    """
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    interpreter = Path(os.path.realpath(sys.executable))
    binaries = [interpreter, *_copy_modules(directory / 'modules', module)]
    shutil.copyfile(interpreter, directory / 'python')
    (directory / 'python').chmod(0o755)
    _copy_libraries(binaries, directory)


def compile_modules(directory: Path) -> None:
    """Compile the modules of a packed program and remove their source.

    An emulated machine takes many seconds to compile them at each start.
    """
    modules = directory / 'modules'
    options = ('-q', '-b', '--invalidation-mode', 'unchecked-hash')
    paths = ('-s', modules, '-p', f'{DIRECTORY}/modules')
    commands.run(sys.executable, '-m', 'compileall', *options, *paths, modules)
    for source in modules.rglob('*.py'):
        source.unlink()


def _copy_modules(target: Path, main: str) -> list[Path]:
    """Copy all modules and return those that are shared objects."""
    found = json.loads(commands.run(sys.executable, '-B', '-c', _LIST, main, *_LATE))
    objects = []
    for name, (file, is_package) in found.items():
        source = Path(file)
        words = name.split('.')
        if is_package:
            destination = target.joinpath(*words, '__init__.py')
        elif source.suffix == '.py':
            destination = target.joinpath(*words[:-1], f'{words[-1]}.py')
        else:
            destination = target.joinpath(*words[:-1], source.name)
            objects.append(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, destination)
    return objects


def _copy_libraries(binaries: list[Path], directory: Path) -> None:
    libraries = directory / 'libraries'
    libraries.mkdir()
    loader = None
    for line in commands.run('ldd', *binaries).splitlines():
        words = line.split()
        if '=>' in words:
            source = Path(words[words.index('=>') + 1])
            if source.is_absolute() and not (libraries / words[0]).exists():
                shutil.copyfile(source, libraries / words[0])
        elif line.startswith('\t/'):
            loader = Path(words[0])
    if loader is None:
        raise exceptions.NotInspectableError(
            f'{binaries[0]} has no dynamic loader, so it cannot be run in another root file system'
        )
    shutil.copyfile(loader, directory / 'loader')
    (directory / 'loader').chmod(0o755)
