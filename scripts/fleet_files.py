"""Write what follows from the table of queues: the Procfile, the compose file, the pod of Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path

from memline.producers.cli.fleet import filled
from memline.shared.queue.routes import PROCESSES, QUEUES

ROOT = Path(__file__).parents[1]

#: What to type when a file is out of date; a test says it.
REGENERATE = ".venv/bin/python scripts/fleet_files.py"


#: A container of the pod that has the index; those of other processes are written by hand.
CONTAINER = """\
        - name: {role}
          image: memline
          args: [worker, {role}]
          envFrom: *environment
          env: [{{name: MEMLINE_ALIVE_FILE, value: /tmp/{role}.alive}}]
          startupProbe: *starts
          livenessProbe: *alive
          resources: *resources
          securityContext: *restricted
          volumeMounts: *mounts
"""


def files() -> dict[Path, str]:
    """Give the text of each file; the comments at the top of the Procfile stay."""
    procfile = ROOT / "Procfile"
    comments = [line for line in procfile.read_text("utf-8").splitlines() if line.startswith("#")]
    pod = ROOT / "deploy" / "kubernetes" / "overlays" / "fleet" / "processes.yaml"
    roles = [role for role, queue in QUEUES.items() if not queue.is_shared and role != "store"]
    containers = "".join(CONTAINER.format(role=role) for role in roles)
    name = "        - name: "
    others = rf"(?s){name}{roles[0]}\n.*?(?={name}watch\n)"
    return {
        pod: re.sub(others, containers, pod.read_text("utf-8")),
        procfile: "\n".join([*comments, "", filled("procfile", PROCESSES)]),
        ROOT / "deploy" / "compose.fleet.yaml": filled("compose", PROCESSES),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
