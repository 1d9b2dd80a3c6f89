"""The verdicts of one judge, a line for each as soon as it is there: none is asked for twice."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path

from inferscale_core.errors import InvalidInput
from services.evaluation.judge.wording import Triple, Verdict
from services.evaluation.scores import JudgedBy

FOLDER = "verdicts"


class VerdictFile:
    """Digests and verdicts, no text. One process writes it at a time."""

    def __init__(self, folder: Path, judge: JudgedBy) -> None:
        """folder: of scores. Raises InvalidInput for a file that is none of ours."""
        self._path = folder / FOLDER / _name(judge)
        self._judge = judge
        self._verdicts = self._read()

    def get(self, triple: Triple) -> Verdict | None:
        return self._verdicts.get(triple.digest)

    def add(self, triple: Triple, verdict: Verdict) -> None:
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(asdict(self._judge)) + "\n")
        with self._path.open("a") as file:
            file.write(json.dumps([triple.digest, verdict]) + "\n")
        self._verdicts[triple.digest] = verdict

    def _read(self) -> dict[str, Verdict]:
        if not self._path.exists():
            return {}
        text = self._path.read_text()
        whole, _, cut_off = text.rpartition("\n")
        if cut_off:
            # Of a process that was killed while it wrote: what follows would join this line.
            self._path.write_text(whole + "\n" if whole else "")
        try:
            pairs = [json.loads(line) for line in whole.splitlines()[1:]]
            return {digest: Verdict(verdict) for digest, verdict in pairs}
        except (ValueError, TypeError) as exc:
            raise InvalidInput("out", f"{self._path} holds no verdicts") from exc


def _name(judge: JudgedBy) -> str:
    readable = re.sub(r"[^a-zA-Z0-9.]+", "-", judge.model).strip("-.")[:60]
    digest = hashlib.sha256(f"{judge.model}\0{judge.asked}".encode()).hexdigest()[:8]
    return f"{readable}-{digest}.jsonl"
