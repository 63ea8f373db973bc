"""Keep memsearch's own class in a process of its own Python, and answer a question a line: it has no server.

PROGRAMS/memsearch/bin/python benchmarks/memsearch_server.py '{"url": …, "model": …, "store": …, "top": 10}'
"""

import asyncio
import json
import sys


def main() -> None:
    """Answer each question of standard input with the paths of the hits."""
    from memsearch import MemSearch  # type: ignore[import-not-found]

    given = json.loads(sys.argv[1])
    opened = MemSearch(
        paths=[],
        embedding_provider="openai",
        embedding_model=given["model"],
        embedding_base_url=given["url"],
        embedding_api_key="sk-none",
        milvus_uri=given["store"],
    )
    loop = asyncio.new_event_loop()
    for line in sys.stdin:
        hits = loop.run_until_complete(opened.search(json.loads(line)["question"], top_k=given["top"]))
        print(json.dumps({"paths": [hit["source"] for hit in hits]}), flush=True)


if __name__ == "__main__":
    main()
