# SPDX-License-Identifier: Apache-2.0
"""Have Prometheus scrape the lab with the alerts of etc/monitoring, and check what it sees."""

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from driver import instruments, up
from driver.errors import LabError
from driver.settings import LAB_DIR

ALERTS = LAB_DIR.parent / 'etc' / 'monitoring' / 'alerts.yml'
PLAYBOOK = 'monitoring.yml'
#: Prometheus scrapes and evaluates each rule this often.
INTERVAL_SEC = 5
#: A storage service that has just started reads its pools first.
DEADLINE_SEC = 180
REQUEST_TIMEOUT_SEC = 10
STOP_TIMEOUT_SEC = 30
#: What a text format adds to the name of a metric.
_SUFFIXES = ('_total', '_count', '_sum', '_bucket')


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument(
        '--serve', action='store_true', help='let Prometheus run afterwards, until Ctrl-C'
    )


def run(settings, args) -> int:
    """Start Prometheus, check targets, rules and metrics, and stop it; return 1 for a problem."""
    instruments.require_up(settings)
    if not shutil.which('prometheus'):
        with up.exclusive():
            if up.run_playbook(settings, time.monotonic(), PLAYBOOK):
                raise LabError('the package prometheus is not installed; the failed task is above')
    with _running(settings) as api:
        problems = check(api, list(_targets(settings)))
        for line in problems:
            print(f'lab: {line}')
        if not problems:
            print(f'lab: {_summary(api)}')
        if args.serve:
            print(f'lab: Prometheus is at {api.url} until Ctrl-C', flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                api.process.wait()
    return 1 if problems else 0


def configuration(settings) -> str:
    """Return the configuration of Prometheus; JSON is YAML."""
    return json.dumps(
        {
            'global': {
                'scrape_interval': f'{INTERVAL_SEC}s',
                'evaluation_interval': f'{INTERVAL_SEC}s',
            },
            'rule_files': [str(ALERTS)],
            'scrape_configs': [
                {'job_name': job, 'static_configs': [{'targets': [address]}]}
                for job, address in _targets(settings)
            ],
        },
        indent=1,
    )


class Api:
    """The HTTP interface of a Prometheus, on this machine.

    :param process: the running program; None: one that was started elsewhere
    """

    def __init__(self, url: str, process: subprocess.Popen | None = None):
        self.url = url
        self.process = process

    def get(self, path: str, **parameters: str):
        """Return the data of an answer, or None: it does not answer yet.

        :raises LabError: Prometheus has ended, or refuses the request.
        """
        if self.process is not None and self.process.poll() is not None:
            raise LabError(f'Prometheus ended with exit code {self.process.returncode}')
        query = f'?{urllib.parse.urlencode(parameters)}' if parameters else ''
        # A proxy for downloads must not get requests to this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f'{self.url}{path}{query}', timeout=REQUEST_TIMEOUT_SEC) as answer:
                return json.load(answer)['data']
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise LabError(f'Prometheus refuses {path}: {error}') from error
        except (OSError, http.client.HTTPException):
            return None


def check(api: Api, targets: list[tuple[str, str]], deadline_sec: float = DEADLINE_SEC):
    """Wait until all is well, and return what is not at the deadline.

    All is well if each target is up, each rule was evaluated without an error, each metric of a
    rule is exported, and no source of figures is missing.

    :param targets: pairs of job and address
    """
    deadline = time.monotonic() + deadline_sec
    while True:
        problems = [*_down(api, targets), *_rules(api), *_not_exported(api), *_missing(api)]
        if not problems or time.monotonic() > deadline:
            return problems
        time.sleep(1)


def _targets(settings):
    yield 'trove-taskmanager', f'127.0.0.1:{settings.ports["metrics_taskmanager"]}'
    yield 'trove-ceph-storage', f'127.0.0.1:{settings.ports["metrics_storage"]}'


@contextlib.contextmanager
def _running(settings):
    """Run Prometheus on this machine only, without data of an earlier run."""
    directory = settings.root / 'state' / 'prometheus'
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    conf = settings.root / 'etc' / 'prometheus.yml'
    conf.write_text(configuration(settings))
    address = f'127.0.0.1:{_free_port()}'
    command = [
        'prometheus',
        f'--config.file={conf}',
        f'--storage.tsdb.path={directory}',
        f'--web.listen-address={address}',
    ]
    with open(settings.root / 'log' / 'prometheus.log', 'ab') as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield Api(f'http://{address}', process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _free_port():
    with socket.create_server(('127.0.0.1', 0)) as server:
        return server.getsockname()[1]


def _down(api, targets):
    found = api.get('/api/v1/targets') or {'activeTargets': []}
    states = {one['labels']['job']: one for one in found['activeTargets']}
    for job, address in targets:
        state = states.get(job, {'health': 'unknown', 'lastError': 'not scraped yet'})
        if state['health'] != 'up':
            yield f'target {job} at {address} is {state["health"]}: {state["lastError"]}'


def _rules(api):
    found = api.get('/api/v1/rules') or {'groups': []}
    rules = [rule for group in found['groups'] for rule in group['rules']]
    if not rules:
        yield f'no rule of {ALERTS} is loaded'
    for rule in rules:
        if rule['health'] != 'ok':
            yield f'rule {rule["name"]} is {rule["health"]}: {rule.get("lastError", "")}'.rstrip()


def _not_exported(api):
    """Yield the metrics of rules that no target exports, by which an alert never fires."""
    exported = {_family(name) for name in api.get('/api/v1/metadata') or {}}
    for rule, names in sorted(_metrics_of_rules(api).items()):
        for name in sorted(names):
            if _family(name) not in exported:
                yield f'rule {rule} reads {name}, which no target exports'


def _metrics_of_rules(api):
    found = api.get('/api/v1/rules') or {'groups': []}
    return {
        rule['name']: set(re.findall(r'\btrove_ceph_\w+', rule['query']))
        for group in found['groups']
        for rule in group['rules']
    }


def _family(name):
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _missing(api):
    found = api.get('/api/v1/query', query='trove_ceph_figures_up') or {'result': []}
    if not found['result']:
        yield 'no process exports figures (trove_ceph_figures_up)'
    for one in found['result']:
        if float(one['value'][1]) != 1:
            where = f'{one["metric"]["source"]} of {one["metric"]["job"]}'
            yield f'the figures of {where} are missing; the log of the process says why'


def _summary(api):
    rules = _metrics_of_rules(api)
    metrics = set().union(*rules.values())
    alerts = (api.get('/api/v1/alerts') or {'alerts': []})['alerts']
    firing = sorted({one['labels']['alertname'] for one in alerts})
    return (
        f'Prometheus scrapes all targets, evaluates {len(rules)} rules, and has their '
        f'{len(metrics)} metrics; alerts pending or firing: {", ".join(firing) or "none"}'
    )
