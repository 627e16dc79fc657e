#!/usr/bin/env bash
# A Slurm of one node for trying sweeps out and for the tests: scripts/slurm/one_node.sh start|stop FOLDER
# Needs root and Debian's packages slurm-wlm and munge. Listens on the loopback address only. `start` prints the
# configuration to use: export SLURM_CONF=FOLDER/slurm.conf
set -euo pipefail
[[ $# == 2 && ($1 == start || $1 == stop) ]] || { echo "usage: $0 start|stop FOLDER" >&2; exit 2; }
mkdir -p "$2"
folder=$(cd "$2" && pwd)
node=$(hostname -s)

stop() {
  export SLURM_CONF=$folder/slurm.conf
  # A step that ends without its controller stays for ever, and slurmd with it: first empty the queue.
  timeout 15 bash -c 'scancel --user="$(id -un)"; while [[ $(squeue --noheader) ]]; do sleep 0.2; done' 2>/dev/null || true
  for name in slurmd slurmctld munged; do
    [[ -f $folder/$name.pid ]] || continue
    process=$(cat "$folder/$name.pid")
    kill "$process" 2>/dev/null || continue
    timeout 5 bash -c "while kill -0 $process 2>/dev/null; do sleep 0.1; done" || kill -KILL "$process" || true
  done
}
[[ $1 == start ]] || { stop; exit 0; }

for program in munged slurmctld slurmd; do
  command -v $program >/dev/null || { echo "error: no $program: apt-get install slurm-wlm munge" >&2; exit 1; }
done
[[ $EUID == 0 ]] || { echo "error: starting Slurm's daemons needs root" >&2; exit 1; }

mkdir -p "$folder"/{ctld,d,log}
chmod 755 "$folder"
head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
# As root, since the folder may lie below one that only root can enter; --force: munged prefers another user.
munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
  --log-file="$folder/log/munged.log" --seed-file="$folder/munge.seed"

# CPUs and memory as slurmd sees them: a node that has less than its configuration says is not used.
hardware=$(slurmd -C | grep -oE '(CPUs|RealMemory)=[0-9]+' | xargs)
# A requeued task waits for the end of its credential before it starts again, hence the short cred_expire.
cat >"$folder/slurm.conf" <<CONF
ClusterName=local
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$folder/ctld
SlurmdSpoolDir=$folder/d
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=512
ReturnToService=2
SlurmctldTimeout=60
SlurmdTimeout=60
InactiveLimit=0
KillWait=2
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
NodeName=$node NodeAddr=127.0.0.1 $hardware State=UNKNOWN
PartitionName=debug Nodes=$node Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$folder/slurm.conf
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF" -N "$node"
for _ in $(seq 100); do
  [[ $(timeout 5 sinfo --noheader --format=%T 2>/dev/null) == idle ]] && { echo "$SLURM_CONF"; exit 0; }
  sleep 0.1
done
echo "error: the node is not idle after 10 s: see $folder/log" >&2
stop
exit 1
