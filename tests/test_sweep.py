"""Sweeps: on a real Slurm of one node, as local tasks, as shards; tasks that are killed, cancelled or out of time."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import MissingConfigException

from eval import status
from eval.answering import runner
from eval.console import mistakes
from eval.planning import sweep
from tests.test_configs import composed
from tests.test_faults import answered

ROOT = Path(__file__).parent.parent
BIN = ROOT / "scripts" / "slurm" / "bin"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a Slurm of one node without accounting, started for this module."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    wanted = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel"]
    lacking = [name for name in wanted if shutil.which(name) is None]
    if lacking or os.geteuid():
        pytest.skip(f"needs root and a Slurm (apt-get install slurm-wlm munge); lacking: {' '.join(lacking) or 'root'}")
    folder = tmp_path_factory.mktemp("slurm")
    script = str(ROOT / "scripts" / "slurm" / "one_node.sh")
    started = subprocess.run(
        [script, "start", str(folder)], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert started.returncode == 0, started.stderr
    yield {**ENVIRONMENT, "SLURM_CONF": started.stdout.strip()}
    subprocess.run([script, "stop", str(folder)], check=True)


@pytest.fixture
def sweep_of(tiny_folder: Path, tmp_path: Path) -> Callable[[str], list[str]]:
    """The settings of a sweep whose results are in a folder of this name."""

    def arguments(name: str) -> list[str]:
        model = [f"model.name={tiny_folder}", "model.label=tiny"]
        return [*model, "data.length=512", "data.records=12", "method=[full,echokv]", f"results={tmp_path / name}"]

    return arguments


@pytest.fixture
def unbroken(sweep_of: Callable[[str], list[str]], tmp_path: Path) -> dict[str, Any]:
    runner.run(composed(*sweep_of("unbroken"), "subset=syn_fact"))
    return answered(tmp_path / "unbroken")


def task_process(environment: dict[str, str], name: str, task: int) -> int:
    """Wait for the Python process of a task whose command line has `name` in it, and return its id."""
    here = f"SLURM_CONF={environment['SLURM_CONF']}".encode()
    for _ in range(600):
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                settings = (entry / "environ").read_bytes().split(b"\0")
            except (OSError, NotADirectoryError):
                continue
            ours = here in settings and f"SLURM_ARRAY_TASK_ID={task}".encode() in settings
            if ours and name.encode() in words and "python" in os.path.basename(words[0].decode()):
                return int(entry.name)
        time.sleep(0.1)
    raise AssertionError(f"task {task} did not start")


def until(condition: Callable[[], Any], looks: int = 6000) -> None:
    """Look 50 times a second; counted in looks, for a machine may be paused."""
    for _ in range(looks):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def stopped_in_the_middle(environment: dict[str, str], name: str, task: int, results: Path) -> tuple[int, str]:
    """Stop a task's process once it has stored an answer; return its id and the task's name in Slurm."""
    process = task_process(environment, name, task)
    settings = (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0")
    job = next(word.decode().split("=")[1] for word in settings if word.startswith(b"SLURM_ARRAY_JOB_ID="))
    until(lambda: any(shards(results, task)))
    os.kill(process, signal.SIGSTOP)
    assert 0 < len(answered(results)) < 24
    return process, f"{job}_{task}"


def shards(results: Path, task: int) -> Iterator[Path]:
    """Files of answers by the task of this number."""
    for made_by in results.rglob("runs/*.json"):
        if json.loads(made_by.read_text())["config"]["shard"] == f"{task}/2":
            yield from made_by.parent.parent.glob(f"*.{made_by.stem}.jsonl")


def pending(process: int, number: int) -> bool:
    """Whether a signal waits for a stopped process, or has already ended it."""
    try:
        lines = (Path("/proc") / str(process) / "status").read_text().splitlines()
    except OSError:
        return True
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in lines if line[:6] in ("SigPnd", "ShdPnd"))


def launch(environment: dict[str, str], sweeps: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "run.py", "-m", "hydra/launcher=slurm", f"hydra.sweep.dir={sweeps}", *arguments]
    command += ["hydra.launcher.cpus_per_task=1", "subset=syn_fact", "shard=0/2,1/2"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True)


def test_requeued_and_timed_out_tasks_end_in_an_unbroken_runs_results(
    slurm: dict[str, str], sweep_of: Callable[[str], list[str]], unbroken: dict[str, Any], tmp_path: Path
) -> None:
    results = tmp_path / "swept"
    limits = ["hydra.launcher.timeout_min=4", "hydra.launcher.signal_delay_s=205"]
    with launch(slurm, tmp_path / "sweeps", *sweep_of("swept"), *limits) as launched:
        process, job = stopped_in_the_middle(slurm, "submitit.core._submit", 0, results)
        subprocess.run(["scontrol", "requeue", job], env=slurm, check=True)
        os.kill(process, signal.SIGKILL)
        process, late = stopped_in_the_middle(slurm, "submitit.core._submit", 1, results)
        until(lambda: pending(process, signal.SIGUSR2))  # Slurm tells the task that its time is almost over
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
        _, said = launched.communicate(timeout=180)
        assert launched.returncode == 0, said
    for name in (job, late):
        shown = subprocess.run(["scontrol", "show", "job", name], env=slurm, capture_output=True, text=True, check=True)
        assert re.search("Restarts=[1-9]", shown.stdout)
    assert answered(results) == unbroken
    assert not any(line.missing for line in status.standing(results))


def test_a_cancelled_task_ends_the_waiting_and_stops_no_other(
    slurm: dict[str, str], sweep_of: Callable[[str], list[str]], unbroken: dict[str, Any], tmp_path: Path
) -> None:
    results = tmp_path / "swept"
    with launch(slurm, tmp_path / "sweeps", *sweep_of("swept")) as launched:
        process, job = stopped_in_the_middle(slurm, "submitit.core._submit", 0, results)
        subprocess.run(["scancel", job], env=slurm, check=True)
        os.kill(process, signal.SIGKILL)
        _, said = launched.communicate(timeout=180)
        assert launched.returncode == 1
    *_, last = said.splitlines()
    assert last.startswith(f"error: task {job} ended without a result (state CANCELLED), the others go on; logs are in")
    assert "Traceback" not in said
    until(lambda: sum(path.read_bytes().count(b"\n") for path in shards(results, 1)) == 12)
    assert len(answered(results)) < 24
    runner.run(composed(*sweep_of("swept"), "subset=syn_fact"))
    assert answered(results) == unbroken


def test_plain_array_job(
    slurm: dict[str, str], sweep_of: Callable[[str], list[str]], unbroken: dict[str, Any], tmp_path: Path
) -> None:
    results, log = tmp_path / "swept", tmp_path / "task-%a.log"
    command = ["sbatch", "--parsable", "--array=0-2", f"--output={log}", "scripts/sweep.sbatch", "2", "syn_fact"]
    sent = subprocess.run(
        [*command, *sweep_of("swept")], cwd=ROOT, env=slurm, capture_output=True, text=True, check=True
    )
    job = sent.stdout.strip()
    process, _ = stopped_in_the_middle(slurm, "run.py", 0, results)
    # What Slurm does 120 s before the time limit:
    subprocess.run(["scancel", "--batch", "--signal=USR1", f"{job}_0"], env=slurm, check=True)
    until(lambda: pending(process, signal.SIGTERM))
    os.kill(process, signal.SIGCONT)
    until(lambda: len(answered(results)) == 24)
    until(lambda: not subprocess.run(["squeue", "--noheader"], env=slurm, capture_output=True, check=True).stdout)
    first = (tmp_path / "task-0.log").read_text()
    assert "interrupted by SIGTERM: stored answers are kept" in first
    assert first.count("answers are stored") == 2, "it did not come back"
    assert "nothing to do: 1 subsets of 2 shards" in (tmp_path / "task-2.log").read_text()
    assert answered(results) == unbroken


def test_a_failing_local_task_stops_no_other(
    sweep_of: Callable[[str], list[str]], unbroken: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    command = [sys.executable, "run.py", "-m", "hydra/launcher=local", f"hydra.sweep.dir={tmp_path / 'sweeps'}"]
    command += [*sweep_of("swept"), "subset=nosuch,syn_fact,neither"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: 2 of 3 jobs failed; job 0 (subset=nosuch): unknown subset 'nosuch'")
    assert "; job 2 (subset=neither): unknown subset 'neither'" in last
    assert "Traceback" not in done.stderr
    assert answered(tmp_path / "swept") == unbroken


def test_jobs_one_after_the_other_say_which_they_are(sweep_of: Callable[[str], list[str]], tmp_path: Path) -> None:
    short = [word for word in sweep_of("swept") if not word.startswith(("data.records", "method"))]
    command = [sys.executable, "run.py", "-m", f"hydra.sweep.dir={tmp_path / 'sweeps'}", *short]
    command += ["data.records=1", "method=full", "subset=syn_fact", "limit=0,1,-1,x"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("job ")] == [
        "job 0", "job 1", "job 2", "job 3",
    ]  # fmt: skip
    table = done.stdout.partition("job 1: ")[2].partition("job 2: ")[0]
    assert table.splitlines()[0].endswith("limit=1")
    assert "syn_fact" in table.partition("score ± standard error")[2]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: 3 of 4 jobs failed; job 0 (limit=0): limit is 0; give a whole number")
    assert "; job 2 (limit=-1): limit is -1" in last
    assert "; job 3 (limit=x): limit is 'x'" in last
    assert "Traceback" not in done.stderr


def test_shards_as_processes(sweep_of: Callable[[str], list[str]], unbroken: dict[str, Any], tmp_path: Path) -> None:
    for name in ("run.py", "conf", "eval", "echokv", "baselines"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    command = [str(tmp_path / "scripts" / "shards.sh"), "2", *sweep_of("swept"), "subset=syn_fact"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert answered(tmp_path / "swept") == unbroken
    wrong = subprocess.run([*command, "bugdet=1"], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "shard 1/2 ended with status 1: error: unknown setting 'bugdet'" in wrong.stderr


@pytest.fixture
def fakes(tmp_path: Path) -> dict[str, str]:
    """An environment with two GPUs whose Python writes down what it was given, and then waits if told so."""
    python = [
        'echo "$CUDA_VISIBLE_DEVICES ${@: -1}" >>given',
        'trap "exit 143" TERM',
        "[[ $* != *wait* ]] || sleep 9 & wait",
    ]
    programs = {"nvidia-smi": "printf '0\\n1\\n'", "python": "\n".join(python)}
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**kept, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": str(tmp_path / "python")}


def test_each_shard_has_a_gpu_of_its_own(fakes: dict[str, str], tmp_path: Path) -> None:
    script = str(tmp_path / "scripts" / "shards.sh")
    subprocess.run([script, "3", "limit=1"], env=fakes, check=True)
    given = (tmp_path / "given").read_text().splitlines()
    assert sorted(given) == ["0 shard=0/3", "0 shard=2/3", "1 shard=1/3"]
    subprocess.run([script, "2"], env={**fakes, "CUDA_VISIBLE_DEVICES": "5,7"}, check=True)
    assert sorted((tmp_path / "given").read_text().splitlines()[3:]) == ["5 shard=0/2", "7 shard=1/2"]


def test_a_signal_to_the_script_ends_every_shard(fakes: dict[str, str], tmp_path: Path) -> None:
    command = [str(tmp_path / "scripts" / "shards.sh"), "2", "wait=1"]
    with subprocess.Popen(command, env=fakes, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: (tmp_path / "given").exists() and len((tmp_path / "given").read_text().splitlines()) == 2)
        time.sleep(0.3)  # until the traps are set
        process.terminate()
        _, said = process.communicate(timeout=20)
    assert process.returncode == 143
    assert said.count("ended with status 143") == 2


STATES = """\
JobId=8 ArrayJobId=7 ArrayTaskId=0 JobName=a JobState=CANCELLED NodeList=n1
JobId=9 ArrayJobId=7 ArrayTaskId=1 JobName=a JobState=RUNNING NodeList=n2
JobId=7 ArrayJobId=7 ArrayTaskId=2-5%2 JobName=a JobState=PENDING NodeList=
"""


def test_stand_in_for_sacct(tmp_path: Path) -> None:
    watcher_module = pytest.importorskip("submitit.slurm.slurm")
    fake = tmp_path / "scontrol"
    fake.write_text(
        "#!/bin/sh\ncase $4 in\n"
        f"7) cat <<'END'\n{STATES}END\n;;\n"
        "3) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1;;\n"
        "*) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1;;\nesac\n"
    )
    fake.chmod(0o755)

    def ask(*jobs: str) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "sacct"), "-o", "JobID,State,NodeList", "--parsable2"]
        command += [word for job in jobs for word in ("-j", job)]
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    told = watcher_module.SlurmInfoWatcher().read_info(ask("7", "3").stdout)
    states = {name: told[name]["State"] for name in ("7_0", "7_1", "7_2", "7_5", "7_6", "3", "3_4")}
    assert states == {
        "7_0": "CANCELLED",
        "7_1": "RUNNING",
        "7_2": "PENDING",
        "7_5": "PENDING",
        "7_6": "FORGOTTEN",
        "3": "FORGOTTEN",
        "3_4": "FORGOTTEN",
    }
    assert ask("7", "99").returncode == 1, "a silent controller ends no task"


def test_stand_in_is_used_only_without_accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "sacct"
    for status_code, used in ((0, False), (1, True)):
        fake.write_text(f"#!/bin/sh\nexit {status_code}\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH'].removeprefix(f'{sweep.STAND_IN}:')}")
        sweep.Accounting().on_multirun_start(composed())
        assert os.environ["PATH"].startswith(str(sweep.STAND_IN)) == used
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert not sweep.answers()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MissingConfigException("", "hydra/launcher/submitit_slurm"), "pip install hydra-submitit-launcher"),
        (MissingConfigException("", "hydra/launcher/slrum"), "unknown hydra/launcher 'slrum'; did you mean slurm?"),
        (RuntimeError('Could not detect "srun", are you indeed on a slurm cluster?'), "hydra/launcher=local"),
    ],
)
def test_what_a_sweep_lacks(error: Exception, said: str) -> None:
    assert said in str(mistakes.explain(error))
