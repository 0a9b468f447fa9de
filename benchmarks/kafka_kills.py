"""Publishes to a real broker while replicas and the broker are killed, and a reader looks on (G13).

Two replicas publish a table's changes to Kafka. At random moments one of them is killed with
SIGKILL, or both, or the broker; or one is stopped for longer than its claim lasts, and comes back.
In the end the topic must have each change once, in order of time in every partition, and a
`read_committed` reader that ran all the time must have seen just that.

    make bench NAME=kafka_kills
    make bench NAME=kafka_kills ARGS="--messages 300000 --kills 150"
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from report import Point, finish, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.broker.broker import Broker, missing
from tests.broker.topics import Topics
from tests.kills.sending import SEED, Sending


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if lacking := missing():
        raise SystemExit(f"no broker: {lacking}")
    messages, kills = (5_000, 5) if options.quick else (options.messages, options.kills)
    with tempfile.TemporaryDirectory(prefix="kafka-kills-") as scratch:
        node = Broker(Path(scratch) / "broker")
        try:
            node.start()
            topics = Topics(node.address)
            sent = Sending(Path(scratch) / "sent", node, topics, seed=options.seed).run(
                messages, kills
            )
            topics.close()
        finally:
            node.stop()
    for what in sent.wrong:
        print(f"VIOLATION {what}")
    rows = [[what, f"{count:,}"] for what, count in sent.facts().items()]
    show(f"what left for Kafka, seed {options.seed}", ["what", "how many"], rows)
    broken = sent.duplicates + sent.losses + sent.reorderings
    enough = sent.messages >= messages and sent.hard == kills
    met = enough and not sent.wrong and not broken
    finish(
        [
            Point(
                "kafka_kills: duplicates + losses + reorderings, and what the reader saw otherwise",
                max(broken, len(sent.wrong)),
                0,
                max(broken, len(sent.wrong)),
                f"0 in {messages:,} messages x {kills} kills",
                met,
            )
        ]
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
